"""Processes that start at once: forks of one that has imported torch, where processes can be forked.

Each is a process of its own, which can be killed. Only the seconds are saved that it would spend on imports.
"""

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path

from warm_programs import IMPORTED

__all__ = ["run_ranks", "start_command", "start_function", "warm_workers"]

METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
FORKED = multiprocessing.get_context(METHOD)
if METHOD == "forkserver":
    FORKED.set_forkserver_preload([*IMPORTED, "distributed"])


@contextmanager
def warm_workers() -> Iterator[None]:
    """Meanwhile workers of a cluster that is started here are such processes."""
    import dask
    import distributed  # noqa: F401  (first: a context opened before it would take its settings away again)

    if METHOD == "forkserver":
        forkserver.ensure_running()  # first: distributed would ask for other imports
    with dask.config.set({"distributed.worker.multiprocessing-method": METHOD}):
        yield


def start_function(function: Callable[..., object], *arguments: object, errors: Path | None = None) -> BaseProcess:
    """Call a function of a module in a process of its own; what it says on stderr is appended to a file, if given."""
    arguments = (function, arguments, errors)
    process: BaseProcess = FORKED.Process(target=_call, args=arguments, daemon=True)  # type: ignore[attr-defined]
    process.start()
    return process


def start_command(words: Sequence[str], *, errors: Path | None = None, **environment: str) -> BaseProcess:
    """Run `sfumato` with these words, and with these variables besides those of this process."""
    return start_function(_run, [*words], {**os.environ, **environment}, errors=errors)


def run_ranks(words: Sequence[str], *, errors: Path | None = None) -> list[int | None]:
    """Run `sfumato` in two processes that are one run, with the variables that srun gives them; their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    tasks = [{"SLURM_PROCID": str(n), "SLURM_LOCALID": str(n), "SLURM_STEP_NUM_TASKS": "2"} for n in range(2)]
    processes = [start_command(words, errors=errors, **meeting, **task) for task in tasks]
    for process in processes:
        process.join(timeout=120)
    return [process.exitcode for process in processes]


def _call(function: Callable[..., object], arguments: Sequence[object], errors: Path | None) -> None:
    import torch

    torch.set_num_threads(1)
    if errors is not None:
        with errors.open("ab", buffering=0) as file:
            os.dup2(file.fileno(), 2)
    function(*arguments)


def _run(words: Sequence[str], environment: dict[str, str]) -> None:
    from sfumato.cli import main

    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["sfumato", *words]
    main()
