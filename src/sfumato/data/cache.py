"""Decoded images that stay in memory, so that small sets are read from disk once."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

__all__ = ["FrameCache"]

Array = NDArray[np.generic]


class FrameCache:
    """The most recently used frames, up to a number of bytes; safe between threads.

    Args:
        limit: Bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._frames: OrderedDict[Hashable, Array] = OrderedDict()
        self._lock = threading.Lock()

    def fits(self, size: int) -> bool:
        """Whether a frame is small enough to be kept with others."""
        return size <= self._limit // 4

    def held(self, key: Hashable) -> Array | None:
        """The frame of that key, if it is there."""
        with self._lock:
            if key in self._frames:
                self._frames.move_to_end(key)
            return self._frames.get(key)

    def get(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """The frame of that key, made if it is not there."""
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
