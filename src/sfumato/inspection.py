"""A look into one model: its networks, and its schedule and samples on one image, as the paper's figures."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sfumato.baselines import Regression
from sfumato.data.enlarged import EnlargedFrames
from sfumato.data.frames import FilePairs, FrameReader
from sfumato.data.io import open_image
from sfumato.data.pairs import Pair
from sfumato.diagram import draw_network
from sfumato.errors import ImageError
from sfumato.figures import draw_gamma, draw_mean_and_std, draw_samples, draw_schedule, integral_of_beta
from sfumato.model_file import LoadedModel
from sfumato.noise import NoiseField
from sfumato.restoration.array import draw_blocks, enlargement, normalised
from sfumato.restoration.layout import choose_layout

__all__ = ["describe", "draw_diagrams", "draw_posterior", "read_image"]

Image = NDArray[np.generic]


def describe(model: LoadedModel) -> list[str]:
    """What a model file says of itself, a line each."""
    info, settings = model.info, model.info.recipe.model
    count = sum(parameter.numel() for parameter in model.model.parameters())
    schedule = "none" if settings.method == "regression" else settings.schedule
    return [
        f"name: {info.recipe.name}, problem: {info.recipe.problem}, sha256: {model.sha256[:12]}",
        f"method: {settings.method}, network: {settings.network}, schedule: {schedule}, {count:,} weights",
        f"channels: {info.condition_channels} in, {info.target_channels} out, {settings.ndim}-D, "
        f"enlarges by {'unknown' if info.factor is None else ' x '.join(map(str, info.factor))}",
        ", ".join(f"{key}: {value}" for key, value in info.provenance.items()),
    ]


def read_image(model: LoadedModel, source: Path, target: Path | None) -> tuple[Image, Image | None]:
    """First frame of an image on the grid of the model's targets, (K, H, W), and of its truth, (C, H, W)."""
    data, ndim = model.info.recipe.data, model.info.recipe.model.ndim
    if ndim != 2:
        raise ImageError(f"the model takes images of {ndim} spatial axes; figures are drawn for 2 only")
    if target is None:
        frames = EnlargedFrames(FrameReader(open_image(source, axes=data.input_axes), ndim), enlargement(model))
        return frames.read(0, [0, 0], frames.spatial), None
    pairs = FilePairs(
        [Pair(source.name, source, target)],
        axes=(data.input_axes, data.target_axes),
        upsample=data.upsample,
        cache_bytes=0,
    )
    return pairs.read(0, [0, 0], pairs.spatial(0))


def draw_diagrams(model: LoadedModel, folder: str | Path) -> list[Path]:
    """Draw the network that restores and, if there is one, the network of rates; returns the files."""
    folder, settings = _made(folder), model.info.recipe.model
    conditions, targets = model.info.condition_channels, model.info.target_channels
    channels = {"network": conditions, "rate_network": conditions}
    if settings.method == "cvdm":
        channels["network"] += (3 if settings.mean_network else 2) * targets
    networks = {"network": model.model.network, "rate_network": getattr(model.model.schedule, "network", None)}
    titles = {"network": f"{settings.method} network", "rate_network": "rate network of the schedule"}
    paths = []
    for name, network in networks.items():
        if isinstance(network, nn.Module) and any(True for _ in network.children()):  # a global rate has no network
            paths.append(folder / f"{name}.png")
            title = f"{titles[name]} ({type(network).__name__})"
            draw_network(network, channels[name], title=title, ndim=settings.ndim).savefig(paths[-1])
    return paths


def draw_posterior(
    model: LoadedModel,
    measured: Image,
    folder: str | Path,
    *,
    target: Image | None = None,
    num_samples: int = 20,
    num_steps: int | None = None,
    seed: int = 0,
) -> list[Path]:
    """Draw schedule, gamma, mean and deviation, and samples of one image; returns the files.

    Args:
        model: A diffusion model of images.
        measured: Shape (K, H, W), on the grid of the model's targets, in the units of the model's training inputs.
        folder: Where the figures go.
        target: The truth, shape (C, H, W); without it structure is where the mean of the samples is bright.
        num_samples: The paper has 20; at least 2.
        num_steps: Network calls per draw; the recipe's if not given.
        seed: The same seed gives the same draws.

    Raises:
        ImageError: If the model is a regression, which has neither schedule nor samples.
    """
    if isinstance(model.model, Regression):
        raise ImageError(
            "this model is a regression: it has no schedule and no samples to draw; inspect a diffusion model"
        )
    if num_samples < 2:
        raise ImageError(f"num_samples is {num_samples}; a standard deviation needs at least 2; give more")
    folder = _made(folder)
    condition, _ = normalised(measured, model, on_target_grid=True)
    batch = choose_layout(model, condition.shape[2:], num_samples).batch
    blocks = draw_blocks(
        condition, model, num_samples=num_samples, batch=batch, num_steps=num_steps, noise=NoiseField(seed)
    )
    draws = model.info.target.invert(torch.cat(list(blocks)))[:, 0].numpy()
    with torch.no_grad():
        schedule = model.model.schedule(condition)
    seen = np.asarray(measured[0], np.float32)
    truth = None if target is None else np.asarray(target[0], np.float32)
    beta = np.broadcast_to(integral_of_beta(schedule)[0, 0], seen.shape)
    region, word = (draws.mean(0), f"mean of {num_samples} samples") if truth is None else (truth, "target")
    figures = {
        "schedule": draw_schedule(schedule, region, what=word),
        "gamma": draw_gamma(schedule),
        "mean_and_std": draw_mean_and_std(seen, draws, truth),
        "samples": draw_samples(seen, draws, beta, truth),
    }
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png")
    return [folder / f"{name}.png" for name in figures]


def _made(folder: str | Path) -> Path:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)
