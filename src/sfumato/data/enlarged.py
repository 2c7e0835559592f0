"""Images on a finer grid: how a condition with larger pixels than its target is brought to the target's.

Training, evaluation and restoration all enlarge by the functions here, so that a network is given the same pixels by
each of them. A region of an enlarged image is made from that region of the small one and a margin around it, and equals
the region of the enlarged whole.
"""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sfumato.data.images.image import DEFAULT_MEMORY_BUDGET
from sfumato.data.images.pixels import floats
from sfumato.system.errors import ImageError

__all__ = ["EnlargedFrames", "Frames", "enlarge", "enlarge_tensor", "enlarged_region", "is_factor"]

Array = NDArray[np.generic]
_MARGIN = 4
"""Pixels read around a region before interpolation; bicubic needs two."""
_MOST_FACTOR, _MOST_PIXELS = 64, 64**2
"""Along an axis, and of one pixel in all: nobody enlarges by more, and a damaged file must not ask for all memory."""


def is_factor(factor: Sequence[int], ndim: int) -> bool:
    """Whether images of that many axes can be enlarged by it.

    Example:
        >>> is_factor((2, 2), 2), is_factor((64, 64, 64), 3)
        (True, False)
    """
    whole = all(type(f) is int and 1 <= f <= _MOST_FACTOR for f in factor)
    return len(factor) == ndim and whole and math.prod(factor) <= _MOST_PIXELS


class Frames(Protocol):
    """Numbered frames of (channels, *spatial), read by region."""

    @property
    def spatial(self) -> tuple[int, ...]:
        """Size of a frame in pixels."""
        ...

    @property
    def channels(self) -> int:
        """Number of channels."""
        ...

    def read(self, frame: int, corner: Sequence[int], size: Sequence[int]) -> Array:
        """A region of one frame, shape (channels, *size)."""
        ...


def enlarge_tensor(images: Tensor, factor: Sequence[int]) -> Tensor:
    """Images (N, K, *spatial) on a grid finer by a whole factor along each axis: bicubic, or trilinear in volumes.

    Pixels keep the place of their centres. Places are computed in float64: in float32 those of a factor 3 would be
    wrong by a ten-thousandth of a pixel far from the corner, and a region would differ from the whole.

    Raises:
        ImageError: If the result takes more than the memory budget.
    """
    if all(f == 1 for f in factor):
        return images
    needed = images.numel() * math.prod(factor) * 8
    if needed > DEFAULT_MEMORY_BUDGET:
        raise ImageError(
            f"enlarging {tuple(images.shape[2:])} pixels by {tuple(factor)} takes {needed:,} bytes; expected at most "
            f"the memory budget of {DEFAULT_MEMORY_BUDGET:,}; restore a smaller region, or with `sfumato restore` and "
            "a smaller --chunk"
        )
    mode = "bicubic" if images.ndim == 4 else "trilinear"
    scale = [float(f) for f in factor]
    return F.interpolate(images.double(), scale_factor=scale, mode=mode, align_corners=False).to(images.dtype)


def enlarge(image: Array, factor: Sequence[int]) -> Array:
    """An image (K, *spatial) on a grid finer by ``factor``, as float32, or as float64 if it needs to be.

    By a factor of 1 it stays as it is.

    Example:
        >>> enlarge(np.ones((1, 3, 4)), (2, 2)).shape
        (1, 6, 8)
    """
    if all(f == 1 for f in factor):
        return image
    return enlarge_tensor(torch.from_numpy(floats(np.ascontiguousarray(image)))[None], factor)[0].numpy()


def enlarged_region(
    read: Callable[[list[int], list[int]], Array],
    spatial: Sequence[int],
    factor: Sequence[int],
    corner: Sequence[int],
    size: Sequence[int],
) -> Array:
    """A region of an enlarged image, of which no more than that region and a margin is read.

    Args:
        read: Gives a region (K, *size) of the small image by its corner and size.
        spatial: Size of the small image.
        factor: How many pixels of the fine grid stand on one pixel of the small image, per axis.
        corner: First pixel of the region, on the fine grid.
        size: Of the region, on the fine grid.
    """
    if all(f == 1 for f in factor):
        return read(list(corner), list(size))
    first = [max(c // f - _MARGIN, 0) for c, f in zip(corner, factor, strict=True)]
    last = [min(-(-(c + s) // f) + _MARGIN, full) for c, s, f, full in zip(corner, size, factor, spatial, strict=True)]
    large = enlarge(read(first, [b - a for a, b in zip(first, last, strict=True)]), factor)
    inside = [c - a * f for c, a, f in zip(corner, first, factor, strict=True)]
    return large[(slice(None), *(slice(c, c + s) for c, s in zip(inside, size, strict=True)))]


class EnlargedFrames:
    """Frames seen on a finer grid, read by region as if they had been stored so.

    Args:
        frames: The small ones, such as a :class:`~sfumato.data.sources.FrameReader`.
        factor: How many pixels of the fine grid stand on one of theirs, per spatial axis; 1 changes nothing.
    """

    def __init__(self, frames: Frames, factor: Sequence[int]) -> None:
        if len(factor) != len(frames.spatial) or min(factor) < 1:
            raise ValueError(f"factor is {tuple(factor)}; give a whole number from 1 for each axis of {frames.spatial}")
        self.frames, self.factor = frames, tuple(factor)
        self.spatial = tuple(n * f for n, f in zip(frames.spatial, factor, strict=True))
        self.channels = frames.channels

    def read(self, frame: int, corner: Sequence[int], size: Sequence[int]) -> Array:
        """A region of one enlarged frame, shape (channels, *size)."""
        return enlarged_region(
            lambda first, part: self.frames.read(frame, first, part), self.frames.spatial, self.factor, corner, size
        )
