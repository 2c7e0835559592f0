"""Networks for tests: the same weights on every run, and an output layer that is not zero."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

__all__ = ["seeded"]


Network = TypeVar("Network", bound=nn.Module)


def seeded(make: Callable[[], Network], seed: int = 0) -> Network:
    """Build a network and move each of its parameters, without touching torch's global generator."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = make()
        for parameter in network.parameters():
            parameter.data += 0.05 * torch.randn_like(parameter)
    return network
