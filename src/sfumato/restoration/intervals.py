"""Decide when a model's calibrated intervals hold: only for samples drawn as in its calibration."""

from dataclasses import replace

from sfumato.models.intervals import Sampled, sampled_as
from sfumato.models.model_file import LoadedModel, ModelInfo
from sfumato.system.bounds import whole

__all__ = ["sampled_by", "why_uncalibrated"]

_SAMPLES = 16


def sampled_by(model: LoadedModel | ModelInfo, num_samples: int | None = None, num_steps: int | None = None) -> Sampled:
    """How a model draws samples. Numbers left as None are those of its calibration, or of the recipe without one.

    Raises:
        RecipeError: If one of the numbers is below 1, or not the one a student was taught.
    """
    info = model.info if isinstance(model, LoadedModel) else model
    usual, known = sampled_as(info.recipe.sample, _SAMPLES), info.calibration
    if known is not None:
        usual = replace(usual, num_samples=known.sampled.num_samples, num_steps=known.sampled.num_steps)
    if num_samples is not None:
        usual = replace(usual, num_samples=whole("the number of samples", num_samples))
    if num_steps is not None:
        usual = replace(usual, num_steps=whole("the number of steps", num_steps))
    if info.recipe.student is not None:
        info.recipe.student.check(usual.num_steps, usual.solver, usual.eta)
    return usual


def why_uncalibrated(model: LoadedModel, sampled: Sampled) -> str | None:
    """Why a calibrated model gives no intervals; None if it does, or has no calibration."""
    known = model.info.calibration
    if known is None or known.sampled == sampled:
        return None
    was, now = known.sampled, sampled
    return (
        f"no calibrated intervals: the model was calibrated with {was.num_samples} samples of {was.num_steps} steps, "
        f"and {now.num_samples} of {now.num_steps} were asked for; leave out --samples and --steps, or recalibrate"
    )
