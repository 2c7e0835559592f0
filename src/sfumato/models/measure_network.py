"""Find out how far a network looks and on which grid it works, by asking it, whatever it is made of."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["measure_network"]

_SIDES = {2: (1024, 64), 3: (128, 16)}
"""Length and width of images, of volumes: long enough for what looks far, and cheap since narrow."""
_STRIDES = {2: (1, 2, 4, 8, 16, 32, 64), 3: (1, 2, 4, 8)}
_SAME = 1e-4
"""Share of the output's largest value by which rounding may change it."""


@torch.no_grad()
def measure_network(network: nn.Module, channels: int, ndim: int) -> tuple[int | None, int]:
    r"""Reach and stride of a network in evaluation mode, both in pixels.

    One pixel of an image is made NaN: the furthest pixel of the output that becomes NaN shows the reach of a network of
    any layers. The stride is the smallest power of 2 by which an image can be moved so that its output moves along,
    :math:`f(T_s x) = T_s f(x)`.

    Args:
        network: Takes images (B, channels, *spatial) and returns some of the same size.
        channels: Of its input.
        ndim: Number of spatial axes.

    Returns:
        The reach, or None if the network may look at the whole image or depends on where a pixel is; and the stride.

    Example:
        >>> measure_network(nn.Conv2d(1, 1, 3, padding=4, dilation=4), 1, 2)
        (4, 1)
    """
    spreads = [_spread(network, channels, ndim, axis) for axis in range(ndim)]
    if None in spreads:
        return None, 1
    reach = max(found for found in spreads if found is not None)
    for stride in _STRIDES[ndim]:
        if _moves_along(network, channels, ndim, stride, reach):
            return reach + stride - 1, stride  # a pixel elsewhere on the grid may be seen from further away
    return None, 1


def _image(network: nn.Module, channels: int, size: Sequence[int]) -> Tensor:
    """Noise, the same each time."""
    at = next(network.parameters(), torch.zeros(()))
    return torch.randn(1, channels, *size, generator=torch.Generator().manual_seed(0)).to(at.device)


def _spread(network: nn.Module, channels: int, ndim: int, axis: int) -> int | None:
    """How far a NaN in the middle spreads along an axis; None if it comes close to the border of the image.

    One look at a long image: in a short one, the far pixels of a dilated convolution would fall outside unseen.
    """
    length, width = _SIDES[ndim]
    size = [length if place == axis else width for place in range(ndim)]
    image = _image(network, channels, size)
    middle: tuple[Any, ...] = (..., *(side // 2 for side in size))
    image[middle] = torch.nan
    output: Tensor = network(image)
    touched = output.isnan().flatten(0, 1).any(0).nonzero()[:, axis]
    far = int((touched - length // 2).abs().max()) if len(touched) else 0
    return far if far < length // 2 - 1 else None


def _moves_along(network: nn.Module, channels: int, ndim: int, step: int, reach: int) -> bool:
    """Whether the output of a moved image is the moved output, away from the borders."""
    border = reach + step
    side = -(-(2 * border + step + 16) // 64) * 64 if ndim == 2 else -(-(2 * border + step + 4) // 8) * 8
    whole = _image(network, channels, [side + step] * ndim)
    cuts: list[tuple[Any, ...]] = [(..., *[slice(start, start + side)] * ndim) for start in (0, step)]
    first, moved = (network(whole[cut]) for cut in cuts)
    here: tuple[Any, ...] = (..., *[slice(border + step, side - border)] * ndim)
    there: tuple[Any, ...] = (..., *[slice(border, side - border - step)] * ndim)
    return bool((first[here] - moved[there]).abs().max() <= _SAME * first.abs().max())
