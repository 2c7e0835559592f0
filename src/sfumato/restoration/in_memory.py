"""Restore one image in memory."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sfumato.diffusion.model import CVDM
from sfumato.diffusion.noise import NoiseField
from sfumato.models.model_file import LoadedModel
from sfumato.models.own_model import as_loaded
from sfumato.restoration.conditions import Measured, condition_of
from sfumato.restoration.likeness import likeness
from sfumato.restoration.restorer import Restorer, Uncertainty

__all__ = ["Restored", "restore", "restore_region"]


class Restored(NamedTuple):
    """A restored image in the units of the targets that the model was trained on."""

    mean: NDArray[np.float32]
    """Mean of the posterior: the restored image, shape (C, *spatial), or (*spatial) if the input has that shape.

    It is on the target grid, which may be finer than the grid of the measured image.
    """
    std: NDArray[np.float32] | None
    """Standard deviation of the posterior: the uncertainty of every pixel. None for a regression, which has no samples.

    Recalibrated if the model has a recalibration.
    """
    low: NDArray[np.float32] | None = None
    """Lower end of the calibrated interval of every pixel; None if the model has no calibration of this kind."""
    high: NDArray[np.float32] | None = None
    """Upper end."""
    hint: NDArray[np.float32] | None = None
    """The schedule map, if requested instead: a relative hint without a unit and without a certain sign."""
    label: str = "not calibrated"
    """What the interval guarantees."""
    warning: str = ""
    """Why not to rely on it, if the image is unlike the training images or has other units; empty if it seems fine."""


def restore(
    array: ArrayLike | Tensor,
    model: LoadedModel | CVDM,
    *,
    num_samples: int | None = None,
    num_steps: int | None = None,
    seed: int = 0,
    image: int = 0,
    tile: int | None = None,
    on_target_grid: bool = False,
    uncertainty: Uncertainty = "samples",
    fast: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Restored:
    """Sample the posterior of one image and summarise the samples; a regression runs once and returns its one image.

    The networks see a large image tile by tile, but all tiles form one joint sample, as if the image were seen whole.

    Args:
        array: The measured image, in the units of the model's training inputs, shape (K, *spatial) or, with one
            channel, (*spatial); an array, a tensor or nested lists of numbers. A model with finer targets upsamples it
            first, as it did with its training inputs. A model of pictures divides integers by the largest value of
            their type, as `sfumato restore` does, and the restored image has the units of the input.
        model: From :func:`sfumato.load`; or a :class:`~sfumato.CVDM`, which takes images as its networks do.
        num_samples: Number of samples: at least 2, or 1 if the uncertainty is not computed from them. By default the
            number used in the model's calibration, or 16.
        num_steps: Network calls per sample; by default as in the model's calibration, or the recipe's. A calibrated
            model gives intervals only for samples drawn as in its calibration.
        seed: The same seed gives the same samples.
        image: Number of this image among those restored with the same seed.
        on_target_grid: Whether the image was upsampled already, so that it must not be upsampled again.
        tile: Side of a tile in pixels; by default chosen from the image size.
        uncertainty: ``samples`` for their standard deviation; ``schedule`` for a relative hint from one pass of the
            rate network, returned as ``hint`` (docs/one_pass_uncertainty.md says what it is worth).
        fast: Draw no samples: mean and standard deviation by one read of the image, and the interval of `sfumato
            calibrate --fast`. For models with mean and scale networks, as the presets make them.
        progress: Called with the number of samples just drawn.

    Raises:
        ImageError: If the image does not fit the model, has NaN, infinite or masked pixels, or has no pixels; or if
            ``fast`` is requested of a model without mean and scale networks.
        ModelFileError: If the model is neither, or its parts do not fit each other.
        RecipeError: If a number is out of its range, or something that needs samples is requested with ``fast``.

    Example:
        >>> model = sfumato.load("run/model.safetensors")  # doctest: +SKIP
        >>> restored = restore(image, model)  # doctest: +SKIP
        >>> restored.mean.shape == image.shape  # doctest: +SKIP
        True
    """
    loaded = as_loaded(model)
    restorer = Restorer.of(loaded, num_samples, num_steps, tile=tile, fast=fast)
    frames = condition_of(array, loaded, on_target_grid=on_target_grid)
    noise = NoiseField(seed, image=image)
    restored = restore_region(restorer, frames, noise=noise, uncertainty=uncertainty, progress=progress)
    found = likeness(frames, loaded)
    restored = restored._replace(warning=found.text if found is not None and found.is_warned else "")
    if np.ndim(array) > len(frames.spatial) or len(restored.mean) > 1:
        return restored
    std, low, high, hint = (None if each is None else each[0] for each in restored[1:5])
    return Restored(restored.mean[0], std, low, high, hint, restored.label, restored.warning)


def restore_region(
    restorer: Restorer,
    frames: Measured,
    frame: int = 0,
    corner: Sequence[int] | None = None,
    size: Sequence[int] | None = None,
    *,
    noise: NoiseField,
    uncertainty: Uncertainty = "samples",
    progress: Callable[[int], None] | None = None,
) -> Restored:
    """Restore a region of a frame on its own, seen whole; by default the entire frame.

    Raises:
        ImageError: If it does not fit the model, or a standard deviation is requested of a single sample.
    """
    outputs = restorer.available(uncertainty)
    images = restorer.summarise(
        frames.condition(frame, corner, size), noise, outputs, full_scale=frames.full_scale, progress=progress
    )
    found = dict(zip((output.content for output in outputs), images, strict=True))
    std, low, high, hint = map(found.get, ("std", "low", "high", "schedule"))
    return Restored(found["mean"], std, low, high, hint, "not calibrated" if low is None else restorer.label)
