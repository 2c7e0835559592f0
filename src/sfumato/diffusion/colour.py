r"""Noise with the spectrum of what is diffused, so that a level means the same for coarse and for fine structure.

What mean and scale leave, d, is mostly coarse: images hold little power near the Nyquist frequency. White noise hides
fine structure first and leaves it last, and what a network fails to remove of it is seen in every sample. Noise of d's
own spectrum has nothing to leave there:

.. math:: z = a\, d + s\, K * \epsilon, \qquad |\hat K(f)|^2 \propto E\,|\hat d(f)|^2, \qquad \sum_r K(r)^2 = 1

Levels stay elementwise, and so does the flow from noise to samples: dz/dt = a' E[d|z] + s' E[K * eps|z] transports the
noise to d whatever the covariance of the noise is. For a Gaussian d of standard deviation :math:`\sigma` with this
spectrum, the exact prediction is the same multiple of z at all frequencies.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfumato.diffusion.noise import NoiseField

__all__ = ["Colour", "noise_for"]

_SIDES = {2: 31, 3: 9}
"""Sides of the kernel: it resolves frequencies of about one cycle per side."""
_LEAST_AMPLITUDE = 3e-3
"""Of the largest one; noise below it would be lost in the rounding of images."""
_LEAST_EVENED = 1e-2
"""Amplitudes below it are not weighted up any more."""
_CONVOLVE: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class Colour(nn.Module):
    """A kernel per channel that gives white noise a spectrum and keeps its variance; none until it is fitted.

    Args:
        channels: C.
        ndim: Number of spatial axes.
        side: Odd side of the kernel; by default 31 pixels or 9 voxels.

    Example:
        >>> colour = Colour(1, ndim=2, side=3)
        >>> noise = colour.of(NoiseField(0))(0, torch.Size([1, 1, 1, 8, 8]))
        >>> torch.equal(noise, NoiseField(0)(0, torch.Size([1, 1, 1, 8, 8])))  # not fitted: still white
        True
    """

    kernel: Tensor

    def __init__(self, channels: int, *, ndim: int = 2, side: int | None = None) -> None:
        super().__init__()
        side = _SIDES[ndim] if side is None else side
        self.radius, self.ndim = side // 2, ndim
        kernel = torch.zeros(channels, 1, *[side] * ndim)
        middle: tuple[Any, ...] = (..., *[self.radius] * ndim)
        kernel[middle] = 1
        self.register_buffer("kernel", kernel)

    def of(self, noise: NoiseField) -> Callable[..., Tensor]:
        """Coloured noise, which is also a pure function of its coordinates: the noise of a crop is the crop's."""

        def draw(
            step: int | Tensor,
            shape: torch.Size,
            *,
            dtype: torch.dtype = torch.float32,
            device: torch.device | str | None = None,
        ) -> Tensor:
            origin = noise.origin or (0,) * self.ndim
            wider = replace(noise, origin=tuple(start - self.radius for start in origin))
            more = torch.Size([*shape[:3], *(length + 2 * self.radius for length in shape[3:])])
            return self._filtered(wider(step, more, dtype=dtype, device=device).flatten(0, 1)).reshape(shape)

        return draw

    def of_patches(self, white: Tensor) -> Tensor:
        """Colour white noise (B, C, *spatial) that is continued periodically: all pixels have unit variance."""
        axes = tuple(range(2, white.ndim))
        kernel = self._periodic(white.shape[2:]).to(white)
        kernel = kernel / kernel.square().sum(axes, keepdim=True).sqrt()
        spectrum = torch.fft.fftn(white, dim=axes) * torch.fft.fftn(kernel, dim=axes)
        result: Tensor = torch.fft.ifftn(spectrum, dim=axes).real
        return result

    def evened(self, error: Tensor) -> Tensor:
        r"""Errors (B, C, *spatial) with fine structure weighted up, :math:`\hat e(f) / |\hat K(f)|^{1/2}`.

        Where noise is faint, so is its error, and a network would not learn what little of it is left in samples. With
        the full weight, :math:`1/|\hat K|`, it would learn coarse structure badly.
        """
        axes = tuple(range(2, error.ndim))
        amplitude = torch.fft.fftn(self._periodic(error.shape[2:]).to(error), dim=axes).abs().clamp_min(_LEAST_EVENED)
        size = (amplitude.square().mean(axes, keepdim=True) / amplitude.mean(axes, keepdim=True)).sqrt()
        result: Tensor = torch.fft.ifftn(torch.fft.fftn(error, dim=axes) * size / amplitude.sqrt(), dim=axes).real
        return result

    @torch.no_grad()
    def fit(self, leftovers: Iterable[Tensor]) -> "Colour":
        """Take the mean spectrum of what is to be diffused, patches (B, C, *spatial) of one size."""
        power: Tensor | None = None
        for patches in leftovers:
            found = _power(patches.cpu().double())  # not every device has float64
            power = found if power is None else power + found
        assert power is not None, "there are always patches to train on"
        amplitude = power.sqrt()
        largest = amplitude.flatten(1).amax(1).reshape([-1, *[1] * self.ndim])
        amplitude = (amplitude / largest.clamp_min(torch.finfo(amplitude.dtype).tiny)).clamp_min(_LEAST_AMPLITUDE)
        side = 2 * self.radius + 1
        kernels = torch.stack([_kernel(one, side) for one in amplitude])[:, None]
        norm = kernels.flatten(1).square().sum(1).sqrt().reshape([-1, *[1] * (self.ndim + 1)])
        self.kernel.copy_(kernels / norm)
        return self

    def _filtered(self, padded: Tensor) -> Tensor:
        kernel = self.kernel.to(padded)
        filtered: Tensor = _CONVOLVE[self.ndim](padded, kernel, groups=len(kernel))
        return filtered

    def _periodic(self, spatial: torch.Size) -> Tensor:
        """The kernel around pixel 0 of a periodic image, shape (1, C, *spatial); one larger than it overlaps itself."""
        places = torch.arange(-self.radius, self.radius + 1, device=self.kernel.device)
        result = self.kernel.transpose(0, 1)
        for axis, length in enumerate(spatial, start=2):
            shape = [*result.shape[:axis], length, *result.shape[axis + 1 :]]
            result = result.new_zeros(shape).index_add(axis, places % length, result)
        return result


