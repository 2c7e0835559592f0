"""Model files of random weights, for benchmarks of what surrounds the networks."""

from pathlib import Path

import torch

from sfumato.data.normalize import Normalization
from sfumato.models.build import build_model
from sfumato.models.model_file import ModelInfo, save_model
from sfumato.models.recipe import parse

__all__ = ["write_random_model"]


def write_random_model(path: Path, *, base: int, num_scales: int, std: float, data: Normalization) -> Path:
    """One channel in, one out; ``std`` is that of the weights."""
    recipe = parse(f"model: {{base: {base}, rate_base: 2, num_scales: {num_scales}}}\n", source="benchmark")
    model = build_model(recipe.model, 1, 1)
    generator = torch.Generator().manual_seed(0)
    for weights in model.parameters():
        weights.data = std * torch.randn(weights.shape, generator=generator)
    save_model(path, model.state_dict(), ModelInfo(recipe, 1, 1, data, data, {}, {}))
    return path
