r"""Forward models: what the instrument would have measured if the restored image were the truth.

.. math:: p = A(r)

Each is known up to what an instrument leaves open, such as gain and offset; :mod:`sfumato.audit.consistency` fits
those.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from sfumato.physics import grid, optics
from sfumato.problems.phase_settings import Geometry, PhaseSettings, intensities
from sfumato.system.errors import ImageError

__all__ = ["Forward", "blurring", "defocusing", "imaging"]

_LEAST_SCALE_PX = 1.0


@dataclass(frozen=True)
class Forward:
    """One forward model.

    Attributes:
        about: Description in words.
        predict: Maps a restored image (C, F H, F W) to a measurement (K, H, W), both float64, up to an affine map.
        scale_px: Standard deviation of the instrument's blur in measured pixels: how small structures can be.
        border_px: Measured pixels at each border that light from outside the image reaches.
        is_light: Whether the measurement is a sum of the light of structures, so that invented structures are too
            bright.
    """

    about: str
    predict: Callable[[Tensor], Tensor]
    scale_px: float
    border_px: int
    is_light: bool = True


def imaging(
    factor: int, *, pixel_um: float, numerical_aperture: float, wavelength_um: float, extension: float = 1.0
) -> Forward:
    """A fluorescence microscope; the restored image shows more than passes its aperture.

    The restored image is assumed to have passed an aperture ``extension`` times as wide, so the blur between the two is
    the ratio of their transfer functions. A measured pixel collects the light of ``factor`` x ``factor`` restored
    pixels.

    Args:
        factor: Restored pixels per measured pixel, along each axis.
        pixel_um: Side of a measured pixel.
        numerical_aperture: Of the objective.
        wavelength_um: Of the emitted light.
        extension: How much finer the restored image is; 2 for structured illumination.
    """
    cutoff = optics.cutoff_frequency(numerical_aperture, wavelength_um)
    fine_um = pixel_um / factor

    def transfer(image: Tensor) -> Tensor:
        try:
            narrow = optics.otf(image, cutoff=cutoff, pixel_um=fine_um, half=True)
            wide = optics.otf(image, cutoff=extension * cutoff, pixel_um=fine_um, half=True)
        except ValueError as error:
            raise ImageError(f"the optics do not fit the images: {error}") from error
        return narrow / wide.clamp_min(1e-6)

    about = (
        f"a microscope of numerical aperture {numerical_aperture:g} at {1000 * wavelength_um:g} nm, pixels of "
        f"{1000 * pixel_um:g} nm, restored to {extension:g} times its resolution"
    )
    # The Gaussian that fits an Airy disk best has a standard deviation of 0.21 wavelengths per aperture.
    width_px = 0.21 * wavelength_um / numerical_aperture / pixel_um
    airy_px = 0.61 * wavelength_um / numerical_aperture / pixel_um
    predict = partial(_blurred, transfer=transfer, factor=factor)
    return Forward(about, predict, max(width_px, _LEAST_SCALE_PX), math.ceil(airy_px))


def blurring(factor: int, width_px: float) -> Forward:
    """A Gaussian blur, if the optics are unknown; use a width of 0 for denoising.

    Args:
        factor: Restored pixels per measured pixel, along each axis.
        width_px: Standard deviation of the blur in measured pixels.
    """

    def transfer(image: Tensor) -> Tensor:
        return torch.exp(-2 * math.pi**2 * width_px**2 * grid.squared_frequency(image, 1 / factor, half=True))

    about = f"a Gaussian blur of {width_px:.2g} pixels, fitted" if width_px else "no blur"
    predict = partial(_blurred, transfer=transfer if width_px else None, factor=factor)
    return Forward(about, predict, max(width_px, 1.5), math.ceil(2 * width_px))


def defocusing(settings: PhaseSettings) -> Forward:
    """Free propagation of light with the restored phase to the measured planes.

    Args:
        settings: Settings of the problem; its geometry must not be random.

    Raises:
        ImageError: If it is.
    """
    if settings.defocus_max_um or settings.wavelength_max_um or settings.pixel_max_um:
        raise ImageError(
            "the model was trained on random geometries, so its file does not state the geometry of this image; "
            "give the distance, the wavelength and the pixel size"
        )
    distances = tuple(settings.defocus_um * plane for plane in settings.planes)
    geometry = Geometry(distances, settings.wavelength_um, settings.pixel_um)
    furthest = max(map(abs, distances))
    # A phase edge spreads over the first Fresnel zone.
    scale = math.sqrt(settings.wavelength_um * furthest) / settings.pixel_um / 2
    about = f"free propagation to {', '.join(f'{d:g}' for d in distances)} um at {1000 * settings.wavelength_um:g} nm"
    return Forward(
        about,
        lambda restored: intensities(restored[0], geometry),
        max(scale, _LEAST_SCALE_PX),
        min(geometry.reach, math.ceil(4 * scale)),
        is_light=False,
    )


def _blurred(restored: Tensor, *, transfer: Callable[[Tensor], Tensor] | None, factor: int) -> Tensor:
    """Multiply an image by a transfer function in Fourier space, and average blocks of ``factor`` pixels."""
    image = restored
    if transfer is not None:
        wider = grid.even_continuation(restored)
        image = grid.filtered(wider, transfer(wider))[..., : restored.shape[-2], : restored.shape[-1]]
    return torch.nn.functional.avg_pool2d(image[None], factor)[0] if factor > 1 else image
