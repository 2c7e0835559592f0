"""What the start of a training takes, phase by phase, on 3,000 pairs of small TIFF files.

    python benchmarks/start_up.py --check

A training is started three times in processes of their own, first in a new run folder and then in the same one, as
after a kill, at last with images that have new times, as copies have; each is stopped when its first step would begin.
A phase that is part of another one is indented below it. Bytecode of what is imported is written first, as any earlier
command of a user did.
"""

import argparse
import functools
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bars import Bars

RECORD = "record or compare the files"
PHASES = {
    "open the images and take statistics": "sfumato.training.train.prepare",
    "  open the images": "sfumato.training.preparation.open_sources",
    "  normalisation": "sfumato.training.preparation._statistics",
    "  central patches and their fingerprint": "sfumato.training.preparation.fingerprint",
    "  domain": "sfumato.training.preparation._domain",
    "  hashes of pixels": "sfumato.training.preparation.look_at",
    RECORD: "sfumato.training.train.check_inputs",
    "scale of what is diffused": "sfumato.training.train.measure_scale",
    "networks and optimizer": "sfumato.training.loop.Trainer.__init__",
}
"""What is printed, and the function whose time it is; one that is gone is left out."""
SETTINGS = ("model.base=8", "model.rate_base=4", "model.num_scales=3", "data.patch=32", "train.batch_size=8")
WARM_UP = "import sfumato.training.train, torch; torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])"


class _StartedError(Exception):
    """Raised in place of the first step."""


def write_pairs(folder: Path, number: int, side: int) -> None:
    import tifffile

    generator = np.random.default_rng(0)
    for role, offset in (("low", 100), ("high", 1000)):
        (folder / role).mkdir()
        for name in range(number):
            pixels = generator.poisson(offset, (side, side)).astype(np.uint16)
            tifffile.imwrite(folder / role / f"{name:05d}.tif", pixels)


def timed(function: Callable[..., Any], seconds: dict[str, float], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*given: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - started

    return wrapper


def start(folder: Path) -> dict[str, float]:
    """Start a training, stop it at its first step, and say what took how long; of this process, called once."""
    began = time.perf_counter()
    from sfumato.cli.settings import recipe_of
    from sfumato.training.loop import Trainer
    from sfumato.training.train import train

    seconds = {"imports": time.perf_counter() - began}
    for phase, function in PHASES.items():
        module, _, name = function.rpartition(".")
        owner: Any = Trainer if module.endswith(".Trainer") else importlib.import_module(module)
        if hasattr(owner, name):
            setattr(owner, name, timed(getattr(owner, name), seconds, phase))

    def stop(self: Any, batch: Any) -> None:
        raise _StartedError

    Trainer.advance = stop  # type: ignore[assignment,method-assign]
    places = [f"data.inputs={folder / 'low'}", f"data.targets={folder / 'high'}"]
    try:
        train(recipe_of(None, [*places, *SETTINGS]), folder / "run", quiet=True)
    except _StartedError:
        seconds["in all"] = time.perf_counter() - began
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    parser.add_argument("--pairs", type=int, default=3000, help="how many pairs of files")
    parser.add_argument("--side", type=int, default=128, help="side of the images in pixels")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(start(arguments.child)))
        return
    bars = Bars()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-c", WARM_UP], check=True)
    with tempfile.TemporaryDirectory() as place:
        write_pairs(Path(place), arguments.pairs, arguments.side)
        for kind in ("new run", "resumed run", "resumed on copies"):
            if kind == "resumed on copies":  # which have other times
                for file in Path(place).glob("*/*.tif"):
                    os.utime(file, ns=(1, 1))
            command = [sys.executable, __file__, "--child", place]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
            for phase in ("imports", *PHASES):
                if phase in found:
                    bars.report(f"{kind}: {phase}, s", found[phase], high=1 if phase == RECORD else math.inf)
            bars.report(f"{kind}: to the first step, s", found["in all"], high=20)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
