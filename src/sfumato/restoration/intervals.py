"""Decide when a model's calibrated intervals hold: only for samples drawn as in its calibration."""

from dataclasses import replace
from typing import Literal, TypeAlias

from torch import Tensor

from sfumato.data.normalize import Normalization
from sfumato.diffusion.posterior import Posterior
from sfumato.models.intervals import Correction, Sampled
from sfumato.models.model_file import LoadedModel, ModelInfo, sampled_as
from sfumato.system.bounds import whole

__all__ = ["Content", "correction_for", "sampled_by", "summary", "why_uncalibrated"]

Content: TypeAlias = Literal["mean", "std", "low", "high"]

_SAMPLES = 16


def sampled_by(model: LoadedModel | ModelInfo, num_samples: int | None = None, num_steps: int | None = None) -> Sampled:
    """How a model draws samples. Numbers left as None are those of its calibration, or of the recipe without one.

    Raises:
        RecipeError: If one of the numbers is below 1.
    """
    info = model.info if isinstance(model, LoadedModel) else model
    usual, known = sampled_as(info.recipe.sample, _SAMPLES), info.calibration
    if known is not None:
        usual = replace(usual, num_samples=known.sampled.num_samples, num_steps=known.sampled.num_steps)
    if num_samples is not None:
        usual = replace(usual, num_samples=whole("the number of samples", num_samples))
    return usual if num_steps is None else replace(usual, num_steps=whole("the number of steps", num_steps))


def correction_for(model: LoadedModel, sampled: Sampled) -> Correction | None:
    """The model's calibration, if it holds for samples drawn this way."""
    known = model.info.calibration
    return known if known is not None and known.sampled == sampled else None


def summary(content: Content, posterior: Posterior, target: Normalization, found: Correction | None) -> Tensor:
    """One image (C, *spatial) of a posterior, in the units of the target.

    Args:
        content: Mean, standard deviation (corrected if the model is recalibrated), or an end of the interval.
        posterior: Summary of normalised samples (C, *spatial).
        target: Normalisation of targets.
        found: The calibration that holds for these samples; required for the ends of intervals.
    """
    if content == "mean":
        return target.invert(posterior.mean, axis=0)
    if content == "std":
        return target.invert_spread(posterior.std if found is None else found.spread(posterior.std), axis=0)
    if found is None:
        raise ValueError(f"the {content} end of an interval was requested; expected a calibrated model; calibrate it")
    return target.invert(found.interval(posterior.mean, posterior.std)[content == "high"], axis=0)


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
