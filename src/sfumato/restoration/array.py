"""Restoring one image in memory."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.baselines import Regression
from sfumato.data.enlarged import enlarge
from sfumato.data.scaling import image_range, scale_to
from sfumato.errors import ImageError
from sfumato.model_file import LoadedModel
from sfumato.noise import NoiseField
from sfumato.posterior import Posterior
from sfumato.sampling import sample

__all__ = ["Restored", "draw_blocks", "enlargement", "normalised", "restore"]

_PIXELS_AT_ONCE = 2**20
"""So many pixels go through the network together: samples of small images in one batch, of large ones in turn."""


class Restored(NamedTuple):
    """A restored image in the units of the targets that the model was trained on."""

    mean: NDArray[np.float32]
    """Mean of the samples: the restored image, shape (C, *spatial), or (*spatial) if the measured one was so.

    It has the grid of the targets, which may be finer than that of the measured image.
    """
    std: NDArray[np.float32] | None
    """Their standard deviation: the uncertainty of every pixel. None from a regression, which does not know it."""


def restore(
    array: NDArray[np.generic],
    model: LoadedModel,
    *,
    num_samples: int = 16,
    num_steps: int | None = None,
    seed: int = 0,
    image: int = 0,
    on_target_grid: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Restored:
    """Draw samples of the posterior of one image and summarise them; a regression runs once and gives its one image.

    Args:
        array: What was measured, in the units of the model's training inputs, shape (K, *spatial) or, with one
            channel, (*spatial). A model of finer targets enlarges it first, as its training inputs were.
        model: From :func:`sfumato.load`.
        num_samples: How many draws; at least 2.
        num_steps: Network calls per draw; the recipe's if not given.
        seed: The same seed gives the same draws.
        image: Number of this image among those that are restored with one seed.
        on_target_grid: Whether the image was enlarged already, so that it must not be again.
        progress: Called with the number of draws that were just made.

    Raises:
        ImageError: If the image does not fit the model or has NaN or infinite pixels.

    Example:
        >>> model = sfumato.load("run/model.safetensors")  # doctest: +SKIP
        >>> restored = restore(image, model)  # doctest: +SKIP
        >>> restored.mean.shape == image.shape  # doctest: +SKIP
        True
    """
    condition, has_channels = normalised(array, model, on_target_grid=on_target_grid)
    if isinstance(model.model, Regression):
        image_alone = model.info.target.invert(_regress(model.model, condition)[0].cpu(), axis=0).numpy()
        if progress is not None:
            progress(num_samples)
        return Restored(image_alone if has_channels or len(image_alone) > 1 else image_alone[0], None)
    if num_samples < 2:
        raise ImageError(f"num_samples is {num_samples}; a standard deviation needs at least 2; give more")
    blocks = draw_blocks(
        condition, model, num_samples=num_samples, num_steps=num_steps, seed=seed, image=image, progress=progress
    )
    posterior = Posterior.of(blocks, num_samples)
    mean = model.info.target.invert(posterior.mean, axis=0).numpy()
    std = model.info.target.invert_spread(posterior.std, axis=0).numpy()
    return Restored(mean, std) if has_channels or len(mean) > 1 else Restored(mean[0], std[0])


def draw_blocks(
    condition: Tensor,
    model: LoadedModel,
    *,
    num_samples: int,
    num_steps: int | None = None,
    seed: int = 0,
    image: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Tensor]:
    """Draws of one image, in as few blocks (n, C, *spatial) as fit into the network; still normalised.

    Args:
        condition: From :func:`normalised`.
        model: From :func:`sfumato.load`.
        num_samples: How many draws in all.
        num_steps: Network calls per draw; the recipe's if not given.
        seed: The same seed gives the same draws.
        image: Number of this image among those of one seed.
        progress: Called with the number of draws that were just made.
    """
    settings = model.info.recipe.sample
    at_once = max(1, _PIXELS_AT_ONCE // condition[0, 0].numel())
    for first in range(0, num_samples, at_once):
        number = min(at_once, num_samples - first)
        yield sample(
            model.model,
            condition,
            num_samples=number,
            num_steps=num_steps or settings.steps,
            solver=settings.solver,
            eta=settings.eta,
            seed=NoiseField(seed, sample=first, image=image),
        )[:, 0].cpu()
        if progress is not None:
            progress(number)


@torch.no_grad()
def _regress(model: Regression, condition: Tensor) -> Tensor:
    return model.center(condition)


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


def normalised(array: NDArray[np.generic], model: LoadedModel, *, on_target_grid: bool = False) -> tuple[Tensor, bool]:
    """The image as the network takes it, shape (1, K, *spatial), and whether it came with channels."""
    ndim, channels = model.info.recipe.model.ndim, model.info.condition_channels
    has_channels = array.ndim == ndim + 1
    pixels = array if has_channels else array[None]
    if pixels.ndim != ndim + 1 or len(pixels) != channels:
        expected = f"({channels}, *spatial)" + (" or (*spatial)" if channels == 1 else "")
        raise ImageError(
            f"the image has shape {array.shape}; this model takes {expected} with {ndim} spatial axes; "
            "choose its channels and frames first"
        )
    if array.dtype.kind not in "biuf" or not bool(np.isfinite(pixels).all()):
        raise ImageError(
            f"the image is of type {array.dtype} or has NaN or infinite pixels; expected finite numbers; "
            "replace the bad pixels"
        )
    device = next(model.model.parameters()).device
    data = model.info.recipe.data
    if not on_target_grid:
        pixels = enlarge(pixels, enlargement(model))
    scaled = scale_to(pixels, image_range(pixels, data.quantiles)) if data.normalize == "image" else pixels
    tensor = torch.from_numpy(np.ascontiguousarray(scaled).astype(np.float32)).to(device)
    return model.info.condition.apply(tensor[None]), has_channels
