"""Cells trained and measured in processes of their own, a few at a time; whatever was stopped goes on."""

import contextlib
import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from paper.matrix import CVDM_0_1, LEVELS, OWN, PROBLEMS, STUDIES, Cell, cell_named
from paper.provenance import outdated, record
from paper.sources import make_data, recipe_for
from paper.stored import Places, Row, chosen_trial, file_of, is_measured, merge, read, read_all, sets_of
from sfumato.system.device import without_subnormals
from sfumato.training.run_folder import RunFolder

__all__ = ["list_cells", "rerun", "run", "run_one", "state", "time_cells"]

SCRIPT = Path(__file__).parents[1] / "paper_small.py"
COSTS = "costs.csv"
RERUN_SPREAD = 0.05
"""Between processors, which round differently; on the same one nothing changes."""


def state(cell: Cell, places: Places) -> str:
    """Where a cell stands: missing, training k of n, trained, measured, with which settings; or what it waits for."""
    if is_measured(cell, places, read(places.results / f"{file_of(cell)}.csv")):
        former = outdated(cell, places) if cell.trains else []
        return f"measured with another {former[0]}" if former else "measured"
    if not cell.trains and cell.kind in ("classical", "timing"):
        return "missing"
    folder = RunFolder(places.work / cell.run)
    recipe = folder.recipe()
    if recipe is None:
        waits = cell.kind == "tuned" and chosen_trial(cell.problem, read_all(places.results)) is None
        return "waits for trials" if waits else f"waits for {cell.run}" if not cell.trains else "missing"
    step = max((int(line["step"]) for line in folder.metrics()), default=0)
    return "trained" if step >= recipe.train.steps else f"training {step} of {recipe.train.steps}"


def minutes(cell: Cell, places: Places) -> tuple[float, float]:
    """Expected minutes of training and of measuring on one free core, from the stored costs."""
    costs = _costs(places)
    kind = "cddpm" if cell.method.startswith(("cddpm", "trial")) else cell.method
    known = costs.get((cell.problem, kind)) or costs.get((cell.problem, CVDM_0_1), (float("nan"), float("nan")))
    with contextlib.suppress(SystemExit):
        recipe = recipe_for(replace(cell, kind="trial" if cell.kind == "trial" else "model"), places)
        per_step, per_call = known
        calls = sum(
            places.num_images(cell, test_set, draw) * places.num_samples(cell) * (draw.steps or recipe.sample.steps)
            for draw in cell.draws
            for test_set in sets_of(cell, draw)
        )
        area = (places.side(cell) / PROBLEMS[cell.problem].crop) ** 2
        training = recipe.train.steps * per_step / 60 if cell.trains else 0.0
        if cell.kind in ("classical", "timing"):
            return 0.0, 1.0
        if cell.kind == "levels":
            return 0.0, places.num_images(cell, sets_of(cell, OWN)[0], OWN) * len(LEVELS) * area * per_call / 60
        if cell.kind == "sizes":
            return 0.0, 8 * 8 * 16 * 4 * (256 / 176) ** 2 * per_call / 60
        if "model.method=regression" in cell.settings:
            return training, 0.5
        return training, calls * area * per_call / 60
    return float("nan"), float("nan")


def list_cells(cells: Sequence[Cell], places: Places) -> Iterator[str]:
    """One line per cell and a total."""
    total = 0.0
    for cell in cells:
        now = state(cell, places)
        training, measuring = minutes(cell, places)
        left = 0.0 if now == "measured" else measuring + (0.0 if now == "trained" else training)
        total += left
        yield f"tier {cell.tier}  {cell.name:<34} {now:<24} {training:5.0f} + {measuring:4.0f} min"
    yield f"left: {total / 60:.1f} hours of one core"


def run(cells: Sequence[Cell], places: Places, *, jobs: int) -> int:
    """Train and measure what is missing, in order, so many at a time.

    Returns:
        How many cells failed.
    """
    for problem in dict.fromkeys(cell.problem for cell in cells):
        make_data(problem, places)
    waiting, failed = list(cells), 0
    running: dict[subprocess.Popen[bytes], Cell] = {}
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        while waiting or running:
            for process in [process for process in running if process.poll() is not None]:
                failed += _finish(running.pop(process), process.returncode, places)
            while len(running) < jobs and (chosen := _next(waiting, list(running.values()), places)) is not None:
                waiting.remove(chosen)
                collect(chosen, places)
                if state(chosen, places) != "measured":
                    running[_start(chosen, places)] = chosen
                    print(f"{chosen.name}: started", flush=True)
            if waiting and not running:
                print(f"cannot run, for want of what they build on: {', '.join(cell.name for cell in waiting)}")
                return failed + len(waiting)
            time.sleep(1)
    except KeyboardInterrupt:
        print("stopping: runs save their state; the same command goes on", flush=True)
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
        raise
    return failed


def _finish(cell: Cell, code: int, places: Places) -> int:
    """Take in what a process has left; returns 1 if it failed."""
    if code == 0:
        collect(cell, places)
    print(f"{cell.name}: {'done' if code == 0 else f'FAILED, see {_log(cell, places)}'}", flush=True)
    return int(code != 0)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _next(waiting: Sequence[Cell], running: Sequence[Cell], places: Places) -> Cell | None:
    """The first cell whose groundwork is done: trials before what they tune, trainings before studies of them."""
    for cell in waiting:
        if cell.kind == "tuned" and chosen_trial(cell.problem, read_all(places.results)) is None:
            continue
        if cell.kind in STUDIES and (
            cell.run in [other.name for other in running] or state(cell, places) not in ("trained", "measured")
        ):
            continue
        return cell
    return None


