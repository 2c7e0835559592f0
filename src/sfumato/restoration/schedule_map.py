"""The schedule that a model assigns to an image: a map of where it is uncertain, and curves at one pixel.

The map is a relative hint without a unit, from one pass of the rate network.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.diffusion.schedule import Schedule
from sfumato.diffusion.uncertainty import integral_of_beta
from sfumato.models.model_file import LoadedModel
from sfumato.models.reach import stride
from sfumato.restoration.conditions import Measured
from sfumato.restoration.job import Task
from sfumato.restoration.layout import choose_layout
from sfumato.restoration.tiles import tiled
from sfumato.system.errors import ImageError

__all__ = ["check_schedule", "curves_at", "schedule_map", "schedule_of"]


def check_schedule(model: LoadedModel) -> None:
    """Refuse models whose schedule does not depend on the pixels.

    Raises:
        ImageError: If the model is a regression, or its schedule is the same for all pixels.
    """
    network = getattr(model.model.schedule, "network", None)
    knows_pixels = isinstance(network, nn.Module) and any(True for _ in network.children())  # a global rate has none
    if not (model.model.draws_samples and knows_pixels):
        raise ImageError(
            f"the schedule of this model ({model.info.recipe.model.method}, {model.info.recipe.model.schedule}) is the "
            "same for all pixels, so it says nothing about their uncertainty; expected a learned one: use samples"
        )


@torch.no_grad()
def schedule_map(condition: Tensor, model: LoadedModel, *, tile: int | None = None) -> Tensor:
    """The integral of beta of one image or region, shape (C, *spatial).

    Args:
        condition: As the networks take it, shape (1, K, *spatial).
        model: From :func:`sfumato.load`, with a schedule that :func:`check_schedule` accepts.
        tile: Side of the tiles that the network sees, or None for all at once.
    """
    network = model.model if tile is None else tiled(model.model, tile)
    rate = integral_of_beta(network.read(condition).schedule)[0].cpu()
    return rate.expand(model.info.target_channels, *condition.shape[2:])


@torch.no_grad()
def schedule_of(
    measured: Measured, model: LoadedModel, frame: int, corner: Sequence[int], size: Sequence[int]
) -> Schedule:
    """The schedule of a region, with rates of shape (1, C, *size); the rate network also sees a halo around the region.

    Args:
        measured: The image.
        model: A diffusion model.
        frame: Number of the frame.
        corner: First pixel of the region, on the target grid.
        size: Size of the region.

    Raises:
        ImageError: If the model is a regression, which has no schedule, or the image does not fit it.
    """
    if not model.model.draws_samples:
        raise ImageError("this model is a regression: it has no schedule; expected a diffusion model; choose another")
    halo = choose_layout(model, measured.spatial, 1, 1, measured=False).halo
    grid = stride(model.model)
    part = Task.within(measured.spatial, tuple(corner), tuple(size), [halo] * len(size), grid)
    whole = model.model.read(measured.condition(frame, part.seen_corner, part.seen_size)).schedule
    inner: tuple[Any, ...] = (..., *part.inner)
    rate = whole.rate.expand(1, model.info.target_channels, *part.seen_size)[inner]
    return Schedule(rate, whole.warp, whole.reference_rate)


@torch.no_grad()
def curves_at(
    schedule: Schedule, place: Sequence[int] | None, num_times: int = 101
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Times (T), beta (T, C) and gamma (T, C) at a pixel of the schedule's region, or at its mean rate.

    Args:
        schedule: From :func:`schedule_of`.
        place: The pixel, one number per spatial axis; None for the region's mean rate.
        num_times: T, evenly from 0 to 1.
    """
    rate = schedule.rate[0]
    at: tuple[Any, ...] = (slice(None), *(place or ()))
    rates = rate.flatten(1).mean(1) if place is None else rate[at]
    there = Schedule(rates.reshape(1, -1, 1, 1), schedule.warp, schedule.reference_rate)
    t = torch.linspace(0, 1, num_times, dtype=rates.dtype, device=rates.device)
    beta, gamma = (values[:, :, 0, 0].cpu().double().numpy() for values in (there.beta(t), there.gamma(t)))
    return t.cpu().double().numpy(), beta, gamma
