r"""A U-Net rewritten for inference: the same function, with fewer passes over memory.

In use, population normalisation is affine, :math:`y = s a + b` per channel, and follows the activation. So it folds
into the next convolution, except at borders, beyond which a convolution sees zeros:

.. math:: W * y + c = (W s) * a + c + \sum_{taps\ inside} W b

In the interior, the sum is one number per channel; on the outermost pixels, the taps outside are taken away again. A
pool of positive multiples is the multiple of the pool. A transposed convolution and the convolution after it are one
transposed convolution, so lifted features are never laid beside the mirrored ones. And a convolution is linear: what it
makes of channels that are the same in many calls is computed once.
"""

import itertools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfumato.nn.blocks import PopulationNorm, check_images, crop_to, pad_to_stride
from sfumato.nn.unet import Block, UNet

__all__ = ["FusedUNet", "fused"]

_CONVOLVE = {2: F.conv2d, 3: F.conv3d}
_LIFT = {2: F.conv_transpose2d, 3: F.conv_transpose3d}


def fused(network: nn.Module) -> nn.Module:
    """The network in evaluation mode, rewritten for speed; one that cannot be rewritten is returned as it is.

    The result has its own copy of the weights, and equals the network up to rounding.

    Example:
        >>> network = UNet(1, 1, base=4).eval()
        >>> images = torch.randn(1, 1, 32, 32)
        >>> torch.allclose(fused(network)(images), network(images), atol=1e-5)
        True
    """
    return FusedUNet(network) if FusedUNet.fits(network) else network


class _Affine(NamedTuple):
    """Scale and shift of each channel, shape (C), in float64."""

    scale: Tensor
    shift: Tensor

    @property
    def passes_pools(self) -> bool:
        """Whether the largest value stays the largest."""
        return bool((self.scale > 0).all())


class FusedUNet(nn.Module):
    """A :class:`~sfumato.nn.unet.UNet` with population normalisation, rewritten for inference.

    Args:
        network: The U-Net.
        num_read: How many of its first input channels are given to :meth:`read`, and only the others to each call.

    Attributes:
        in_channels: Channels of the input, read or not.
        stride: As of the U-Net.
        reach: As of the U-Net.
    """

    @staticmethod
    def fits(network: nn.Module) -> bool:
        """Whether a network can be rewritten."""
        return isinstance(network, UNet) and network.norm == "population"

    @torch.no_grad()
    def __init__(self, network: UNet, *, num_read: int = 0) -> None:
        super().__init__()
        self.in_channels, self.num_read = network.in_channels, num_read
        self.ndim, self.stride, self.reach = network.ndim, network.stride, network.reach
        down, lifts, up = list(network.down), list(network.lift), list(network.up)
        has_head = not isinstance(network.head, nn.Identity)
        given: _Affine | None = None
        mirrored: list[_Affine | None] = []
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for number, block in enumerate(down):
            # A transposed convolution cannot make up for a shift: what is lifted is normalised first.
            folds = number < len(down) - 1 or (has_head and not up)
            made = _FusedBlock(block, given, folds=folds, num_read=0 if number else num_read)
            self.down.append(made)
            mirrored.append(given := made.left)
        mirrored.pop()
        for number, (lift, block) in enumerate(zip(lifts, up, strict=True), start=1):
            made = _FusedBlock(block, mirrored.pop(), folds=has_head and number == len(up), lift=lift)
            self.up.append(made)
            given = made.left
        self.head = _Convolution.after(network.head, given) if has_head else None
        self.to(next(network.parameters()).dtype)
        if self.ndim == 2:
            self.to(memory_format=torch.channels_last)  # a no-op for tensors of other dimensions

    def read(self, images: Tensor) -> Tensor:
        """What :meth:`forward` needs of the first channels of the input, shape (B, base, *padded spatial)."""
        check_images(images, self.num_read, self.ndim)
        result: Tensor = self.down[0].read(self._laid_out(images))
        return result

    def forward(self, images: Tensor, read: Tensor | None = None) -> Tensor:
        """Map images (B, in_channels - num_read, *spatial) to (B, out_channels, *spatial).

        Args:
            images: The channels that are not read.
            read: What :meth:`read` made of the others, for each image or for all.
        """
        check_images(images, self.in_channels - self.num_read, self.ndim)
        features = self._laid_out(images)
        mirrored: list[Tensor] = []
        for scale, block in enumerate(self.down):
            features = block(_pool(features)) if scale else block(features, read)
            mirrored.append(features)
        mirrored.pop()
        for block in self.up:
            features = block(mirrored.pop(), block.lifted(features))
        return crop_to(features if self.head is None else self.head(features), images.shape[2:])

    def _laid_out(self, images: Tensor) -> Tensor:
        padded = pad_to_stride(images, self.stride)
        return padded.contiguous(memory_format=torch.channels_last) if self.ndim == 2 else padded


