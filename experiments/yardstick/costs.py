"""What a training step costs: processor seconds of one core, all contenders timed in turn in one run.

A budget in seconds becomes a number of steps by these stored costs, so that what else the machine does while a
contender is trained changes nothing.
"""

import csv
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from sfumato.system.device import without_subnormals
from sfumato.training.distributed import Ranks
from sfumato.training.loop import Trainer
from sfumato.training.preparation import Prepared, prepare
from sfumato.training.run_folder import RunFolder
from yardstick.cells import Cell, recipe_of
from yardstick.contenders import CONTENDERS
from yardstick.problems import Places

__all__ = ["COSTS", "cost_of", "measure_costs", "timed_steps"]

COSTS = Path(__file__).parents[1] / "results" / "per_minute" / "costs.csv"
_ROUNDS, _STEPS = 4, 6
_LOW = 0.25
"""Quantile of the steps' seconds: other work on the machine only adds to them."""


def cost_of(cell: Cell) -> float:
    """Seconds of a training step."""
    costs = _stored()
    key = _key(cell)
    if key not in costs:
        raise SystemExit(f"the cost of a step of {'/'.join(key)} is not stored; run per_minute.py --costs first")
    return costs[key]


def measure_costs(cells: Sequence[Cell], places: Places) -> None:
    """Time steps of what is not stored yet, in turn, and store them beside the others."""
    torch.set_num_threads(1)
    costs = _stored()
    wanted = {_key(cell): cell for cell in cells if CONTENDERS[cell.contender].kind == "recipe"}
    for problem in dict.fromkeys(cell.problem for cell in wanted.values()):
        new = {key: cell for key, cell in wanted.items() if cell.problem == problem and key not in costs}
        if new:
            with tempfile.TemporaryDirectory() as folder, without_subnormals():
                found = _in_turn(new, places, Path(folder))
            costs |= found
            _write(costs)
            for key, cost in found.items():
                print(f"{'/'.join(key)}: {1000 * cost:.0f} ms per step", flush=True)


def _in_turn(cells: dict[tuple[str, ...], Cell], places: Places, folder: Path) -> dict[tuple[str, ...], float]:
    data: dict[str, Prepared] = {}
    trainers = {}
    for key, cell in cells.items():
        recipe = recipe_of(cell, places)
        shown = recipe.data.model_dump_json() + str(dict(recipe.forward))
        data[shown] = data.get(shown) or prepare(recipe)
        trainers[key] = Trainer(recipe, RunFolder(folder / "-".join(key)), data[shown], Ranks.join("cpu"))
    seconds: dict[tuple[str, ...], list[float]] = {key: [] for key in cells}
    for number in range(_ROUNDS):
        for key, trainer in trainers.items():
            for step in range(number * _STEPS, (number + 1) * _STEPS):
                started = time.process_time()
                trainer.advance(trainer.batches(step, trainer.positions))
                if step:  # the first one also allocates
                    seconds[key].append(time.process_time() - started)
    return {key: float(np.quantile(taken, _LOW)) for key, taken in seconds.items()}


def timed_steps(file: Path, make: Callable[[], Callable[[int], object]]) -> float:
    """Seconds of a step of a training that is no recipe's, timed once and kept in a file."""
    if not file.exists():
        advance, taken = make(), []
        for step in range(_ROUNDS * _STEPS):
            started = time.process_time()
            advance(step)
            taken.append(time.process_time() - started)
        file.write_text(f"{np.quantile(taken[1:], _LOW):.4g}", encoding="utf-8")
    return float(file.read_text(encoding="utf-8"))


def _key(cell: Cell) -> tuple[str, ...]:
    """Cells of the same networks cost the same."""
    return cell.problem, cell.contender, cell.size


def _stored() -> dict[tuple[str, ...], float]:
    if not COSTS.exists():
        return {}
    with COSTS.open(newline="", encoding="utf-8") as file:
        return {tuple(row[:3]): float(row[3]) for row in list(csv.reader(file))[1:]}


def _write(costs: dict[tuple[str, ...], float]) -> None:
    COSTS.parent.mkdir(parents=True, exist_ok=True)
    with COSTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("problem", "contender", "size", "seconds_per_step"))
        writer.writerows([*key, f"{cost:.4g}"] for key, cost in sorted(costs.items()))
