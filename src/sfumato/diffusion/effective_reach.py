r"""How far a function of images looks in effect: the distance beyond which its surroundings no longer matter.

.. math:: \Delta(r) = \max_p |f(x')(p) - f(x)(p)|, \qquad x' = x\ \text{within}\ r\ \text{of}\ p

with p in a box of pixels and the Chebyshev distance. Beyond r, x' is another image, or x ends there. A network of many
layers can see far, but what lies far away has hardly any weight.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["effective_reach"]

Index = tuple[Any, ...]


@torch.no_grad()
def effective_reach(
    call: Callable[..., Tensor],
    fields: Sequence[Sequence[Tensor]],
    *,
    limit: float,
    kept: int,
    grid: int = 1,
    exchanges: bool = True,
) -> int | None:
    """The smallest distance beyond which other surroundings change no output by ``limit`` or more.

    Changes are taken to fall with distance, so a bisection finds it.

    Args:
        call: Maps tensors, such as condition and noise, to outputs of the same spatial size, whatever that is.
        fields: Inputs of the call, tensors (B, channels, *spatial) of one spatial size. Beyond a distance, each field
            becomes the next one, mirrored, or it ends.
        limit: The largest change that does not matter, in units of the output.
        kept: Side of the box in the middle of each field in which outputs are compared; no axis is shorter.
        grid: The call shifts with its inputs by multiples of this many pixels; the distance is one.
        exchanges: Put other surroundings around, too; without, fields only end, which costs far less.

    Returns:
        The distance in pixels, or None if it is larger than the fields.
    """
    spatial = fields[0][0].shape[2:]
    corner = [(side - kept) // 2 // grid * grid for side in spatial]
    # At least one step of the grid is left to change on every side.
    most = min(min(start, side - start - kept) for start, side in zip(corner, spatial, strict=True)) - grid
    expected = [call(*field)[_box(corner, kept)] for field in fields]
    others = [[part.flip(*range(2, part.ndim)) for part in field] for field in [*fields[1:], fields[0]]]

    def is_enough(radius: int) -> bool:
        around, inner = _box(corner, kept, radius), _box([radius] * len(corner), kept)
        for field, other, wanted in zip(fields, others, expected, strict=True):
            ended = call(*(part[around] for part in field))[inner]
            if not bool((ended - wanted).abs().max() < limit):
                return False
            if not exchanges:
                continue
            swapped = call(*(_swapped(part, far, around) for part, far in zip(field, other, strict=True)))
            if not bool((swapped[_box(corner, kept)] - wanted).abs().max() < limit):
                return False
        return True

    low, high = 0, most // grid + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle * grid) else (middle + 1, high)
    return low * grid if low * grid <= most else None


def _box(corner: Sequence[int], side: int, more: int = 0) -> Index:
    return (..., *(slice(start - more, start + side + more) for start in corner))


def _swapped(near: Tensor, far: Tensor, around: Index) -> Tensor:
    """One tensor within a box, another one beyond."""
    result = far.clone()
    result[around] = near[around]
    return result
