"""Kill workers, scheduler and client of one restoration at random instants; the store must end as if nothing happened.

    python benchmarks/restore_kills.py --kills 20 --check

A real Dask cluster of processes on loopback: a scheduler, two workers and `sfumato restore --scheduler`. Whatever is
killed is started again. In between, twice, the input is replaced by another image of the same size: once while nothing
runs, once while all do. That must be refused until it is put back. At the end the stores are compared, byte by byte,
with those of one process that nobody killed.

The same is done, with fewer kills, for `restore --fast` and for a student of two calls. Before it restores, `sfumato
distill --workers 2` is killed while it teaches that student, which must equal the one of an undisturbed run.
"""

import argparse
import dataclasses
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bars import Bars
from killed_cluster import NUM_WORKERS, PATIENCE, Cluster, differing_files, free_port
from random_models import write_random_model
from sfumato.data.images.io import write_image
from sfumato.data.normalize import Normalization
from sfumato.models.model_file import load
from sfumato.models.recipe import parse
from sfumato.restoration.engines import IN_FLIGHT_PER_WORKER
from sfumato.restoration.journal import Journal
from sfumato.restoration.planning import Settings, plan_restoration
from sfumato.restoration.run import run_restoration, verify
from sfumato.training.distill import distill
from sfumato.training.train import train

SIDE, CHUNK = 640, 32
OPTIONS = ["--samples", "2", "--steps", "4", "--chunk", str(CHUNK), "--halo", "32", "--batch", "2", "--threads", "1"]
MODES = ["samples", "fast", "student"]
SMALL = """
preset: small
data: {{inputs: "{low}", targets: "{high}", patch: 16}}
model: {{base: 4, rate_base: 4, denoiser_base: 4, num_scales: 3, denoiser_scales: 3}}
train: {{steps: 20, batch_size: 4, warmup: 2, validate_every: 1000, save_every: 20}}
sample: {{steps: 2, samples: 2}}
"""


def replace(source: Path, content: Path) -> None:
    """Put another file in the place of the input at once, as staging does."""
    shutil.copy(content, source.with_suffix(".tmp"))
    source.with_suffix(".tmp").replace(source)


def await_record(cluster: Cluster, journal: Journal, *, more: int = 1) -> None:
    """Wait until the client has recorded some more chunks, so that all are at work, or has ended."""
    before, deadline = int(journal.done().sum()), time.monotonic() + PATIENCE
    while int(journal.done().sum()) < before + more and time.monotonic() < deadline and cluster.start_missing():
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
    pairs = zip(smooth.files, killed.files, strict=True)
    differing = sum(differing_files(Path(expected), Path(found)) for expected, found in pairs)
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


def small_teacher(folder: Path) -> Path:
    """A model with mean and scale networks, trained for a few steps."""
    recipe = parse(SMALL.format(low=folder / "low", high=folder / "high"), source="benchmark")
    generator = np.random.default_rng(0)
    for side in ("low", "high"):
        (folder / side).mkdir()
        for number in range(6):
            image = (10 + 3 * generator.standard_normal((48, 48))).astype(np.float32)
            write_image(folder / side / f"{number}.npy", image, axes="YX")
    return train(recipe, folder / "teacher", quiet=True).model_file


