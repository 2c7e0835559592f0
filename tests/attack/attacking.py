"""What attacks have in common: commands as a user types them, small images, a model that has learned nothing.

Attacks go through the command line or the public names of the package, so that they can be run against an earlier
commit (`python benchmarks/attack_before.py COMMIT`): a case that passes there is a guard, and marked so.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typer.testing import CliRunner

from networks import seeded
from sfumato.cli import app
from sfumato.data.images.io import open_image, write_image
from sfumato.data.normalize import Normalization
from sfumato.models.build import build_model
from sfumato.models.model_file import ModelInfo, save_model
from sfumato.models.recipe import parse

__all__ = ["FEW", "Ran", "image", "pixels", "refuses", "run", "write_model"]

FEW = ("--samples", "2", "--steps", "2")
"""Options that restore in a moment."""


class Ran(NamedTuple):
    """What became of a command."""

    code: int
    text: str
    """All that it printed, with line breaks as spaces."""


def run(*words: object) -> Ran:
    """Run `sfumato` with these words, in this process: 0 is success, 2 a refusal that says why."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception  # a traceback is what a user would have seen
    return Ran(result.exit_code, " ".join(result.output.split()))


def refuses(ran: Ran, *words: str) -> None:
    """The command was refused, and its message has these words."""
    assert ran.code == 2, f"exit code {ran.code}: {ran.text}"
    for word in words:
        assert word in ran.text, f"{word!r} is not in: {ran.text}"


def image(path: Path, seed: int = 0, shape: tuple[int, ...] = (32, 32), dtype: Any = np.float32) -> Path:
    """Write an image of noise, that of a seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = 10 + 3 * np.random.default_rng(seed).standard_normal(shape)
    write_image(path, noise.astype(dtype), axes="TZYX"[-len(shape) :], overwrite=True)
    return path


def pixels(path: Path | str) -> NDArray[Any]:
    """Of an image file."""
    return np.asarray(open_image(path).read({}))


def write_model(path: Path, *, seed: int = 0, recipe: str = "") -> Path:
    """A small model of one channel with the weights of a seed; further lines of its recipe can be given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    read = parse(f"model: {{base: 4, rate_base: 2, num_scales: 2}}\n{recipe}", source="test")
    weights = seeded(lambda: build_model(read.model, 1, 1), seed).state_dict()
    scaling = Normalization(offset=(10.0,), scale=(3.0,))
    save_model(path, weights, ModelInfo(read, 1, 1, scaling, scaling, {}, {}))
    return path
