"""Who does the tasks of a job: this process, or the workers of a Dask cluster.

An engine is told which tasks are missing and yields what became of each, in any order. It knows nothing of journals,
and a task is the same wherever it is done, so the result does not depend on the engine.
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
from sfumato.system.device import keep_freed_memory
from sfumato.system.errors import RunError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["IN_FLIGHT_PER_WORKER", "Certificates", "Dask", "Engine", "InProcess"]

IN_FLIGHT_PER_WORKER = 2
"""Tasks per worker that are sent ahead, so that none waits for the next."""

_ASK_EVERY = 1.0
"""Seconds between questions to the scheduler how many workers there are: tasks of a pyramid take milliseconds each."""
_MOST_DEATHS = 100
"""Workers that may die under one task before it is called the culprit; on a cluster they are killed at will."""


class Engine(Protocol):
    """Does tasks."""

    def run(self, job: Job, numbers: Sequence[int], on_call: Callable[[int], None] | None = None) -> Iterator[Outcome]:
        """Do the tasks of these numbers; outcomes come as they are ready.

        Args:
            job: What to do.
            numbers: Which parts of it.
            on_call: Called after every network call with the number of draws in it, where it is made in this process.
        """
        ...


@dataclass(frozen=True)
class InProcess:
    """One task after another, here.

    Attributes:
        device: cpu, cuda or mps.
    """

    device: str = "cpu"

    def run(self, job: Job, numbers: Sequence[int], on_call: Callable[[int], None] | None = None) -> Iterator[Outcome]:
        """Do the tasks of these numbers, in their order."""
        before = torch.get_num_threads()
        torch.set_num_threads(job.threads)
        errand = uuid.uuid4().hex
        try:
            for number in numbers:
                yield run_task(job, number, self.device, on_call, errand=errand)
        finally:
            torch.set_num_threads(before)


@dataclass(frozen=True)
class Certificates:
    """Files of TLS, all in PEM: without them a scheduler elsewhere is joined in the clear."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Dask:
    """Workers of a Dask cluster: of one that is started here and listens on loopback only, or of a running one.

    Attributes:
        workers: How many processes to start here, if no scheduler is given.
        scheduler: Address of a running one, such as ``tcp://node:8786`` or ``tls://node:8786``.
        certificates: To join it with TLS.
        device: Of every worker: cpu, cuda or mps.
    """

    workers: int = 1
    scheduler: str | None = None
    certificates: Certificates | None = None
    device: str = "cpu"

    def run(self, job: Job, numbers: Sequence[int], on_call: Callable[[int], None] | None = None) -> Iterator[Outcome]:
        """Do the tasks of these numbers; workers do not tell of their network calls.

        Raises:
            RunError: If the scheduler is gone; what was done is done.
        """
        if not numbers:
            return
        with self._client() as client:
            yield from self._run(client, job, numbers)

    def _run(self, client: "Client", job: Job, numbers: Sequence[int]) -> Iterator[Outcome]:
        from distributed import as_completed

        waiting = iter(numbers)
        name = f"restore-{uuid.uuid4().hex}"  # another client may do the same job on this cluster

        def submit(most: int) -> list[Any]:
            return [
                client.submit(run_remotely, job, number, self.device, name, key=f"{name}-{number}", pure=False)
                for number in itertools.islice(waiting, most)
            ]

        def room() -> int:
            """How many tasks may be with the workers that there are now."""
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
            if time.monotonic() - asked > _ASK_EVERY:  # workers may have joined meanwhile, or left
                most, asked = room(), time.monotonic()
            running.update(submit(max(0, most - running.count())))

    def _gone(self) -> RunError:
        return RunError(
            f"the scheduler {self.scheduler or 'of the local workers'} is gone; expected it to stay until all is "
            "restored; what was done is kept: give the same command again"
        )

    @contextlib.contextmanager
    def _client(self) -> Iterator["Client"]:
        try:
            import dask
            from distributed import Client, LocalCluster
            from distributed.security import Security
        except ImportError as error:
            raise ImportError(
                f"a cluster of workers needs Dask ({error}); install it with: pip install 'sfumato[cluster]'"
            ) from error
        settings = {"distributed.scheduler.allowed-failures": _MOST_DEATHS, "distributed.admin.log-length": 0}
        with dask.config.set(settings), contextlib.ExitStack() as stack:
            if self.scheduler is None:
                address: Any = stack.enter_context(
                    LocalCluster(
                        n_workers=self.workers,
                        threads_per_worker=1,
                        processes=True,
                        host="127.0.0.1",  # nobody outside this machine gets in
                        dashboard_address="127.0.0.1:0",  # a free port, also where another cluster has the usual one
                        worker_dashboard_address=None,
                    )
                )
                security = None
            else:
                address, security = self.scheduler, None
                if self.certificates is not None:
                    files = self.certificates
                    security = Security(
                        require_encryption=True,
                        tls_ca_file=str(files.authority),
                        tls_client_cert=str(files.certificate),
                        tls_client_key=str(files.key),
                    )
            try:
                client = stack.enter_context(Client(address, security=security, set_as_default=False))
                client.wait_for_workers(1, timeout=60)
            except (OSError, TimeoutError, TypeError) as error:  # the last of a tls:// address without certificates
                raise RunError(
                    f"no cluster with workers answers at {self.scheduler or 'this machine'} ({error}); expected a "
                    "running scheduler with at least one worker; check its address, certificates and logs"
                ) from error
            yield client


def run_remotely(job: Job, number: int, device: str, errand: str) -> Outcome:
    """A task in a worker, which has the planned number of torch threads for itself."""
    keep_freed_memory()
    if torch.get_num_threads() != job.threads:
        torch.set_num_threads(job.threads)
    return run_task(job, number, device, errand=errand)
