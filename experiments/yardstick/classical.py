"""Methods that compute, each with the effort that is best on validation images."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.models.recipe import Recipe
from sfumato.physics.deconvolution import richardson_lucy
from sfumato.physics.optics import SIM_EXTENSION, blur
from sfumato.problems.microscopy_simulation import Microscope
from sfumato.problems.phase_settings import PhaseSettings
from sfumato.problems.request import parameters
from yardstick.problems import PROBLEMS, Held, Places, held_out
from yardstick.scores import Restored, score

__all__ = ["EFFORTS", "classical_of"]

EFFORTS: Mapping[str, Sequence[float]] = {
    "gaussian": (0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3),
    "richardson_lucy": (10, 40, 160, 320, 640, 1280, 2560),
    "us_tie": (1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
    "measured": (0,),
}
"""Pixels of a blur, iterations, damping of slow structures."""
_TUNED_ON = 24

Array = NDArray[Any]


def classical_of(name: str, problem: str, recipe: Recipe, places: Places) -> Callable[[Held, int], Restored]:
    """The method with the effort of least error on validation images."""

    def run(image: Held, effort: float) -> Restored:
        started = time.process_time()
        mean = torch.from_numpy(np.ascontiguousarray(_METHODS[name](image.condition, effort, recipe)))
        return Restored(mean, None, time.process_time() - started)

    efforts = EFFORTS[name]
    images = held_out(problem, "validation", places, most=_TUNED_ON) if len(efforts) > 1 else []

    def error(effort: float) -> float:
        return float(
            np.mean(
                [
                    score(run(image, effort), torch.from_numpy(image.truth), PROBLEMS[problem])["RMSE"]
                    for image in images
                ]
            )
        )

    best = min(efforts, key=error) if images else efforts[0]
    print(f"{problem}/{name}: effort {best:g}", flush=True)
    return lambda image, _: run(image, best)


def _measured(condition: Array, effort: float, recipe: Recipe) -> Array:
    return condition[:1]


def _gaussian(condition: Array, effort: float, recipe: Recipe) -> Array:
    from scipy.ndimage import gaussian_filter

    return np.asarray(gaussian_filter(condition[:1], (0, effort, effort), mode="reflect"))


def _richardson_lucy(condition: Array, effort: float, recipe: Recipe) -> Array:
    """The background is subtracted first; each image is scaled, so it is taken from the darkest pixels."""
    scope = Microscope()
    light = torch.from_numpy(condition - np.percentile(condition, 1)).clamp_min(0)
    optics: dict[str, Any] = {"pixel_um": scope.pixel_um / 2, "cutoff": scope.cutoff}
    sharp = richardson_lucy(light, num_iterations=round(effort), **optics)
    return blur(sharp, cutoff=SIM_EXTENSION * scope.cutoff, pixel_um=scope.pixel_um / 2).numpy()


def _us_tie(condition: Array, effort: float, recipe: Recipe) -> Array:
    from sfumato.evaluation.compared_methods import TwoShots, phase_method

    settings = parameters(PhaseSettings, recipe.forward)
    shots = TwoShots(settings.pixel_um, settings.wavelength_um, settings.defocus_um, settings.planes)
    return phase_method("us_tie", dataclasses.replace(shots, reg=effort)).run(condition, 0)


_METHODS: Mapping[str, Callable[[Array, float, Recipe], Array]] = {
    "measured": _measured,
    "gaussian": _gaussian,
    "richardson_lucy": _richardson_lucy,
    "us_tie": _us_tie,
}
