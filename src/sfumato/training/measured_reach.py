"""At the end of a training: measure how far the model looks, and write it into the model file."""

import sys
import time
from pathlib import Path

import numpy as np
import torch

from sfumato.data.sources import evenly_spread
from sfumato.models.measure_reach import FIELDS, SIDES, TARGET_RANGE, measure_reach
from sfumato.models.model_file import LoadedModel, load
from sfumato.models.model_updates import set_reach
from sfumato.models.reach import Reach, reach_of_call
from sfumato.training.preparation import Prepared

__all__ = ["LEAST_STEPS", "store_reach"]

LEAST_STEPS = 50
"""A shorter training teaches a network nothing that is worth measuring; its halos stay as they are."""


def store_reach(path: Path, data: Prepared, device: torch.device, *, quiet: bool = False) -> None:
    """Measure the reach of a model file on images that no network learned from, if there are any, and store it there.

    Args:
        path: The model file, which is replaced whole or not at all.
        data: Its samples.
        device: Where to run the networks.
        quiet: Say nothing.
    """
    started = time.perf_counter()
    found = _measure(model := load(path, device=device), data, device)
    if isinstance(found, Reach):
        set_reach(path, found, sha256=model.sha256)
    if not quiet:
        seconds = f"measured in {time.perf_counter() - started:.2g} s"
        print(f"reach: {found} ({seconds})", file=sys.stderr, flush=True)


def _measure(model: LoadedModel, data: Prepared, device: torch.device) -> Reach | str:
    """The reach, or why there is none."""
    if reach_of_call(model.model) is None:
        return "a network normalises over the whole image, so halos stay as they are"
    source = data.train if data.validation is None else data.validation
    conditions, targets = [], []
    for index in evenly_spread(len(source), FIELDS[source.ndim]):
        spatial = source.spatial(index)
        size = [min(length, SIDES[source.ndim]) for length in spatial]
        corner = [(length - part) // 2 for length, part in zip(spatial, size, strict=True)]
        condition, target = source.read(index, corner, size)
        conditions.append(data.condition.of_pixels(condition[None]).to(device))
        targets.append(data.target.of_pixels(target[None]).numpy().ravel())
    low, high = np.quantile(np.concatenate(targets), TARGET_RANGE)
    reach = measure_reach(model.model, model.info.recipe.sample, conditions, float(high - low))
    return "it is further than these images tell, so halos stay as they are" if reach is None else reach