class _FusedBlock(nn.Module):
    """A block of a U-Net whose input and output are not normalised yet, except where that cannot be left to others.

    Args:
        block: The block.
        given: What would normalise the features that it is given; None if they are.
        folds: Whether the block's own normalisation may be left to others.
        num_read: First input channels that :meth:`read` is given.
        lift: The transposed convolution that makes the rest of the input.

    Attributes:
        left: The normalisation that is left to others, or None.
    """

    kernel: Tensor | None

    def __init__(
        self, block: Block, given: _Affine | None, *, folds: bool, num_read: int = 0, lift: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.is_silu = block.activation is F.silu
        weight, bias = _double(block.conv1)
        kernel = None
        if num_read:
            self.read = _Convolution(weight[:, :num_read], bias)
            self.conv1 = _Convolution(weight[:, num_read:], torch.zeros_like(bias))
        elif lift is not None:
            num_mirrored = weight.shape[1] - lift.out_channels
            lifting, offset = _double(lift)
            # Tap k of both together is the sum over taps e of the first and d of the second with e - d + 1 = k.
            kernel = _CONVOLVE[weight.ndim - 2](lifting, weight[:, num_mirrored:], padding=2)
            self.conv1 = _Convolution(weight, bias, given, num_mirrored, offset)
        else:
            self.conv1 = _Convolution(weight, bias, given)
        self.register_buffer("kernel", kernel)
        self.conv2 = _Convolution.after(block.conv2, _affine(block.norm1))
        own = _affine(block.norm2)
        self.left = own if folds and own.passes_pools else None
        shape = [-1, *[1] * (weight.ndim - 2)]
        self.register_buffer("scale", None if self.left else own.scale.reshape(shape))
        self.register_buffer("shift", None if self.left else own.shift.reshape(shape))

    def lifted(self, coarse: Tensor) -> Tensor:
        """What the first convolution makes of the lifted features, except for their offset."""
        assert self.kernel is not None
        return _LIFT[coarse.ndim - 2](coarse, self.kernel, stride=2, padding=1)

    def forward(self, features: Tensor, beside: Tensor | None = None) -> Tensor:
        """Run the block, given what the first convolution makes of the rest of its input."""
        features = self.conv1(features)
        if beside is not None:
            features += beside
        features = self._activated(self.conv2(self._activated(features)))
        return features if self.scale is None else torch.addcmul(self.shift, features, self.scale)

    def _activated(self, features: Tensor) -> Tensor:
        return F.silu(features, inplace=True) if self.is_silu else F.softplus(features)


class _Convolution(nn.Module):
    """A convolution of :math:`s a + b`, given a: zero beyond the border, where b is too.

    Args:
        weight: For all input channels, in float64.
        bias: In float64.
        given: Scale and shift of the first channels; None for 1 and 0.
        num_convolved: How many first channels there are; the others are added by someone else; None for all.
        offset: Shift of the others.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        given: _Affine | None = None,
        num_convolved: int | None = None,
        offset: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.ndim, self.padding = weight.ndim - 2, weight.shape[-1] // 2
        convolved = weight[:, :num_convolved]
        ones = weight.new_ones(convolved.shape[1])
        scale, shift = given or (ones, torch.zeros_like(ones))
        shift = shift if offset is None else torch.cat([shift, offset])
        self.register_buffer("weight", convolved * scale.reshape([1, -1, *[1] * self.ndim]))
        of_shift = torch.einsum("oi...,i->o...", weight, shift)  # one number per output channel and tap
        self.register_buffer("bias", bias + of_shift.flatten(1).sum(1))
        self.places: list[tuple[slice, ...]] = []
        if self.padding and bool(shift.any()):
            self.places = list(itertools.product((_ALL, _FIRST, _LAST), repeat=self.ndim))[1:]
        # Inclusion and exclusion: at a corner, the taps that lie outside along both axes are taken away twice.
        signs = [(-1) ** sum(side is not _ALL for side in place) for place in self.places]
        outside = [sign * of_shift[:, *place].flatten(1).sum(1) for sign, place in zip(signs, self.places, strict=True)]
        edges = torch.stack(outside) if outside else of_shift.new_zeros(0, len(bias))
        self.register_buffer("edges", edges.reshape(*edges.shape, *[1] * self.ndim))

    @classmethod
    def after(cls, layer: nn.Module, given: _Affine | None) -> "_Convolution":
        """A layer whose input is not normalised yet."""
        return cls(*_double(layer), given)

    def forward(self, features: Tensor) -> Tensor:
        """Convolve features (B, in, *spatial)."""
        result = _CONVOLVE[self.ndim](features, self.weight, self.bias, padding=self.padding)
        for place, outside in zip(self.places, self.edges, strict=True):
            result[:, :, *place] += outside
        return result


_ALL, _FIRST, _LAST = slice(None), slice(0, 1), slice(-1, None)


def _affine(norm: nn.Module) -> _Affine:
    """What a population normalisation does in evaluation mode."""
    assert isinstance(norm, PopulationNorm)
    return _Affine(*norm.affine())


def _double(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Weight and bias in float64."""
    assert isinstance(layer.weight, Tensor) and isinstance(layer.bias, Tensor)
    return layer.weight.double(), layer.bias.double()


def _pool(features: Tensor) -> Tensor:
    """The largest of 2 values along every spatial axis; twice as fast as torch's pool for few channels."""
    for axis in range(2, features.ndim):
        even, odd = (features[(_ALL,) * axis + (slice(start, None, 2),)] for start in (0, 1))
        features = torch.maximum(even, odd)
    return features
