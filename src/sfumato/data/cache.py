"""Keep decoded images in memory, so that small data sets are read from disk only once."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

__all__ = ["FrameCache"]

Array = NDArray[np.generic]


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
