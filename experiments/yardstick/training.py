"""Train each contender for its seconds of one core, and return what restores an image."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfumato.diffusion.noise import NoiseField
from sfumato.models.model_file import load
from sfumato.models.recipe import Recipe
from sfumato.nn.linear_filter import LinearFilter
from sfumato.restoration.restorer import Restorer
from sfumato.system.atomic_files import replace_text
from sfumato.training.known_first import fit_filter
from sfumato.training.loop import batches_of
from sfumato.training.preparation import Prepared, prepare
from sfumato.training.run_folder import RunFolder
from sfumato.training.train import train
from yardstick.cells import Cell, recipe_of
from yardstick.contenders import CONTENDERS, Contender
from yardstick.costs import cost_of, seconds_before
from yardstick.problems import Held, Places
from yardstick.scores import Restored, central

__all__ = ["NUM_SAMPLES", "Method", "curve", "single", "trained", "with_steps"]

NUM_SAMPLES = 16
_VALIDATIONS, _SAVES = 12, 12
"""Of a run, however long it is: points of its learning curve, and checkpoints."""

Method = Callable[[Held, int], Restored]


def trained(cell: Cell, places: Places) -> Method:
    """Train what is not trained yet, and return the method that restores a held-out image, given its number."""
    contender, folder = CONTENDERS[cell.contender], places.work / cell.name
    folder.mkdir(parents=True, exist_ok=True)
    recipe = recipe_of(cell, places)
    if contender.kind == "recipe":
        return _of_recipe(cell, recipe, contender, folder / "run")
    data = prepare(recipe)
    if contender.kind == "filter":
        return _of_filter(recipe, data, folder)
    if contender.kind == "flow":
        from yardstick.flow_matching import flow_of

        return flow_of(recipe, data, cell.minutes * 60, folder)
    if contender.kind == "care":
        from yardstick.care import care_of

        return care_of(recipe, data, cell.minutes * 60, folder)
    from yardstick.classical import classical_of

    return classical_of(cell.contender, cell.problem, recipe, places)


def _of_recipe(cell: Cell, recipe: Recipe, contender: Contender, run: Path) -> Method:
    folder = RunFolder(run)
    train(
        folder.recipe() or with_steps(recipe, cell.minutes * 60 - seconds_before(cell), cost_of(cell)), run, quiet=True
    )
    model = load(folder.model_file)
    restorer = Restorer.of(model, NUM_SAMPLES, contender.calls or recipe.sample.steps)
    # Where the mean is not that of the samples, none are needed outside the part on which they are scored.
    needs_all = recipe.sample.mean == "samples" or not restorer.draws_samples

    def restore(image: Held, number: int) -> Restored:
        condition = model.info.condition.of_pixels(image.condition[None])
        started = time.process_time()
        part = condition if needs_all else central(condition)
        drawn = restorer.draw(part, NoiseField(0, image=number), keep=(...,))
        mean = drawn.mean if needs_all else restorer.read(condition)[0][0]
        seconds = time.process_time() - started
        samples = model.info.target.invert(torch.stack(drawn.kept).double(), axis=1)
        mean = model.info.target.invert(mean.double(), axis=0)
        return Restored(mean, samples if len(samples) > 1 else None, seconds)

    return restore


def with_steps(recipe: Recipe, seconds: float, cost: float) -> Recipe:
    """With as many steps as fit into the seconds, and a learning curve of a dozen points."""
    steps = max(1, round(seconds / cost))
    paced: dict[str, Any] = {
        "steps": steps,
        "warmup": min(recipe.train.warmup, steps // 10),
        "validate_every": max(1, steps // _VALIDATIONS),
        "save_every": max(1, steps // _SAVES),
    }
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=paced)})


def curve(cell: Cell, places: Places) -> Iterator[tuple[float, float]]:
    """Processor seconds and validation loss of a run, as it went on."""
    folder = RunFolder(places.work / cell.name / "run")
    if folder.recipe() is not None:
        cost = cost_of(cell)
        for line in folder.metrics():
            if "validation" in line:
                yield cost * line["step"], line["validation"]


def single(data: Prepared, restore: Callable[[Tensor], Tensor]) -> Method:
    """A method from a function of normalised conditions (1, K, H, W) to normalised targets (1, C, H, W)."""

    def run(image: Held, number: int) -> Restored:
        started = time.process_time()
        mean = restore(data.condition.of_pixels(image.condition[None]))
        return Restored(data.target.invert(mean[0].double(), axis=0), None, time.process_time() - started)

    return run


def _of_filter(recipe: Recipe, data: Prepared, folder: Path) -> Method:
    started = time.process_time()
    unfitted = LinearFilter(data.train.condition_channels, data.train.target_channels)
    fitted = fit_filter(unfitted, batches_of(recipe, data))
    replace_text(
        folder / "seconds.json", json.dumps({"fit": time.process_time() - started}), untouched="Nothing was written"
    )
    return single(data, fitted)
