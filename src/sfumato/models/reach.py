"""How far a model looks: how many pixels around a pixel can change what is restored there."""

import math
from dataclasses import dataclass
from typing import Any

from torch import nn

from sfumato.diffusion.model import CVDM

__all__ = ["TOLERANCE", "Reach", "halo_grid", "networks_of", "reach_of_call", "stride"]

TOLERANCE = 1e-3
"""What is too far away to matter changes a restored image by less than this share of the targets' range."""
_FURTHEST = 1024

_ALIGNED = 8
"""Rows of whole vectors: rows of 1034 pixels took a tenth longer than rows of 1040."""


@dataclass(frozen=True)
class Reach:
    """How far a trained model looks in effect, in pixels, measured on images and stored in the model file.

    Other surroundings beyond it change an image by less than :data:`TOLERANCE`, so it is the halo that chunks need.

    Attributes:
        sample: Of a whole sample, drawn as the recipe says.
        one_pass: Of mean and scale, read in one pass; None for a model without them.
        denoiser: Of a whole sample once the condition was read, through its noise and what was read; None for a
            regression, and if it is not known.
    """

    sample: int
    one_pass: int | None = None
    denoiser: int | None = None

    def __post_init__(self) -> None:
        for pixels in (self.sample, self.one_pass, self.denoiser):
            if pixels is not None and not 0 <= pixels <= _FURTHEST:
                raise ValueError(f"reach is {pixels} pixels; expected 0 to {_FURTHEST}")

    def __str__(self) -> str:
        more = {"mean and scale": self.one_pass, "the denoising network": self.denoiser}
        others = "".join(f", {name} {pixels}" for name, pixels in more.items() if pixels is not None)
        return f"a sample looks {self.sample} pixels far{others}; what lies beyond changes it by less than 0.1%"


def networks_of(model: CVDM) -> list[Any]:
    """The mean, rate and noise networks: the modules that know their number of input channels, except single layers."""
    single = (nn.modules.conv._ConvNd,)
    return [part for part in model.modules() if hasattr(part, "in_channels") and not isinstance(part, single)]


def stride(model: CVDM) -> int:
    """Grid on which chunks and tiles must start so that the networks see the same in each."""
    return max((getattr(network, "stride", 1) for network in networks_of(model)), default=1)


def halo_grid(model: CVDM) -> int:
    """Halos are multiples of this many pixels."""
    return math.lcm(stride(model), _ALIGNED)


def reach_of_call(model: CVDM, *, reads_only: bool = False) -> int | None:
    """How far one call of all networks looks, in pixels, or None if one of them may look at the whole image.

    A network that sees another one's output looks further by as much: reaches add along the linear start, the network
    that reads the condition, the larger of those for scale and rate, and the denoising network.

    Args:
        model: Any model.
        reads_only: Only the networks that give mean and scale are called.
    """
    reader = model.mean_network if model.reader is None else model.reader
    center = _far(model.start) + _far(reader) + _far(model.finish)
    far = center + _far(model.scale_network) + _far(model.scale_finish)
    if not reads_only:
        rate = _far(getattr(model.schedule, "network", None)) + (0 if model.reader is None else center)
        far = max(far, rate) + _far(model.network)
    return None if math.isinf(far) else int(far)


def _far(network: Any) -> float:
    """How far one network looks; infinity if it does not say."""
    if network is None:
        return 0
    if isinstance(network, nn.modules.conv._ConvNd):
        return max(size // 2 for size in network.kernel_size)
    far = getattr(network, "reach", None)
    return math.inf if far is None else far
