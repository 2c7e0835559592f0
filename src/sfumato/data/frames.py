"""Change frames while they are read: upsample them, add computed channels, keep decoded ones in memory.

Training, evaluation and restoration all read with the functions here, so a network is given the same pixels in each of
them. A region of an upsampled image is computed from that region of the small image and a margin around it, and equals
the same region of the whole upsampled image.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sfumato.data.images.image import DEFAULT_MEMORY_BUDGET
from sfumato.data.images.pixels import floats
from sfumato.system.errors import ImageError

__all__ = [
    "CompletedFrames",
    "Completion",
    "FrameCache",
    "Frames",
    "UpsampledFrames",
    "is_factor",
    "region",
    "upsample",
    "upsample_tensor",
    "upsampled_region",
]

Array = NDArray[np.generic]
_MARGIN = 4
"""Pixels read around a region before interpolation; bicubic needs two."""
_MOST_FACTOR, _MOST_PIXELS = 64, 64**2
"""Largest factor along an axis and over all axes: a damaged file must not be able to exhaust the memory."""


class Frames(Protocol):
    """Numbered frames of (channels, *spatial), read by region."""

    @property
    def spatial(self) -> tuple[int, ...]:
        """Size of a frame in pixels."""

    @property
    def channels(self) -> int:
        """Number of channels."""

    def read(self, frame: int, corner: Sequence[int], size: Sequence[int]) -> Array:
        """Read a region of one frame, shape (channels, *size)."""


def region(image: Array, corner: Sequence[int], size: Sequence[int]) -> Array:
    """Return a region (channels, *size) of an image in memory."""
    return image[(slice(None), *(slice(c, c + s) for c, s in zip(corner, size, strict=True)))]


def is_factor(factor: Sequence[int], ndim: int) -> bool:
    """Whether images with ``ndim`` axes can be upsampled by this factor.

    Example:
        >>> is_factor((2, 2), 2), is_factor((64, 64, 64), 3)
        (True, False)
    """
    whole = all(type(f) is int and 1 <= f <= _MOST_FACTOR for f in factor)
    return len(factor) == ndim and whole and math.prod(factor) <= _MOST_PIXELS


def upsample_tensor(images: Tensor, factor: Sequence[int]) -> Tensor:
    """Upsample images (N, K, *spatial) by a whole factor along each axis: bicubic, or trilinear for volumes.

    The centres of pixels keep their positions. Positions are computed in float64: with float32 and a factor of 3 they
    would be off by a ten-thousandth of a pixel far from the corner, and a region would differ from the whole image.

    Raises:
        ImageError: If the result takes more than the memory budget.
    """
    if all(f == 1 for f in factor):
        return images
    needed = images.numel() * math.prod(factor) * 8
    if needed > DEFAULT_MEMORY_BUDGET:
        raise ImageError(
            f"upsampling {tuple(images.shape[2:])} pixels by {tuple(factor)} takes {needed:,} bytes; expected at most "
            f"the memory budget of {DEFAULT_MEMORY_BUDGET:,}; restore a smaller region, or with `sfumato restore` and "
            "a smaller --chunk"
        )
    mode = "bicubic" if images.ndim == 4 else "trilinear"
    scale = [float(f) for f in factor]
    return F.interpolate(images.double(), scale_factor=scale, mode=mode, align_corners=False).to(images.dtype)


def upsample(image: Array, factor: Sequence[int]) -> Array:
    """Upsample an image (K, *spatial) by ``factor``, to float32, or to float64 where float32 is not enough.

    With a factor of 1 the image is returned unchanged.

    Example:
        >>> upsample(np.ones((1, 3, 4)), (2, 2)).shape
        (1, 6, 8)
    """
    if all(f == 1 for f in factor):
        return image
    return upsample_tensor(torch.from_numpy(floats(np.ascontiguousarray(image)))[None], factor)[0].numpy()


def upsampled_region(
    read: Callable[[list[int], list[int]], Array],
    spatial: Sequence[int],
    factor: Sequence[int],
    corner: Sequence[int],
    size: Sequence[int],
) -> Array:
    """Compute a region of an upsampled image, reading only that region and a margin around it.

    Args:
        read: Returns a region (K, *size) of the small image, given its corner and size.
        spatial: Size of the small image.
        factor: Number of fine pixels per pixel of the small image, per axis.
        corner: First pixel of the region, on the fine grid.
        size: Size of the region, on the fine grid.
    """
    if all(f == 1 for f in factor):
        return read(list(corner), list(size))
    first = [max(c // f - _MARGIN, 0) for c, f in zip(corner, factor, strict=True)]
    last = [min(-(-(c + s) // f) + _MARGIN, full) for c, s, f, full in zip(corner, size, factor, spatial, strict=True)]
    large = upsample(read(first, [b - a for a, b in zip(first, last, strict=True)]), factor)
    inside = [c - a * f for c, a, f in zip(corner, first, factor, strict=True)]
    return region(large, inside, size)


class UpsampledFrames:
    """Frames upsampled to a finer grid, read by region as if they were stored that way.

    Args:
        frames: The small frames, such as a :class:`~sfumato.data.sources.FrameReader`.
        factor: Number of fine pixels per pixel of the frames, per spatial axis; 1 changes nothing.
    """

    def __init__(self, frames: Frames, factor: Sequence[int]) -> None:
        if len(factor) != len(frames.spatial) or min(factor) < 1:
            raise ValueError(f"factor is {tuple(factor)}; give a whole number from 1 for each axis of {frames.spatial}")
        self.frames, self.factor = frames, tuple(factor)
        self.spatial = tuple(n * f for n, f in zip(frames.spatial, factor, strict=True))
        self.channels = frames.channels

    def read(self, frame: int, corner: Sequence[int], size: Sequence[int]) -> Array:
        """Read a region of one upsampled frame, shape (channels, *size)."""
        return upsampled_region(
            lambda first, part: self.frames.read(frame, first, part), self.frames.spatial, self.factor, corner, size
        )


class Completion(NamedTuple):
    """How to compute all channels of a condition from the measured ones."""

    measured: int
    """Number of measured channels, K."""
    total: int
    """Number of all channels, K + N."""
    complete: Callable[[Array], Array]
    """Maps the measured channels of a whole image to all channels (K + N, *spatial), the measured ones first."""


class CompletedFrames:
    """Frames with all the channels that a model expects, read by region as if they were stored that way.

    The computed channels of the last frame stay in memory, whatever their size, because its regions are read one after
    another.

    Args:
        frames: The measured frames, such as a :class:`~sfumato.data.sources.FrameReader`.
        completion: Computes the other channels.
    """

    def __init__(self, frames: Frames, completion: Completion) -> None:
        self.frames, self.completion = frames, completion
        self.spatial, self.channels = frames.spatial, completion.total
        self._computed: dict[int, Array] = {}

    def read(self, frame: int, corner: Sequence[int], size: Sequence[int]) -> Array:
        """Read a region of one frame, shape (channels, *size)."""
        measured = self.frames.read(frame, corner, size)
        if frame not in self._computed:
            whole = self.frames.read(frame, [0] * len(self.spatial), self.spatial)
            self._computed = {frame: np.ascontiguousarray(self.completion.complete(whole)[len(whole) :])}
        computed = self._computed[frame]
        return np.concatenate([measured.astype(computed.dtype), region(computed, corner, size)])


class FrameCache:
    """A thread-safe cache of the most recently used frames, limited in bytes.

    Args:
        limit: Largest total size of the frames, in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._frames: OrderedDict[Hashable, Array] = OrderedDict()
        self._lock = threading.Lock()

    def fits(self, size: int) -> bool:
        """Whether a frame of this many bytes is small enough to be kept beside others."""
        return size <= self._limit // 4

    def held(self, key: Hashable) -> Array | None:
        """Return the frame with this key, or None if it is not cached."""
        with self._lock:
            if key in self._frames:
                self._frames.move_to_end(key)
            return self._frames.get(key)

    def get(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """Return the frame with this key, making it first if it is not cached."""
        held = self.held(key)
        if held is not None:
            return held
        frame = make()
        with self._lock:
            if key not in self._frames:
                self._frames[key] = frame
                self._used += frame.nbytes
            while self._used > self._limit:
                self._used -= self._frames.popitem(last=False)[1].nbytes
        return frame
