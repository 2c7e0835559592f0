"""Restoring one image in memory."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sfumato.diffusion.noise import NoiseField
from sfumato.models.model_file import LoadedModel
from sfumato.restoration.conditions import Conditions, condition_of
from sfumato.restoration.outputs import Output
from sfumato.restoration.restorer import Restorer
from sfumato.restoration.schedule_map import check_schedule

__all__ = ["Restored", "restore", "restore_region"]


class Restored(NamedTuple):
    """A restored image in the units of the targets that the model was trained on."""

    mean: NDArray[np.float32]
    """Mean of the samples: the restored image, shape (C, *spatial), or (*spatial) if the measured one was so.

    It has the grid of the targets, which may be finer than that of the measured image.
    """
    std: NDArray[np.float32] | None
    """Their standard deviation: the uncertainty of every pixel. None from a regression, which does not know it.

    Recalibrated, if the model is calibrated so.
    """
    low: NDArray[np.float32] | None = None
    """Lower end of the calibrated interval of every pixel; None if the model has no calibration for such samples."""
    high: NDArray[np.float32] | None = None
    """Upper end."""
    hint: NDArray[np.float32] | None = None
    """In their place, if it was asked for: the schedule's map, a relative hint in no unit and of no certain sign."""
    label: str = "not calibrated"
    """What the interval promises."""


def restore(
    array: ArrayLike | Tensor,
    model: LoadedModel,
    *,
    num_samples: int | None = None,
    num_steps: int | None = None,
    seed: int = 0,
    image: int = 0,
    tile: int | None = None,
    on_target_grid: bool = False,
    uncertainty: Literal["samples", "schedule"] = "samples",
    progress: Callable[[int], None] | None = None,
) -> Restored:
    """Draw samples of the posterior of one image and summarise them; a regression runs once and gives its one image.

    The networks see a large image tile by tile, and all tiles make one joint sample: the result is that of the whole.

    Args:
        array: What was measured, in the units of the model's training inputs, shape (K, *spatial) or, with one
            channel, (*spatial); an array, a tensor or lists of numbers. A model of finer targets enlarges it first, as
            its training inputs were. A model of pictures takes whole numbers as shares of the largest of their type,
            as `sfumato restore` does, and what is restored has their units.
        model: From :func:`sfumato.load`.
        num_samples: How many draws, at least 2, or 1 if the uncertainty is not taken from them; as many as the model
            was calibrated with if not given, or 16.
        num_steps: Network calls per draw; as in the model's calibration if not given, or the recipe's. A calibrated
            model gives intervals only for draws like those it was calibrated with.
        seed: The same seed gives the same draws.
        image: Number of this image among those that are restored with one seed.
        on_target_grid: Whether the image was enlarged already, so that it must not be again.
        tile: Side of a tile in pixels; chosen by the image's size if not given.
        uncertainty: ``samples`` for their standard deviation. ``schedule`` for a relative hint from one pass of the
            rate network, ``hint`` in the result; docs/one_pass_uncertainty.md says how little or much it is worth.
        progress: Called with the number of draws that were just made.

    Raises:
        ImageError: If the image does not fit the model, or has NaN, infinite or masked pixels, or none.
        ModelFileError: If the model is not what :func:`sfumato.load` gives.
        RecipeError: If a number is out of its range.

    Example:
        >>> model = sfumato.load("run/model.safetensors")  # doctest: +SKIP
        >>> restored = restore(image, model)  # doctest: +SKIP
        >>> restored.mean.shape == image.shape  # doctest: +SKIP
        True
    """
    restorer = Restorer.of(model, num_samples, num_steps, tile=tile)
    frames = condition_of(array, model, on_target_grid=on_target_grid)
    restored = restore_region(
        restorer,
        frames,
        noise=NoiseField(seed, image=image),
        uncertainty=uncertainty,
        progress=progress,
    )
    if np.ndim(array) > len(frames.spatial) or len(restored.mean) > 1:
        return restored
    std, low, high, hint = (None if each is None else each[0] for each in restored[1:5])
    return Restored(restored.mean[0], std, low, high, hint, restored.label)


def restore_region(
    restorer: Restorer,
    frames: Conditions,
    frame: int = 0,
    corner: Sequence[int] | None = None,
    size: Sequence[int] | None = None,
    *,
    noise: NoiseField,
    uncertainty: Literal["samples", "schedule"] = "samples",
    progress: Callable[[int], None] | None = None,
) -> Restored:
    """Restore a region of a frame by itself, seen as a whole; all of it if no corner and size are given.

    Raises:
        ImageError: If it does not fit the model, or one sample is to have a standard deviation.
    """
    outputs = restorer.outputs
    if uncertainty == "schedule":
        check_schedule(restorer.model)
        outputs = [Output("mean", ""), Output("schedule", "")]
    else:
        restorer.check_spread()
    images = restorer.summarise(
        frames.condition(frame, corner, size), noise, outputs, full_scale=frames.full_scale, progress=progress
    )
    found = dict(zip((output.content for output in outputs), images, strict=True))
    std, low, high, hint = map(found.get, ("std", "low", "high", "schedule"))
    return Restored(found["mean"], std, low, high, hint, "not calibrated" if low is None else restorer.label)
