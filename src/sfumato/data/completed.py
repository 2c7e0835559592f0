"""Frames with channels that no camera gives: computed from the measured ones, for a whole frame at a time."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.data.enlarged import Frames

__all__ = ["CompletedFrames", "Completion"]


class Completion(NamedTuple):
    """How the channels of a condition come from those that were measured."""

    measured: int
    """How many are measured, K."""
    total: int
    """How many there are then, K + N."""
    complete: Callable[[NDArray[np.generic]], NDArray[np.generic]]
    """Gives all (K + N, *spatial) of a whole image from the measured ones, which come first."""


class CompletedFrames:
    """Frames seen with all channels that a model takes, read by region as if they had been stored so.

    What was computed of the last frame stays in memory, however large: its regions are asked for one after another.

    Args:
        frames: The measured ones, such as a :class:`~sfumato.data.sources.FrameReader`.
        completion: What is computed from them.
    """

    def __init__(self, frames: Frames, completion: Completion) -> None:
        self.frames, self.completion = frames, completion
        self.spatial, self.channels = frames.spatial, completion.total
        self._computed: dict[int, NDArray[np.generic]] = {}

    def read(self, frame: int, corner: Sequence[int], size: Sequence[int]) -> NDArray[np.generic]:
        """A region of one frame, shape (channels, *size)."""
        measured = self.frames.read(frame, corner, size)
        if frame not in self._computed:
            whole = self.frames.read(frame, [0] * len(self.spatial), self.spatial)
            self._computed = {frame: np.ascontiguousarray(self.completion.complete(whole)[len(whole) :])}
        computed = self._computed[frame]
        region = tuple(slice(first, first + length) for first, length in zip(corner, size, strict=True))
        return np.concatenate([measured.astype(computed.dtype), computed[(slice(None), *region)]])
