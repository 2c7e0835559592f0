"""Small folders of image pairs for tests, made from a seed."""

from pathlib import Path

import numpy as np

from sfumato.data.images.io import write_image

__all__ = ["TINY", "make_pairs"]

TINY = [
    "model.base=4",
    "model.rate_base=4",
    "model.num_scales=2",
    "data.patch=16",
    "train.batch_size=4",
    "train.warmup=2",
    "train.log_every=1",
    "sample.steps=2",
    "sample.samples=2",
]
"""Settings that train in a moment."""


def make_pairs(
    folder: Path, *, number: int = 6, shape: tuple[int, ...] = (24, 32), suffix: str = ".tif"
) -> tuple[str, str]:
    """Write ``low`` and ``high`` images below a folder and return the two paths."""
    generator = np.random.default_rng(0)
    for index in range(number):
        high = generator.random(shape, dtype=np.float32)
        for axis in range(len(shape)):
            high = ((high + np.roll(high, 1, axis)) / 2).astype(np.float32)
        low = high + 0.1 * generator.standard_normal(shape).astype(np.float32)
        for name, image in (("low", low), ("high", high)):
            (folder / name).mkdir(parents=True, exist_ok=True)
            write_image(folder / name / f"image{index}{suffix}", image, axes="ZYX"[-len(shape) :])
    return str(folder / "low"), str(folder / "high")
