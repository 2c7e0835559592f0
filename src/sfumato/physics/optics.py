r"""Optics of a fluorescence microscope in focus: point-spread function (PSF) and optical transfer function (OTF).

.. math:: OTF(q) = \frac{2}{\pi}\big(\arccos q - q\sqrt{1 - q^2}\big), \quad q = |f|/f_c, \qquad
          f_c = \frac{2 NA}{\lambda}

for incoherent light and a clear circular pupil, in the scalar approximation [Goodman, Introduction to Fourier Optics,
Sec. 6.3]. Its Fourier transform is the Airy pattern. Everything here is set by the cut-off :math:`f_c`, in cycles per
micrometre, from :func:`cutoff_frequency`.

Note:
    An ideal linear SIM reconstruction is taken to have the same transfer function with a cut-off twice as high: light
    patterns of the finest period that the objective lets through shift frequencies by up to :math:`f_c`. Real
    reconstructions differ in how they weight frequencies below it, and may show negative side lobes; this one has none.
"""

import torch
from torch import Tensor

from sfumato.physics import grid
from sfumato.physics.grid import Boundary

__all__ = ["SIM_EXTENSION", "blur", "cutoff_frequency", "otf", "psf"]

SIM_EXTENSION = 2.0
"""How much further than widefield linear structured illumination (SIM) reaches."""


def cutoff_frequency(numerical_aperture: float, wavelength_um: float, *, extension: float = 1.0) -> float:
    r"""Highest frequency that passes, :math:`f_c = 2 NA/\lambda` times ``extension``, in cycles per micrometre.

    Args:
        numerical_aperture: Of the objective.
        wavelength_um: Of the emitted light, in vacuum.
        extension: 1 for widefield, ``SIM_EXTENSION`` for structured illumination.

    Example:
        >>> cutoff_frequency(1.25, 0.5)
        5.0
        >>> cutoff_frequency(1.25, 0.5, extension=SIM_EXTENSION)
        10.0
    """
    if numerical_aperture <= 0 or wavelength_um <= 0 or extension <= 0:
        raise ValueError(
            f"numerical_aperture is {numerical_aperture}, wavelength_um {wavelength_um} and extension {extension}; "
            "all must be above 0"
        )
    return extension * 2 * numerical_aperture / wavelength_um


def otf(image: Tensor, *, cutoff: float, pixel_um: float, half: bool = False) -> Tensor:
    """Transfer function on the frequencies of an image: 1 at frequency 0, 0 from the cut-off on.

    Args:
        image: Shape (..., H, W); only its size, precision and device matter.
        cutoff: In cycles per micrometre.
        pixel_um: Side of a pixel, at most 1 / (2 cutoff).
        half: Whether for ``rfft2``, with W // 2 + 1 columns.

    Returns:
        Shape (H, W) or (H, W // 2 + 1), in the order of the FFT.
    """
    if cutoff <= 0:
        raise ValueError(f"cutoff is {cutoff} cycles per micrometre; it must be above 0")
    if pixel_um > 0.5 / cutoff:
        raise ValueError(
            f"pixel_um is {pixel_um:g}, but a cut-off of {cutoff:g} cycles per micrometre needs pixels of at most "
            f"{0.5 / cutoff:.4g}; image on finer pixels, then bin them (sfumato.physics.camera.bin_pixels)"
        )
    q = (grid.squared_frequency(image, pixel_um, half=half).sqrt() / cutoff).clamp_max(1)
    return 2 / torch.pi * (q.acos() - q * (1 - q.square()).sqrt())


def psf(image: Tensor, *, cutoff: float, pixel_um: float) -> Tensor:
    """Image of a point, of sum 1, shape (H, W), with its peak at (H // 2, W // 2): the Airy pattern.

    Args:
        image: Shape (..., H, W); only its size, precision and device matter. What lies beyond its borders wraps around.
        cutoff: In cycles per micrometre.
        pixel_um: Side of a pixel, at most 1 / (2 cutoff).

    Example:
        >>> spread = psf(torch.zeros(63, 64), cutoff=5.0, pixel_um=0.06)
        >>> round(spread.sum().item(), 4), divmod(int(spread.argmax()), 64)
        (1.0, (31, 32))
    """
    transfer = otf(image, cutoff=cutoff, pixel_um=pixel_um, half=True)
    spread: Tensor = torch.fft.fftshift(torch.fft.irfft2(transfer, s=image.shape[-2:]))
    return spread


def blur(image: Tensor, *, cutoff: float, pixel_um: float, boundary: Boundary = "even") -> Tensor:
    """The image that the microscope forms: convolution with the PSF. Linear, self-adjoint, keeps the sum.

    Args:
        image: Fluorescence, shape (..., H, W).
        cutoff: In cycles per micrometre.
        pixel_um: Side of a pixel, at most 1 / (2 cutoff).
        boundary: How the image goes on beyond its borders.

    Returns:
        Shape (..., H, W), band-limited if periodic. A fluorescence of 0 or more stays so, up to rounding.
    """
    height, width = image.shape[-2:]
    wider = grid.continued(image, boundary)
    transfer = otf(wider, cutoff=cutoff, pixel_um=pixel_um, half=True)
    return grid.filtered(wider, transfer)[..., :height, :width]
