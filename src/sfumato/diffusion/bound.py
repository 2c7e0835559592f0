r"""The evidence lower bound in discrete and continuous time, from which the training loss is derived.

.. math:: L_T = \tfrac12 \sum_{i=2}^{T} (SNR(t_{i-1}) - SNR(t_i))\, \|y - \hat y(z_{t_i})\|^2
          \;\to\; L_\infty = -\tfrac12 \int SNR'(t)\, \|y - \hat y(z_t)\|^2 dt \qquad [CVDM App. D, E]

Weights are per pixel and the sums run over pixels, as in the paper. ``error_sq`` is a function of time that returns
:math:`(y - \hat y(z_t))^2` per pixel, or its expectation. SNR is infinite at t = 0, so the discretised interval is
[t_min, 1] with :math:`t_i = t_{min} + (1 - t_{min})\, i/T`; the paper has t_min = 0. Functions raise ``ValueError``
for a t_min that is not between 0 and 1, and for fewer than two steps, since their sums start at the second.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sfumato.diffusion.schedule import Schedule

__all__ = [
    "DiscretisationBound",
    "beta_hat",
    "continuous_loss",
    "discrete_loss",
    "discretisation_bound",
    "monte_carlo_loss",
    "step_loss",
    "times",
]

ErrorOfTime = Callable[[Tensor], Tensor]

_ROUNDING = 1e-6
"""Rounding error of t num_steps = 1 that float32 may cause."""


def times(num_steps: int, t_min: float, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """The uniform partition t_0 = t_min, ..., t_T = 1, shape (T + 1)."""
    _check_start(t_min)
    if num_steps < 2:
        raise ValueError(f"num_steps is {num_steps}; give at least 2, since the loss is a sum from the second step on")
    return torch.linspace(t_min, 1, num_steps + 1, dtype=dtype)


def beta_hat(schedule: Schedule, t: Tensor, num_steps: int) -> Tensor:
    r"""Discrete rate :math:`\hat\beta_T(t) = 1 - \gamma(t)/\gamma(t - 1/T)`, about beta(t) / T.  [CVDM App. B.1, F]"""
    if num_steps < 1:
        raise ValueError(f"num_steps is {num_steps}; give at least 1")
    if bool((t * num_steps < 1 - _ROUNDING).any()):
        raise ValueError(f"t reaches {float(t.min()):.3g}, inside the first step; give t >= 1/{num_steps}, its end")
    return -torch.expm1(schedule.log_gamma(t) - schedule.log_gamma(t - 1 / num_steps))


def step_loss(schedule: Schedule, error_sq: Tensor, s: Tensor, t: Tensor) -> Tensor:
    r"""One term :math:`L_{t_i} = \frac12 \sum_p (SNR_p(s) - SNR_p(t))\,(y - \hat y)_p^2`, shape ().  [CVDM App. D]"""
    if not bool(((s > 0) & (s < t)).all()):
        raise ValueError(f"s is {s.tolist()} and t {t.tolist()}; give 0 < s < t, since SNR is infinite at 0")
    return ((schedule.snr(s) - schedule.snr(t)) * error_sq).sum() / 2


def discrete_loss(schedule: Schedule, error_sq: ErrorOfTime, num_steps: int, t_min: float) -> Tensor:
    r"""The bound's diffusion term with T steps, :math:`L_T = \sum_{i=2}^T L_{t_i}`, shape ().  [CVDM App. D]"""
    grid = times(num_steps, t_min)
    terms = [step_loss(schedule, error_sq(grid[i]), grid[i - 1], grid[i]) for i in range(2, num_steps + 1)]
    return torch.stack(terms).sum()


