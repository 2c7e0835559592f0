"""Layers shared by the networks, in two and three dimensions."""

import copy
from collections.abc import Callable
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = [
    "Activation",
    "ChannelNorm",
    "GroupNorm",
    "NormKind",
    "PopulationNorm",
    "activation_function",
    "check_images",
    "check_sizes",
    "conv",
    "crop_to",
    "freeze_batch_statistics",
    "norm_layer",
    "pad_to_stride",
    "shallow_copy",
    "transposed_conv",
    "zero_output",
]

Module = TypeVar("Module", bound=nn.Module)
NormKind = Literal["population", "channel", "instance"]
Activation = Literal["softplus", "silu"]
"""Softplus is the paper's; SiLU costs less on a CPU."""

_MOMENTUM = 0.05
"""Weight of the newest batch in the running averages: they forget their initial value within a hundred steps."""
_EPSILON = 1e-5
"""Added to variances, as in the other normalisations."""


def check_sizes(ndim: int, **sizes: int) -> None:
    """Refuse a network without 2 or 3 spatial axes, or with a size that is not positive."""
    if ndim not in (2, 3):
        raise ValueError(f"ndim is {ndim}; give 2 for images or 3 for volumes")
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}; give at least 1")


def check_images(images: Tensor, channels: int, ndim: int) -> None:
    """Refuse images that do not have the network's number of input channels and spatial axes."""
    if images.ndim != ndim + 2 or images.shape[1] != channels:
        raise ValueError(
            f"images have shape {tuple(images.shape)}, but this network takes a batch with {channels} channels and "
            f"{ndim} spatial axes; give it such images, or make a network for these"
        )


def conv(ndim: int, in_channels: int, out_channels: int, size: int = 3, *, stride: int = 1) -> nn.Module:
    """A convolution over ``ndim`` spatial axes that keeps the image size (divided by ``stride``)."""
    kind = {2: nn.Conv2d, 3: nn.Conv3d}[ndim]
    return kind(in_channels, out_channels, size, stride=stride, padding=size // 2)


def transposed_conv(ndim: int, in_channels: int, out_channels: int) -> nn.Module:
    """A transposed convolution that doubles every spatial axis without overlap."""
    kind = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}[ndim]
    return kind(in_channels, out_channels, 2, stride=2)


def zero_output(layer: nn.Module) -> nn.Module:
    """Fill the layer's parameters with zeros, so that an untrained network outputs 0 everywhere."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


class GroupNorm(nn.Module):
    """Normalise groups of channels to zero mean and unit variance over the image, then scale and shift.

    With one channel per group this is the paper's instance normalisation [CVDM App. G]: absolute intensity is lost and
    the result depends on the tile that the network sees. Unlike torch's modules it accepts maps of a single pixel.
    """

    def __init__(self, channels: int, num_groups: int) -> None:
        super().__init__()
        self.num_groups = num_groups
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, features: Tensor) -> Tensor:
        """Normalise features of shape (B, channels, *spatial)."""
        return torch.group_norm(features, self.num_groups, self.weight, self.bias)


class ChannelNorm(nn.Module):
    """Normalise each pixel's feature vector to zero mean and unit variance over its channels, then scale and shift.

    There are no statistics over space: absolute intensity survives, and a pixel's result depends only on its
    neighbourhood.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        if channels < 2:
            raise ValueError(
                f"channel normalisation of {channels} channel gives 0 for every image; "
                "give at least 2 (a base of 2 or more), or choose another norm"
            )
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, features: Tensor) -> Tensor:
        """Normalise features of shape (B, channels, *spatial)."""
        # Channels go last for torch's fused kernel; later layers keep that memory layout, so nothing is copied twice.
        last = features.movedim(1, -1)
        if last.dtype == torch.bfloat16:
            last = last.float()  # as in CUDA autocast; the bfloat16 kernel is up to 9 times slower on a CPU
        return F.layer_norm(last, self.weight.shape, self.weight, self.bias).movedim(-1, 1).to(features.dtype)


