"""Folders in which the commands of the pages find the files that they name: small, simulated, and models untrained."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from data_sets import make_photographs
from sfumato.data.images.io import write_image
from sfumato.data.normalize import Normalization
from sfumato.models.build import build_model
from sfumato.models.model_file import ModelInfo, save_model
from sfumato.models.recipe import parse
from sfumato.problems.microscopy_simulation import simulate

__all__ = ["PAGES", "Prepare"]

Prepare = Callable[[Path], None]
ROOT = Path(__file__).parents[1]


def empty(folder: Path) -> None:
    """For pages that bring all they need."""


def model(path: Path, settings: str = "base: 4, rate_base: 4, num_scales: 2", *, start: str = "") -> None:
    recipe = parse(f"{start}\nmodel: {{{settings}}}\nsample: {{steps: 2, samples: 2}}")
    same = Normalization((0.0,), (1.0,))
    info = ModelInfo(recipe, 1, 1, same, same, {}, {}, factor=(1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    save_model(path, build_model(recipe.model, 1, 1).state_dict(), info)


def images(folder: Path, *names: str, seed: int = 0) -> None:
    """Noise of 40 x 40 pixels, of a seed and the ones that follow it."""
    for number, name in enumerate(names, start=seed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_image(folder / name, np.random.default_rng(number).random((40, 40), dtype=np.float32), axes="YX")


def pairs(folder: Path) -> None:
    images(folder, *(f"{side}/{number}.tif" for side in ("low", "high") for number in range(4)))


def trained(folder: Path) -> None:
    """A run, what it was measured on, and what a reader restores."""
    model(folder / "run" / "model.safetensors")
    images(folder, "measured.tif", "measured/cell.tif", "brain.zarr")


def trained_by_preset(folder: Path) -> None:
    """The same with a model that knows mean and scale."""
    trained(folder)
    model(folder / "run" / "model.safetensors", "base: 4, num_scales: 2", start="preset: small")


def held_out(folder: Path) -> None:
    images(
        folder, *(f"held_out/{side}/{number}.tif" for side in ("inputs", "targets") for number in range(9)), seed=100
    )


def trusted(folder: Path) -> None:
    trained(folder)
    held_out(folder)


def started(folder: Path) -> None:
    pairs(folder)
    held_out(folder)
    images(folder, "measured/cell.tif")


def tested(folder: Path) -> None:
    trained(folder)
    model(folder / "runs" / "w2s" / "channel" / "model.safetensors")
    names = ("cell.tif", "other.tif")
    images(folder, *(f"test/{side}/{name}" for side in ("low", "high", "noisy", "clean") for name in names))


def compared(folder: Path) -> None:
    tested(folder)
    model(folder / "dfcan" / "model.safetensors", "method: regression, base: 4, num_scales: 2")


def recipes(folder: Path) -> None:
    (folder / "recipes").symlink_to(ROOT / "recipes")


def photographs(folder: Path) -> None:
    recipes(folder)
    make_photographs(folder / "imagenet", ["train/a/1.png", "train/a/2.png", "val/a/1.png"])


def biosr(folder: Path) -> None:
    recipes(folder)
    cells = {"train": 1, "validation": 1, "test": 1}
    simulate(folder / "BioSR", seed=0, cells=cells, side=40, layout="biosr", names=["microtubules"])


PAGES: dict[str, Prepare] = {
    "README.md, Train": pairs,
    "README.md, Restore": trained_by_preset,
    "README.md, Know": trusted,
    "docs/api/index.md": trained,
    "docs/audit.md": empty,
    "docs/calibration.md": empty,
    "docs/calibration_vs_steps.md": tested,
    "docs/compare_models.md": compared,
    "docs/index.md": started,
    "docs/one_pass_uncertainty.md": trained,
    "docs/problems/microscopy.md": biosr,
    "docs/problems/natural.md": photographs,
    "docs/problems/phase.md": photographs,
    "docs/restore_a_folder.md": empty,
    "docs/restore_a_terabyte.md": empty,
    "docs/train_on_a_cluster.md": empty,
    "docs/train_on_your_own_images.md": empty,
    "docs/trust.md": empty,
    "docs/your_own_network.md": empty,
}
"""Pages that the tests follow in a folder that was so prepared; of the README, by sections."""
