r"""Render fluorescent points, with positions in micrometres, as images on any grid.

.. math:: I(r) = \sum_n b_n\, h(r - r_n)

Points make a specimen independent of pixels: the same specimen can be drawn sharply, or as a microscope of some cut-off
sees it, at any pixel size.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from sfumato.physics import camera, grid, optics

__all__ = ["MARGIN_UM", "Emitters", "density", "render"]

MARGIN_UM = 1.0
"""How far specimens extend beyond the field, so that light from outside blurs into it."""


class Emitters(NamedTuple):
    """Points of light.

    Attributes:
        positions_um: (row, column) from the corner of the first pixel, shape (N, 2); also outside the field.
        brightness: Relative brightness, 0 or more, shape (N).
    """

    positions_um: Tensor
    brightness: Tensor


def density(emitters: Emitters, shape: tuple[int, int], *, pixel_um: float, margin: int = 0) -> Tensor:
    """Compute the brightness in each pixel; each point is shared among the four nearest pixel centres (bilinear).

    Args:
        emitters: The specimen.
        shape: (H, W) of the field.
        pixel_um: Side of a pixel.
        margin: Pixels to add on each side of the field.

    Returns:
        Shape (H + 2 margin, W + 2 margin). Points outside this image are left out.

    Example:
        >>> one = Emitters(torch.tensor([[0.25, 0.5]]), torch.tensor([8.0]))
        >>> density(one, (2, 3), pixel_um=0.5).tolist()
        [[4.0, 4.0, 0.0], [0.0, 0.0, 0.0]]
    """
    height, width = (side + 2 * margin for side in shape)
    places = emitters.positions_um / pixel_um + margin - 0.5
    corner = places.floor()
    inner = places - corner
    image = emitters.brightness.new_zeros(height * width)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        y, x = (corner + torch.tensor([row, column], device=corner.device)).long().unbind(-1)
        share = (inner[:, 0] if row else 1 - inner[:, 0]) * (inner[:, 1] if column else 1 - inner[:, 1])
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        image = image.index_add(0, (y * width + x)[inside], (share * emitters.brightness)[inside])
    return image.reshape(height, width)


def render(
    emitters: Emitters, shape: tuple[int, int], *, pixel_um: float, cutoff: float, oversampling: int | None = None
) -> Tensor:
    """Render the image that a microscope forms, on pixels that integrate the light falling on them.

    Args:
        emitters: The specimen, with points up to ``MARGIN_UM`` beyond the field.
        shape: (H, W) of the field.
        pixel_um: Side of a pixel.
        cutoff: Highest frequency, in cycles per micrometre (:func:`sfumato.physics.optics.cutoff_frequency`).
        oversampling: Points are drawn on a grid finer by this factor; by default at least eight pixels per period of
            the cut-off, so that the grid does not show.

    Returns:
        Brightness in each pixel, shape (H, W), 0 or more up to rounding.

    Example:
        >>> one = Emitters(torch.tensor([[0.5, 0.5]]), torch.tensor([8.0]))
        >>> image = render(one, (64, 64), pixel_um=0.05, cutoff=5.0)
        >>> divmod(int(image.argmax()), 64)
        (9, 9)
    """
    factor = oversampling or max(1, math.ceil(8 * cutoff * pixel_um))
    margin = factor * math.ceil(MARGIN_UM / pixel_um)
    fine_um = pixel_um / factor
    sharp = density(emitters, (shape[0] * factor, shape[1] * factor), pixel_um=fine_um, margin=margin)
    light = grid.crop(optics.blur(sharp, cutoff=cutoff, pixel_um=fine_um, boundary="periodic"), margin)
    return camera.bin_pixels(light, factor)
