"""Kill a training run again and again, at random instants; it must end as one that was never interrupted.

    python benchmarks/kill_resume.py --kills 50 --check

Each kill is a SIGKILL: some hit the start, some a step, some a validation, some a checkpoint that is being written
(they leave its temporary file behind, which is counted). Between two kills now and then a target is replaced by another
image: the run has to refuse it, leave all of its files as they were and resume when the image is put back. Then the
last checkpoint (weights, moving average, optimizer state), the model file and the metrics log without its times are
compared byte by byte with the uninterrupted run's.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from bars import Bars
from sfumato.data.images.io import write_image
from sfumato.training.run_folder import RunFolder

SETTINGS = {
    "data.patch": 16,
    "model.base": 8,
    "model.rate_base": 4,
    "model.num_scales": 4,
    "train.batch_size": 4,
    "train.validate_every": 50,
    "train.save_every": 3,
    "train.log_every": 1,
    "sample.steps": 2,
    "sample.samples": 2,
}


REPLACED_EVERY = 3
"""Kills between two replaced images."""


def write_pairs(folder: Path) -> None:
    generator = np.random.default_rng(0)
    for name in range(6):
        image = generator.random((32, 32), dtype=np.float32)
        for side, noise in (("low", 0.1), ("high", 0.0)):
            (folder / side).mkdir(exist_ok=True)
            noisy = image + noise * generator.standard_normal(image.shape).astype(np.float32)
            write_image(folder / side / f"{name}.tif", noisy, axes="YX")


def command(folder: Path, out: Path, steps: int) -> list[str]:
    places = ["--inputs", str(folder / "low"), "--targets", str(folder / "high"), "--out", str(out)]
    options = [
        part for key, value in {**SETTINGS, "train.steps": steps}.items() for part in ("--set", f"{key}={value}")
    ]
    return [sys.executable, "-m", "sfumato", "train", *places, *options]


def mixes(folder: Path, run: RunFolder, arguments: list[str], environment: dict[str, str]) -> bool:
    """Whether a run is resumed, or its folder changed, while one of its images is another one."""
    target = folder / "high" / "0.tif"
    content, before = target.read_bytes(), contents(run)
    write_image(target, np.zeros((32, 32), np.float32), axes="YX", overwrite=True)
    ran = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    target.write_bytes(content)
    refused = ran.returncode == 2 and "replaced: train target 0" in ran.stderr
    return not refused or contents(run) != before


def contents(run: RunFolder) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file() and path.name != ".lock"}


def last_step(run: RunFolder) -> int:
    return max((int(file.stem.split("-")[1]) for file in run.checkpoints.glob("step-*.safetensors")), default=0)


def differences(one: RunFolder, other: RunFolder) -> int:
    """How many tensors, log lines and files differ."""
    tensors = [load_file(sorted(run.checkpoints.glob("*.safetensors"))[-1]) for run in (one, other)]
    different: int = len(tensors[0].keys() ^ tensors[1].keys())
    for name in tensors[0].keys() & tensors[1].keys():
        different += int(tensors[0][name].tobytes() != tensors[1][name].tobytes())
    logs = [[{k: v for k, v in line.items() if k != "seconds"} for line in run.metrics()] for run in (one, other)]
    different += abs(len(logs[0]) - len(logs[1])) + sum(a != b for a, b in zip(*logs, strict=False))
    return different + int(one.model_file.read_bytes() != other.model_file.read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    parser.add_argument("--kills", type=int, default=50, help="how often to kill the run")
    parser.add_argument("--seed", type=int, default=0, help="of the instants")
    arguments = parser.parse_args()
    bars, generator = Bars(), random.Random(arguments.seed)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    steps = 30 * arguments.kills
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_pairs(folder)
        smooth, killed = RunFolder(folder / "smooth"), RunFolder(folder / "killed")
        silent = {"env": environment, "stderr": subprocess.DEVNULL}
        subprocess.run(command(folder, smooth.path, steps), check=True, **silent)  # type: ignore[call-overload]
        kills = in_save = at_start = replaced = mixed = 0
        while kills < arguments.kills:
            before = last_step(killed)
            if before and kills % REPLACED_EVERY == 0:
                replaced += 1
                mixed += mixes(folder, killed, command(folder, killed.path, steps), environment)
            process = subprocess.Popen(command(folder, killed.path, steps), **silent)  # type: ignore[call-overload]
            kind = generator.random()
            if kind < 0.1:
                time.sleep(generator.uniform(0, 4))  # somewhere in the start
            else:
                while last_step(killed) == before and process.poll() is None:
                    time.sleep(0.005)
                time.sleep(generator.uniform(0, 1))
            while kind > 0.8 and not list(killed.checkpoints.glob("*.tmp-*")) and process.poll() is None:
                pass  # wait for the next checkpoint to be half written
            if process.poll() is not None:
                sys.exit(f"the run ended by itself after {kills} kills, with code {process.returncode}")
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            at_start += last_step(killed) == before
            in_save += bool(list(killed.checkpoints.glob("*.tmp-*")))
            print(f"kill {kills}: step {last_step(killed)} of {steps}", file=sys.stderr, flush=True)
        subprocess.run(command(folder, killed.path, steps), check=True, **silent)  # type: ignore[call-overload]
        logged = [line["step"] for line in killed.metrics() if "loss" in line]
        bars.report("kills", kills, low=arguments.kills)
        bars.report("of them before the first new checkpoint", at_start)
        bars.report("of them during a checkpoint write", in_save, low=1)
        bars.report("images replaced between kills", replaced, low=1)
        bars.report("of them not refused, or with files of the run changed", mixed, high=0)
        bars.report(
            "steps missing or logged twice",
            len(set(range(1, steps + 1)) ^ set(logged)) + len(logged) - len(set(logged)),
            high=0,
        )
        bars.report("tensors, log lines and files that differ", differences(smooth, killed), high=0)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