def _log(cell: Cell, places: Places) -> Path:
    return places.work / "logs" / f"{cell.name.replace('/', '-')}.log"


def _start(cell: Cell, places: Places) -> "subprocess.Popen[bytes]":
    log = _log(cell, places)
    log.parent.mkdir(parents=True, exist_ok=True)
    options = [part for setting in places.settings for part in ("--set", setting)]
    numbers = ["--samples", places.samples, "--images", places.images, "--crop", places.crop]
    command = [sys.executable, SCRIPT, "--one", cell.name, "--work", places.work, "--results", places.results]
    with log.open("ab") as file:
        return subprocess.Popen(
            [str(part) for part in (*command, *numbers, *options)],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "SFUMATO_DATA": str(places.data)},
        )


def run_one(name: str, places: Places) -> None:
    """Train and measure one cell in this process; its rows are left in its folder."""
    import torch

    from paper.measuring import measure
    from paper.variants import changed
    from sfumato.training.train import train

    torch.set_num_threads(1)
    cell = cell_named(name)
    folder = places.work / cell.name
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder), changed(cell.variant):
        make_data(cell.problem, places)
        if cell.trains:
            train(recipe_for(cell, places), folder, quiet=True)
        with without_subnormals():
            rows = [*measure(cell, places), *_training_time(cell, places)]
        merge(folder / "rows.csv", rows)


def rerun(name: str, places: Places) -> bool:
    """Train and measure a cell again, in a folder of runs without it, and print how far it is from the stored result.

    Returns:
        Whether the mean of each set's MAE is within ``RERUN_SPREAD``.
    """
    cell = cell_named(name)
    if (places.work / cell.name).exists():
        raise SystemExit(f"{places.work / cell.name} is there already, so nothing would be trained; give a new --work")
    run_one(name, places)
    again, before = (
        {row[:6]: row.value for row in rows if (row.problem, row.seed) == (cell.problem, cell.seed)}
        for rows in (read(places.work / cell.name / "rows.csv"), read(places.results / f"{file_of(cell)}.csv"))
    )
    common = [key for key in again if key in before and key[5] not in ("seconds", "minutes")]
    if not common:
        raise SystemExit(f"{name} is not stored in {places.results}, so there is nothing to compare with")
    same = sum(repr(again[key]) == repr(before[key]) for key in common)  # as text, since NaN is not itself
    print(f"{name}: {same} of {len(common)} numbers are the same to all digits stored")
    within = True
    for method, test_set in dict.fromkeys((key[1], key[3]) for key in common):
        keys = [key for key in common if (key[1], key[3], key[5]) == (method, test_set, "MAE")]
        if keys:
            now, then = (sum(values[key] for key in keys) / len(keys) for values in (again, before))
            print(f"{method}, {test_set}: MAE {now:.4g}, stored {then:.4g}, {100 * (now / then - 1):+.2f}%")
            within &= abs(now / then - 1) <= RERUN_SPREAD
    return within


def _training_time(cell: Cell, places: Places) -> Iterator[Row]:
    """Minutes that the training took on its core, from the median of its steps."""
    if cell.trains:
        seconds = [line["seconds"] for line in RunFolder(places.work / cell.run).metrics() if "seconds" in line]
        steps = recipe_for(cell, places).train.steps
        yield Row(cell.problem, cell.method, cell.seed, "training", "all", "minutes", median(seconds) * steps / 60)


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Refuse to work on a cell beside another process, such as one whose parent was killed; where locks exist."""
    with (folder / "lock").open("w") as file:
        try:
            import fcntl
        except ImportError:  # not on Windows
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SystemExit(f"another process works on {folder}; wait for it or stop it") from None
        yield


def collect(cell: Cell, places: Places) -> None:
    """Bring the rows of a finished cell into the stored figures."""
    rows = read(places.work / cell.name / "rows.csv")
    if rows:
        merge(places.results / f"{file_of(cell)}.csv", rows)
        if cell.trains:
            record(cell, places)


def time_cells(cells: Sequence[Cell], places: Places) -> None:
    """Measure the costs of steps and network calls, by a few of each, and store them."""
    from paper.measuring import seconds_of

    costs = _costs(places)
    for cell in cells:
        kind = "cddpm" if cell.method.startswith("cddpm") else cell.method
        is_change = kind.startswith("cvdm_") and kind != CVDM_0_1
        if cell.kind != "model" or is_change or (cell.problem, kind) in costs:
            continue
        costs[cell.problem, kind] = seconds_of(cell, places)
        print(f"{cell.problem} {kind}: {costs[cell.problem, kind]}", flush=True)
        places.results.mkdir(parents=True, exist_ok=True)
        with (places.results / COSTS).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["problem", "method", "seconds_per_step", "seconds_per_call"])
            writer.writerows([*key, *(f"{value:.3g}" for value in values)] for key, values in costs.items())


def _costs(places: Places) -> dict[tuple[str, str], tuple[float, float]]:
    path = places.results / COSTS
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {
            (row["problem"], row["method"]): (float(row["seconds_per_step"]), float(row["seconds_per_call"]))
            for row in csv.DictReader(file)
        }
