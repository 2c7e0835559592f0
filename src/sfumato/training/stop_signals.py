"""Stop a run between two steps: Ctrl-C and SIGTERM ask for it, and the loop looks."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

__all__ = ["StopSignals"]


class StopSignals:
    """Turns Ctrl-C and SIGTERM into a request that the loop sees after its step.

    Args:
        is_stopped: Another way to request it, for a program that trains in a thread, which gets no signals.
    """

    def __init__(self, is_stopped: Callable[[], bool] | None = None) -> None:
        self._is_stopped = is_stopped
        self._got_signal = False
        self._before: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether to stop."""
        return self._got_signal or (self._is_stopped is not None and self._is_stopped())

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python gives signals to no other
            self._before = {number: signal.signal(number, self._request) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._got_signal = True
