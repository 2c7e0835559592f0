r"""Model a scientific camera, which turns expected photons into grey levels.

.. math:: grey = clip\big(round(g\,(n + r) + o)\big), \qquad n \sim Poisson(\mu), \quad r \sim N(0, \sigma_r^2)

with :math:`\mu` the photo-electrons expected in a pixel, gain g, offset o and read noise :math:`\sigma_r`. The mean
is :math:`g\mu + o` and the variance :math:`g^2(\mu + \sigma_r^2)`, plus 1/12 for the rounding, as long as nothing is
clipped [Janesick, Photon Transfer, 2007].
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["Camera", "at_photon_level", "bin_pixels"]


@dataclass(frozen=True, kw_only=True)
class Camera:
    """A camera, which turns expected photons into grey levels.

    Attributes:
        gain: Grey levels per photo-electron.
        offset: Grey levels without light.
        read_noise: Standard deviation per pixel, in electrons.
        bit_depth: Grey levels are whole numbers from 0 to 2**bit_depth - 1; None for no rounding and no clipping.

    Example:
        >>> camera = Camera(gain=2.0, offset=100.0, read_noise=1.5)
        >>> photons = torch.full((4, 6), 50.0)
        >>> camera.mean(photons)[0, 0].item(), round(camera.variance(photons)[0, 0].item(), 2)
        (200.0, 209.08)
        >>> camera.capture(photons, seed=1).shape
        torch.Size([4, 6])
    """

    gain: float = 1.0
    offset: float = 100.0
    read_noise: float = 1.5
    bit_depth: int | None = 16

    def __post_init__(self) -> None:
        if self.gain <= 0 or self.read_noise < 0:
            raise ValueError(
                f"gain is {self.gain} and read_noise {self.read_noise}; give a gain above 0 and noise >= 0"
            )
        if self.bit_depth is not None and not 1 <= self.bit_depth <= 24:
            raise ValueError(f"bit_depth is {self.bit_depth}; give 1 to 24 bits, which float32 holds, or None")

    def mean(self, photons: Tensor) -> Tensor:
        """Expected grey levels, if nothing is clipped."""
        return self.gain * photons + self.offset

    def variance(self, photons: Tensor) -> Tensor:
        """Variance of the grey levels, if nothing is clipped."""
        rounding = 0.0 if self.bit_depth is None else 1 / 12
        return self.gain**2 * (photons + self.read_noise**2) + rounding

    def capture(self, photons: Tensor, *, seed: int) -> Tensor:
        """Simulate one exposure.

        Args:
            photons: Expected photo-electrons in each pixel, 0 or more, any shape. Values below 0 by less than a
                millionth of the largest count as rounding errors.
            seed: The same seed, shape and kind of device give the same noise.

        Returns:
            Grey levels as floats, in the shape and precision of ``photons``, without gradient.
        """
        lowest, highest = (float(value) for value in photons.detach().aminmax())
        if lowest < -1e-6 * max(highest, 1):
            raise ValueError(
                f"the lowest expected photon number is {lowest:g}; light cannot be negative: subtract less"
            )
        generator = torch.Generator(photons.device).manual_seed(seed)
        electrons = torch.poisson(photons.detach().clamp_min(0), generator)
        noise = torch.randn(photons.shape, generator=generator, dtype=photons.dtype, device=photons.device)
        grey = self.mean(electrons + self.read_noise * noise)
        return grey if self.bit_depth is None else grey.round().clamp(0, 2**self.bit_depth - 1)


def at_photon_level(image: Tensor, photons: float) -> Tensor:
    """Scale images of light so that their structures have a mean of ``photons`` per pixel.

    Pixels that are at least as bright as the mean of the image count as structure. Unlike the mean of all pixels, the
    level then does not depend on how much of the field is empty.

    Args:
        image: Relative intensity, 0 or more, shape (..., H, W).
        photons: Mean over the structure, for each image.

    Returns:
        Expected photons in each pixel, shape (..., H, W).

    Example:
        >>> at_photon_level(torch.tensor([[0.0, 0.0, 2.0, 4.0]]), 30.0).tolist()
        [[0.0, 0.0, 20.0, 40.0]]
    """
    structure = image >= image.mean((-2, -1), keepdim=True)
    level = (image * structure).sum((-2, -1), keepdim=True) / structure.sum((-2, -1), keepdim=True)
    if not bool((level > 0).all()):
        raise ValueError("an image has no light in it, so it cannot be scaled to a photon level; leave it out")
    return image * (photons / level)


def bin_pixels(image: Tensor, factor: int) -> Tensor:
    """Sum the light of blocks of ``factor`` x ``factor`` pixels, as larger camera pixels do, (..., H, W) to H / factor.

    Example:
        >>> bin_pixels(torch.ones(4, 6), 2).tolist()
        [[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]]
    """
    height, width = image.shape[-2:]
    if factor < 1 or height % factor or width % factor:
        raise ValueError(f"an image of {height} x {width} pixels has no blocks of {factor} x {factor}; crop it first")
    binned = F.avg_pool2d(image.reshape(-1, 1, height, width), factor) * factor**2
    return binned.reshape(*image.shape[:-2], height // factor, width // factor)
