r"""Restore a widefield image y = H x + n by classical deconvolution, with H the microscope's blur.

.. math:: \hat x_{Wiener} = F^{-1}\Big[\frac{\bar H}{|H|^2 + NSR} F y\Big], \qquad
          x_{k+1} = x_k\, H^T\frac{y}{H x_k} \quad (\text{Richardson-Lucy})

All functions take images (..., H, W) on any device. The transfer function comes from :mod:`sfumato.physics.optics`; it
is real and even, so H is its own adjoint.
"""

import torch.nn.functional as F
from torch import Tensor

from sfumato.physics import grid, optics
from sfumato.physics.grid import Boundary

__all__ = ["bicubic", "richardson_lucy", "wiener"]

_FLOOR = 1e-6
"""Least predicted light, relative to the image's mean: dividing by less would amplify rounding errors."""
_TINY = 1e-30
"""Avoids a division by 0 for an image without light."""


def bicubic(image: Tensor, factor: int) -> Tensor:
    """Interpolate images (..., H, W) to a grid that is ``factor`` times finer, (..., factor H, factor W).

    Uses Keys' kernel with a = -1/2, as MATLAB and Pillow do, which reproduces planes exactly inside the image.

    Example:
        >>> import torch
        >>> bicubic(torch.ones(3, 4, 5), 2).shape
        torch.Size([3, 8, 10])
    """
    if factor < 1:
        raise ValueError(f"factor is {factor}; give a whole number of at least 1")
    stack = image.reshape(-1, 1, *image.shape[-2:])
    # With antialias torch takes a = -1/2 in place of -3/4; nothing else changes on the way to a finer grid.
    finer = F.interpolate(stack, scale_factor=factor, mode="bicubic", antialias=True)
    return finer.reshape(*image.shape[:-2], *finer.shape[-2:])


def wiener(
    image: Tensor, *, cutoff: float, pixel_um: float, noise_to_signal: float = 0.01, boundary: Boundary = "even"
) -> Tensor:
    """Deconvolve with the linear filter of least mean square error.  [Wiener 1949]

    Args:
        image: Shape (..., H, W).
        cutoff: Of the microscope, in cycles per micrometre, from :func:`~sfumato.physics.optics.cutoff_frequency`.
        pixel_um: Side of a pixel, at most 1 / (2 cutoff).
        noise_to_signal: Power of the noise relative to the specimen, the same at all frequencies; above 0.
        boundary: How the image continues beyond its borders.

    Returns:
        Shape (..., H, W); its mean is the image's mean divided by 1 + noise_to_signal. Values may be negative.
    """
    if noise_to_signal <= 0:
        raise ValueError(f"noise_to_signal is {noise_to_signal}; give a number above 0, larger for noisier images")
    height, width = image.shape[-2:]
    wider = grid.continued(image, boundary)
    transfer = optics.otf(wider, cutoff=cutoff, pixel_um=pixel_um, half=True)
    return grid.filtered(wider, transfer / (transfer.square() + noise_to_signal))[..., :height, :width]


def richardson_lucy(
    image: Tensor, *, cutoff: float, pixel_um: float, num_iterations: int = 20, boundary: Boundary = "even"
) -> Tensor:
    """Deconvolve towards the most likely specimen under Poisson noise.  [Richardson 1972; Lucy 1974]

    It starts from a flat image; stopping early is its only protection against noise.

    Args:
        image: Light, shape (..., H, W); values below 0, as left by camera offsets, count as 0.
        cutoff: Of the microscope, in cycles per micrometre, from :func:`~sfumato.physics.optics.cutoff_frequency`.
        pixel_um: Side of a pixel, at most 1 / (2 cutoff).
        num_iterations: At least 1.
        boundary: How the image continues beyond its borders.

    Returns:
        Shape (..., H, W), 0 or more, with the same total light as ``image``.
    """
    if num_iterations < 1:
        raise ValueError(f"num_iterations is {num_iterations}; give at least 1")
    height, width = image.shape[-2:]
    light = grid.continued(image.clamp_min(0), boundary)
    transfer = optics.otf(light, cutoff=cutoff, pixel_um=pixel_um, half=True)
    level = light.mean((-2, -1), keepdim=True)
    estimate = level.expand_as(light)
    for _ in range(num_iterations):
        # The kernel is positive, but with the FFT dark places are rounded to slightly below 0.
        expected = grid.filtered(estimate, transfer).maximum(_FLOOR * level + _TINY)
        estimate = estimate * grid.filtered(light / expected, transfer).clamp_min(0)
    return estimate[..., :height, :width]
