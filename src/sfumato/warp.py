r"""Warps of time: the factors of a schedule that depend on t alone.

.. math:: \rho(0) = 0, \quad \rho' > 0, \quad \tau = \rho' \qquad [CVDM Sec. 3.2]

Each gives :math:`\rho` with its first two derivatives in closed form, and :math:`\tau`. Time is one scalar per
image, so they take vectors of B numbers, never images.
"""

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["CosineWarp", "LinearWarp", "Order", "PaperWarp", "TimeWarp", "Warp", "inverse_softplus"]

Order = Literal[0, 1, 2]
"""Order of a time derivative."""


class Warp(Protocol):
    r"""The part of a schedule that depends on time alone: :math:`\rho` (with :math:`\rho(0)=0`) and :math:`\tau`."""

    def rho(self, t: Tensor, order: Order = 0) -> Tensor:
        r""":math:`\rho(t)` or its first or second derivative, of the shape of t."""
        ...

    def tau(self, t: Tensor) -> Tensor:
        r""":math:`\tau(t)`, which equals :math:`\rho'(t)` where the pair is consistent."""
        ...


def inverse_softplus(value: float) -> float:
    """The raw parameter whose softplus is ``value``, for initialisation."""
    return math.log(math.expm1(value))


class TimeWarp(nn.Module):
    r"""A learned clock that is monotone for every value of its parameters.

    .. math:: N(t) = n_0 + w t + \sum_j v_j [\sigma(u_j t + c_j) - \sigma(c_j)], \quad n_0, w, u, v > 0, \qquad
              \rho(t) = t N(t) / N(1), \quad \tau = \rho'

    so :math:`\rho(0) = 0`, :math:`\rho(1) = 1` and :math:`\rho' > 0`. It starts near :math:`\rho = t^2`.

    Note:
        The network of [CVDM App. G] with its kernels positive, and with the biases arranged so that N(0) > 0 too:
        free biases do not make :math:`t N(t)` monotone. Here :math:`\rho'(0) = n_0 / N(1)` is small but positive, where
        the paper has 0, so that the log-SNR stays invertible.

    Args:
        num_units: Number of sigmoid units J.
    """

    def __init__(self, num_units: int = 64) -> None:
        super().__init__()
        if num_units < 1:
            raise ValueError(f"num_units is {num_units}; give at least 1")
        slope = 8.0
        centres = (torch.arange(num_units) + 0.5) / num_units
        self.raw_offset = nn.Parameter(torch.tensor(inverse_softplus(0.01)))
        self.raw_skip = nn.Parameter(torch.tensor(inverse_softplus(1.0)))
        self.raw_slope = nn.Parameter(torch.full((num_units,), inverse_softplus(slope)))
        self.raw_height = nn.Parameter(torch.full((num_units,), inverse_softplus(0.1 / num_units)))
        self.shift = nn.Parameter(-slope * centres)

    def rho(self, t: Tensor, order: Order = 0) -> Tensor:
        r""":math:`\rho = t N(t)/N(1)`, or :math:`\rho' = N + tN'` or :math:`\rho'' = 2N' + tN''`, each over N(1)."""
        end = self._increasing(torch.ones_like(t), 0)
        if order == 0:
            return t * self._increasing(t, 0) / end
        if order == 1:
            return (self._increasing(t, 0) + t * self._increasing(t, 1)) / end
        return (2 * self._increasing(t, 1) + t * self._increasing(t, 2)) / end

    def tau(self, t: Tensor) -> Tensor:
        r""":math:`\tau = \rho'`: the pair is consistent by construction."""
        return self.rho(t, 1)

    def _increasing(self, t: Tensor, order: Order) -> Tensor:
        """N(t) or its derivative; sums run over elements, since autocast would lower a matrix product."""
        slope, height = F.softplus(self.raw_slope), F.softplus(self.raw_height)
        arg = slope * t[..., None] + self.shift
        up, down = arg.sigmoid(), (-arg).sigmoid()
        if order == 0:
            # sigma(a) - sigma(c) = sigma(a) sigma(-c) (1 - e^(c-a)): no cancellation, every factor in [0, 1]
            rise = up * (-self.shift).sigmoid() * -torch.expm1(-slope * t[..., None])
            return F.softplus(self.raw_offset) + F.softplus(self.raw_skip) * t + (height * rise).sum(-1)
        if order == 1:
            return F.softplus(self.raw_skip) + (height * slope * up * down).sum(-1)
        return (height * slope.square() * up * down * (down - up)).sum(-1)


