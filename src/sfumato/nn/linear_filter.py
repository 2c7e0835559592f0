r"""One convolution with a wide kernel: the best linear estimate of the target from the pixels around each pixel.

.. math:: \hat y(r) = b + \sum_{k, d} w_{kd}\, x_k(r + d), \qquad
          (w, b) = \arg\min E\,|y - \hat y|^2 + ridge\,|w|^2

Fitted to pairs in closed form, it needs no knowledge of the blur, and is where a network can start from.
"""

from collections.abc import Iterable
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["LinearFilter", "default_side"]

_RIDGE = 1e-5
"""Relative to the mean square of the inputs: enough for pixels that are copies of each other, as upsampled ones."""


def default_side(ndim: int) -> int:
    """Side of the kernel: 15 x 15 pixels, or 5 x 5 x 5 voxels, whose normal equations take seconds."""
    return {2: 15, 3: 5}[ndim]


class LinearFilter(nn.Module):
    """A fixed convolution from (B, in_channels, *spatial) to (B, out_channels, *spatial); zero until fitted.

    Pixels beyond the border are copies of the nearest one.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        side: Odd side of the kernel; by default :func:`default_side`.
        ndim: 2 for images, 3 for volumes.

    Attributes:
        reach: No pixel further away than this changes the output at a pixel.

    Example:
        >>> images = torch.randn(8, 1, 32, 32, generator=torch.Generator().manual_seed(0))
        >>> fitted = LinearFilter(1, 1, side=3).fit([(images, 2 * images.roll(1, -1) + 1)])
        >>> [round(value, 3) for value in (fitted.weight[0, 0, 1, 0].item(), fitted.bias.item())]
        [2.0, 1.0]
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, in_channels: int, out_channels: int, *, side: int | None = None, ndim: int = 2) -> None:
        super().__init__()
        side = default_side(ndim) if side is None else side
        if side < 1 or side % 2 == 0:
            raise ValueError(f"side is {side}; give an odd number, so that the kernel has a centre")
        self.ndim, self.reach = ndim, side // 2
        # Buffers, not parameters: the optimizer leaves them alone, and files store them with the weights.
        self.register_buffer("weight", torch.zeros(out_channels, in_channels, *[side] * ndim))
        self.register_buffer("bias", torch.zeros(out_channels))

    @classmethod
    def identity(cls, channels: int, *, ndim: int = 2) -> Self:
        """A filter that changes nothing until it is fitted."""
        result = cls(channels, channels, ndim=ndim)
        middle = [result.reach] * ndim
        for channel in range(channels):
            result.weight[channel, channel][tuple(middle)] = 1
        return result

    @torch.no_grad()
    def weaken(self, share: float) -> None:
        """Keep a share of how the filter differs from one that changes nothing; it has as many outputs as inputs."""
        same = self.identity(len(self.weight), ndim=self.ndim).to(self.weight)
        for own, unchanged in ((self.weight, same.weight), (self.bias, same.bias)):
            own.copy_(unchanged.lerp(own, share))

    def forward(self, images: Tensor) -> Tensor:
        """Filter images (B, in_channels, *spatial)."""
        convolve = {2: F.conv2d, 3: F.conv3d}[self.ndim]
        padded = F.pad(images, [self.reach] * (2 * self.ndim), mode="replicate")
        return convolve(padded, self.weight.to(images.dtype), self.bias.to(images.dtype))

    @torch.no_grad()
    def fit(self, pairs: Iterable[tuple[Tensor, Tensor]], *, ridge: float = _RIDGE, evenly: bool = False) -> Self:
        """Set the kernel to the least-squares solution over all pixels whose neighbourhood lies inside its image.

        Images without such pixels are continued beyond their edges, as :meth:`forward` does.

        Args:
            pairs: Batches of inputs (B, in_channels, *spatial) and targets (B, out_channels, *spatial).
            ridge: Weight of the kernel's square, relative to the inputs' mean square.
            evenly: Inputs are estimates of the targets, and each image counts by the inverse of its mean square error,
                so that those with large errors do not decide alone.
        """
        unknowns = self.weight[0].numel() + 1
        gram = torch.zeros(unknowns, unknowns, dtype=torch.float64)
        moments = torch.zeros(unknowns, len(self.weight), dtype=torch.float64)
        for inputs, targets in pairs:
            edge, weights = self.reach, _inverse_errors(inputs, targets) if evenly else [1.0] * len(inputs)
            if min(inputs.shape[2:]) <= 2 * self.reach:
                inputs, edge = F.pad(inputs, [self.reach] * (2 * self.ndim), mode="replicate"), 0
            for image, target, weight in zip(inputs, targets, weights, strict=True):
                seen = self._neighbourhoods(image.float())
                inner = (slice(None), *[slice(edge, length - edge) for length in target.shape[1:]])
                wanted = target[inner].float().flatten(1).T
                gram += weight * (seen.T @ seen).double()
                moments += weight * (seen.T @ wanted).double()
        size = max(float(gram.diagonal()[:-1].mean()), torch.finfo(torch.float32).tiny)  # blank images have none
        penalty = torch.full((unknowns,), ridge * size, dtype=torch.float64)
        penalty[-1] = 0  # the offset is free
        solution = torch.linalg.solve(gram + penalty.diag(), moments)
        self.weight.copy_(solution[:-1].T.reshape(self.weight.shape))
        self.bias.copy_(solution[-1])
        return self

    def _neighbourhoods(self, image: Tensor) -> Tensor:
        """Each inner pixel's neighbourhood in all channels, and a 1, shape (pixels, unknowns)."""
        windows = image
        for axis in range(1, self.ndim + 1):
            windows = windows.unfold(axis, 2 * self.reach + 1, 1)
        # (K, *inner, *kernel) to (*inner, K, *kernel)
        rows = windows.movedim(0, self.ndim).flatten(0, self.ndim - 1).flatten(1)
        return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def _inverse_errors(inputs: Tensor, targets: Tensor) -> list[float]:
    """One over each image's mean square error, with a thousandth of the batch's added, as some images are blank."""
    errors = (inputs - targets).double().square().flatten(1).mean(1)
    tiny = torch.finfo(torch.float32).tiny
    weights: list[float] = (errors + errors.mean() / 1000 + tiny).reciprocal().tolist()
    return weights
