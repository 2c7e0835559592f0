"""What restoring costs beyond the networks, and that it grows with pixels alone.

    python benchmarks/restore_scale.py --linear      # time per megapixel at 1, 16 and 256 megapixels
    python benchmarks/restore_scale.py --gigapixel   # 32,768 x 32,768 pixels: memory of every process
    python benchmarks/restore_scale.py --plan        # a plan of 10^6 tasks, half of them done
    python benchmarks/restore_scale.py --thin        # the engine against a bare loop; two workers against one
    python benchmarks/restore_scale.py --allocation  # sampling in a process that keeps freed memory

Each takes --check, which ends with a non-zero code if a bar is missed. Images are sparse stores: cheap to hold, and as
large as they say. The network of the first two has fewer than 5,000 weights, 2 samples, 4 steps.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bars import Bars
from random_models import write_random_model
from sfumato.data.images.output import OutputImage
from sfumato.data.normalize import Normalization
from sfumato.diffusion.noise import NoiseField
from sfumato.models.model_file import load
from sfumato.restoration.engines import Dask
from sfumato.restoration.journal import Journal
from sfumato.restoration.planning import Restoration, Settings, plan_restoration
from sfumato.restoration.restorer import Restorer
from sfumato.restoration.run import Progress, run_restoration
from sfumato.system.device import keep_freed_memory

TINY = Settings(num_samples=2, num_steps=4, threads=1)
REPEATS = 5


def write_model(path: Path, *, base: int = 2, num_scales: int = 1) -> Path:
    photons = Normalization(offset=(0.0,), scale=(100.0,))
    return write_random_model(path, base=base, num_scales=num_scales, std=0.1, data=photons)


def write_sparse(path: Path, *shape: int, chunk: int = 1024) -> Path:
    """An image of which only the first chunk is stored; the rest reads as 0."""
    chunks = (*[1] * (len(shape) - 2), *(min(side, chunk) for side in shape[-2:]))
    image = OutputImage.create(path, shape=shape, dtype="uint16", axes="TYX"[-len(shape) :], chunks=chunks)
    pixels = np.random.default_rng(0).poisson(100, chunks).astype("uint16")
    image.write(0, [0] * len(shape), pixels)
    return path


def timed(planned: Restoration, engine: Dask | None = None, *, clock: Callable[[], float] = time.monotonic) -> float:
    """Seconds of a whole restoration, whose output is then removed."""
    started = clock()
    run_restoration(planned, engine=engine)
    seconds = clock() - started
    for place in (*planned.files, str(planned.journal)):
        shutil.rmtree(place)
    return seconds


def linear(folder: Path, bars: Bars) -> None:
    """Small images are restored in between the chunks of the large one, so that a busy machine slows all alike.

    Time is that of the process, which has one thread: what it waits for others is not counted.
    """
    model = write_model(folder / "model.safetensors")
    bars.report("weights of the network", sum(p.numel() for p in load(model).model.parameters()), high=5000)
    sources = {n: write_sparse(folder / f"{n}.zarr", 1024 * n, 1024 * n) for n in (1, 4, 16)}
    small: dict[int, list[float]] = {1: [], 4: []}
    large, since, tasks = 0.0, time.process_time(), 0

    def restore(n: int) -> None:
        planned = plan_restoration(model, sources[n], folder / "small.zarr", TINY)
        small[n].append(timed(planned, clock=time.process_time) / n**2)

    def pause(now: Progress) -> None:
        nonlocal large, since, tasks
        tasks += 1
        if tasks % 16 or tasks > 256:
            return
        large += time.process_time() - since
        restore(1)
        if tasks % 64 == 0:
            restore(4)
        print(f"{tasks} of 256 megapixels: {large / tasks:.3f} s each", file=sys.stderr, flush=True)
        since = time.process_time()

    run_restoration(plan_restoration(model, sources[16], folder / "out.zarr", TINY), progress=pause)
    large += time.process_time() - since
    seconds = {n * n: statistics.mean(found) for n, found in small.items()} | {256: large / 256}
    for size, of_megapixel in seconds.items():
        bars.report(f"seconds per megapixel at {size} megapixels", of_megapixel)
    bars.report("largest over smallest", max(seconds.values()) / min(seconds.values()), high=1.1)


def resident(processes: list[int]) -> int:
    """Bytes of the largest of some processes."""
    most = 0
    for process in processes:
        try:
            fields = Path(f"/proc/{process}/statm").read_text().split()
        except OSError:
            continue
        most = max(most, int(fields[1]) * resource.getpagesize())
    return most


def family(process: int) -> list[int]:
    """A process and all that it started."""
    found, waiting = [], [process]
    while waiting:
        found.append(waiting.pop())
        for file in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            waiting += [int(child) for child in file.read_text().split()]
    return found


def gigapixel(folder: Path, bars: Bars, side: int) -> None:
    model = write_model(folder / "model.safetensors")
    source = write_sparse(folder / "in.zarr", side, side)
    planned = plan_restoration(model, source, folder / "out.zarr", TINY)
    memory: list[int] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(1.0):
            memory.append(resident(family(os.getpid())))

    def say(now: Progress) -> None:
        if now.done % 64 == 0:
            print(f"{now.done} of {now.total} chunks", file=sys.stderr, flush=True)

    watcher, started = threading.Thread(target=watch), time.monotonic()
    watcher.start()
    try:
        run_restoration(planned, engine=Dask(workers=2), progress=say)
    finally:
        ended.set()
        watcher.join()
    seconds = time.monotonic() - started
    half = len(memory) // 2
    bars.report("pixels", side**2)
    bars.report("minutes with two workers", seconds / 60)
    bars.report("resident memory of the largest process, MB", max(memory) / 2**20, high=2048)
    bars.report("its growth in the second half, MB", (max(memory[half:]) - max(memory[:half])) / 2**20, high=100)


RESUME = """
import json, resource, sys, time
from pathlib import Path
import sfumato.restoration.run  # what is imported before is not the plan's
from sfumato.restoration.restorer import Restorer
from sfumato.restoration.planning import Settings, plan_restoration
from sfumato.restoration.run import run_restoration
import zarr, yaozarrs
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, started = peak(), time.monotonic()
planned = plan_restoration(*map(Path, sys.argv[1:4]), Settings(2, 1, chunk=64, threads=1))
left = run_restoration(planned, shard=(0, 2))
print(json.dumps([time.monotonic() - started, peak() - before, peak(), planned.job.plan.num_tasks, len(left)]))
"""


def plan(folder: Path, bars: Bars) -> None:
    """Every second task of a million is recorded; the shard whose tasks these are opens, finds that and ends."""
    model = write_model(folder / "model.safetensors")
    source = write_sparse(folder / "in.zarr", 10**6, 64, 64)
    planned = plan_restoration(model, source, folder / "out.zarr", Settings(2, 1, chunk=64, threads=1))
    tasks = planned.job.plan.num_tasks
    run_restoration(planned, shard=(tasks, tasks + 1))  # begun, with nothing to do
    with Journal(planned.journal, tasks).writer("earlier") as writer:
        writer.record(range(0, tasks, 2), [0] * (tasks // 2))
    command = [sys.executable, "-c", RESUME, str(model), str(source), str(folder / "out.zarr")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, megabytes, peak, tasks, left = json.loads(output)
    assert left == 0
    bars.report("tasks of the plan", tasks, low=10**6)
    bars.report("seconds to open, resume and report", seconds, high=5)
    bars.report("rise of the peak memory beyond that of the imports, MB", megabytes, high=300)
    bars.report("peak memory, torch included, MB", peak)


def thin(folder: Path, bars: Bars) -> None:
    model = write_model(folder / "model.safetensors", base=8, num_scales=3)
    source = write_sparse(folder / "in.zarr", 512, 512)
    settings = Settings(num_samples=4, num_steps=8, chunk=256, halo=32, batch=2, threads=1)

    def planned() -> Restoration:
        return plan_restoration(model, source, folder / "out.zarr", settings)

    def bare() -> float:
        """The sampler over the same regions; nothing is written."""
        one = planned()
        started = time.monotonic()
        for number in one.job.plan.stages[0]:
            task = one.job.plan.task(number)
            condition = one.measured.condition(0, task.seen_corner, task.seen_size)
            noise = NoiseField(0, origin=task.seen_corner)
            drawn = Restorer.of(one.model, 4, 8).draw(condition, noise, batch=2)
            assert drawn.posterior.std.isfinite().all()
        return time.monotonic() - started

    torch.set_num_threads(1)
    ratios = [timed(planned()) / bare() for _ in range(REPEATS)]
    bars.report("time of the engine over that of a bare loop", statistics.median(ratios), high=1.05)
    bars.report("workers: time of one over that of two", statistics.median(speedups(planned)), low=1.7)


def speedups(planned: Callable[[], Restoration]) -> list[float]:
    """Clusters are started before the clock is, and warmed by a first restoration."""
    from distributed import LocalCluster

    def cluster(workers: int) -> LocalCluster:
        places = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "worker_dashboard_address": None}
        return LocalCluster(n_workers=workers, threads_per_worker=1, **places)

    with cluster(1) as one, cluster(2) as two:
        engines = [Dask(scheduler=one.scheduler_address), Dask(scheduler=two.scheduler_address)]
        for engine in engines:
            timed(planned(), engine)
        return [timed(planned(), engines[0]) / timed(planned(), engines[1]) for _ in range(REPEATS)]


SAMPLING = """
import sys, time, torch
from sfumato import load, sample
from sfumato.system.device import keep_freed_memory
torch.set_num_threads(1)
if sys.argv[2] == "kept":
    assert keep_freed_memory()
