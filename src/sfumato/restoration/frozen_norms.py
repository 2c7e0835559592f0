"""Record normalisation statistics once per image, so that all its chunks are normalised alike.

Instance normalisation [CVDM App. G] takes the mean and variance over everything the network sees. If each chunk used
its own statistics, seams would show. So one region of the image is sampled first, the statistics of every layer are
recorded call by call, and all chunks are normalised with them: they depend on the image and the plan, not on the chunk.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sfumato.nn.blocks import GroupNorm

__all__ = ["Statistics"]

_EPS = 1e-5
"""Added to the variance, as in torch.group_norm."""


class _Moments(NamedTuple):
    mean: Tensor
    """Shape (B, groups)."""
    variance: Tensor


class Statistics:
    """Statistics seen by the normalisation layers of a model, in the order of their calls.

    Args:
        model: A model with or without such layers; without them, nothing is recorded and nothing changes.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers = [layer for layer in model.modules() if isinstance(layer, GroupNorm)]
        self._seen: dict[int, list[_Moments]] = {}

    @property
    def are_needed(self) -> bool:
        """Whether the model has layers whose result depends on everything they see."""
        return bool(self._layers)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record the statistics of all calls in this block."""
        self._seen = defaultdict(list)

        def record(layer: nn.Module, inputs: tuple[Any, ...], _: Tensor) -> None:
            assert isinstance(layer, GroupNorm)
            grouped = inputs[0].reshape(len(inputs[0]), layer.num_groups, -1)
            self._seen[id(layer)].append(_Moments(grouped.mean(-1), grouped.var(-1, unbiased=False)))

        with self._hooked(record):
            yield

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Normalise with the recorded statistics; calls must come in the same order, with batches of the same size."""
        calls: dict[int, int] = defaultdict(int)

        def apply(layer: nn.Module, inputs: tuple[Any, ...], _: Tensor) -> Tensor:
            assert isinstance(layer, GroupNorm)
            moments = self._seen[id(layer)][calls[id(layer)]]
            calls[id(layer)] += 1
            return _normalised(inputs[0], moments, layer)

        with self._hooked(apply):
            yield

    @contextlib.contextmanager
    def _hooked(self, hook: Callable[[nn.Module, tuple[Any, ...], Tensor], Tensor | None]) -> Iterator[None]:
        handles = [layer.register_forward_hook(hook) for layer in self._layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _normalised(features: Tensor, moments: _Moments, layer: GroupNorm) -> Tensor:
    """The formula of :class:`GroupNorm` with given moments."""
    shape = [1, -1, *[1] * (features.ndim - 2)]
    grouped = features.reshape(len(features), layer.num_groups, -1)
    scale = torch.rsqrt(moments.variance + _EPS)[..., None]
    normal = ((grouped - moments.mean[..., None]) * scale).reshape(features.shape)
    return normal * layer.weight.reshape(shape) + layer.bias.reshape(shape)
