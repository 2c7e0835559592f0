r"""Warps of time: the factors of a schedule that depend on t alone.

.. math:: \rho(0) = 0, \quad \rho' > 0, \quad \tau = \rho' \qquad [CVDM Sec. 3.2]

Each warp is a function of time that returns :math:`\rho` with its first two derivatives, in closed form, and
:math:`\tau`. Time is one scalar per image, so warps take vectors of B numbers, never images.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Clock", "CosineWarp", "LinearWarp", "PaperWarp", "TimeWarp", "Warp", "inverse_softplus"]


class Clock(NamedTuple):
    r"""The time functions at given times, each of their shape, () or (B)."""

    rho: Tensor
    rho_dot: Tensor
    rho_ddot: Tensor
    tau: Tensor
    """Equals ``rho_dot`` where the pair is consistent: everywhere but in :class:`PaperWarp`."""


class Warp(Protocol):
    """Any function from times to the :class:`Clock` at these times, with rho(0) = 0."""

    def __call__(self, t: Tensor) -> Clock:
        """The time functions at t, shape () or (B)."""
        ...


def inverse_softplus(value: float) -> float:
    """The number whose softplus is ``value``, log(expm1(value)), in a form that does not overflow for large values."""
    return value + math.log(-math.expm1(-value))


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

    def forward(self, t: Tensor) -> Clock:
        r""":math:`\rho = tN`, :math:`\rho' = N + tN'` and :math:`\rho'' = 2N' + tN''`, all over N(1); tau is rho'."""
        skip, slope, height = (F.softplus(raw) for raw in (self.raw_skip, self.raw_slope, self.raw_height))
        times = torch.cat([t.reshape(-1), t.new_ones(1)])  # with the end appended, for normalising
        # Sums over elements, since autocast would lower the precision of a matrix product.
        rise = slope * times[:, None]
        up, down = (rise + self.shift).sigmoid(), (-rise - self.shift).sigmoid()
        # sigma(a) - sigma(c) = sigma(a) sigma(-c) (1 - e^(c-a)): no cancellation, every factor in [0, 1]
        step = up * (-self.shift).sigmoid() * -torch.expm1(-rise)
        n = F.softplus(self.raw_offset) + skip * times + (height * step).sum(-1)
        bump = height * slope * up * down
        n, end = n[:-1].reshape(t.shape), n[-1]
        n_dot = (skip + bump.sum(-1))[:-1].reshape(t.shape)
        n_ddot = (bump * slope * (down - up)).sum(-1)[:-1].reshape(t.shape)
        rho_dot = (n + t * n_dot) / end
        return Clock(t * n / end, rho_dot, (2 * n_dot + t * n_ddot) / end, tau=rho_dot)


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

    def forward(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        skip, slope, height = (F.softplus(raw) for raw in (self.raw_skip, self.raw_slope, self.raw_height))
        q = skip * t + self.skip_bias
        arg = slope * q[..., None] + self.shift
        up, down, speed = arg.sigmoid(), (-arg).sigmoid(), slope * skip
        bump = height * speed * up * down
        n = q + (height * up).sum(-1) + self.bias
        n_dot = skip + bump.sum(-1)
        return t * n, n + t * n_dot, 2 * n_dot + t * (bump * speed * (down - up)).sum(-1)


class PaperWarp(nn.Module):
    """Separate networks for rho and tau, tied only by the consistency loss; rho may fail to increase.  [CVDM App. G]"""

    def __init__(self, num_units: int) -> None:
        super().__init__()
        # rho starts near t^2 and tau near 2 t, so that the pair starts almost consistent.
        self.rho_network = _TimesMonotone(start=0.0, skip=1.0, num_units=num_units)
        self.tau_network = _TimesMonotone(start=1.99, skip=0.01, num_units=num_units)

    def forward(self, t: Tensor) -> Clock:
        """The two networks at t."""
        rho, rho_dot, rho_ddot = self.rho_network(t)
        return Clock(rho, rho_dot, rho_ddot, tau=self.tau_network(t)[0])


@dataclass(frozen=True)
class LinearWarp:
    r"""Time functions of a beta that grows linearly from ``start`` to ``end`` and has mean 1."""

    start: float
    end: float

    def __call__(self, t: Tensor) -> Clock:
        r"""A parabola for :math:`\rho`."""
        growth = self.end - self.start
        rho_dot = self.start + growth * t
        return Clock(t * (self.start + growth * t / 2), rho_dot, torch.full_like(t, growth), tau=rho_dot)


@dataclass(frozen=True)
class CosineWarp:
    r"""Time functions of :math:`\gamma = \cos^2\theta(t) / \cos^2\theta_0` with :math:`\theta` linear in t.

    Attributes:
        start: :math:`\theta(0)`.
        gap: :math:`\pi/2 - \theta(1)`, the remaining distance to the angle at which no signal is left.
        rate: :math:`-\log\gamma(1)`.
    """

    start: float
    gap: float
    rate: float

    def __call__(self, t: Tensor) -> Clock:
        r""":math:`\rho = -\log\gamma` over ``rate``, with its derivatives."""
        speed = math.pi / 2 - self.gap - self.start
        half, theta = speed * t / 2, self.start + speed * t
        # The cosine from its zero, and 1 - cos theta / cos theta_0 as a product: each keeps its precision near one end.
        cosine = (self.gap + speed * (1 - t)).sin()
        drop = 2 * half.sin() * (self.start + half).sin() / math.cos(self.start)
        log_cosine = torch.where(drop < 0.5, torch.log1p(-drop.clamp(max=0.5)), (cosine / math.cos(self.start)).log())
        rho_dot = 2 * speed * theta.sin() / cosine / self.rate
        rho_ddot = 2 * speed**2 / cosine.square() / self.rate
        return Clock(-2 * log_cosine / self.rate, rho_dot, rho_ddot, tau=rho_dot)