model = load(sys.argv[1]).model
for _ in range(2):
    started = time.monotonic()
    sample(model, torch.zeros(1, 1, 512, 512), num_samples=4, num_steps=4, seed=0)
print(time.monotonic() - started)
"""


def allocation(folder: Path, bars: Bars) -> None:
    model = write_model(folder / "model.safetensors", base=8, num_scales=4)

    def seconds(how: str) -> float:
        command = [sys.executable, "-c", SAMPLING, str(model), how]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    ratios = [seconds("kept") / seconds("returned") for _ in range(REPEATS)]
    bars.report("time of sampling with freed memory kept over that without", statistics.median(ratios), high=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("linear", "gigapixel", "plan", "thin", "allocation"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--side", type=int, default=32768, help="of the gigapixel image")
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as the commands do
    bars = Bars()
    parts: dict[str, Callable[[Path], None]] = {
        "linear": lambda folder: linear(folder, bars),
        "gigapixel": lambda folder: gigapixel(folder, bars, arguments.side),
        "plan": lambda folder: plan(folder, bars),
        "thin": lambda folder: thin(folder, bars),
        "allocation": lambda folder: allocation(folder, bars),
    }
    if not any(getattr(arguments, name) for name in parts):
        parser.error(f"choose at least one of {', '.join('--' + name for name in parts)}")
    for name, measure in parts.items():
        if getattr(arguments, name):
            with tempfile.TemporaryDirectory() as folder:
                measure(Path(folder))
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
