"""Effective reach: the support of a known network, and the radius of a known tail."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfumato.diffusion.effective_reach import effective_reach


def fields(*values: float, side: int = 65, ndim: int = 2) -> list[tuple[Tensor, Tensor]]:
    """Conditions of one value everywhere, without noise."""
    shape = (1, 1, *[side] * ndim)
    return [
        (torch.full(shape, value, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)) for value in values
    ]


def random_fields(side: int = 65, ndim: int = 2) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    shape = (2, 1, 1, *[side] * ndim)
    return [tuple(torch.randn(shape, generator=generator, dtype=torch.float64)) for _ in range(3)]


def stack(*sizes: int, ndim: int = 2) -> nn.Sequential:
    kind = {2: nn.Conv2d, 3: nn.Conv3d}[ndim]
    layers = [kind(1, 1, size, padding=size // 2) for size in sizes]
    for layer in layers:
        nn.init.constant_(layer.weight, 1 / layer.weight.numel())
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("sizes", [(1,), (3,), (7,), (3, 5), (3, 3, 3, 3)])
def test_the_reach_of_convolutions_is_their_support(sizes: tuple[int, ...], ndim: int) -> None:
    network, given = stack(*sizes, ndim=ndim), random_fields(29 if ndim == 3 else 65, ndim)
    # The corner of the kernel weighs least: the product of the kernels' weights, over a few pixels of order 1.
    least = 1e-3 * math.prod(1 / size**ndim for size in sizes)
    of_condition = effective_reach(lambda condition, noise: network(condition) + 0 * noise, given, limit=least, kept=5)
    of_noise = effective_reach(lambda condition, noise: condition + network(noise), given, limit=least, kept=5)
    assert of_condition == of_noise == sum(size // 2 for size in sizes)


@pytest.mark.parametrize("sigma", [1.5, 3.0, 5.0])
@pytest.mark.parametrize("limit", [1e-1, 1e-3])
def test_the_reach_of_a_gaussian_is_where_its_tail_is_that_small(sigma: float, limit: float) -> None:
    """Where 1 becomes 0 beyond r, a blurred 1 falls by the tail: 1 - erf((r + 1/2) / (sqrt(2) sigma))^2."""
    place = torch.arange(-24, 25, dtype=torch.float64)
    edges = torch.stack([place - 0.5, place + 0.5]) / (math.sqrt(2) * sigma)
    weights = (edges[1].erf() - edges[0].erf()) / 2

    def blur(condition: Tensor, noise: Tensor) -> Tensor:
        rows = F.conv2d(condition, weights.reshape(1, 1, -1, 1), padding=(24, 0))
        return F.conv2d(rows, weights.reshape(1, 1, 1, -1), padding=(0, 24)) + noise

    def tail(radius: int) -> float:
        return 1 - math.erf((radius + 0.5) / (math.sqrt(2) * sigma)) ** 2

    analytic = next(radius for radius in range(100) if tail(radius) < limit)
    assert effective_reach(blur, fields(1.0, 0.0, side=99), limit=limit, kept=1) == analytic
    on_grid = effective_reach(blur, fields(1.0, 0.0, side=99), limit=limit, kept=1, grid=4)
    assert on_grid == -(-analytic // 4) * 4


def test_a_call_that_looks_further_than_its_fields_has_no_reach() -> None:
    def centred(condition: Tensor, noise: Tensor) -> Tensor:
        return condition - condition.mean() + noise

    assert effective_reach(centred, random_fields(), limit=1e-3, kept=5) is None
    wide = stack(35)
    assert effective_reach(lambda condition, _: wide(condition), random_fields(side=41), limit=1e-9, kept=5) == 17
    assert effective_reach(lambda condition, _: wide(condition), random_fields(side=39), limit=1e-9, kept=5) is None


def test_ends_alone_show_the_support_too() -> None:
    network, given = stack(3, 5), random_fields()
    assert effective_reach(lambda condition, _: network(condition), given, limit=1e-9, kept=5, exchanges=False) == 3


def test_a_field_may_end_where_nothing_is_swapped() -> None:
    """A blank field equals its mirror image, so only its end is seen: there, zeros follow."""
    network = stack(5)
    assert effective_reach(lambda condition, _: network(condition), fields(1.0), limit=1e-6, kept=5) == 2
