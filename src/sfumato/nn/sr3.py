"""The larger network for natural images: residual blocks, group normalisation, attention.  [SR3; CVDM App. L]

The noise level enters as an input image, as in all our networks; SR3 embeds it.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfumato.nn.blocks import GroupNorm, check_images, check_sizes, conv, crop_to, pad_to_stride, zero_output

__all__ = ["SR3UNet"]

_GROUPS = 32


class SR3UNet(nn.Module):
    """A residual U-Net from (B, in_channels, *spatial) to (B, out_channels, *spatial), any spatial size.

    Args:
        in_channels: Channels of the input, already concatenated.
        out_channels: Channels of the output.
        base: Filters at full resolution.
        multipliers: Filters at each scale, in units of ``base``.
        num_blocks: Residual blocks per scale on the way down; one more on the way up.
        attention_scales: How many of the coarsest scales attend over all their pixels; 0 for no attention.
        ndim: 2 for images, 3 for volumes.
        dropout: Probability of dropping a feature inside a residual block.

    Its statistics are computed over the image, so results depend on the tile. The last layer starts at zero.

    Example:
        >>> SR3UNet(7, 3, base=8, multipliers=(1, 2))(torch.zeros(1, 7, 20, 31)).shape
        torch.Size([1, 3, 20, 31])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        base: int = 64,
        multipliers: Sequence[int] = (1, 2, 4, 8, 8),
        num_blocks: int = 2,
        attention_scales: int = 1,
        ndim: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(ndim, in_channels=in_channels, out_channels=out_channels, base=base, num_blocks=num_blocks)
        if not multipliers or min(multipliers) < 1:
            raise ValueError(f"multipliers are {tuple(multipliers)}; give one number of at least 1 per scale")
        if not 0 <= attention_scales <= len(multipliers):
            raise ValueError(
                f"attention_scales is {attention_scales}; give 0 to {len(multipliers)}, the number of scales"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; give a probability of at least 0 and below 1")
        self.in_channels, self.ndim = in_channels, ndim
        widths = [base * multiplier for multiplier in multipliers]
        last = len(widths) - 1
        self.stride = 2**last

        def stage(before: int, after: int, scale: int) -> nn.Sequential:
            attends = scale > last - attention_scales
            layers: list[nn.Module] = [_ResidualBlock(ndim, before, after, dropout)]
            return nn.Sequential(*layers, _Attention(after)) if attends else nn.Sequential(*layers)

        self.stem = conv(ndim, in_channels, base)
        self.down, skips, width = nn.ModuleList(), [base], base
        for scale, after in enumerate(widths):
            for _ in range(num_blocks):
                self.down.append(stage(width, after, scale))
                width = after
                skips.append(width)
            if scale < last:
                self.down.append(conv(ndim, width, width, stride=2))
                skips.append(width)
        self.middle = nn.Sequential(
            _ResidualBlock(ndim, width, width, dropout),
            _Attention(width) if attention_scales else nn.Identity(),
            _ResidualBlock(ndim, width, width, dropout),
        )
        self.up = nn.ModuleList()
        for scale in range(last, -1, -1):
            for block in range(num_blocks + 1):
                layers = stage(width + skips.pop(), widths[scale], scale)
                width = widths[scale]
                if scale and block == num_blocks:
                    layers.extend([nn.Upsample(scale_factor=2, mode="nearest"), conv(ndim, width, width)])
                self.up.append(layers)
        self.head = nn.Sequential(_norm(width), nn.SiLU(), zero_output(conv(ndim, width, out_channels)))

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, in_channels, *spatial) to (B, out_channels, *spatial)."""
        check_images(images, self.in_channels, self.ndim)
        features = self.stem(pad_to_stride(images, self.stride))
        mirrored = [features]
        for layer in self.down:
            features = layer(features)
            mirrored.append(features)
        features = self.middle(features)
        for layer in self.up:
            features = layer(torch.cat([features, mirrored.pop()], dim=1))
        return crop_to(self.head(features), images.shape[2:])


def _norm(channels: int) -> GroupNorm:
    return GroupNorm(channels, math.gcd(_GROUPS, channels))


class _ResidualBlock(nn.Module):
    """Twice (group normalisation, SiLU, 3x3 convolution), added to the input."""

    def __init__(self, ndim: int, before: int, after: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _norm(before),
            nn.SiLU(),
            conv(ndim, before, after),
            _norm(after),
            nn.SiLU(),
            nn.Dropout(dropout),
            conv(ndim, after, after),
        )
        self.skip = nn.Identity() if before == after else conv(ndim, before, after, 1)

    def forward(self, features: Tensor) -> Tensor:
        result: Tensor = self.skip(features) + self.body(features)
        return result


class _Attention(nn.Module):
    """One head of self-attention over all pixels, added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = _norm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, features: Tensor) -> Tensor:
        pixels = self.norm(features).flatten(2).transpose(1, 2)
        query, key, value = self.qkv(pixels).chunk(3, dim=-1)
        attended = self.out(F.scaled_dot_product_attention(query, key, value))
        result: Tensor = features + attended.transpose(1, 2).reshape(features.shape)
        return result
