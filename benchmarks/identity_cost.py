"""What it costs to know which file an input was.

    python benchmarks/identity_cost.py --check   # a folder of 1,000 small images, restored

Every call that hashes an input, looks at it again or compares it with what was written down is timed while the work is
done as always; its share is of the time of all. Two runs, with and without, would differ by more than that.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bars import Bars
from random_models import write_random_model
from sfumato.data.images.io import write_image
from sfumato.data.normalize import Normalization
from sfumato.restoration import planning, run
from sfumato.restoration.folder import restore_folder
from sfumato.restoration.planning import Settings
from sfumato.restoration.watch import Watch

SIDE = 64
PHOTONS = Normalization(offset=(0.0,), scale=(100.0,))


class Stopwatch:
    """Adds up the time of calls; one within another counts once."""

    def __init__(self) -> None:
        self.seconds, self.calls, self._depth = 0.0, 0, 0

    @contextmanager
    def on(self, owner: Any, name: str) -> Iterator[None]:
        """Time every call of a function or method."""
        plain = getattr(owner, name)
        setattr(owner, name, self._timed(plain))
        try:
            yield
        finally:
            setattr(owner, name, plain)

    def _timed(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            self._depth += 1
            try:
                return plain(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.seconds += time.perf_counter() - started
                    self.calls += 1

        return timed


def restoration(folder: Path, images: int, bars: Bars) -> None:
    """A network of fewer than 5,000 weights, 2 samples, 4 steps: the worst case, since sampling takes so little."""
    model = write_random_model(folder / "model.safetensors", base=2, num_scales=1, std=0.1, data=PHOTONS)
    (folder / "in").mkdir()
    rng = np.random.default_rng(0)
    for number in range(images):
        pixels = rng.poisson(100, (SIDE, SIDE)).astype(np.uint16)
        write_image(folder / "in" / f"{number:06}.tif", pixels, axes="YX")
    torch.set_num_threads(1)
    watch = Stopwatch()
    timed = [(planning, "identify"), (Watch, "check"), (Watch, "check_content"), (run, "check_job")]
    with ExitStack() as stack:
        for owner, name in timed:
            stack.enter_context(watch.on(owner, name))
        started = time.perf_counter()
        restore_folder(model, folder / "in", folder / "out", Settings(num_samples=2, num_steps=4, threads=1))
        seconds = time.perf_counter() - started
    bars.report("images restored", images)
    bars.report("milliseconds of an image", 1000 * seconds / images)
    bars.report("calls that look at an input, of an image", watch.calls / images, low=3)
    bars.report("their milliseconds, of an image", 1000 * watch.seconds / images)
    bars.report("share of the restoration, percent", 100 * watch.seconds / seconds, high=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    arguments = parser.parse_args()
    bars, folder = Bars(), Path(tempfile.mkdtemp())
    try:
        restoration(folder, arguments.images, bars)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