def noise_for(model: object, noise: NoiseField) -> Callable[..., Tensor]:
    """The noise that a model is sampled with: coloured if the model's is, else as it is."""
    colour: Colour | None = getattr(model, "colour", None)
    return noise if colour is None else colour.of(noise)


def _power(patches: Tensor) -> Tensor:
    """Power at all frequencies, summed over patches, shape (C, *spatial); tapered, so that edges add none."""
    for axis in range(2, patches.ndim):
        taper = torch.hann_window(patches.shape[axis], periodic=False, dtype=patches.dtype, device=patches.device)
        patches = patches * taper.reshape([-1, *[1] * (patches.ndim - 1 - axis)])
    power: Tensor = torch.fft.fftn(patches, dim=tuple(range(2, patches.ndim))).abs().square().sum(0)
    return power


def _kernel(amplitude: Tensor, side: int) -> Tensor:
    """The even kernel with an amplitude at all frequencies (*spatial), by least squares of its relative error."""
    ndim, radius = amplitude.ndim, side // 2
    frequencies = torch.cartesian_prod(*(torch.fft.fftfreq(n, dtype=amplitude.dtype) for n in amplitude.shape))
    places = torch.cartesian_prod(*[torch.arange(-radius, radius + 1)] * ndim)
    half = places[len(places) // 2 :]  # an even kernel is known by one half, from its centre on
    waves = (2 * torch.pi * frequencies.reshape(-1, ndim) @ half.reshape(-1, ndim).T.to(amplitude)).cos()
    waves[:, 1:] *= 2
    wanted = amplitude.flatten()
    system = waves / wanted[:, None]
    gram = system.T @ system
    gram += 1e-6 * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    solution = torch.linalg.solve(gram, system.sum(0))
    return torch.cat([solution[1:].flip(0), solution]).reshape([side] * ndim)