class PopulationNorm(nn.Module):
    """Batch normalisation (arXiv 1502.03167) whose statistics are frozen halfway through training.

    At first each channel is normalised by the mean and variance of its batch, over all processes, and running averages
    follow these. Once frozen, the running averages are constants, both in training and in use. Plain batch
    normalisation trains one network, normalised by batches, and uses another, normalised by averages: images unlike
    their batch then come out wrong. Here, the network trained last is the one that restores. A pixel's result depends
    only on its neighbourhood, and absolute intensity survives.

    Attributes:
        frozen: Whether training also normalises by the running averages and leaves them unchanged.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))
        self.frozen = False

    def forward(self, features: Tensor) -> Tensor:
        """Normalise features of shape (B, channels, *spatial)."""
        learns = self.training and not self.frozen
        if learns and _processes() > 1:
            return self._of_all_processes(features)
        learns = learns and features.numel() > features.shape[1]  # one value per channel has no variance
        arguments = (self.weight, self.bias, self.mean, self.var, learns, _MOMENTUM, _EPSILON)
        return torch.batch_norm(features, *arguments, torch.backends.cudnn.enabled)

    def affine(self) -> tuple[Tensor, Tensor]:
        """Scale and shift of each channel by the running averages, shape (channels), in float64."""
        scale = self.weight.double() * (self.var.double() + _EPSILON).rsqrt()
        return scale, self.bias.double() - self.mean.double() * scale

    def _of_all_processes(self, features: Tensor) -> Tensor:
        """The same result as one process with the whole batch; torch's SyncBatchNorm runs only on GPUs."""
        from torch.distributed.nn.functional import all_reduce  # missing where torch has no processes

        values, shape = features.to(self.mean.dtype), [1, -1, *[1] * (features.ndim - 2)]
        others = [axis for axis in range(features.ndim) if axis != 1]
        count = features.numel() // features.shape[1] * _processes()
        mean = all_reduce(values.sum(others)) / count
        centred = values - mean.reshape(shape)
        squares = all_reduce(centred.square().sum(others))
        with torch.no_grad():
            self.mean.lerp_(mean, _MOMENTUM)
            self.var.lerp_(squares / (count - 1), _MOMENTUM)
        scale = self.weight * (squares / count + _EPSILON).rsqrt()
        result: Tensor = (centred * scale.reshape(shape) + self.bias.reshape(shape)).to(features.dtype)
        return result


def freeze_batch_statistics(model: nn.Module, frozen: bool = True) -> None:
    """Freeze the running averages of every :class:`PopulationNorm` of a model; training does so halfway through.

    Example:
        >>> from sfumato.nn import UNet
        >>> network = UNet(1, 1, base=4, norm="population")
        >>> freeze_batch_statistics(network)
    """
    for layer in model.modules():
        if isinstance(layer, PopulationNorm):
            layer.frozen = frozen


def _processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def activation_function(kind: Activation) -> Callable[[Tensor], Tensor]:
    """The function called ``kind``."""
    if kind == "softplus":
        return F.softplus
    if kind == "silu":
        return F.silu
    raise ValueError(f"activation is {kind!r}; choose 'softplus' or 'silu'")


def norm_layer(kind: NormKind, channels: int) -> nn.Module:
    """The layer called ``kind`` for features with ``channels`` channels."""
    if kind == "channel":
        return ChannelNorm(channels)
    if kind == "population":
        return PopulationNorm(channels)
    if kind == "instance":
        return GroupNorm(channels, num_groups=channels)
    raise ValueError(f"norm is {kind!r}; choose 'population', 'channel' or 'instance'")


def pad_to_stride(images: Tensor, stride: int) -> Tensor:
    """Repeat the last row (column, plane) until every side is a multiple of ``stride``.

    Padding is added at the far end only, so that pixel (0, 0) keeps its place on the network's grid.
    """
    if torch.compiler.is_exporting():  # sizes are unknown here, so nothing can depend on whether padding is needed
        for axis, size in enumerate(images.shape[2:], start=2):
            # Of positive numbers: graphs round quotients towards 0.
            places = torch.arange((size + stride - 1) // stride * stride, device=images.device)
            images = images.index_select(axis, places.clamp(max=size - 1))
        return images
    missing = [-size % stride for size in images.shape[2:]]
    if not any(missing):
        return images
    widths = [width for amount in reversed(missing) for width in (0, amount)]
    return F.pad(images, widths, mode="replicate")


def shallow_copy(module: Module) -> Module:
    """A separate module with the same parameters and children."""
    result = copy.copy(module)
    result._modules = dict(module._modules)
    return result


def crop_to(images: Tensor, spatial: torch.Size) -> Tensor:
    """Undo :func:`pad_to_stride`."""
    for axis, size in enumerate(spatial, start=2):
        images = images.narrow(axis, 0, size)
    return images
