"""The paper's U-Net, used for rates, noise and means.  [CVDM App. G]

Five scales; the number of filters doubles where the resolution halves. A block is (3x3 convolution, softplus or SiLU,
normalisation), twice. Max-pooling goes down, transposed convolutions go up, mirrored features are concatenated, and the
output is linear: the schedule makes it positive where that is needed.
"""

import torch
from torch import Tensor, nn

from sfumato.nn.blocks import (
    Activation,
    NormKind,
    activation_function,
    check_images,
    check_sizes,
    conv,
    crop_to,
    norm_layer,
    pad_to_stride,
    transposed_conv,
    zero_output,
)

__all__ = ["Block", "UNet"]


class UNet(nn.Module):
    """A U-Net from (B, in_channels, *spatial) to (B, out_channels, *spatial), any spatial size.

    Args:
        in_channels: Channels of the input, already concatenated.
        out_channels: Channels of the output; None for the ``base`` features that its last layer would see.
        base: Filters at full resolution, at least 2 with ``channel``; the reference code has 64 for the noise network
            and 32 for the rate network.
        num_scales: Number of resolutions; the last is 2**(num_scales - 1) times coarser than the first.
        ndim: 2 for images, 3 for volumes.
        norm: ``population`` (batch normalisation frozen halfway through training, see
            :class:`~sfumato.nn.blocks.PopulationNorm`: more accurate if the training freezes it, as ours does; a loop
            of your own calls :func:`~sfumato.nn.blocks.freeze_batch_statistics`), ``channel`` (statistics over the
            channels of each pixel) or ``instance`` (the paper's, statistics over the image).
        activation: ``softplus`` (the paper's) or ``silu``, which is cheaper.

    Attributes:
        stride: Shifting the input by multiples of it shifts the output by the same amount.
        reach: No pixel further away than this changes the output at a pixel; None with ``instance``, where all pixels
            do.

    The last layer starts at zero, so an untrained network outputs 0 everywhere.

    Example:
        >>> UNet(3, 1, base=4)(torch.zeros(2, 3, 33, 50)).shape
        torch.Size([2, 1, 33, 50])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None,
        *,
        base: int = 32,
        num_scales: int = 5,
        ndim: int = 2,
        norm: NormKind = "population",
        activation: Activation = "softplus",
    ) -> None:
        super().__init__()
        sizes = {"in_channels": in_channels, "out_channels": 1 if out_channels is None else out_channels}
        check_sizes(ndim, **sizes, base=base, num_scales=num_scales)
        self.in_channels, self.ndim, self.norm = in_channels, ndim, norm
        widths = [base * 2**scale for scale in range(num_scales)]
        self.stride = 2 ** (num_scales - 1)
        # Two convolutions per block: scales going down, those going up again, and the width of a coarse pixel.
        reach = 2 * (2 * self.stride - 1) + 2 * (self.stride - 1) + 2 * (self.stride - 1)
        self.reach = None if norm == "instance" else reach
        self.pool = {2: nn.MaxPool2d, 3: nn.MaxPool3d}[ndim](2)
        self.down = nn.ModuleList(
            Block(ndim, before, after, norm, activation)
            for before, after in zip([in_channels, *widths], widths, strict=False)
        )
        self.lift = nn.ModuleList(transposed_conv(ndim, 2 * width, width) for width in reversed(widths[:-1]))
        self.up = nn.ModuleList(Block(ndim, 2 * width, width, norm, activation) for width in reversed(widths[:-1]))
        self.head = nn.Identity() if out_channels is None else zero_output(conv(ndim, base, out_channels, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, in_channels, *spatial) to (B, out_channels, *spatial)."""
        check_images(images, self.in_channels, self.ndim)
        features = pad_to_stride(images, self.stride)
        if self.ndim == 2 and self.reach is not None:
            # Channel normalisation puts the channels last; if the whole network does, nothing is copied to and fro.
            # Population normalisation accepts either order; on a CPU the rest of the network is faster this way.
            features = features.contiguous(memory_format=torch.channels_last)
        mirrored: list[Tensor] = []
        for scale, block in enumerate(self.down):
            features = block(self.pool(features) if scale else features)
            mirrored.append(features)
        mirrored.pop()
        for lift, block in zip(self.lift, self.up, strict=True):
            features = block(torch.cat([mirrored.pop(), lift(features)], dim=1))
        return crop_to(self.head(features), images.shape[2:])


class Block(nn.Module):
    """Twice (3x3 convolution, activation, normalisation)."""

    def __init__(self, ndim: int, before: int, after: int, norm: NormKind, kind: Activation) -> None:
        super().__init__()
        self.activation = activation_function(kind)
        self.conv1, self.norm1 = conv(ndim, before, after), norm_layer(norm, after)
        self.conv2, self.norm2 = conv(ndim, after, after), norm_layer(norm, after)

    def forward(self, features: Tensor) -> Tensor:
        """Map features (B, before, *spatial) to (B, after, *spatial)."""
        features = self.norm1(self.activation(self.conv1(features)))
        result: Tensor = self.norm2(self.activation(self.conv2(features)))
        return result
