"""Smoothing over about one pixel, by the binomial kernel of five."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Binomial"]

_KERNEL = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)
"""Of variance 1: nearly a Gaussian of one pixel."""


class Binomial(nn.Module):
    """Smooths images (B, C, *spatial) along each spatial axis; pixels beyond the border are copies of the nearest one.

    Attributes:
        stride: 1: any shift of the input shifts the output.
        reach: No pixel further away than this changes the output at a pixel.

    Example:
        >>> edge = torch.tensor([0.0, 0.0, 0.0, 0.0, 16.0, 16.0, 16.0])
        >>> Binomial()(edge.expand(1, 1, 5, 7))[0, 0, 0].tolist()
        [0.0, 0.0, 1.0, 5.0, 11.0, 15.0, 16.0]
    """

    stride = 1
    reach = len(_KERNEL) // 2

    def forward(self, images: Tensor) -> Tensor:
        """Smooth images."""
        ndim, channels = images.ndim - 2, images.shape[1]
        convolve: Any = (F.conv1d, F.conv2d, F.conv3d)[ndim - 1]
        result = F.pad(images, [self.reach] * (2 * ndim), mode="replicate")
        for axis in range(2, images.ndim):
            shape = [len(_KERNEL) if place == axis else 1 for place in range(images.ndim)]
            kernel = torch.tensor(_KERNEL, dtype=images.dtype, device=images.device).reshape(shape)
            result = convolve(result, kernel.expand(channels, *shape[1:]), groups=channels)
        return result
