"""What a training step costs: processor seconds of one core, contenders timed in turn in one run beside version 0.1.

A budget in seconds becomes a number of steps by these stored costs, so that what else the machine does while a
contender is trained changes nothing.
"""

import csv
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch

from sfumato.models.recipe import Recipe
from sfumato.nn.linear_filter import LinearFilter
from sfumato.system.device import without_subnormals
from sfumato.training.distributed import Ranks
from sfumato.training.known_first import fit_filter
from sfumato.training.loop import Trainer
from sfumato.training.preparation import Prepared, prepare
from sfumato.training.run_folder import RunFolder
from sfumato.training.stages import stages_of
from yardstick.cells import Cell, recipe_of
from yardstick.contenders import CONTENDERS
from yardstick.problems import Places

__all__ = [
    "COSTS",
    "REFERENCE",
    "before_of",
    "cost_of",
    "measure_costs",
    "seconds_before",
    "timed_in_turn",
    "timed_steps",
]

COSTS = Path(__file__).parents[1] / "results" / "per_minute" / "costs.csv"
REFERENCE = "default_0_1"
"""Machines differ: every timing also times version 0.1, whose cost, once stored, fixes the unit of all seconds."""
_ROUNDS, _STEPS = 4, 6
_BEFORE = ", before"
_LOW = 0.25
"""Quantile of the steps' seconds: other work on the machine only adds to them."""


def cost_of(cell: Cell) -> float:
    """Seconds of a training step."""
    costs = _stored()
    key = _key(cell)
    if key not in costs:
        raise SystemExit(f"the cost of a step of {'/'.join(key)} is not stored; run per_minute.py --costs first")
    return costs[key]


def seconds_before(cell: Cell) -> float:
    """Seconds of what is computed between steps: the linear filters, scale and spectrum, if there are any."""
    return _stored().get(before_of(_key(cell)), 0.0)


def measure_costs(cells: Sequence[Cell], places: Places) -> None:
    """Time steps of what is not stored yet, in turn, and store them beside the others."""
    torch.set_num_threads(1)
    costs = _stored()
    wanted = {_key(cell): cell for cell in cells if CONTENDERS[cell.contender].kind == "recipe"}
    for problem in dict.fromkeys(cell.problem for cell in wanted.values()):
        new = {key: cell for key, cell in wanted.items() if cell.problem == problem and key not in costs}
        if new:
            reference = Cell(problem, REFERENCE, 30.0, 0)
            timed = {**new, _key(reference): reference}
            found = timed_in_turn({key: recipe_of(cell, places) for key, cell in timed.items()})
            unit = costs.get(_key(reference), found[_key(reference)]) / found[_key(reference)]
            found = {key: unit * cost for key, cost in found.items()}
            costs |= found
            _write(costs)
            for key, cost in found.items():
                when = "between steps" if key == before_of(key) else "per step"
                print(f"{'/'.join(key)}: {1000 * cost:.0f} ms {when}", flush=True)


def timed_in_turn(recipes: Mapping[tuple[str, ...], Recipe]) -> dict[tuple[str, ...], float]:
    """Seconds of a training step of each recipe, stages weighted by their share.

    Where anything is fitted between steps, its seconds are there under the recipe's key with `before` at its last part.
    """
    with tempfile.TemporaryDirectory() as folder, without_subnormals():
        return _in_turn(recipes, Path(folder))


def _in_turn(recipes: Mapping[tuple[str, ...], Recipe], folder: Path) -> dict[tuple[str, ...], float]:
    data: dict[str, Prepared] = {}
    trainers = {}
    for key, recipe in recipes.items():
        shown = recipe.data.model_dump_json() + str(dict(recipe.forward))
        data[shown] = data.get(shown) or prepare(recipe)
        trainers[key] = Trainer(recipe, RunFolder(folder / "-".join(key)), data[shown], Ranks.join("cpu"))
    before = {before_of(key): fit for key, trainer in trainers.items() if (fit := _filter(trainer))}
    stages = [(key, stage.first) for key, trainer in trainers.items() for stage in stages_of(trainer.recipe.train)]
    seconds: dict[tuple[tuple[str, ...], int], list[float]] = {stage: [] for stage in stages}
    for number in range(_ROUNDS):
        for key, first in stages:
            trainer = trainers[key]
            trainer.step = first + number * _STEPS
            for step in range(trainer.step, trainer.step + _STEPS):
                started = time.process_time()
                trainer.advance(trainer.batches(step, trainer.positions))
                taken = time.process_time() - started
                if step > first:  # the first one also allocates
                    seconds[key, first].append(taken)
                elif first and number == 0:  # and fits what the stages before leave
                    before[before_of(key)] = before.get(before_of(key), 0.0) + taken
    found = dict.fromkeys(recipes, 0.0)
    for key, trainer in trainers.items():
        settings = trainer.recipe.train
        for stage in stages_of(settings):
            found[key] += stage.steps / settings.steps * float(np.quantile(seconds[key, stage.first], _LOW))
    return {**found, **before}


def _filter(trainer: Trainer) -> float:
    if trainer.model.start is None:
        return 0.0
    started = time.process_time()
    fit_filter(cast("LinearFilter", trainer.model.start), trainer.batches)
    return time.process_time() - started


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


def before_of(key: tuple[str, ...]) -> tuple[str, ...]:
    """The key of what is computed between the steps of a key."""
    return key if key[-1].endswith(_BEFORE) else (*key[:-1], key[-1] + _BEFORE)


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
