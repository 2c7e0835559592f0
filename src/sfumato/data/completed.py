"""Add computed channels to measured frames, one whole frame at a time."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.data.enlarged import Frames

__all__ = ["CompletedFrames", "Completion"]


class Completion(NamedTuple):
    """How to compute all channels of a condition from the measured ones."""

    measured: int
    """Number of measured channels, K."""
    total: int
    """Number of all channels, K + N."""
    complete: Callable[[NDArray[np.generic]], NDArray[np.generic]]
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
        self._computed: dict[int, NDArray[np.generic]] = {}

    def read(self, frame: int, corner: Sequence[int], size: Sequence[int]) -> NDArray[np.generic]:
        """Read a region of one frame, shape (channels, *size)."""
        measured = self.frames.read(frame, corner, size)
        if frame not in self._computed:
            whole = self.frames.read(frame, [0] * len(self.spatial), self.spatial)
            self._computed = {frame: np.ascontiguousarray(self.completion.complete(whole)[len(whole) :])}
        computed = self._computed[frame]
        region = tuple(slice(first, first + length) for first, length in zip(corner, size, strict=True))
        return np.concatenate([measured.astype(computed.dtype), computed[(slice(None), *region)]])
