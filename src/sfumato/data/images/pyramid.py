"""Plan and compute image pyramids: coarser and coarser grids whose pixels are means over the grid below.

Each level halves Y and X. It also halves Z if that brings voxels closer to cubes, that is, if a voxel would otherwise
be thinner along Z than along its other sides by more than the square root of 2; without pixel sizes, voxels count as
cubes. Odd lengths are rounded up, and the last pixel is then the mean of the pixels that exist. Axes of length 1 stay.

On a level that joins f pixels of the finest level, the centre of pixel 0 lies between the finest pixels 0 and f - 1,
which is

.. math:: (f - 1) / 2

finest pixels away from the centre of the first of them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sfumato.data.images.image import Array, PixelSize
from sfumato.system.errors import ImageError

__all__ = ["Level", "halve_pixels", "plan_levels"]


class Level(NamedTuple):
    """One grid of a pyramid: its shape, and the number of finest pixels per pixel along each axis."""

    shape: tuple[int, ...]
    factors: tuple[int, ...]


def plan_levels(
    shape: Sequence[int], axes: str, pixel_size: Mapping[str, PixelSize] | None = None, *, num_levels: int
) -> list[Level]:
    """Plan the grids of a pyramid, finest first.

    Raises:
        ImageError: If the image cannot be halved that often.

    Example:
        >>> [level.shape for level in plan_levels((3, 100, 75), "CYX", num_levels=3)]
        [(3, 100, 75), (3, 50, 38), (3, 25, 19)]
    """
    levels = [Level(tuple(shape), (1,) * len(shape))]
    while len(levels) < num_levels:
        steps = _steps(levels[-1], axes, pixel_size or {})
        if set(steps) == {1}:
            break
        halved = tuple(-(-length // step) for length, step in zip(levels[-1].shape, steps, strict=True))
        levels.append(Level(halved, tuple(f * step for f, step in zip(levels[-1].factors, steps, strict=True))))
    if num_levels != len(levels):
        raise ImageError(
            f"{num_levels} levels were asked for an image of shape {tuple(shape)} ({axes}); expected 1 to "
            f"{len(levels)}; ask for fewer"
        )
    return levels


def _steps(level: Level, axes: str, pixel_size: Mapping[str, PixelSize]) -> list[int]:
    """Number of pixels joined along each axis to make the next level."""
    factors = dict(zip(axes, level.factors, strict=True))
    halved = {"Y", "X"} | ({"Z"} if "Z" in axes and _is_thin(factors, pixel_size) else set())
    return [2 if axis in halved and length > 1 else 1 for axis, length in zip(axes, level.shape, strict=True)]


def _is_thin(factors: Mapping[str, int], pixel_size: Mapping[str, PixelSize]) -> bool:
    """Whether halving Z with Y and X brings voxels closer to cubes than leaving it alone."""
    known = {"Z", "Y", "X"} <= set(pixel_size)
    sides = {a: (pixel_size[a].to("micrometer") if known else 1.0) * factors[a] for a in "ZYX"}
    return sides["Z"] < math.sqrt(2 * sides["Y"] * sides["X"])


def halve_pixels(pixels: Array, steps: Sequence[int]) -> Array:
    """Average neighbouring pixels, in the type of the pixels.

    Args:
        pixels: Pixels that start at an even position along the axes to be halved.
        steps: 1 or 2 for each axis.

    Returns:
        The means. Integers are rounded, halves to even. Means that include a NaN are NaN.
    """
    wide = np.complex128 if pixels.dtype.kind == "c" else np.float64
    means = pixels.astype(wide)
    for axis, step in enumerate(steps):
        if step == 2:
            first, second = (means.take(range(start, means.shape[axis], 2), axis) for start in (0, 1))
            # A pixel covers one or two pixels along each axis, so the mean of means is the mean of all of them.
            pairs = tuple(slice(length) for length in second.shape)
            first[pairs] = (first[pairs] + second) / 2
            means = first
    if pixels.dtype.kind in "biu":
        means = np.rint(means)
    return means.astype(pixels.dtype)
