"""A small network on top of another one's features."""

import torch.nn.functional as F
from torch import Tensor, nn

from sfumato.nn.blocks import check_images, check_sizes, conv, zero_output

__all__ = ["Head"]


class Head(nn.Module):
    """Two 3x3 convolutions with SiLU and a linear layer: what a pixel's features and its neighbours' say.

    Args:
        in_channels: Channels of the input: features, and whatever is concatenated to them.
        out_channels: Channels of the output.
        width: Filters of the convolutions.
        ndim: 2 for images, 3 for volumes.

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
    reach = 2

    def __init__(self, in_channels: int, out_channels: int, *, width: int, ndim: int = 2) -> None:
        super().__init__()
        check_sizes(ndim, in_channels=in_channels, out_channels=out_channels, width=width)
        self.in_channels, self.ndim = in_channels, ndim
        self.conv1, self.conv2 = conv(ndim, in_channels, width), conv(ndim, width, width)
        self.out = zero_output(conv(ndim, width, out_channels, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, in_channels, *spatial) to (B, out_channels, *spatial)."""
        check_images(images, self.in_channels, self.ndim)
        result: Tensor = self.out(F.silu(self.conv2(F.silu(self.conv1(images)))))
        return result
