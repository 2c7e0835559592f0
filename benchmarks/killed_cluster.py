"""A real Dask cluster of processes on loopback, for benchmarks that kill its parts: scheduler, workers and client."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

__all__ = ["NUM_WORKERS", "PATIENCE", "Cluster", "differing_files", "free_port"]

NUM_WORKERS = 2
PATIENCE = 300
"""Seconds without progress before it is given up; a busy machine may take a minute to start all."""
COUNTING = '''
from pathlib import Path
from distributed.diagnostics.plugin import WorkerPlugin


class Count(WorkerPlugin):
    """Writes down every task that was done, whether or not anybody learnt of it."""

    def transition(self, key, start, finish, **_):
        if start == "executing" and finish == "memory":
            with Path({path!r}).open("a") as file:
                file.write(f"{{key}}\\n")


async def dask_setup(worker):
    await worker.plugin_add(Count(), name="count")
'''


class Cluster:
    """Processes by name, started again when they are gone."""

    def __init__(self, folder: Path, command: list[str], port: int) -> None:
        address = f"tcp://127.0.0.1:{port}"
        (folder / "count.py").write_text(COUNTING.format(path=str(folder / "executed.txt")))
        scheduler = ["dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
        worker = ["dask_worker", address, "--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--no-nanny"]
        worker += ["--preload", str(folder / "count.py"), "--local-directory", str(folder)]
        self.commands = {"scheduler": [sys.executable, "-m", f"distributed.cli.{scheduler[0]}", *scheduler[1:]]}
        for number in range(NUM_WORKERS):
            self.commands[f"worker {number}"] = [sys.executable, "-m", f"distributed.cli.{worker[0]}", *worker[1:]]
        self.commands["client"] = [*command, "--scheduler", address]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.folder = folder

    def start_missing(self) -> bool:
        """Start what is not running; False once the client has ended well."""
        for name, command in self.commands.items():
            process = self.processes.get(name)
            if process is not None and process.poll() is None:
                continue
            if name == "client" and process is not None and process.returncode == 0:
                return False
            with (self.folder / f"{name.replace(' ', '-')}.log").open("ab") as log:
                environment = os.environ | {"OMP_NUM_THREADS": "1"}
                self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        return True

    def kill(self, name: str) -> None:
        """End a process without a warning."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def refusal(self) -> bool:
        """Wait until the client ends; whether it refused to go on because of the input."""
        code = self.processes["client"].wait(timeout=PATIENCE)
        errors = [line for line in (self.folder / "client.log").read_text().splitlines() if line.startswith("error: ")]
        return code == 2 and "in.npy" in errors[-1]

    def end(self) -> None:
        """End all."""
        for process in self.processes.values():
            process.kill()
            process.wait()


def files_of(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if not name.endswith(".unfinished")}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def differing_files(one: Path, other: Path) -> int:
    """How many files of two folders differ, or are in one alone."""
    left, right = files_of(one), files_of(other)
    return len(left.keys() ^ right.keys()) + sum(left[key] != right[key] for key in left.keys() & right.keys())
