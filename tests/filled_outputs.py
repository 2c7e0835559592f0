"""Output images, created and filled block by block."""

import itertools
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.data.images.image import PixelSize
from sfumato.data.images.output import OutputImage

__all__ = ["SIZES", "VERSIONS", "Version", "blocks", "create", "fill", "noise"]

Array = NDArray[Any]
Version = Literal["0.4", "0.5"]

SIZES = {
    "T": PixelSize(2, "minute"),
    "Z": PixelSize(1, "micrometer"),
    "Y": PixelSize(250, "nanometer"),
    "X": PixelSize(0.00025, "millimeter"),
}
VERSIONS: list[tuple[Version, bool]] = [("0.4", False), ("0.5", False), ("0.5", True)]


def create(place: Path | str, axes: str, shape: tuple[int, ...], **options: Any) -> OutputImage:
    chunks = [{"Z": 4, "Y": 16, "X": 16}.get(axis, 1) for axis in axes]
    shards = [{"Z": 4, "Y": 32, "X": 32}.get(axis, 1) for axis in axes] if options.pop("sharded", False) else None
    sizes = {axis: size for axis, size in SIZES.items() if axis in axes}
    settings: dict[str, Any] = {
        "dtype": "float32",
        "pixel_size": sizes,
        "num_levels": 3,
        "metadata": {"model": "m"},
    } | options
    return OutputImage.create(place, shape=shape, axes=axes, chunks=chunks, shards=shards, **settings)


def blocks(output: OutputImage, level: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Corner and size of each block of a level."""
    facts = output.levels[level]
    corners = itertools.product(*(range(0, n, b) for n, b in zip(facts.shape, facts.block, strict=True)))
    return [
        (corner, tuple(min(b, n - c) for c, b, n in zip(corner, facts.block, facts.shape, strict=True)))
        for corner in corners
    ]


def fill(output: OutputImage, array: Array) -> None:
    """Write all levels, block by block."""
    for level in range(len(output.levels)):
        for corner, size in blocks(output, level):
            spans = tuple(slice(c, c + s) for c, s in zip(corner, size, strict=True))
            pixels = array[spans] if level == 0 else output.halve(level, corner, size)
            assert output.write(level, corner, pixels) == output.checksum(level, corner, size)


def noise(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return (np.random.default_rng(0).random(shape) * 255).astype(dtype)
