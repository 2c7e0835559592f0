"""Decide how a model draws samples, if any, and when its calibrated intervals hold: only for what was calibrated."""

from collections.abc import Mapping
from dataclasses import replace

from sfumato.models.intervals import NO_SAMPLES, Sampled, sampled_as
from sfumato.models.model_file import LoadedModel, ModelInfo
from sfumato.system.bounds import whole
from sfumato.system.errors import RecipeError

__all__ = ["check_fast", "sampled_by", "why_uncalibrated"]

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


def check_fast(asked: Mapping[str, object]) -> None:
    """Refuse requests that need samples, where none are drawn.

    Args:
        asked: Requests by name; those that are None, False or empty were not made.

    Raises:
        RecipeError: If any was made.
    """
    if given := [name for name, value in asked.items() if value is not None and value is not False and value != ()]:
        raise RecipeError(
            f"fast was given with {', '.join(given)}; a fast restoration draws no samples, which that needs; leave out "
            "one of them"
        )


def why_uncalibrated(model: LoadedModel, sampled: Sampled) -> str | None:
    """Why a calibrated model gives no intervals; None if it does, or has no calibration."""
    known, fast = model.info.calibration, model.info.fast_calibration
    if sampled == NO_SAMPLES:
        if known is None or fast is not None:
            return None
        return (
            "no calibrated intervals: the model was calibrated for samples, and none were drawn; "
            "run `sfumato calibrate --fast` too"
        )
    if known is None and fast is not None and model.model.draws_samples:
        return (
            "no calibrated intervals: the model was calibrated without samples (--fast), and samples were drawn; "
            "run `sfumato calibrate` too"
        )
    if known is None or known.sampled == sampled:
        return None
    was, now = known.sampled, sampled
    return (
        f"no calibrated intervals: the model was calibrated with {was.num_samples} samples of {was.num_steps} steps, "
        f"and {now.num_samples} of {now.num_steps} were asked for; leave out --samples and --steps, or recalibrate"
    )
