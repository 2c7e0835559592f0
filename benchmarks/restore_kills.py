"""Kill workers, scheduler and client of one restoration at random instants; the store must end as if nothing happened.

    python benchmarks/restore_kills.py --kills 20 --check

A real Dask cluster of processes on loopback: a scheduler, two workers and `sfumato restore --scheduler`. Whatever is
killed is started again. In between, twice, the input is replaced by another image of the same size: once while nothing
runs, once while all do. That must be refused until it is put back. At the end the stores are compared, byte by byte,
with those of one process that nobody killed.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bars import Bars
from random_models import write_random_model
from sfumato.data.images.io import write_image
from sfumato.data.normalize import Normalization
from sfumato.restoration.engines import IN_FLIGHT_PER_WORKER
from sfumato.restoration.journal import Journal
from sfumato.restoration.planning import Settings, plan_restoration
from sfumato.restoration.run import run_restoration, verify

NUM_WORKERS = 2
PATIENCE = 300
"""Seconds without progress before it is given up; a busy machine may take a minute to start all."""
SIDE, CHUNK = 640, 32
OPTIONS = ["--samples", "2", "--steps", "4", "--chunk", str(CHUNK), "--halo", "32", "--batch", "2", "--threads", "1"]
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


def replace(source: Path, content: Path) -> None:
    """Put another file in the place of the input at once, as staging does."""
    shutil.copy(content, source.with_suffix(".tmp"))
    source.with_suffix(".tmp").replace(source)


def await_record(cluster: Cluster, journal: Journal) -> None:
    """Wait until the client has recorded a chunk, so that all are at work."""
    before, deadline = int(journal.done().sum()), time.monotonic() + PATIENCE
    while int(journal.done().sum()) == before and time.monotonic() < deadline:
        cluster.start_missing()
        time.sleep(0.02)


def measure(folder: Path, kills: int, seed: int, bars: Bars) -> None:
    model = write_random_model(
        folder / "model.safetensors", base=4, num_scales=3, std=0.2, data=Normalization(offset=(10.0,), scale=(3.0,))
    )
    source, kept, other = (folder / name for name in ("in.npy", "kept.npy", "other.npy"))
    for number, path in enumerate((kept, other)):
        pixels = 10 + 3 * np.random.default_rng(number).standard_normal((SIDE, SIDE))
        write_image(path, pixels.astype(np.float32), axes="YX")
    shutil.copy(kept, source)
    settings = Settings(num_samples=2, num_steps=4, chunk=CHUNK, halo=32, batch=2, threads=1)
    for name in ("smooth", "killed"):
        (folder / name).mkdir()
    smooth, killed = (
        plan_restoration(model, source, folder / name / "out.zarr", settings) for name in ("smooth", "killed")
    )
    run_restoration(smooth)
    program = [sys.executable, "-m", "sfumato", "restore"]
    cluster = Cluster(
        folder,
        [*program, str(model), str(source), str(folder / "killed" / "out.zarr"), *OPTIONS],
        free_port(),
    )
    journal = Journal(killed.journal, killed.job.plan.num_tasks)
    draw, done, unsafe = random.Random(seed), dict.fromkeys(["scheduler", "worker", "client"], 0), 0
    swaps = {max(1, kills // 3): "rest", max(2, 2 * kills // 3): "work"}
    refused, meanwhile = 0, 0
    total, wait_for = killed.job.plan.num_tasks, max(1, killed.job.plan.num_tasks // (kills + 4))
    try:
        while cluster.start_missing():
            before, deadline = int(journal.done().sum()), time.monotonic() + PATIENCE
            while cluster.processes["client"].poll() is None and journal.done().sum() < before + wait_for:
                if time.monotonic() > deadline:
                    sys.exit(f"nothing was done for {PATIENCE} seconds; see the logs in {folder}")
                cluster.start_missing()
                time.sleep(0.02)
            if sum(done.values()) < kills + 5 and cluster.processes["client"].poll() is None:
                time.sleep(draw.random() * 0.2)
                name = draw.choice([*cluster.commands])
                cluster.kill(name)
                done[name.split(" ")[0]] += 1
                unsafe += len(verify(killed))
                print(
                    f"killed the {name} at {int(journal.done().sum())} of {total} chunks", file=sys.stderr, flush=True
                )
                when = swaps.pop(sum(done.values()), None)
                if when == "rest":
                    cluster.kill("client")
                    before = int(journal.done().sum())
                    replace(source, other)
                    cluster.start_missing()
                    refused += cluster.refusal()
                    meanwhile += int(journal.done().sum()) - before
                elif when == "work":
                    cluster.start_missing()
                    await_record(cluster, journal)
                    replace(source, other)
                    refused += cluster.refusal()
                if when is not None:
                    print(f"replaced the input at {when}; refused: {refused}", file=sys.stderr, flush=True)
                    replace(source, kept)
    finally:
        cluster.end()
    for name, number in done.items():
        bars.report(f"kills of a {name}", number, low=1)
    bars.report("commands refused because the input was replaced", refused, low=2, high=2)
    bars.report("chunks recorded meanwhile", meanwhile, high=0)
    bars.report("kills", sum(done.values()), low=kills)
    bars.report("chunks in the journal that are not on disk, after any kill", unsafe, high=0)
    differing = 0
    for expected, found in zip(smooth.files, killed.files, strict=True):
        left, right = files_of(Path(expected)), files_of(Path(found))
        differing += len(left.keys() ^ right.keys()) + sum(
            left[key] != right[key] for key in left.keys() & right.keys()
        )
    bars.report("files that differ from those of the restoration nobody killed", differing, high=0)
    bars.report("chunks recorded twice", int((journal.times() > 1).sum()), low=0, high=0)
    recorded = sum(path.stat().st_size for path in killed.journal.glob("*.records")) // 16
    taken_back = (recorded - int(journal.times().sum())) // 2
    bars.report(
        "chunks taken back, since the input was replaced while they were restored", taken_back, low=1, high=total
    )
    # Those of the image itself: of the pyramid, the client may do some.
    restored = killed.job.plan.stages[0]
    executed = [int(key.rpartition("-")[2]) for key in (folder / "executed.txt").read_text().splitlines()]
    again = sum(number in restored for number in executed) - len(restored)
    # A replaced input interrupts too: what the workers have at hand is refused, what that run recorded is taken back.
    most = (sum(done.values()) + 3) * IN_FLIGHT_PER_WORKER * NUM_WORKERS + taken_back
    bars.report(f"chunks computed again, of {len(restored)}", again, low=0, high=most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder to work in, which is left with its logs")
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    arguments = parser.parse_args()
    bars, folder = Bars(), arguments.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    try:
        measure(folder, arguments.kills, arguments.seed, bars)
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
