"""Run work in a thread, with progress and a way to stop it, while the viewer stays responsive."""

import os
from collections.abc import Callable
from typing import Any

from napari.qt.threading import create_worker
from napari.utils.notifications import show_error

from sfumato.system.errors import SfumatoError

__all__ = ["Background"]


class _StoppedError(Exception):
    """The work was asked to stop."""


class Background:
    """One piece of work.

    Args:
        work: Called in a thread with this object; it must call :meth:`count` often, which ends it when it should stop.
        returned: Called in the viewer's thread with the result of ``work``, unless it was stopped.
        finished: Called in the viewer's thread afterwards in any case; errors have been shown by then.

    Attributes:
        total: Final value of ``done``, set by ``work``; 0 before.
        done: Progress so far.
        doing: What it does now that has no progress, such as loading; empty if it has.
        error: Text of the error that ended it; empty if none did.
    """

    def __init__(
        self, work: Callable[["Background"], Any], *, returned: Callable[[Any], None], finished: Callable[[], None]
    ) -> None:
        self.total = self.done = 0
        self.error = self.doing = ""
        self._stopped = False
        self._work, self._returned = work, returned
        self._worker = create_worker(self._run, _start_thread=False, _ignore_errors=True)
        self._worker.returned.connect(self._deliver)
        self._worker.errored.connect(self._fail)
        self._worker.finished.connect(finished)
        self._worker.start()

    @property
    def is_stopped(self) -> bool:
        """Whether it was told to stop; napari tells its workers to when it closes."""
        return self._stopped or self._worker.abort_requested

    def stop(self) -> None:
        """Stop the work at its next count."""
        self._stopped = True

    def count(self, number: int) -> None:
        """Add to the progress."""
        self.done += number
        if self.is_stopped:
            raise _StoppedError

    def _run(self) -> Any:
        import torch  # in the thread, since it takes a second

        before = torch.get_num_threads()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        torch.set_num_threads(max(1, min(before, cores - 1)))  # leave a core to the viewer
        try:
            return self._work(self)
        except _StoppedError:
            return None
        finally:
            torch.set_num_threads(before)

    def _deliver(self, result: Any) -> None:
        if not self.is_stopped:
            self._returned(result)

    def _fail(self, error: Exception) -> None:
        self.error = str(error) if isinstance(error, SfumatoError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, SfumatoError):
            raise error  # napari shows it with its traceback
        show_error(str(error))
