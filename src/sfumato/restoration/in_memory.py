"""Restoring one image in memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sfumato.data.enlarged import enlarge
from sfumato.data.images.pixels import as_pixels, floats
from sfumato.data.scaling import image_range, scale_to
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.posterior import Posterior
from sfumato.diffusion.regression import Regression
from sfumato.diffusion.sampling import sample
from sfumato.models.intervals import Sampled
from sfumato.models.model_file import LoadedModel, check_loaded
from sfumato.problems.registry import full_scale
from sfumato.restoration.channels import completion_of, measured_channels
from sfumato.restoration.hint import check_schedule, schedule_map
from sfumato.restoration.intervals import Content, correction_for, sampled_by, summary
from sfumato.restoration.layout import Layout, choose_layout, stride
from sfumato.restoration.tiles import tiled
from sfumato.system.errors import ImageError

__all__ = [
    "Restored",
    "as_restored",
    "choose_whole",
    "draw_blocks",
    "draw_whole",
    "enlargement",
    "normalised",
    "regress",
    "restore",
    "restore_condition",
]


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
    check_loaded(model)
    pixels = as_pixels(array)
    condition, has_channels = normalised(pixels, model, on_target_grid=on_target_grid)
    restored = restore_condition(
        condition,
        model,
        num_samples=num_samples,
        num_steps=num_steps,
        seed=seed,
        image=image,
        tile=tile,
        uncertainty=uncertainty,
        progress=progress,
    )
    full = np.float32(full_scale(model.info.recipe.problem, pixels.dtype))
    if full != 1:
        std, low, high = (None if image is None else image * full for image in restored[1:4])
        restored = Restored(restored.mean * full, std, low, high, restored.hint, restored.label)
    if has_channels or len(restored.mean) > 1:
        return restored
    std, low, high, hint = (None if image is None else image[0] for image in restored[1:5])
    return Restored(restored.mean[0], std, low, high, hint, restored.label)


def restore_condition(
    condition: Tensor,
    model: LoadedModel,
    *,
    num_samples: int | None = None,
    num_steps: int | None = None,
    seed: int = 0,
    image: int = 0,
    tile: int | None = None,
    uncertainty: Literal["samples", "schedule"] = "samples",
    progress: Callable[[int], None] | None = None,
) -> Restored:
    """The same for an image as the networks take it, shape (1, K, *spatial); what is restored is (C, *spatial)."""
    spatial, target = condition.shape[2:], model.info.target
    if uncertainty == "schedule":
        check_schedule(model)
    sampled = sampled_by(model, num_samples, num_steps)
    layout = choose_whole(model, spatial, sampled.num_samples, tile=tile)
    if isinstance(model.model, Regression):
        estimate = regress(condition, model, tile=layout.tile)
        if progress is not None:
            progress(sampled.num_samples)
        return Restored(target.invert(estimate, axis=0).numpy(), None)
    if sampled.num_samples < 2 and uncertainty == "samples":
        raise ImageError(f"num_samples is {sampled.num_samples}; a standard deviation needs at least 2; give more")
    blocks = draw_whole(condition, model, sampled, seed=seed, image=image, tile=layout.tile, progress=progress)
    posterior, found = Posterior.of(blocks, sampled.num_samples), correction_for(model, sampled)

    def image_of(content: Content) -> NDArray[np.float32]:
        return np.asarray(summary(content, posterior, target, found).numpy())

    if uncertainty == "schedule":
        return Restored(image_of("mean"), None, hint=schedule_map(condition, model, tile=layout.tile).numpy())
    if found is None:
        return Restored(image_of("mean"), image_of("std"))
    return Restored(image_of("mean"), image_of("std"), image_of("low"), image_of("high"), label=found.label)


def draw_whole(
    condition: Tensor,
    model: LoadedModel,
    sampled: Sampled,
    *,
    seed: int = 0,
    image: int = 0,
    tile: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Tensor]:
    """Draws of one whole image in blocks (n, C, *spatial), still normalised, cut as its size and memory ask for.

    Args:
        condition: From :func:`normalised`.
        model: From :func:`sfumato.load`.
        sampled: How to draw; solver, eta and last noise are those of the model.
        seed: The same seed gives the same draws.
        image: Number of this image among those that are drawn with one seed.
        tile: Side of a tile; chosen by the image's size if not given.
        progress: Called with the number of draws that were just made.
    """
    layout = choose_whole(model, condition.shape[2:], sampled.num_samples, tile=tile)
    return draw_blocks(
        condition,
        model,
        num_samples=sampled.num_samples,
        batch=layout.batch,
        num_steps=sampled.num_steps,
        noise=NoiseField(seed, image=image),
        tile=layout.tile,
        progress=progress,
    )


def draw_blocks(
    condition: Tensor,
    model: LoadedModel,
    *,
    num_samples: int,
    batch: int,
    noise: NoiseField,
    num_steps: int | None = None,
    tile: int | None = None,
    progress: Callable[[int], None] | None = None,
    on_call: Callable[[int], None] | None = None,
) -> Iterator[Tensor]:
    """Draws of one image or of a region of one, in blocks (n, C, *spatial); still normalised.

    Args:
        condition: From :func:`normalised`.
        model: From :func:`sfumato.load`.
        num_samples: How many draws in all.
        batch: How many go through the network together.
        noise: Of the first draw; says where the region lies in its image.
        num_steps: Network calls per draw; the recipe's if not given.
        tile: Side of the tiles that the networks see, or None for all at once.
        progress: Called with the number of draws that were just made.
        on_call: Called after every network call with the number of draws in it; what it raises ends the sampling.
    """
    settings = model.info.recipe.sample
    network = model.model if tile is None else tiled(model.model, tile)
    for first in range(0, num_samples, batch):
        number = min(batch, num_samples - first)
        yield sample(
            network,
            condition,
            num_samples=number,
            num_steps=num_steps or settings.steps,
            solver=settings.solver,
            eta=settings.eta,
            last_noise=settings.last_noise,
            grid=settings.grid,
            seed=replace(noise, sample=noise.sample + first),
            progress=on_call,
        )[:, 0].cpu()
        if progress is not None:
            progress(number)


@torch.no_grad()
def regress(condition: Tensor, model: LoadedModel, *, tile: int | None = None) -> Tensor:
    """The one image (C, *spatial) that a regression gives; still normalised."""
    network = model.model if tile is None else tiled(model.model, tile)
    center = network.center(condition)
    assert center is not None
    return center[0].cpu()


def choose_whole(model: LoadedModel, spatial: Sequence[int], num_samples: int, *, tile: int | None = None) -> Layout:
    """The layout of an image that is one chunk."""
    step = stride(model.model)
    return choose_layout(model, spatial, num_samples, chunk=-(-max(spatial) // step) * step, halo=0, tile=tile)


def enlargement(model: LoadedModel) -> tuple[int, ...]:
    """How many pixels of what a model gives stand on one pixel of what it is given, per spatial axis.

    Raises:
        ImageError: If it enlarges and its file does not say by how much.
    """
    if model.info.factor is not None:
        return model.info.factor
    if model.info.recipe.data.upsample:
        raise ImageError(
            "this model was trained on enlarged inputs (data.upsample), and its file does not say by how much; "
            "expected a factor per axis: train it again with this version, or enlarge the image yourself (bicubic) and "
            "say that it is on the target's grid (on_target_grid=True, --on-target-grid)"
        )
    return (1,) * model.info.recipe.model.ndim


def as_restored(truth: NDArray[np.generic], model: LoadedModel) -> NDArray[np.floating[Any]]:
    """A truth (C, *spatial) in the units that the model gives: scaled by its own range where training did that."""
    data = model.info.recipe.data
    return scale_to(truth, image_range(truth, data.quantiles)) if data.normalize == "image" else floats(truth)


def normalised(
    array: NDArray[np.generic],
    model: LoadedModel,
    *,
    on_target_grid: bool = False,
    low_high: NDArray[np.float64] | None = None,
) -> tuple[Tensor, bool]:
    """The image as the network takes it, shape (1, K, *spatial), and whether it came with channels.

    A region of an image that is scaled by its own range needs the range of the whole, ``low_high``.

    Raises:
        ImageError: As in :func:`restore`.
    """
    array = as_pixels(array)
    ndim, channels = model.info.recipe.model.ndim, model.info.condition_channels
    has_channels = array.ndim == ndim + 1
    pixels = array if has_channels else array[None]
    if not bool(np.isfinite(pixels).all()):
        raise ImageError("the image has NaN or infinite pixels; expected finite numbers; replace the bad pixels")
    computed = completion_of(model.info)
    if computed is not None and pixels.ndim == ndim + 1 and len(pixels) == computed.measured:
        pixels = computed.complete(pixels)
    if pixels.ndim != ndim + 1 or len(pixels) != channels:
        takes = measured_channels(model.info)
        expected = f"({takes}, *spatial)" + (" or (*spatial)" if takes == 1 else "")
        raise ImageError(
            f"the image has shape {array.shape}; this model takes {expected} with {ndim} spatial axes; "
            "choose its channels and frames first"
        )
    device = next(model.model.parameters()).device
    data = model.info.recipe.data
    if not on_target_grid:
        pixels = enlarge(pixels, enlargement(model))
    full = full_scale(model.info.recipe.problem, array.dtype)
    if full != 1:
        pixels = np.asarray(pixels, np.float32) / np.float32(full)
    if data.normalize == "image":
        pixels = scale_to(pixels, image_range(pixels, data.quantiles) if low_high is None else low_high)
    condition = model.info.condition.of_pixels(pixels[None]).to(device)
    if not bool(condition.isfinite().all()):
        raise ImageError(
            "the image has pixels too far from the model's training inputs for a number to hold; expected pixels like "
            "theirs; check the units"
        )
    return condition, has_channels
