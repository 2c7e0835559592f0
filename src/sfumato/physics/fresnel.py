r"""Propagate a light field over a distance z, in the paraxial (Fresnel) approximation.

.. math:: u_z = F^{-1}\big[ F[u_0] \, \exp(-i \pi \lambda z |f|^2) \big]

This is the convolution of [CVDM Sec. 4.2] in the Fourier domain, without the constant phase exp(ikz), which does
not affect intensities. All factors have modulus 1, so energy is conserved, distances add, and -z undoes z.
"""

import torch
from torch import Tensor

from sfumato.physics import grid

__all__ = ["defocused_intensity", "propagate"]


def propagate(
    field: Tensor, distance_um: float | Tensor, *, wavelength_um: float, pixel_um: float, margin: int = 0
) -> Tensor:
    """Propagate a field over a distance.

    Args:
        field: Complex amplitude (..., H, W); a real one is converted.
        distance_um: Distance, of either sign; a tensor holds one per image and has shape (..., 1, 1), so that distances
            (Z, 1, 1) turn one field (H, W) into a stack (Z, H, W).
        wavelength_um: In the medium.
        pixel_um: Side of a pixel.
        margin: Pixels by which the field is continued evenly while it propagates. Without a margin, light that leaves
            at one border enters at the opposite one, and energy is conserved exactly.

    Returns:
        Complex amplitude, shape of ``field`` broadcast with ``distance_um``.

    Example:
        >>> there = propagate(torch.eye(4), 3.0, wavelength_um=0.5, pixel_um=0.2)
        >>> back = propagate(there, -3.0, wavelength_um=0.5, pixel_um=0.2)
        >>> torch.allclose(back.real, torch.eye(4), atol=1e-6)
        True
    """
    if wavelength_um <= 0:
        raise ValueError(f"wavelength_um is {wavelength_um}; give the wavelength in micrometres, above 0")
    if margin:
        wider = grid.even_margin(field, margin)
        return grid.crop(propagate(wider, distance_um, wavelength_um=wavelength_um, pixel_um=pixel_um), margin)
    angle = -torch.pi * wavelength_um * distance_um * grid.squared_frequency(field, pixel_um)
    transfer = torch.polar(torch.ones_like(angle), angle)
    spread: Tensor = torch.fft.ifft2(torch.fft.fft2(field) * transfer)
    return spread


def defocused_intensity(
    phase: Tensor,
    intensity: Tensor,
    distance_um: float | Tensor,
    *,
    wavelength_um: float,
    pixel_um: float,
    margin: int = 0,
) -> Tensor:
    r"""Compute the intensity at a distance from focus, :math:`I_z = |P_z \sqrt{I_0} e^{i\varphi}|^2`.  [CVDM Sec. 4.2]

    Args:
        phase: Phase in focus, in radians, shape (..., H, W).
        intensity: Intensity in focus, 0 or more, broadcasts to ``phase``.
        distance_um: Defocus, a number or a tensor (..., 1, 1).
        wavelength_um: In the medium.
        pixel_um: Side of a pixel.
        margin: See :func:`propagate`.

    Returns:
        Intensity, real, shape (..., H, W).

    Example:
        >>> flat = defocused_intensity(torch.zeros(5, 7), torch.tensor(0.5), 2.0, wavelength_um=0.521, pixel_um=0.21)
        >>> torch.allclose(flat, torch.full((5, 7), 0.5))
        True
    """
    field = torch.polar(intensity.sqrt().expand_as(phase), phase)
    spread = propagate(field, distance_um, wavelength_um=wavelength_um, pixel_um=pixel_um, margin=margin)
    return spread.real.square() + spread.imag.square()
