"""At the end of a training: is the model better than doing nothing, and than a blur, and would more time help?"""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sfumato.models.model_file import load
from sfumato.models.recipe import Recipe
from sfumato.physics.smoothing import best_width, gaussian_blur
from sfumato.statistics.metrics import psnr, value_range
from sfumato.training.stages import Stage, stage_at, stages_of
from sfumato.training.validation import Validation

__all__ = ["Verdict", "told_verdict", "trend", "verdict"]

_SECONDS = 5.0
"""No further image is restored after this time: drawing samples of all of them may take much longer."""
_WORTHWHILE = 0.01
"""Fall of the validation error, over a doubling of the steps, below which more time would hardly help."""


class Verdict(NamedTuple):
    """Mean PSNR over validation images, in dB.

    The measured image and its blur have none if the networks get more channels than they give, or if other units
    make both worse than a flat image.
    """

    num_images: int
    model: float
    measured: float | None = None
    blurred: float | None = None
    width: float = 0.0
    """Of the best Gaussian blur, in pixels."""

    def __str__(self) -> str:
        images = f"{self.num_images} images" if self.num_images > 1 else "1 image"
        told = f"validation PSNR over {images}: model {self.model:.1f} dB"
        if self.measured is None or self.blurred is None:
            return told
        return (
            f"{told}, measured image {self.measured:.1f} dB, best Gaussian blur {self.blurred:.1f} dB "
            f"({self.width:g} pixels)"
        )


def told_verdict(
    path: Path, validation: Validation, metrics: Iterable[Mapping[str, Any]], device: torch.device
) -> str | None:
    """The verdict on a model file in one line; None if there is none."""
    model = load(path, device=device)
    found = verdict(validation, validation.means(model.model, device, model.info.recipe.sample))
    return None if found is None else f"{found}; {trend(model.info.recipe, metrics)}"


def verdict(validation: Validation, means: Iterable[Tensor]) -> Verdict | None:
    """Compare restored validation images with the measured ones, and with the best blur of these.

    Args:
        validation: Its images.
        means: What a model makes of them, one after another, each (1, C, *spatial) in the units of the data; only as
            many are taken as come within seconds.

    Returns:
        None if all images are flat, as errors then have no scale.
    """
    started, taken = time.monotonic(), list[Tensor]()
    for mean in means:
        taken.append(mean)
        if time.monotonic() - started > _SECONDS:
            break
    measured, target = (side[: len(taken)].double() for side in validation.images())
    restored = torch.cat(taken).double()
    shown = value_range(_planes(target)) > 0
    if not bool(shown.any()):
        return None
    restored, measured, target = restored[shown], measured[shown], target[shown]
    model = _mean_psnr(restored, target)
    if measured.shape != target.shape:
        return Verdict(len(target), model)
    width = best_width([(measured, target)])
    blurred = _mean_psnr(gaussian_blur(measured, width), target)
    flat = _mean_psnr(target.mean().expand_as(target), target)
    if blurred < flat:
        return Verdict(len(target), model)
    return Verdict(len(target), model, _mean_psnr(measured, target), blurred, width)


def trend(recipe: Recipe, metrics: Iterable[Mapping[str, Any]]) -> str:
    """Whether more time would help, in words, judging by the run's validations.

    They are those of the stage that decides the restored image. A doubling of its steps is judged; for a run that was
    extended, where learning rates rose again, what was added to them.
    """
    settings = recipe.train
    last = stage_at(settings, settings.steps - 1, recipe.student)
    stages = [last] if recipe.student is not None else stages_of(settings)
    judged = next((stage for stage in stages if stage.learns == "mean"), last)
    curve = [(line["step"], line["validation"]) for line in metrics if "validation" in line]
    inside = [(step, value) for step, value in curve if judged.first < step <= judged.first + judged.steps]
    earlier = _earlier(recipe, judged, curve) if judged.is_added else inside[:-1]
    if not inside or not earlier:
        every = settings.validate_every
        return f"too few validations to tell whether more time would help (train.validate_every is {every})"
    end, now = inside[-1]
    half = judged.first + (end - judged.first) / 2
    begin, before = earlier[-1] if judged.is_added else min(earlier, key=lambda point: abs(point[0] - half))
    if before <= 0:
        return "its validation error is no ratio, so it does not tell whether more time would help"
    fall = 1 - now / before
    if fall < -_WORTHWHILE:
        return f"more time would not help, but more images may: {_told(-fall, 'rose', begin, end)}"
    if fall < _WORTHWHILE:
        return f"more time would hardly help: {_told(abs(fall), 'changed', begin, end)}"
    return f"more time would help: {_told(fall, 'fell', begin, end)}"


def _earlier(recipe: Recipe, judged: Stage, curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Validations of the same kind before the run was extended."""
    kinds = ((stage_at(recipe.train, step - 1).learns, step, value) for step, value in curve if step <= judged.first)
    return [(step, value) for learns, step, value in kinds if learns == judged.learns]


def _told(share: float, way: str, begin: int, end: int) -> str:
    return f"the validation error {way} by {100 * share:.2g}% from step {begin} to {end}"


def _planes(images: Tensor) -> Tensor:
    """As (B, C, H, W): PSNR of volumes is that of their planes side by side."""
    return images if images.ndim == 4 else images.flatten(2, 3)


def _mean_psnr(estimate: Tensor, target: Tensor) -> float:
    return float(psnr(_planes(estimate), _planes(target)).mean())
