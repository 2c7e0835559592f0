r"""Spatial frequencies of an image, and its continuation beyond the border.

.. math:: f_n = n / (N p), \qquad n = 0, 1, \ldots, -2, -1

for N pixels of size p, in the order of the FFT.
"""

from typing import Literal

import torch
from torch import Tensor

__all__ = [
    "Boundary",
    "continued",
    "crop",
    "even_continuation",
    "even_margin",
    "filtered",
    "frequencies",
    "squared_frequency",
]

Boundary = Literal["even", "periodic"]
"""How an image continues beyond its borders: by reflection or by repetition."""


def frequencies(image: Tensor, pixel_um: float, *, half: bool = False) -> tuple[Tensor, Tensor]:
    """Spatial frequencies of an image's spectrum, in cycles per micrometre.

    Args:
        image: Shape (..., H, W), real or complex; only its size, precision and device matter.
        pixel_um: Side of a square pixel.
        half: Whether the spectrum comes from ``rfft2``, with W // 2 + 1 columns.

    Returns:
        Rows (H, 1) and columns (W) or (W // 2 + 1), which broadcast to the spectrum.

    Example:
        >>> rows, columns = frequencies(torch.zeros(2, 4), 0.5)
        >>> rows.flatten().tolist(), columns.tolist()
        ([0.0, -1.0], [0.0, 0.5, -1.0, -0.5])
    """
    if pixel_um <= 0:
        raise ValueError(f"pixel_um is {pixel_um}; give the pixel's side in micrometres, above 0")
    height, width = image.shape[-2:]
    dtype = torch.float64 if image.dtype in (torch.float64, torch.complex128) else torch.float32
    columns = torch.fft.rfftfreq if half else torch.fft.fftfreq
    rows = torch.fft.fftfreq(height, pixel_um, dtype=dtype, device=image.device)
    return rows[:, None], columns(width, pixel_um, dtype=dtype, device=image.device)


def squared_frequency(image: Tensor, pixel_um: float, *, half: bool = False) -> Tensor:
    r""":math:`|f|^2` in cycles per micrometre squared, shape (H, W), or (H, W // 2 + 1) if ``half``."""
    rows, columns = frequencies(image, pixel_um, half=half)
    return rows.square() + columns.square()


def filtered(image: Tensor, transfer: Tensor) -> Tensor:
    """Multiply the spectrum of a real image (..., H, W) by ``transfer``, shape (..., H, W // 2 + 1)."""
    result: Tensor = torch.fft.irfft2(torch.fft.rfft2(image) * transfer, s=image.shape[-2:])
    return result


def even_margin(image: Tensor, margin: int) -> Tensor:
    """Continue an image by reflection at its edges, by any number of ``margin`` pixels on each side.

    Example:
        >>> even_margin(torch.tensor([[1.0, 2.0, 3.0]]), 2)[2].tolist()
        [2.0, 1.0, 1.0, 2.0, 3.0, 3.0, 2.0]
    """
    if margin < 0:
        raise ValueError(f"the margin is {margin}; give 0 or more pixels")
    for axis in (-2, -1):
        size = image.shape[axis]
        places = torch.arange(-margin, size + margin, device=image.device) % (2 * size)
        image = image.index_select(axis, torch.where(places < size, places, 2 * size - 1 - places))
    return image


def even_continuation(image: Tensor) -> Tensor:
    """Join an image and its mirror images, (..., H, W) to (..., 2H, 2W): one period of the even continuation.

    Example:
        >>> even_continuation(torch.tensor([[1.0, 2.0]])).tolist()
        [[1.0, 2.0, 2.0, 1.0], [1.0, 2.0, 2.0, 1.0]]
    """
    image = torch.cat([image, image.flip(-1)], dim=-1)
    return torch.cat([image, image.flip(-2)], dim=-2)


def continued(image: Tensor, boundary: Boundary) -> Tensor:
    """Return one period of an image's continuation; the image is its upper left part."""
    if boundary not in ("even", "periodic"):
        raise ValueError(f"boundary is {boundary!r}; use 'even' or 'periodic'")
    return even_continuation(image) if boundary == "even" else image


def crop(image: Tensor, margin: int) -> Tensor:
    """Remove ``margin`` pixels on each side."""
    height, width = image.shape[-2:]
    return image[..., margin : height - margin, margin : width - margin]
