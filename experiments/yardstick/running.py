"""Run cells in processes of their own, one core each; what was stopped is resumed by the same command."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from sfumato.system.device import without_subnormals
from sfumato.system.lock import held_alone
from yardstick.cells import Cell
from yardstick.contenders import CONTENDERS
from yardstick.problems import PROBLEMS, Places, held_out, make_data
from yardstick.scores import score
from yardstick.stored import RESULTS, Figure, is_stored, store, store_curve
from yardstick.training import curve, trained

__all__ = ["collect", "run", "run_one"]

SCRIPT = Path(__file__).parents[1] / "per_minute.py"


def run_one(cell: Cell, places: Places) -> None:
    """Train and measure one cell in this process, and leave its figures in its folder."""
    torch.set_num_threads(1)
    folder = places.work / cell.name
    folder.mkdir(parents=True, exist_ok=True)
    with held_alone(folder), without_subnormals():
        method = trained(cell, places)
        known = dict(_measured(folder / "measured.jsonl"))
        with (folder / "measured.jsonl").open("a", encoding="utf-8") as file:
            for test_set in PROBLEMS[cell.problem].test_sets:
                images = held_out(cell.problem, test_set, places, most=CONTENDERS[cell.contender].images)
                for number, image in enumerate(images):
                    key = f"{image.group}/{image.name}"
                    if key not in known:
                        values = score(method(image, number), torch.from_numpy(image.truth), PROBLEMS[cell.problem])
                        print(json.dumps({"image": key, "values": values}), file=file, flush=True)


def _measured(path: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """Images of earlier lines; the last may be cut off by a kill."""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            continue
        yield found["image"], found["values"]


def collect(cell: Cell, places: Places, results: Path = RESULTS) -> None:
    """Bring the figures of a finished cell into the stored ones."""
    folder = places.work / cell.name
    own = (cell.contender, cell.minutes, cell.seed)
    found = []
    for key, values in _measured(folder / "measured.jsonl"):
        group, _, image = key.partition("/")
        found += [Figure(*own, group, image, metric, value) for metric, value in values.items()]
    points = list(curve(cell, places))
    if points:
        found.append(Figure(*own, "training", "all", "seconds", points[-1][0]))
        store_curve(cell, points, results)
    elif (folder / "seconds.json").exists():
        seconds = sum(json.loads((folder / "seconds.json").read_text(encoding="utf-8")).values())
        found.append(Figure(*own, "training", "all", "seconds", seconds))
    store(cell, found, results)


def run(wanted: Sequence[Cell], places: Places, *, jobs: int) -> int:
    """Train and measure what is not stored, in order, so many at a time; returns how many failed."""
    make_data(places)
    waiting, failed = [cell for cell in wanted if not is_stored(cell)], 0
    running: dict[subprocess.Popen[bytes], Cell] = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while waiting or running:
            for process in [process for process in running if process.poll() is not None]:
                cell = running.pop(process)
                failed += process.returncode != 0
                print(f"{cell.name}: {'done' if process.returncode == 0 else 'FAILED'}", flush=True)
                if process.returncode == 0:
                    collect(cell, places)
            while waiting and len(running) < jobs:
                cell = waiting.pop(0)
                running[_start(cell, places)] = cell
                print(f"{cell.name}: started", flush=True)
            time.sleep(1)
    except KeyboardInterrupt:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
        print(f"stopped; run the same command again to resume; figures are in {RESULTS}", flush=True)
        raise
    return failed


def _start(cell: Cell, places: Places) -> "subprocess.Popen[bytes]":
    log = places.work / cell.name / "log.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, str(SCRIPT), "--cell", cell.name, "--work", str(places.work)],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "SFUMATO_DATA": str(places.data)},
        )