class _TimesMonotone(nn.Module):
    r"""A time network of the paper: t (q + sum_j v_j sigmoid(u_j q + c_j) + b), q = w t + b_q, with w, u, v > 0."""

    def __init__(self, start: float, skip: float, num_units: int) -> None:
        super().__init__()
        height = 0.1 / num_units
        self.raw_skip = nn.Parameter(torch.tensor(inverse_softplus(skip)))
        self.skip_bias = nn.Parameter(torch.tensor(0.0))
        self.raw_slope = nn.Parameter(torch.full((num_units,), inverse_softplus(8.0)))
        self.raw_height = nn.Parameter(torch.full((num_units,), inverse_softplus(height)))
        self.shift = nn.Parameter(-8.0 * (torch.arange(num_units) + 0.5) / num_units)
        self.bias = nn.Parameter(torch.tensor(start))

    def forward(self, t: Tensor, order: Order = 0) -> Tensor:
        skip, slope, height = (F.softplus(raw) for raw in (self.raw_skip, self.raw_slope, self.raw_height))
        q = skip * t + self.skip_bias
        arg = slope * q[..., None] + self.shift
        up, down, speed = arg.sigmoid(), (-arg).sigmoid(), slope * skip
        n = q + (height * up).sum(-1) + self.bias
        if order == 0:
            return t * n
        n_dot = skip + (height * speed * up * down).sum(-1)
        if order == 1:
            return n + t * n_dot
        return 2 * n_dot + t * (height * speed.square() * up * down * (down - up)).sum(-1)


class PaperWarp(nn.Module):
    """Separate networks for rho and tau, tied only by the consistency loss."""

    def __init__(self, num_units: int) -> None:
        super().__init__()
        # rho starts near t^2 and tau near 2 t, so that the pair starts almost consistent.
        self.rho_network = _TimesMonotone(start=0.0, skip=1.0, num_units=num_units)
        self.tau_network = _TimesMonotone(start=1.99, skip=0.01, num_units=num_units)

    def rho(self, t: Tensor, order: Order = 0) -> Tensor:
        r""":math:`\rho` or its derivative; may fail to increase."""
        value: Tensor = self.rho_network(t, order)
        return value

    def tau(self, t: Tensor) -> Tensor:
        r""":math:`\tau`, from a network of its own."""
        value: Tensor = self.tau_network(t)
        return value


@dataclass(frozen=True)
class LinearWarp:
    r"""Time functions of a beta that grows linearly from ``start`` to ``end``; their mean is 1."""

    start: float
    end: float

    def rho(self, t: Tensor, order: Order = 0) -> Tensor:
        r"""The parabola :math:`\rho` or its derivative."""
        growth = self.end - self.start
        if order == 0:
            return t * (self.start + growth * t / 2)
        return self.start + growth * t if order == 1 else growth * torch.ones_like(t)

    def tau(self, t: Tensor) -> Tensor:
        r""":math:`\tau = \rho'`."""
        return self.rho(t, 1)


@dataclass(frozen=True)
class CosineWarp:
    r"""Time functions of :math:`\gamma = \cos^2\theta(t) / \cos^2\theta_0` with :math:`\theta` linear in t."""

    start: float
    end: float
    rate: float

    def rho(self, t: Tensor, order: Order = 0) -> Tensor:
        r""":math:`\rho = -\log\gamma` over ``rate``, or its derivative."""
        speed = self.end - self.start
        theta = self.start + speed * t
        if order == 0:
            # -log(cos theta / cos theta_0), through 1 - cos ratio, so that it is exact near t = 0
            half = speed * t / 2
            drop = 2 * half.sin() * (self.start + half).sin() / math.cos(self.start)
            return -2 * torch.log1p(-drop) / self.rate
        if order == 1:
            return 2 * speed * theta.tan() / self.rate
        return 2 * speed**2 / theta.cos().square() / self.rate

    def tau(self, t: Tensor) -> Tensor:
        r""":math:`\tau = \rho'`."""
        return self.rho(t, 1)
