"""Run the tasks of a job in this process or on the workers of a Dask cluster.

An engine is given the numbers of the missing tasks and yields the outcome of each, in any order. It knows nothing of
journals. A task is the same wherever it runs, so the result does not depend on the engine.
"""

import contextlib
import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from sfumato.restoration.job import Job
from sfumato.restoration.task import Outcome, run_task
from sfumato.system.device import AUTO, keep_freed_memory
from sfumato.system.errors import RunError

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security

__all__ = ["IN_FLIGHT_PER_WORKER", "Certificates", "Dask", "Engine", "InProcess"]

IN_FLIGHT_PER_WORKER = 2
"""Tasks sent to each worker in advance, so that no worker waits for its next one."""

_ASK_EVERY = 1.0
"""Seconds between queries for the number of workers: pyramid tasks take milliseconds each."""
_MOST_DEATHS = 100
"""Workers that may die during one task before the task is blamed; clusters kill workers at any time."""


class Engine(Protocol):
    """Does tasks."""

    def run(self, job: Job, numbers: Sequence[int], on_call: Callable[[int], None] | None = None) -> Iterator[Outcome]:
        """Run the tasks with these numbers; outcomes are yielded as they become ready.

        Args:
            job: The job.
            numbers: Numbers of the tasks to run.
            on_call: Called after every network call made in this process, with the number of samples in it.
        """
        ...


@dataclass(frozen=True)
class InProcess:
    """Runs one task after another in this process.

    Attributes:
        device: cpu, cuda or mps; auto for the job's.
    """

    device: str = AUTO

    def run(self, job: Job, numbers: Sequence[int], on_call: Callable[[int], None] | None = None) -> Iterator[Outcome]:
        """Run the tasks with these numbers, in order."""
        before = torch.get_num_threads()
        torch.set_num_threads(job.threads)
        errand = uuid.uuid4().hex
        try:
            for number in numbers:
                yield run_task(job, number, job.device if self.device == AUTO else self.device, on_call, errand=errand)
        finally:
            torch.set_num_threads(before)


@dataclass(frozen=True)
class Certificates:
    """TLS files, all in PEM format. Without them, the connection to a remote scheduler is not encrypted."""

    authority: Path
    certificate: Path
    key: Path

    def security(self) -> "Security":
        """The settings of a connection that must be encrypted."""
        from distributed.security import Security

        return Security(
            require_encryption=True,
            tls_ca_file=str(self.authority),
            tls_client_cert=str(self.certificate),
            tls_client_key=str(self.key),
        )


@dataclass(frozen=True)
class Dask:
    """Runs tasks on a Dask cluster: either one started here that listens on loopback only, or one already running.

    Attributes:
        workers: Number of processes to start here, if no scheduler is given.
        scheduler: Address of a running scheduler, such as ``tcp://node:8786`` or ``tls://node:8786``.
        certificates: For joining it with TLS.
        device: Device of every worker: cpu, cuda or mps; auto for the job's or, at a running scheduler, for the best
            that each worker has.
    """

    workers: int = 1
    scheduler: str | None = None
    certificates: Certificates | None = None
    device: str = AUTO

    def run(self, job: Job, numbers: Sequence[int], on_call: Callable[[int], None] | None = None) -> Iterator[Outcome]:
        """Run the tasks with these numbers; workers do not report their network calls.

        Raises:
            RunError: If the scheduler is lost; finished tasks are kept.
        """
        if not numbers:
            return
        with self._client() as client:
            yield from self._run(client, job, numbers)

    def _run(self, client: "Client", job: Job, numbers: Sequence[int]) -> Iterator[Outcome]:
        from distributed import as_completed

        waiting = iter(numbers)
        device = job.device if self.device == AUTO and self.scheduler is None else self.device
        name = f"restore-{uuid.uuid4().hex}"  # another client may run the same job on this cluster

        def submit(most: int) -> list[Any]:
            return [
                client.submit(run_remotely, job, number, device, name, key=f"{name}-{number}", pure=False)
                for number in itertools.islice(waiting, most)
            ]

        def room() -> int:
            """How many tasks the current workers may hold."""
            try:
                return IN_FLIGHT_PER_WORKER * max(1, sum(map(int, client.nthreads().values())))
            except OSError as error:
                raise self._gone() from error

        most, asked = room(), time.monotonic()
        running = as_completed(submit(most), loop=client.loop)
        for future in running:
            if future.status in ("cancelled", "lost"):
                raise self._gone()
            error = future.exception()
            number = int(future.key.rpartition("-")[2])
            yield Outcome(number, 0, 0.0, RunError(f"{type(error).__name__}: {error}")) if error else future.result()
            future.release()
            if time.monotonic() - asked > _ASK_EVERY:  # workers may have joined or left meanwhile
                most, asked = room(), time.monotonic()
            running.update(submit(max(0, most - running.count())))

    def _gone(self) -> RunError:
        return RunError(
            f"the scheduler {self.scheduler or 'of the local workers'} is gone; expected it to stay until all is "
            "restored; what was done is kept: rerun the same command"
        )

    @contextlib.contextmanager
    def _client(self) -> Iterator["Client"]:
        try:
            import dask
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise ImportError(
                f"a cluster of workers needs Dask ({error}); install it with: pip install 'sfumato[cluster]'"
            ) from error
        settings = {"distributed.scheduler.allowed-failures": _MOST_DEATHS, "distributed.admin.log-length": 0}
        with dask.config.set(settings), contextlib.ExitStack() as stack:
            address: Any = self.scheduler or stack.enter_context(
                LocalCluster(
                    n_workers=self.workers,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",  # not reachable from outside this machine
                    dashboard_address="127.0.0.1:0",  # a free port, in case another cluster uses the default one
                    worker_dashboard_address=None,
                )
            )
            security = self.certificates.security() if self.scheduler and self.certificates else None
            try:
                client = stack.enter_context(Client(address, security=security, set_as_default=False))
                client.wait_for_workers(1, timeout=60)
            except (OSError, TimeoutError, TypeError) as error:  # TypeError: a tls:// address without certificates
                raise RunError(
                    f"no cluster with workers answers at {self.scheduler or 'this machine'} ({error}); expected a "
                    "running scheduler with at least one worker; check its address, certificates and logs"
                ) from error
            yield client


def run_remotely(job: Job, number: int, device: str, errand: str) -> Outcome:
    """Run a task in a worker, which uses the planned number of torch threads."""
    keep_freed_memory()
    if torch.get_num_threads() != job.threads:
        torch.set_num_threads(job.threads)
    return run_task(job, number, device, errand=errand)
