"""Prepare training batches while the device is busy: in a thread, or in worker processes.

A batch is a pure function of its step, so who makes it changes no bit. Workers are forks of this process: they share
the opened images and the frames that are already in memory, which no pickle would bring along.
"""

import contextlib
import ctypes
import itertools
import os
import signal
import sys
import threading
import traceback
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from sfumato.system.errors import RunError, SfumatoError

__all__ = ["can_start_workers", "prefetch", "usual_workers"]

Result = TypeVar("Result")
_AHEAD = 4
"""Batches that are prepared ahead by the thread."""
_MOST_WORKERS = 4
_LOST = "DataLoader worker"
"""How torch begins to say that a worker has ended."""
_KILL_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def can_start_workers() -> bool:
    """Whether batches can be made by workers: forks are unsafe on macOS, and unknown on Windows."""
    return sys.platform.startswith("linux")


def usual_workers(device: torch.device) -> int:
    """How many workers make batches for a device by default: none for a CPU, which they would only take cores from."""
    if device.type in ("cpu", "mps") or not can_start_workers():
        return 0
    return min(_MOST_WORKERS, len(os.sched_getaffinity(0)) - 1)


@contextlib.contextmanager
def prefetch(
    make: Callable[[int], Result], steps: Sequence[int], *, workers: int = 0, pinned: bool = False
) -> Iterator[Iterator[Result]]:
    """Make results for steps ahead of their use, in order, until the block ends.

    Args:
        make: Makes the result of a step; it depends on nothing else.
        steps: The steps.
        workers: Number of processes that make results; with 0, a thread of this process does.
        pinned: Whether tensors are put into pinned memory, from where a GPU copies them while it computes.

    Raises:
        RunError: If this system cannot start workers, or if it ended one.

    Example:
        >>> with prefetch(lambda step: 2 * step, range(3)) as results:
        ...     list(results)
        [0, 2, 4]
    """
    if workers < 0 or (workers and not can_start_workers()):
        raise RunError(f"{workers} processes were asked to make batches; expected 0 or, on Linux, more")
    loader = DataLoader(
        _Steps(make),
        sampler=steps,
        batch_size=None,  # each step is a batch already
        collate_fn=_unchanged,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
        worker_init_fn=partial(_begin_worker, parent=os.getpid()),
        pin_memory=pinned,
        generator=torch.Generator(),  # otherwise the global one would be drawn from
    )
    with warnings.catch_warnings():  # what other threads hold at a fork, such as torch's, is of no use to workers
        warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
        made: Any = iter(loader)
    known = weakref.ref(made)
    try:
        with contextlib.closing(_results(made) if workers else _in_thread(made)) as results:
            del made  # its workers end when the last reference to it is gone
            yield results
    except RuntimeError as error:
        if not str(error).startswith(_LOST):
            raise
        traceback.clear_frames(error.__traceback__)  # they hold the other workers
        raise RunError(
            "a process that makes batches was ended by the system, as happens when memory or /dev/shm is full; rerun "
            f"the command to resume, with fewer workers than {workers}"
        ) from error
    finally:
        if workers and (left := known()) is not None:  # whoever keeps an error may hold it, and so its workers
            left._shutdown_workers()  # torch has no public way


class _Failure(NamedTuple):
    """What stopped the making of a result; torch would raise its errors with another text."""

    error: SfumatoError


class _Steps(Dataset[Any]):
    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __getitem__(self, step: int) -> Any:
        try:
            return self.make(step)
        except SfumatoError as error:
            return _Failure(error)


def _unchanged(made: Any) -> Any:
    return made


def _results(made: Iterator[Any]) -> Generator[Any]:
    try:
        for result in made:
            if isinstance(result, _Failure):
                raise result.error
            yield result
    finally:
        del made  # the traceback of an error would hold it, and so its workers


def _in_thread(made: Iterator[Any]) -> Generator[Any]:
    """The same results, made by a thread that is some of them ahead."""
    results = _results(made)
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
        waiting: deque[Future[list[Any]]] = deque()
        try:
            while True:
                while len(waiting) <= _AHEAD:
                    waiting.append(pool.submit(lambda: list(itertools.islice(results, 1))))
                if not (next_one := waiting.popleft().result()):
                    return
                yield next_one[0]
        finally:
            for future in waiting:
                future.cancel()


def _begin_worker(number: int, *, parent: int) -> None:
    """Leave Ctrl-C and SIGTERM, which reach all processes of a job, to the loop; end with the loop's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    threading.Thread(target=_end_if_told_by, args=(parent,), daemon=True).start()
    # torch looks for a killed parent every few seconds; until then, its run folder would stay locked.
    ctypes.CDLL(None).prctl(_KILL_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _end_if_told_by(parent: int) -> None:
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != parent:
        pass
    os._exit(0)
