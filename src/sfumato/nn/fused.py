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
from typing import NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfumato.nn.blocks import PopulationNorm, check_images, crop_to, pad_to_stride
from sfumato.nn.unet import Block, UNet

__all__ = ["FusedUNet", "fused"]

_CONVOLVE = {2: F.conv2d, 3: F.conv3d}
_LIFT = {2: F.conv_transpose2d, 3: F.conv_transpose3d}
_ALL = slice(None)


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
    def fits(network: object) -> TypeGuard[UNet]:
        """Whether a network can be rewritten."""
        return isinstance(network, UNet) and network.norm == "population"

    @torch.no_grad()
    def __init__(self, network: UNet, *, num_read: int = 0) -> None:
        super().__init__()
        self.in_channels, self.num_read = network.in_channels, num_read
        self.ndim, self.stride, self.reach = network.ndim, network.stride, network.reach
        blocks = [block for block in (*network.down, *network.up) if isinstance(block, Block)]
        scales, has_head = len(network.down), not isinstance(network.head, nn.Identity)
        self._down: list[_FusedBlock] = []
        self._up: list[_FusedBlock] = []
        given: _Affine | None = None
        for number, block in enumerate(blocks[:scales], start=1):
            # A transposed convolution cannot make up for a shift, so what is lifted is normalised first.
            folds = number < scales or (has_head and scales == 1)
            self._down.append(_FusedBlock(block, given, folds=folds, num_read=num_read if number == 1 else 0))
            given = self._down[-1].left
        for number, (lift, block) in enumerate(zip(network.lift, blocks[scales:], strict=True), start=1):
            folds = has_head and number == scales - 1
            self._up.append(_FusedBlock(block, self._down[-1 - number].left, folds=folds, lift=lift))
            given = self._up[-1].left
        self._head = _Convolution(network.head, given) if has_head else None

    def read(self, images: Tensor) -> Tensor:
        """What :meth:`forward` needs of the first channels of the input, shape (B, base, *padded spatial)."""
        check_images(images, self.num_read, self.ndim)
        first = self._down[0].read
        assert first is not None
        return first(_laid_out(pad_to_stride(images, self.stride)))

    def forward(self, images: Tensor, read: Tensor | None = None) -> Tensor:
        """Map images (B, in_channels - num_read, *spatial) to (B, out_channels, *spatial).

        Args:
            images: The channels that are not read.
            read: What :meth:`read` made of the others, for each image or for all.
        """
        check_images(images, self.in_channels - self.num_read, self.ndim)
        features = _laid_out(pad_to_stride(images, self.stride))
        mirrored: list[Tensor] = []
        for scale, block in enumerate(self._down):
            features = block(_pool(features)) if scale else block(features, read)
            mirrored.append(features)
        mirrored.pop()
        for block in self._up:
            features = block(mirrored.pop(), block.lifted(features))
        return crop_to(features if self._head is None else self._head(features), images.shape[2:])


class _FusedBlock:
    """A block of a U-Net whose input and output are not normalised yet, except where that cannot be left to others.

    Args:
        block: The block.
        given: What would normalise the features that it is given; None if they are.
        folds: Whether the block's own normalisation may be left to others.
        num_read: First input channels that only :attr:`read` is given.
        lift: The transposed convolution that makes the last channels of the input.

    Attributes:
        read: Makes of the first channels what :meth:`__call__` adds; None if there are none.
        left: The normalisation that is left to others, or None.
    """

    def __init__(
        self, block: Block, given: _Affine | None, *, folds: bool, num_read: int = 0, lift: nn.Module | None = None
    ) -> None:
        self.is_silu = block.activation is F.silu
        self.read = _Convolution(block.conv1, channels=slice(0, num_read)) if num_read else None
        offset, channels = None, slice(num_read, None)
        if lift is not None:
            lifting, offset = _double(lift)
            channels = slice(0, -len(offset))
        self.conv1 = _Convolution(block.conv1, given, channels=channels, offset=offset, has_bias=not num_read)
        self.kernel = None
        if lift is not None:
            # Tap k of both together is the sum over taps e of the first and d of the second with e - d + 1 = k.
            after = _double(block.conv1)[0][:, channels.stop :]
            self.kernel = _laid_out(_CONVOLVE[self.conv1.ndim](lifting, after, padding=2).to(self.conv1.dtype))
        self.conv2 = _Convolution(block.conv2, _affine(block.norm1))
        own = _affine(block.norm2)
        self.left = own if folds and own.passes_pools else None
        self.own = _Affine(*(self.conv2.per_channel(values) for values in own))

    def lifted(self, coarse: Tensor) -> Tensor:
        """What the first convolution makes of lifted features, except for their offset."""
        assert self.kernel is not None
        return _LIFT[coarse.ndim - 2](coarse, self.kernel, stride=2, padding=1)

    def __call__(self, features: Tensor, beside: Tensor | None = None) -> Tensor:
        """Run the block, given what the first convolution makes of the rest of its input."""
        features = self.conv1(features)
        if beside is not None:
            features += beside
        features = self._activated(self.conv2(self._activated(features)))
        return features if self.left else torch.addcmul(self.own.shift, features, self.own.scale)

    def _activated(self, features: Tensor) -> Tensor:
        return F.silu(features, inplace=True) if self.is_silu else F.softplus(features)


