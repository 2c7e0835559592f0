"""Measure how far a trained model looks in effect; see :mod:`~sfumato.diffusion.effective_reach`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sfumato.diffusion.colour import noise_for
from sfumato.diffusion.effective_reach import effective_reach
from sfumato.diffusion.known import Known
from sfumato.diffusion.model import CVDM
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.sampling import sample
from sfumato.models.reach import TOLERANCE, Reach, halo_grid, reach_of_call

if TYPE_CHECKING:
    from sfumato.models.recipe import SampleRecipe

__all__ = ["FIELDS", "SIDES", "TARGET_RANGE", "measure_reach"]

FIELDS = {2: 3, 3: 2}
"""Images or volumes to measure on: their surroundings are exchanged."""
SIDES = {2: 288, 3: 72}
"""Side of what is seen of each: room for a reach of 112 pixels, or of 24 voxels."""
TARGET_RANGE = (0.001, 0.999)
"""Quantiles of the targets between which their range lies."""
_KEPT = {2: 32, 3: 8}
_SAFETY = 2
"""Few pixels are measured, and two halos may each contribute, so only half of the tolerance is used."""
_SEED = 20_261_118


@torch.no_grad()
def measure_reach(
    model: CVDM,
    settings: "SampleRecipe",
    conditions: Sequence[Tensor],
    value_range: float,
    *,
    side: int | None = None,
) -> Reach | None:
    """How far a model looks, or None if a network may look at the whole image, or further than can be measured.

    Args:
        model: A trained model in evaluation mode.
        settings: How samples are drawn.
        conditions: Crops of images as the networks take them, each (1, K, *spatial), of about :data:`SIDES`; smaller
            ones are continued by their mirror images.
        value_range: Range of the normalised targets.
        side: Another side than :data:`SIDES`.
    """
    if reach_of_call(model) is None:
        return None
    ndim = conditions[0].ndim - 2
    size = [min(lengths) for lengths in zip(*(condition.shape[2:] for condition in conditions), strict=True)]
    common: tuple[Any, ...] = (..., *map(slice, size))
    fields = [_mirrored(condition[common], side or SIDES[ndim]) for condition in conditions]
    noises = [_noise(model, settings, field, image) for image, field in enumerate(fields)]
    find = partial(
        effective_reach,
        limit=TOLERANCE * value_range / _SAFETY,
        kept=min(_KEPT[ndim], *fields[0].shape[2:]),
        grid=halo_grid(model),
    )
    has_center = model.center(fields[0]) is not None
    one_pass = find(_reads(model), _each(fields)) if has_center else None
    if not model.draws_samples:
        return None if one_pass is None else Reach(one_pass, one_pass)
    of_sample = find(lambda condition, noise: _drawn(model, settings, condition, noise), _each(fields, noises))
    if of_sample is None:
        return None
    known = [model.read(field) for field in fields]
    # Other surroundings changed ten times less than an end: most of what they tell was read before.
    fields_of_denoiser = _each(*zip(*map(_tensors, known), strict=True), noises)
    of_denoiser = find(_denoises(model, settings, known[0]), fields_of_denoiser, exchanges=False)
    return Reach(of_sample, one_pass, of_denoiser)


def _each(*parts: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    return list(zip(*parts, strict=True))


def _reads(model: CVDM) -> Callable[[Tensor], Tensor]:
    """Mean and standard deviation, read in one pass."""

    def call(condition: Tensor) -> Tensor:
        return torch.cat([part for part in model.mean_and_std(condition) if part is not None], 1)

    return call


def _denoises(model: CVDM, settings: "SampleRecipe", like: Known) -> Callable[..., Tensor]:
    """A sample, once the condition was read."""

    def call(seen: Tensor, center: Tensor, scale: Tensor, rate: Tensor, noise: Tensor) -> Tensor:
        known = Known(seen, center, scale, replace(like.schedule, rate=rate))
        return _drawn(model, settings, seen, noise, known)

    return call


def _tensors(known: Known) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All that is known, as tensors with a value for every pixel."""
    shape = (1, 1, *known.seen.shape[2:])
    zeros, rate = known.seen.new_zeros(shape), known.schedule.rate
    center = zeros if known.center is None else known.center
    return known.seen, center, zeros + known.scale, rate.expand(1, -1, *shape[2:])


def _drawn(
    model: CVDM, settings: "SampleRecipe", condition: Tensor, noise: Tensor, known: Known | None = None
) -> Tensor:
    """One sample (1, C, *spatial) from noise (steps, C, *spatial), of one step if others need none."""

    def draw(step: int, shape: torch.Size, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return noise[step].expand(shape)

    return sample(
        model,
        condition,
        num_samples=1,
        num_steps=settings.steps,
        solver=settings.solver,
        eta=settings.eta,
        grid=settings.grid,
        last_noise=settings.last_noise,
        seed=draw,
        known=known,
    )[0]


def _noise(model: CVDM, settings: "SampleRecipe", condition: Tensor, image: int) -> Tensor:
    steps = settings.steps if settings.eta or settings.solver == "algorithm2" else 1
    shape = torch.Size([steps, 1, model.target_channels, *condition.shape[2:]])
    noise = noise_for(model, NoiseField(_SEED, image=image))
    return noise(0, shape, dtype=condition.dtype, device=condition.device)[:, 0]


def _mirrored(condition: Tensor, side: int) -> Tensor:
    """Continue an image by its mirror images, as far as these go, until it has a side."""
    widths: list[int] = []
    for length in reversed(condition.shape[2:]):
        missing = min(max(0, side - length), 2 * (length - 1))
        widths += [missing // 2, missing - missing // 2]
    return F.pad(condition, widths, mode="reflect") if any(widths) else condition
