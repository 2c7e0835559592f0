"""A tiny model that has learned nothing and restores in no time: what the plugin is tried with."""

from pathlib import Path

import torch

from sfumato.data.normalize import Normalization
from sfumato.models.build import build_model
from sfumato.models.model_file import ModelInfo, save_model
from sfumato.models.recipe import DataRecipe, ModelRecipe, Recipe, SampleRecipe

__all__ = ["trial_info", "write_trial_model"]


def trial_info() -> ModelInfo:
    """What the tiny model says of itself: it takes the sample data and makes its pixels half as wide."""
    recipe = Recipe(
        name="untrained, to try the buttons",
        data=DataRecipe(upsample=True),
        model=ModelRecipe(base=4, rate_base=4, num_scales=2, residual=True, scale=0.05),
        sample=SampleRecipe(steps=8),
    )
    condition = Normalization((200.0,), (100.0,))
    return ModelInfo(recipe, 1, 1, condition, condition, audit={}, provenance={"step": 0}, factor=(2, 2))


def write_trial_model(path: str | Path, *, seed: int = 0) -> Path:
    """Write a model file with weights as they are before training.

    What it restores is the upsampled image with a little noise: good to see what each button and layer is, and for
    nothing else.
    """
    info = trial_info()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build_model(info.recipe.model, info.condition_channels, info.target_channels)
        for parameter in model.parameters():
            parameter.data += 0.05 * torch.randn_like(parameter)  # else rates would be the same at all pixels
    save_model(path, model.state_dict(), info)
    return Path(path)