class _Convolution:
    """A convolution of :math:`s a + b`, given a; beyond the border, all of it is 0.

    Args:
        layer: The convolution.
        given: s and b of the features that it is given; None for 1 and 0.
        channels: Those of the layer's input channels that it is given.
        offset: b of the channels after them, whose a is convolved elsewhere.
        has_bias: Whether to add the layer's bias.
    """

    def __init__(
        self,
        layer: nn.Module,
        given: _Affine | None = None,
        *,
        channels: slice = slice(None),
        offset: Tensor | None = None,
        has_bias: bool = True,
    ) -> None:
        weight, bias = _double(layer)
        self.ndim, self.padding, self.dtype = weight.ndim - 2, weight.shape[-1] // 2, next(layer.parameters()).dtype
        convolved = weight[:, channels]
        ones = weight.new_ones(convolved.shape[1])
        scale, shift = given or _Affine(ones, torch.zeros_like(ones))
        convolved = convolved * scale.reshape([1, -1, *[1] * self.ndim])
        self.weight = _laid_out(convolved.to(self.dtype))
        reached = weight if offset is not None else weight[:, channels]
        shift = shift if offset is None else torch.cat([shift, offset])
        of_shift = torch.einsum("oi...,i->o...", reached, shift)  # for each output channel and tap
        self.bias = (has_bias * bias + of_shift.flatten(1).sum(1)).to(self.dtype)
        self.borders: list[tuple[tuple[int, ...], Tensor]] = []
        if self.padding and bool(shift.any()):
            self.borders = [(axes, _outside(of_shift, axes).to(self.dtype)) for axes in _sets_of_axes(self.ndim)]

    def per_channel(self, values: Tensor) -> Tensor:
        """One number per channel, broadcast along spatial axes."""
        return values.to(self.dtype).reshape([-1, *[1] * self.ndim])

    def __call__(self, features: Tensor) -> Tensor:
        """Convolve features (B, in, *spatial)."""
        result = _CONVOLVE[self.ndim](features, self.weight, self.bias, padding=self.padding)
        for axes, outside in self.borders:
            place = [_ALL] * self.ndim
            for axis in axes:
                length = result.shape[2 + axis]
                place[axis] = slice(None, None, max(1, length - 1))  # the first and the last
                outside = outside if length > 1 else outside.sum(1 + axis, keepdim=True)
            result[:, :, *place].add_(outside)
        return result


def _sets_of_axes(ndim: int) -> list[tuple[int, ...]]:
    """All sets of spatial axes but the empty one."""
    return [axes for size in range(1, ndim + 1) for axes in itertools.combinations(range(ndim), size)]


def _outside(taps: Tensor, axes: tuple[int, ...]) -> Tensor:
    """What to add where taps lie outside along these axes, given the taps (C, 3, ...); length 2 along the axes.

    Pixels at a corner are in several sets of axes: by inclusion and exclusion, no tap is taken away twice.
    """
    for axis in range(taps.ndim - 1):
        taps = (
            taps[(_ALL,) * (1 + axis) + (slice(None, None, 2),)] if axis in axes else taps.sum(1 + axis, keepdim=True)
        )
    return taps if len(axes) % 2 == 0 else -taps


def _affine(norm: nn.Module) -> _Affine:
    """What a population normalisation does in evaluation mode."""
    assert isinstance(norm, PopulationNorm)
    return _Affine(*norm.affine())


def _double(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Weight and bias in float64."""
    assert isinstance(layer.weight, Tensor)
    assert isinstance(layer.bias, Tensor)
    return layer.weight.double(), layer.bias.double()


def _laid_out(tensor: Tensor) -> Tensor:
    """Channels last for images, which is faster on a CPU."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor.contiguous()


def _pool(features: Tensor) -> Tensor:
    """The largest of 2 values along every spatial axis; twice as fast as torch's pool for few channels."""
    for axis in range(2, features.ndim):
        even, odd = (features[(_ALL,) * axis + (slice(start, None, 2),)] for start in (0, 1))
        features = torch.maximum(even, odd)
    return features
