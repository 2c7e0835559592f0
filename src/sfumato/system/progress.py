"""Show the progress of long work: a bar in a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["Bar"]

_SECONDS_BETWEEN_LINES = 10.0
_MEMORY = 0.8
"""Weight of the previous pace against the pace since the last line; a pause is soon forgotten."""


class Bar:
    """Counts steps of ``total`` and shows a text beside them.

    Args:
        title: What is being done.
        total: Number of steps; 0 if not yet known.
        done: Number of steps already done.
        quiet: Whether to show nothing.
    """

    def __init__(self, title: str, total: int, *, done: int = 0, quiet: bool = False) -> None:
        self._title, self._total, self._last_done = title, total, float(done)
        self._quiet = quiet
        self._last_line = time.monotonic()
        self._pace: float | None = None
        self._bar: Progress | None = None
        if sys.stderr.isatty() and not quiet:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, TextColumn("{task.fields[text]}"))
            self._task = self._bar.add_task(title, total=total, completed=done, text="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: float, text: str, *, total: int | None = None) -> None:
        """Show how many steps are done, including fractions of a step, and update the total if given."""
        self._total = self._total if total is None else total
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=self._total, text=text)
            return
        now = time.monotonic()
        if self._quiet or (now - self._last_line < _SECONDS_BETWEEN_LINES and done < self._total):
            return
        recent = (done - self._last_done) / max(now - self._last_line, 1e-9)
        self._pace = recent if self._pace is None else _MEMORY * self._pace + (1 - _MEMORY) * recent
        self._last_line, self._last_done = now, done
        left = f"{(self._total - done) / self._pace / 60:.1f} min left" if self._pace > 0 else ""
        shown = f"{done:.0f}" if done == int(done) else f"{done:.2f}"
        print(f"{self._title} {shown}/{self._total}  {left}  {text}", file=sys.stderr, flush=True)
