"""Stop a run between two steps: Ctrl-C and SIGTERM ask for it, and the loop looks."""

import signal
from types import FrameType

__all__ = ["StopSignals"]


class StopSignals:
    """Turns Ctrl-C and SIGTERM into a request that the loop sees after its step."""

    requested = False

    def __enter__(self) -> "StopSignals":
        self._before = {number: signal.signal(number, self._request) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
