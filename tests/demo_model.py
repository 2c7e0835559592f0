"""A model of the simulated microscope that has learned nothing, calibrated at random: to run the demo in no time."""

import dataclasses
from pathlib import Path

from sfumato.data.normalize import Normalization
from sfumato.models import recipe as recipes
from sfumato.models.build import build_model
from sfumato.models.intervals import Correction, Sampled
from sfumato.models.model_file import ModelInfo, save_model

__all__ = ["write_demo_model"]


def write_demo_model(path: Path, *, is_calibrated: bool = True) -> Path:
    """Residual, so that it gives the upsampled image with a little noise."""
    recipe = recipes.parse(
        "problem: biosr\n"
        "data: {folder: biosr, normalize: image, upsample: true}\n"
        "model: {base: 4, rate_base: 4, num_scales: 2, residual: true, scale: 0.05}\n"
    )
    same = Normalization((0.0,), (1.0,))
    info = ModelInfo(recipe, 1, 1, same, same, audit={}, provenance={}, factor=(2, 2))
    if is_calibrated:
        found = Correction("risk_control", 0.9, 2.0, 20, 20, 0.5, Sampled(4, 2, "2m", 0.0), offset=0.1)
        info = dataclasses.replace(info, calibration=found)
    save_model(path, build_model(recipe.model, 1, 1, seed=0).state_dict(), info)
    return path
