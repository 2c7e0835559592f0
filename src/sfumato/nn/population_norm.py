r"""Normalisation by the statistics of the training set, so that pixels keep their strength relative to one another.

Batch normalisation (arXiv 1502.03167) trains one network, normalised by each batch, and uses another, normalised by
running averages; images unlike their batch then come out wrong. Here the averages settle while training goes on: the
network that is trained last is the one that restores.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = ["PopulationNorm", "settle"]

_MOMENTUM = 0.05
"""Share of the newest batch in the running averages: they forget their start within a hundred steps."""
_EPSILON = 1e-5
"""Added to variances, as in the other normalisations."""


class PopulationNorm(nn.Module):
    """Each channel to zero mean and unit variance over the training set, then scale and shift.

    In training, until it is settled, statistics are those of the batch, over all processes; else their running
    averages, which are constants: the result at a pixel depends on its neighbourhood only, and bright stays bright.

    Attributes:
        settled: Whether training, too, takes the running averages and leaves them as they are.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))
        self.settled = False

    def forward(self, features: Tensor) -> Tensor:
        """Normalise features of shape (B, channels, *spatial)."""
        learns = self.training and not self.settled
        if learns and _processes() > 1:
            return self._of_all_processes(features)
        learns = learns and features.numel() > features.shape[1]  # of one value per channel there is no variance
        arguments = (self.weight, self.bias, self.mean, self.var, learns, _MOMENTUM, _EPSILON)
        return torch.batch_norm(features, *arguments, torch.backends.cudnn.enabled)

    def _of_all_processes(self, features: Tensor) -> Tensor:
        """The same as one process would give of the whole batch; torch's SyncBatchNorm runs on GPUs alone."""
        from torch.distributed.nn.functional import all_reduce  # which is not there where torch has no processes

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


def settle(model: nn.Module, settled: bool = True) -> None:
    """Hold the statistics of all layers of a model from now on; halfway through training is a good time.

    Example:
        >>> from sfumato.nn import UNet
        >>> network = UNet(1, 1, base=4, norm="population")
        >>> settle(network)
    """
    for layer in model.modules():
        if isinstance(layer, PopulationNorm):
            layer.settled = settled


def _processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