def measure_teaching(folder: Path, teacher: Path, kills: int, draw: random.Random, bars: Bars) -> Path:
    """Kill the teaching of a student; returns the student."""
    smooth, killed = folder / "smooth.safetensors", folder / "killed.safetensors"
    settings = load(teacher).info.recipe.train.model_copy(update={"steps": 150 * (kills + 1), "save_every": 5})
    distill(teacher, smooth, calls=2, teacher_calls=4, train=settings, quiet=True)
    fields = ["--set", f"train.steps={settings.steps}", "--set", f"train.save_every={settings.save_every}"]
    words = ["distill", str(teacher), "--out", str(killed), "--calls", "2", "--teacher-calls", "4", "--workers", "2"]
    done, checkpoints = 0, folder / "killed_run" / "checkpoints"
    while not killed.exists():
        before = sorted(checkpoints.glob("step-*.safetensors"))
        with (folder / "distill.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, "-m", "sfumato", *words, *fields], stderr=log, stdout=log)
        while done < kills and process.poll() is None and sorted(checkpoints.glob("step-*.safetensors")) == before:
            time.sleep(0.01)
        if done < kills and process.poll() is None:
            time.sleep(draw.random())
            process.kill()
            done += 1
            print(f"killed the teaching, {done} of {kills}", file=sys.stderr, flush=True)
        if process.wait() not in (0, -9):
            sys.exit(f"the teaching ended with code {process.returncode}; see {folder / 'distill.log'}")
    bars.report("student, teaching: kills", done, low=kills)
    differs = float(smooth.read_bytes() != killed.read_bytes())
    bars.report("student, teaching: files that differ from those of a run nobody killed", differs, high=0)
    return killed


def measure_model(name: str, model: Path, folder: Path, settings: Settings, kills: int, bars: Bars) -> None:
    """Kill parts of a cluster that restores with a model, and compare with one process that nobody killed."""
    source, draw, done, unsafe = folder / "in.npy", random.Random(name), 0, 0
    pixels = 10 + 3 * np.random.default_rng(2).standard_normal((SIDE, SIDE))
    write_image(source, pixels.astype(np.float32), axes="YX")
    for place in ("smooth", "killed"):
        (folder / place).mkdir()
    smooth, killed = (
        plan_restoration(model, source, folder / place / "out.zarr", settings) for place in ("smooth", "killed")
    )
    run_restoration(smooth)
    options = ["--fast"] if settings.fast else ["--samples", str(settings.num_samples)]
    options += ["--chunk", str(CHUNK), "--halo", "32", "--threads", "1"]
    command = [sys.executable, "-m", "sfumato", "restore", str(model), str(source), str(folder / "killed" / "out.zarr")]
    cluster = Cluster(folder, [*command, *options], free_port())
    journal, total = Journal(killed.journal, killed.job.plan.num_tasks), killed.job.plan.num_tasks
    try:
        while cluster.start_missing():
            if done < kills:
                await_record(cluster, journal, more=max(1, total // (3 * kills)))
            else:
                time.sleep(0.02)
            if done < kills and cluster.processes["client"].poll() is None:
                cluster.kill(part := draw.choice([*cluster.commands]))
                done, unsafe = done + 1, unsafe + len(verify(killed))
                print(
                    f"{name}: killed the {part} at {int(journal.done().sum())} of {total} chunks",
                    file=sys.stderr,
                    flush=True,
                )
    finally:
        cluster.end()
    pairs = zip(smooth.files, killed.files, strict=True)
    differing = sum(differing_files(Path(expected), Path(found)) for expected, found in pairs)
    bars.report(f"{name}: kills", done, low=kills)
    bars.report(f"{name}: chunks in the journal that are not on disk, after any kill", unsafe, high=0)
    bars.report(f"{name}: files that differ from those of the restoration nobody killed", differing, high=0)


def measure_small(folder: Path, kills: int, seed: int, bars: Bars, modes: list[str]) -> None:
    """What needs a model with mean and scale networks: to restore without samples, and to teach a student."""
    for place in ("teaching", "fast", "student"):
        (folder / place).mkdir()
    teacher = small_teacher(folder / "teaching")
    settings = Settings(chunk=CHUNK, halo=32, threads=1)
    if "fast" in modes:
        measure_model("fast", teacher, folder / "fast", dataclasses.replace(settings, fast=True), kills, bars)
    if "student" in modes:
        student = measure_teaching(folder / "teaching", teacher, kills, random.Random(seed), bars)
        settings = dataclasses.replace(settings, num_samples=2)
        measure_model("student", student, folder / "student", settings, kills, bars)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="kills while samples are drawn")
    parser.add_argument("--few", type=int, default=3, help="kills in each of the other modes")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES, help="what to kill; by default, each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder to work in, which is left with its logs")
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    arguments = parser.parse_args()
    bars, folder = Bars(), arguments.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if "samples" in arguments.modes:
            measure(folder, arguments.kills, arguments.seed, bars)
        if {"fast", "student"} & {*arguments.modes}:
            measure_small(folder, arguments.few, arguments.seed, bars, arguments.modes)
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
