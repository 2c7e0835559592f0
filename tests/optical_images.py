"""Images for tests of the physics: random, band-limited and with a known range."""

from typing import Any

import torch
from torch import Tensor

from sfumato.physics import grid

__all__ = ["WAVE", "band_limited", "even_band_limited"]

WAVE: dict[str, Any] = {"wavelength_um": 0.521, "pixel_um": 0.21}
"""Light and pixels of the paper's phase imaging."""


def band_limited(*shape: int, seed: int, low: float = 0.0, high: float = 1.0, cutoff: float = 0.1) -> Tensor:
    """Periodic images, float64, (..., H, W), no frequency above ``cutoff`` cycles per pixel, each from low to high."""
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    kept = grid.squared_frequency(noise, 1.0, half=True) < cutoff**2
    image: Tensor = torch.fft.irfft2(torch.fft.rfft2(noise) * kept, s=noise.shape[-2:])
    floor, top = image.amin((-2, -1), keepdim=True), image.amax((-2, -1), keepdim=True)
    return low + (high - low) * (image - floor) / (top - floor)


def even_band_limited(height: int, width: int, *, seed: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    """An image whose even continuation is band-limited: a sum of cosines with flat ends at all borders."""
    coefficients = torch.randn(7, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    waves = [
        (torch.pi * (torch.arange(size, dtype=torch.float64)[:, None] + 0.5) / size * torch.arange(7)).cos()
        for size in (height, width)
    ]
    image = waves[0] @ coefficients @ waves[1].T
    return low + (high - low) * (image - image.min()) / (image.max() - image.min())
