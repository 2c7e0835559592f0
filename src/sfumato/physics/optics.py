r"""Optics of a fluorescence microscope in focus: point-spread function (PSF) and optical transfer function (OTF).

.. math:: OTF(q) = \frac{2}{\pi}\big(\arccos q - q\sqrt{1 - q^2}\big), \quad q = |f|/f_c, \qquad
          f_c = \frac{2 NA}{\lambda}

for incoherent light and a clear circular pupil, in the scalar approximation [Goodman, Introduction to Fourier Optics,
Sec. 6.3]. Its Fourier transform is the Airy pattern. Everything here depends on the cut-off :math:`f_c`, in cycles per
micrometre, from :func:`cutoff_frequency`.

Note:
    An ideal linear SIM reconstruction is modelled with the same transfer function and twice the cut-off: light patterns
    of the finest period that the objective transmits shift frequencies by up to :math:`f_c`. Real reconstructions
    weight the frequencies below the cut-off differently, and may have negative side lobes; this one has none.
"""

import torch
from torch import Tensor

from sfumato.physics import grid
from sfumato.physics.grid import Boundary

__all__ = ["SIM_EXTENSION", "blur", "cutoff_frequency", "otf", "psf"]

SIM_EXTENSION = 2.0
"""Cut-off of linear structured illumination (SIM), relative to widefield."""


def cutoff_frequency(numerical_aperture: float, wavelength_um: float, *, extension: float = 1.0) -> float:
    r"""Highest frequency that passes, :math:`f_c = 2 NA/\lambda` times ``extension``, in cycles per micrometre.

    Args:
        numerical_aperture: Numerical aperture of the objective.
        wavelength_um: Wavelength of the emitted light, in vacuum.
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
    """Compute the transfer function at the frequencies of an image: 1 at frequency 0, and 0 from the cut-off on.

    Args:
        image: Shape (..., H, W); only its size, precision and device matter.
        cutoff: In cycles per micrometre.
        pixel_um: Side of a pixel, at most 1 / (2 cutoff).
        half: Whether the spectrum comes from ``rfft2``, with W // 2 + 1 columns.

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
    """Compute the image of a point, the Airy pattern: sum 1, shape (H, W), peak at (H // 2, W // 2).

    Args:
        image: Shape (..., H, W); only its size, precision and device matter. Light beyond its borders wraps around.
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
    """Form the microscope's image by convolution with the PSF; linear, self-adjoint and sum-preserving.

    Args:
        image: Fluorescence, shape (..., H, W).
        cutoff: In cycles per micrometre.
        pixel_um: Side of a pixel, at most 1 / (2 cutoff).
        boundary: How the image continues beyond its borders.

    Returns:
        Shape (..., H, W), band-limited if periodic. It is 0 or more, up to rounding, if the fluorescence is.
    """
    height, width = image.shape[-2:]
    wider = grid.continued(image, boundary)
    transfer = otf(wider, cutoff=cutoff, pixel_um=pixel_um, half=True)
    return grid.filtered(wider, transfer)[..., :height, :width]
