"""Choose how an image is cut: chunks written by tasks, tiles seen by networks, samples that share a network call.

Costs are estimated from the network's width. They affect memory and speed, and the result only by rounding.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sfumato.diffusion.model import CVDM
from sfumato.models.model_file import LoadedModel
from sfumato.models.reach import halo_grid, networks_of, reach_of_call, stride
from sfumato.system.errors import RecipeError

__all__ = ["Halo", "Layout", "choose_layout", "middle"]

Halo = int | Literal["reach"]
"""Pixels, or as many as one call of all networks looks, exactly."""

_CHUNKS = {2: (1024, 1024), 3: (128, 256, 256)}
_NEAR, _FAR = 64, 128
"""The smallest halo, and the halo of networks that see the whole image, whose output always depends on the chunk."""

_MEMORY = 2**30
_FLOATS_PER_FILTER = 10
"""Full-resolution feature maps alive at once in a U-Net, in units of its width."""


@dataclass(frozen=True)
class Layout:
    """Sizes in pixels.

    Attributes:
        chunk: Region that a task writes, one number per spatial axis.
        halo: Pixels that its networks see beyond the chunk on every side.
        sampling_halo: Pixels beyond the chunk that the denoising network sees; None for as many.
        tile: Side of a tile's core if a chunk is too large for one network call, otherwise None.
        batch: Samples of a region that go through the network together.
    """

    chunk: tuple[int, ...]
    halo: int
    tile: int | None
    batch: int
    sampling_halo: int | None = None


def middle(spatial: Sequence[int], longest: Sequence[int], grid: int = 1) -> tuple[list[int], list[int]]:
    """Corner and size of the region in the middle of an image, no larger than ``longest``; it starts on the grid.

    Example:
        >>> middle((100, 20), (64, 64), grid=4)
        ([16, 0], [64, 20])
    """
    size = [min(side, most) for side, most in zip(spatial, longest, strict=True)]
    return [(side - length) // 2 // grid * grid for side, length in zip(spatial, size, strict=True)], size


def _usual_reach(model: CVDM, num_steps: int) -> int | None:
    """The reach that halos and tiles have been chosen by since version 0.1: of the network that looks furthest.

    If the condition is read once, it is that of a call; without calls, that of one read. None if a network looks at the
    whole image.
    """
    if num_steps == 0:
        return reach_of_call(model, reads_only=True)
    reaches = [getattr(network, "reach", None) for network in networks_of(model)]
    known: list[int] = [value for value in reaches if value is not None]
    if not known or len(known) < len(reaches):
        return None
    return max(known) if model.reader is None else reach_of_call(model)


def _default_halos(model: LoadedModel, num_steps: int, *, measured: bool) -> tuple[int, int | None]:
    """Halo of a chunk, and that of its samples once the condition was read, if it is smaller."""
    reach, grid = model.info.reach if measured else None, halo_grid(model.model)
    if reach is None:
        return _usual_halo(model.model, num_steps), None
    if num_steps == 0:
        read = reach.sample if reach.one_pass is None else reach.one_pass
        return _rounded(read, grid), None
    halo = _rounded(reach.sample, grid)
    narrower = halo if reach.denoiser is None else _rounded(reach.denoiser, grid)
    return halo, narrower if narrower < halo else None


def _usual_halo(model: CVDM, num_steps: int) -> int:
    """Halo of a model that was not measured, which must stay as it is: restorations begun with it resume.

    All calls together (the sampler's, and one of rates and means) reach ``(num_steps + 1) * far``. Anything beyond the
    reach of one call has hardly any weight: see benchmarks/restore_layout.py.
    """
    far = _usual_reach(model, num_steps)
    enough = _FAR if far is None else min(max(_NEAR, far), (num_steps + 1) * far)
    return _rounded(enough, halo_grid(model))


def _halo_of_call(model: CVDM, num_steps: int) -> int:
    """The exact halo of one call of all networks or, without calls, of those that are read."""
    far = reach_of_call(model, reads_only=num_steps == 0)
    if far is None:
        raise RecipeError(
            "the halo is `reach`, but a network of this model looks at the whole image, so no halo holds all that it "
            "sees; give a number of pixels, or leave it out"
        )
    return _rounded(far, halo_grid(model))


def _rounded(pixels: int, grid: int) -> int:
    return -(-pixels // grid) * grid


def choose_layout(
    model: LoadedModel,
    spatial: Sequence[int],
    num_samples: int,
    num_steps: int = 32,
    *,
    chunk: int | None = None,
    halo: Halo | None = None,
    tile: int | None = None,
    batch: int | None = None,
    measured: bool = True,
    memory: int = _MEMORY,
) -> Layout:
    """Choose sizes for one image and model; sizes that are given are kept.

    Args:
        model: From :func:`sfumato.load`.
        spatial: Size of the restored image.
        num_samples: Samples per image; 0 if none are drawn.
        num_steps: Network calls per sample; 0 if the condition is only read.
        chunk: Side of a chunk.
        halo: Pixels around a chunk; by default as far as the model was measured to look. If it was not, as far as one
            network call looks and at least 64, but never further than all calls of a sample together look, or as one
            read does.
        tile: Side of a tile's core.
        batch: Samples per network call.
        measured: Use the measured reach, which holds for what is restored and not for rates.
        memory: Approximate number of bytes that a network call may take.

    Raises:
        RecipeError: If sizes are not positive multiples of the network's stride.
    """
    step, far = stride(model.model), _usual_reach(model.model, num_steps)
    if halo == "reach":
        halo = _halo_of_call(model.model, num_steps)
    for name, value, least in (("chunk", chunk, step), ("halo", halo, 0), ("tile", tile, step)):
        if value is not None and (value < least or value % step):
            raise RecipeError(f"the {name} is {value} pixels; this network needs a multiple of {step}; round it")
    if batch is not None and batch < 1:
        raise RecipeError(f"the batch is {batch} samples; give at least 1")
    longest = (chunk,) * len(spatial) if chunk else _CHUNKS[len(spatial)]
    sizes = tuple(min(most, -(-side // step) * step) for most, side in zip(longest, spatial, strict=True))
    around, narrower = (halo, None) if halo is not None else _default_halos(model, num_steps, measured=measured)
    seen = math.prod(min(side, size + 2 * around) for side, size in zip(spatial, sizes, strict=True))
    pixels = max(1, memory // (4 * _FLOATS_PER_FILTER * model.info.recipe.model.base))
    if tile is None and far is not None and seen > pixels:
        side = int(pixels ** (1 / len(spatial))) - 2 * (far + 2 * step)
        tile = max(side // step, 2 * far // step, 1) * step
    at_once = batch or min(max(1, num_samples), max(1, pixels // seen))
    return Layout(sizes, around, tile, at_once, narrower)
