"""Choose how an image is cut: chunks written by tasks, tiles seen by networks, samples that share a network call.

Costs are estimated from the network's width. They affect memory and speed, and the result only by rounding.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from sfumato.diffusion.model import CVDM
from sfumato.models.model_file import LoadedModel
from sfumato.system.errors import RecipeError

__all__ = ["Layout", "choose_layout", "middle", "reach", "stride"]

_CHUNKS = {2: (1024, 1024), 3: (128, 256, 256)}
_NEAR, _FAR = 64, 128
"""The smallest halo, and the halo of networks that see the whole image, whose output always depends on the chunk."""

_ALIGNED = 8
"""Rows of whole vectors: rows of 1034 pixels took a tenth longer than rows of 1040."""

_SINGLE = nn.modules.conv._ConvNd
"""A layer of its own, such as a mean network of one 1x1 convolution, which looks at no neighbours."""

_MEMORY = 2**30
_FLOATS_PER_FILTER = 10
"""Full-resolution feature maps alive at once in a U-Net, in units of its width."""


@dataclass(frozen=True)
class Layout:
    """Sizes in pixels.

    Attributes:
        chunk: Region that a task writes, one number per spatial axis.
        halo: Pixels that its networks see beyond the chunk on every side.
        tile: Side of a tile's core if a chunk is too large for one network call, otherwise None.
        batch: Samples of a region that go through the network together.
    """

    chunk: tuple[int, ...]
    halo: int
    tile: int | None
    batch: int


def stride(model: CVDM) -> int:
    """Grid on which chunks and tiles must start so that the networks see the same in each."""
    return max((getattr(network, "stride", 1) for network in _networks(model)), default=1)


def reach(model: CVDM, *, reads_only: bool = False) -> int | None:
    """How far a network call looks, in pixels, or None if it looks at the whole image.

    If the condition is read once, networks look at each other's output, so their reaches add.

    Args:
        model: Any model.
        reads_only: Only the networks of :meth:`~sfumato.diffusion.model.CVDM.mean_and_std` are called.
    """
    if reads_only:
        in_row = [model.start, model.reader, model.mean_network, model.scale_network]
        parts = [part for part in in_row if part is not None and not isinstance(part, _SINGLE)]
        far = [getattr(part, "reach", None) for part in parts]
        return None if None in far else sum(value or 0 for value in far)
    networks = _networks(model)
    reaches = [getattr(network, "reach", None) for network in networks]
    known: list[int] = [value for value in reaches if value is not None]
    if not known or len(known) < len(reaches):
        return None
    if model.reader is None:
        return max(known)
    after = (model.start, model.reader, model.network)
    heads = [far for network, far in zip(networks, known, strict=True) if all(network is not part for part in after)]
    return max(heads, default=0) + sum(getattr(part, "reach", 0) for part in after)


def middle(spatial: Sequence[int], longest: Sequence[int], grid: int = 1) -> tuple[list[int], list[int]]:
    """Corner and size of the region in the middle of an image, no larger than ``longest``; it starts on the grid.

    Example:
        >>> middle((100, 20), (64, 64), grid=4)
        ([16, 0], [64, 20])
    """
    size = [min(side, most) for side, most in zip(spatial, longest, strict=True)]
    return [(side - length) // 2 // grid * grid for side, length in zip(spatial, size, strict=True)], size


def _halo(far: int | None, step: int, num_steps: int) -> int:
    """Halo of a chunk. All calls together (the sampler's, and one of rates and means) reach ``(num_steps + 1) * far``.

    Anything beyond the reach of one call has hardly any weight: see benchmarks/restore_layout.py.
    """
    enough = _FAR if far is None else min(max(_NEAR, far), (num_steps + 1) * far)
    grid = math.lcm(step, _ALIGNED)
    return -(-enough // grid) * grid


def _networks(model: CVDM) -> list[Any]:
    """The mean, rate and noise networks: the modules that know their number of input channels, except single layers."""
    return [part for part in model.modules() if hasattr(part, "in_channels") and not isinstance(part, _SINGLE)]


def choose_layout(
    model: LoadedModel,
    spatial: Sequence[int],
    num_samples: int,
    num_steps: int = 32,
    *,
    chunk: int | None = None,
    halo: int | None = None,
    tile: int | None = None,
    batch: int | None = None,
    memory: int = _MEMORY,
) -> Layout:
    """Choose sizes for one image and model; sizes that are given are kept.

    Args:
        model: From :func:`sfumato.load`.
        spatial: Size of the restored image.
        num_samples: Samples per image; 0 if none are drawn.
        num_steps: Network calls per sample; 0 if the condition is only read.
        chunk: Side of a chunk.
        halo: Pixels around a chunk; by default as far as one network call looks and at least 64, but never further than
            all calls of a sample together look, or as one read does.
        tile: Side of a tile's core.
        batch: Samples per network call.
        memory: Approximate number of bytes that a network call may take.

    Raises:
        RecipeError: If sizes are not positive multiples of the network's stride.
    """
    step, far = stride(model.model), reach(model.model, reads_only=num_steps == 0)
    for name, value, least in (("chunk", chunk, step), ("halo", halo, 0), ("tile", tile, step)):
        if value is not None and (value < least or value % step):
            raise RecipeError(f"the {name} is {value} pixels; this network needs a multiple of {step}; round it")
    if batch is not None and batch < 1:
        raise RecipeError(f"the batch is {batch} samples; give at least 1")
    longest = (chunk,) * len(spatial) if chunk else _CHUNKS[len(spatial)]
    sizes = tuple(min(most, -(-side // step) * step) for most, side in zip(longest, spatial, strict=True))
    around = halo if halo is not None else _halo(far, step, num_steps)
    seen = math.prod(min(side, size + 2 * around) for side, size in zip(spatial, sizes, strict=True))
    pixels = max(1, memory // (4 * _FLOATS_PER_FILTER * model.info.recipe.model.base))
    if tile is None and far is not None and seen > pixels:
        side = int(pixels ** (1 / len(spatial))) - 2 * (far + 2 * step)
        tile = max(side // step, 2 * far // step, 1) * step
    at_once = batch or min(max(1, num_samples), max(1, pixels // seen))
    return Layout(sizes, around, tile, at_once)
