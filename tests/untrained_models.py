"""Model files with random weights, and what they restore in a moment."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from networks import seeded
from sfumato.data.normalize import Normalization
from sfumato.models.build import build_model
from sfumato.models.model_file import ModelInfo, save_model
from sfumato.models.recipe import parse
from sfumato.nn.linear_filter import LinearFilter
from sfumato.restoration.planning import Settings, plan_restoration
from sfumato.restoration.run import run_restoration

__all__ = ["SMALL", "noise", "restore_small", "write_model", "write_reading_model"]

SMALL = Settings(num_samples=2, num_steps=3, chunk=32, halo=32, batch=2, threads=1)
"""Chunks of 32 pixels, seen with a halo that one call of the network below does not look beyond."""


def write_model(
    path: Path, *, channels: int = 1, norm: str = "channel", ndim: int = 2, scale: float = 3.0, normalize: str = ""
) -> Path:
    """Random weights: what is tested is where pixels come from, not how good they are."""
    text = f"model: {{base: 4, rate_base: 2, num_scales: 3, norm: {norm}, ndim: {ndim}}}\n"
    text += f"data: {{normalize: {normalize}}}\n" if normalize else ""
    recipe = parse(text, source="test")
    model = seeded(lambda: build_model(recipe.model, channels, 1))
    condition, target = (Normalization(offset=(10.0,) * n, scale=(scale,) * n) for n in (channels, 1))
    save_model(path, model.state_dict(), ModelInfo(recipe, channels, 1, condition, target, {}, {}))
    return path


def write_reading_model(path: Path, *, std: float | None = None, norm: str = "channel", options: str = "") -> Path:
    """A model with mean and scale networks, whose weights are random.

    Args:
        path: Where to write it.
        std: If given, the mean is the condition and the standard deviation this number, in units of the target.
        norm: Normalisation of its networks.
        options: More sections of its recipe.
    """
    parts = "mean_network: true, linear_start: true, read_once: true, scale_network: true"
    sizes = "base: 4, rate_base: 3, num_scales: 3, denoiser_base: 3, denoiser_scales: 2"
    recipe = parse(f"model: {{{sizes}, norm: {norm}, {parts}}}\n{options}", source="test")
    data = Normalization((10.0,), (3.0,))
    model = build_model(recipe.model, 1, 1) if std is not None else seeded(lambda: build_model(recipe.model, 1, 1))
    start = model.start
    assert isinstance(start, LinearFilter)
    start.weight[0, 0, 7, 7] = 1.0
    if std is not None:
        model.log_scale.fill_(math.log(2 * std / 3.0))
    save_model(path, model.state_dict(), ModelInfo(recipe, 1, 1, data, data, {}, {}))
    return path


def noise(*shape: int) -> NDArray[np.float32]:
    return (10 + 3 * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)


def restore_small(model: Path, source: Path, output: Path) -> None:
    """Restore an image by small chunks, as a process of its own can be asked to."""
    run_restoration(plan_restoration(model, source, output, SMALL))
