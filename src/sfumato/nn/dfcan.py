r"""DFCAN, the deep Fourier channel attention network.  [Qiao et al., Nature Methods 18, 194 (2021)]

Each block weights its feature maps according to their power spectra:

.. math:: FCA(x) = x \cdot \sigma(W_2\, relu(W_1 \langle relu(conv(|F x|^{0.8})) \rangle)), \qquad
          block(x) = x + FCA(gelu(conv(gelu(conv(x)))))

Four groups of four blocks, each group with its own skip, stand between a first layer and upsampling by pixel shuffle.
Layers, widths and the exponent are those of the authors' code, github.com/qc17-THU/DL-SR.

Note:
    There are three differences. The Fourier transform is orthonormal, which leaves the network unchanged at one image
    size and lets it run at others; the authors resize spectra to the size of the training patch instead. The output is
    linear, not a sigmoid, since our targets are not bounded by 0 and 1. In recipes, conditions are already on the
    target grid (``data.upsample``), so ``scale`` is 1 there; the authors use 2.
"""

import torch
from torch import Tensor, nn

from sfumato.nn.blocks import check_images, check_sizes

__all__ = ["DFCAN"]

_EXPONENT = 0.8
_REDUCTION = 16
_FLOOR = 1e-8
"""Added to amplitudes, as the authors do: the slope of the power is infinite at 0."""


class DFCAN(nn.Module):
    """From (B, in_channels, H, W) to (B, out_channels, scale H, scale W).

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        base: Number of filters in every layer.
        scale: How many times finer the output grid is.
        num_groups: Number of residual groups.
        num_blocks: Number of blocks per group.

    Its attention looks at the whole image, so results depend on the tile.

    Example:
        >>> DFCAN(1, 1, base=16, scale=2, num_groups=1)(torch.zeros(1, 1, 20, 31)).shape
        torch.Size([1, 1, 40, 62])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        base: int = 64,
        scale: int = 1,
        num_groups: int = 4,
        num_blocks: int = 4,
    ) -> None:
        super().__init__()
        sizes = {"base": base, "scale": scale, "num_groups": num_groups, "num_blocks": num_blocks}
        check_sizes(2, in_channels=in_channels, out_channels=out_channels, **sizes)
        self.in_channels = in_channels
        self.stem = nn.Sequential(_conv(in_channels, base), nn.GELU())
        self.groups = nn.ModuleList(
            nn.Sequential(*(_AttentionBlock(base) for _ in range(num_blocks))) for _ in range(num_groups)
        )
        self.lift = nn.Sequential(_conv(base, base * scale**2), nn.GELU(), nn.PixelShuffle(scale))
        self.head = _conv(base, out_channels)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, in_channels, H, W) to (B, out_channels, scale H, scale W)."""
        check_images(images, self.in_channels, 2)
        features = self.stem(images)
        for group in self.groups:
            features = features + group(features)
        result: Tensor = self.head(self.lift(features))
        return result


class _AttentionBlock(nn.Module):
    """Two convolutions, weighted by Fourier channel attention, added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(channels, channels), nn.GELU(), _conv(channels, channels), nn.GELU())
        self.spectrum = nn.Sequential(_conv(channels, channels), nn.ReLU())
        narrow = max(1, channels // _REDUCTION)
        self.weight = nn.Sequential(
            nn.Conv2d(channels, narrow, 1), nn.ReLU(), nn.Conv2d(narrow, channels, 1), nn.Sigmoid()
        )

    def forward(self, features: Tensor) -> Tensor:
        found = self.body(features)
        result: Tensor = features + found * self.weight(self.spectrum(_power(found)).mean((-2, -1), keepdim=True))
        return result


def _power(features: Tensor) -> Tensor:
    """Amplitudes of the spectrum, frequency 0 in the middle, to the power 0.8."""
    # Half-precision transforms exist only for sides that are powers of two.
    spectrum = torch.fft.fftshift(
        torch.fft.fft2(features if features.dtype == torch.float64 else features.float(), norm="ortho"), dim=(-2, -1)
    )
    result: Tensor = (spectrum.abs() + _FLOOR).pow(_EXPONENT).to(features.dtype)
    return result


def _conv(before: int, after: int) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, padding=1)
