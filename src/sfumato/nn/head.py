"""A small network on top of another one's features."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfumato.nn.blocks import check_images, check_sizes, conv, zero_output

__all__ = ["Head"]

_BINOMIAL = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)
"""Of variance 1: nearly a Gaussian of one pixel."""


class Head(nn.Module):
    """Two 3x3 convolutions with SiLU and a linear layer: what a pixel's features and its neighbours' say.

    Args:
        in_channels: Channels of the input: features, and whatever is concatenated to them.
        out_channels: Channels of the output.
        width: Filters of the convolutions.
        ndim: 2 for images, 3 for volumes.
        smooths: Smooth the output over about one pixel, for what cannot change faster than the measurement's blur, and
            whose estimate is noisy.

    Attributes:
        stride: 1: any shift of the input shifts the output.
        reach: No pixel further away than this changes the output at a pixel.

    The last layer starts at zero, so an untrained head outputs 0 everywhere.

    Example:
        >>> import torch
        >>> Head(9, 1, width=16)(torch.zeros(2, 9, 33, 50)).shape
        torch.Size([2, 1, 33, 50])
    """

    stride = 1

    def __init__(
        self, in_channels: int, out_channels: int, *, width: int, ndim: int = 2, smooths: bool = False
    ) -> None:
        super().__init__()
        check_sizes(ndim, in_channels=in_channels, out_channels=out_channels, width=width)
        self.in_channels, self.ndim, self.smooths = in_channels, ndim, smooths
        self.reach = 2 + (len(_BINOMIAL) // 2 if smooths else 0)
        self.conv1, self.conv2 = conv(ndim, in_channels, width), conv(ndim, width, width)
        self.out = zero_output(conv(ndim, width, out_channels, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, in_channels, *spatial) to (B, out_channels, *spatial)."""
        check_images(images, self.in_channels, self.ndim)
        result: Tensor = self.out(F.silu(self.conv2(F.silu(self.conv1(images)))))
        return _smoothed(result) if self.smooths else result


def _smoothed(images: Tensor) -> Tensor:
    """Smooth along each spatial axis; pixels beyond the border are copies of the nearest one."""
    ndim, radius = images.ndim - 2, len(_BINOMIAL) // 2
    convolve: Any = (F.conv1d, F.conv2d, F.conv3d)[ndim - 1]
    result = F.pad(images, [radius] * (2 * ndim), mode="replicate")
    for axis in range(2, images.ndim):
        shape = [len(_BINOMIAL) if place == axis else 1 for place in range(images.ndim)]
        kernel = torch.tensor(_BINOMIAL, dtype=images.dtype, device=images.device).reshape(shape)
        result = convolve(result, kernel.expand(images.shape[1], *shape[1:]), groups=images.shape[1])
    return result