def monte_carlo_loss(schedule: Schedule, error_sq: ErrorOfTime, num_steps: int, t_min: float, steps: Tensor) -> Tensor:
    r"""Unbiased estimates :math:`(T - 1) L_{t_i}` of :math:`L_T`, i drawn from {2, ..., T}.  [CVDM App. E.1]

    Args:
        schedule: Bound to the condition.
        error_sq: Square error per pixel at a given time.
        num_steps: T.
        t_min: Where the interval starts.
        steps: Step numbers, integers, shape (M).

    Returns:
        One estimate per step number, shape (M).
    """
    grid = times(num_steps, t_min)
    if not bool(((steps >= 2) & (steps <= num_steps)).all()):
        raise ValueError(f"steps run from {int(steps.min())} to {int(steps.max())}; draw them from 2 to {num_steps}")
    estimates = [(num_steps - 1) * step_loss(schedule, error_sq(grid[i]), grid[i - 1], grid[i]) for i in steps]
    return torch.stack(estimates)


def continuous_loss(schedule: Schedule, error_sq: ErrorOfTime, t_min: float, *, num_nodes: int = 200) -> Tensor:
    r"""The limit :math:`L_\infty = -\frac12 \int_{t_{min}}^1 \sum_p SNR_p'\,(y - \hat y)_p^2\, dt`.  [CVDM Eq. 7]

    In terms of noise the weight is :math:`-SNR'/SNR`: ``-schedule.log_snr(t, order=1)``.  [CVDM App. E.3]
    """
    values = _integrand(schedule, error_sq)
    return -_integrate(values, t_min, num_nodes) / 2


class DiscretisationBound(NamedTuple):
    r"""Terms of a bound on :math:`|S_T - I|`, with :math:`L_T = -S_T/2`, :math:`L_\infty = -I/2`.  [CVDM App. E.2]"""

    difference: Tensor
    """E1, finite difference against derivative, from the largest SNR'' of each step."""
    riemann: Tensor
    """E2, Riemann sum against integral."""
    first: Tensor
    """E3, the first step, which the sum omits."""

    @property
    def total(self) -> Tensor:
        """E1 + E2 + E3."""
        return self.difference + self.riemann + self.first


def discretisation_bound(
    schedule: Schedule, error_sq: ErrorOfTime, num_steps: int, t_min: float, *, num_nodes: int = 200
) -> DiscretisationBound:
    r"""How far T steps can be from continuous time; it grows with :math:`SNR''`, hence the smoothness term.

    Note:
        On [t_min, 1], since the paper's bound is infinite at t = 0. The largest SNR'' of a step is sought at eight
        points.
    """
    grid = times(num_steps, t_min)
    h = (1 - t_min) / num_steps
    integrand = _integrand(schedule, error_sq)
    derivative = torch.stack([integrand(t) for t in grid[1:]])
    difference = torch.zeros((), dtype=grid.dtype)
    for i in range(2, num_steps + 1):
        inside = torch.linspace(float(grid[i - 1]), float(grid[i]), 8, dtype=grid.dtype)
        largest = torch.stack([schedule.snr(t, 2).abs() for t in inside]).amax(0)
        difference = difference + (h / 2 * largest * error_sq(grid[i])).sum() * h
    riemann = (derivative.sum() * h - _integrate(integrand, t_min, num_nodes)).abs()
    return DiscretisationBound(difference, riemann, (derivative[0] * h).abs())


def _check_start(t_min: float) -> None:
    if not 0 < t_min < 1:
        raise ValueError(f"t_min is {t_min}; SNR is infinite at 0, so give a number between 0 and 1")


def _integrand(schedule: Schedule, error_sq: ErrorOfTime) -> ErrorOfTime:
    return lambda t: (schedule.snr(t, 1) * error_sq(t)).sum()


def _integrate(function: ErrorOfTime, t_min: float, num_nodes: int) -> Tensor:
    """Gauss-Legendre quadrature over [t_min, 1] in log t, where SNR and its derivatives are smooth."""
    _check_start(t_min)
    if num_nodes < 1:
        raise ValueError(f"num_nodes is {num_nodes}; give at least 1, 200 as a rule")
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
    half = -math.log(t_min) / 2
    t = (half * (torch.from_numpy(nodes) - 1)).exp()
    values = torch.stack([function(time) for time in t])
    return (values * t * torch.from_numpy(weights) * half).sum()
