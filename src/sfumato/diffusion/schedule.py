r"""The variance schedule: how fast noise replaces each pixel of the target.

.. math:: \gamma(t, x) = \exp(-\lambda(x) \rho(t)), \qquad \beta(t, x) = \lambda(x) \tau(t)
          \qquad [CVDM Sec. 3.2, Eqs. 4, 5]

A :class:`Schedule` is a value bound to one condition x. It holds the rate :math:`\lambda(x)`, computed once by a
network, and a warp of time :math:`\rho, \tau`. The modules that make schedules are called with the condition:
``schedule = LearnedSchedule(network)(condition)``.

Time is one scalar per image, so :math:`\rho` and :math:`\tau` are evaluated on vectors of B numbers, never on
images; all derivatives in time are closed forms, so no graph is differentiated twice.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfumato.diffusion.channels import called
from sfumato.diffusion.warp import CosineWarp, LinearWarp, PaperWarp, TimeWarp, Warp, inverse_softplus

__all__ = [
    "CosineSchedule",
    "DerivativeOrder",
    "GlobalSchedule",
    "LearnedSchedule",
    "LinearSchedule",
    "PaperSchedule",
    "Schedule",
]

DerivativeOrder = Literal[0, 1, 2]
"""Order of a time derivative."""


@dataclass(frozen=True)
class Schedule:
    r"""A schedule bound to one condition.

    Attributes:
        rate: :math:`\lambda(x) > 0`, shape (B, C, *spatial); axes along which it is constant may have length 1. For
            every schedule with :math:`\rho(1) = 1` (all but ``PaperSchedule``) it is :math:`\int_0^1 \beta(t, x) dt`,
            the map of [CVDM App. M].
        warp: The time functions.
        reference_rate: A constant of the model, not of the image, that determines the sampling grid.

    Times ``t`` have shape () or (B).
    """

    rate: Tensor
    warp: Warp
    reference_rate: float

    def log_gamma(self, t: Tensor, order: DerivativeOrder = 0) -> Tensor:
        r""":math:`\log\gamma = -\lambda\rho` or its time derivative, shape of ``rate``, batched if t is."""
        return self._log_gammas(t, order)[order]

    def gamma(self, t: Tensor, order: DerivativeOrder = 0) -> Tensor:
        r"""Signal variance, 1 at t = 0 and decreasing, or its time derivative.  [CVDM Eq. 5]

        .. math:: \gamma = e^{-\lambda\rho}, \quad \gamma' = -\lambda\rho'\gamma, \quad
                  \gamma'' = (\lambda^2\rho'^2 - \lambda\rho'')\gamma
        """
        log_gamma, *rest = self._log_gammas(t, order)
        gamma = log_gamma.exp()
        if order == 0:
            return gamma
        return rest[0] * gamma if order == 1 else (rest[0].square() + rest[1]) * gamma

    def noise_var(self, t: Tensor) -> Tensor:
        r"""Noise variance :math:`1 - \gamma`, accurate where :math:`\gamma` rounds to 1.  [CVDM Sec. 3.1]"""
        return -torch.expm1(self.log_gamma(t))

    def beta(self, t: Tensor) -> Tensor:
        r"""Rate of noise injection :math:`\beta = \lambda\tau`, per unit time.  [CVDM Sec. 3.2]"""
        return self.rate * _like_images(self.warp(t).tau, self.rate)

    def log_snr(self, t: Tensor, order: DerivativeOrder = 0) -> Tensor:
        r"""Logarithm of SNR = :math:`\gamma/(1-\gamma)`, or its time derivative; finite for t > 0.

        With :math:`u = \lambda\rho`: :math:`(\log SNR)' = -u'/(1-\gamma)`, minus the weight of the exact bound, and
        :math:`(\log SNR)'' = -u''/(1-\gamma) + u'^2 \gamma/(1-\gamma)^2`.  [CVDM App. E.3]
        """
        log_gamma, *rest = self._log_gammas(t, order)
        noise_var = -torch.expm1(log_gamma)
        if order == 0:
            return log_gamma - noise_var.log()
        slope = rest[0] / noise_var
        return slope if order == 1 else rest[1] / noise_var + slope.square() * log_gamma.exp()

    def snr(self, t: Tensor, order: DerivativeOrder = 0) -> Tensor:
        r"""Signal-to-noise ratio or its time derivative; infinite at t = 0.  [CVDM Sec. 3.4, App. E.2]

        .. math:: S' = S (\log S)', \quad S'' = S [(\log S)'^2 + (\log S)'']
        """
        snr = self.log_snr(t).exp()
        if order == 0:
            return snr
        slope = self.log_snr(t, 1)
        return snr * slope if order == 1 else snr * (slope.square() + self.log_snr(t, 2))

    def residual(self, t: Tensor) -> Tensor:
        r"""Residual of the differential equation, :math:`\gamma' + \beta\gamma`.  [CVDM Eq. 4]

        0 for every schedule but ``PaperSchedule``, which learns :math:`\rho` and :math:`\tau` separately.
        """
        clock = self.warp(t)
        gamma = (-self.rate * _like_images(clock.rho, self.rate)).exp()
        return self.rate * _like_images(clock.tau - clock.rho_dot, self.rate) * gamma

    def _log_gammas(self, t: Tensor, order: DerivativeOrder) -> list[Tensor]:
        """Log gamma and its derivatives up to ``order``, from one evaluation of the clock."""
        return [-self.rate * _like_images(value, self.rate) for value in self.warp(t)[: order + 1]]


def _like_images(values: Tensor, images: Tensor) -> Tensor:
    """View one number per image, shape (B), as (B, 1, ..., 1); a single number stays as it is."""
    return values.reshape(-1, *[1] * (images.ndim - 1)) if values.ndim else values


class LearnedSchedule(nn.Module):
    r"""The default: a bounded rate per pixel and a monotone clock, so every constraint of the paper holds exactly.

    .. math:: \lambda(x) = \lambda_{min} + (\lambda_{max} - \lambda_{min}) \sigma(network(x)),
              \qquad e^{-\lambda_{max}} \le \gamma(1, x) \le e^{-\lambda_{min}}

    or, with ``log_rates``, the same of its logarithm,

    .. math:: \log\lambda(x) = \log\lambda_{min} + \log(\lambda_{max}/\lambda_{min})\, \sigma(network(x)),

    which moves low rates as easily as high ones, so that the bounds can be wide.

    Normalising :math:`\rho(1) = 1` fixes the gauge :math:`(\lambda, \rho) \to (c\lambda, \rho/c)`, so rates of
    different runs can be compared.  [CVDM Sec. 3.2]

    Args:
        network: Maps a condition (B, K, *spatial) to raw rates (B, C, *spatial); a last layer of zeros makes the
            rate start at ``rate_init`` everywhere. ``sfumato.nn.UNet`` does that.
        rate_min: Lower bound of the rate: how little signal remains at t = 1.
        rate_max: Upper bound: a noise-predicting network's error is amplified by up to exp(rate_max / 2).
        rate_init: Rate before training; if not given, an eighth of the way from the lower to the upper bound.
        num_units: Units of the :class:`~sfumato.diffusion.warp.TimeWarp`.
        log_rates: The network gives the rate's logarithm. The sampling grid is then that of ``rate_init``, otherwise
            that of ``rate_min``.

    Example:
        >>> from sfumato.nn import UNet
        >>> schedule = LearnedSchedule(UNet(1, 1, base=4))(torch.zeros(2, 1, 32, 32))
        >>> schedule.gamma(torch.tensor([0.0, 1.0])).shape
        torch.Size([2, 1, 32, 32])
    """

    def __init__(
        self,
        network: Callable[[Tensor], Tensor],
        *,
        rate_min: float = 8.0,
        rate_max: float = 40.0,
        rate_init: float | None = None,
        num_units: int = 64,
        log_rates: bool = False,
    ) -> None:
        super().__init__()
        if rate_init is None:
            rate_init = rate_min + (rate_max - rate_min) / 8
        if not 0 < rate_min < rate_init < rate_max:
            raise ValueError(f"rates are min {rate_min}, init {rate_init}, max {rate_max}; give 0 < min < init < max")
        self.network = network
        self.warp = TimeWarp(num_units)
        self.rate_min, self.rate_max = rate_min, rate_max
        self.log_rates, self.reference_rate = log_rates, rate_init if log_rates else rate_min
        low, start, high = (math.log(rate) if log_rates else rate for rate in (rate_min, rate_init, rate_max))
        self.raw_init = math.log((start - low) / (high - start))

    def forward(self, condition: Tensor) -> Schedule:
        """Run the rate network once and bind the schedule to ``condition``, shape (B, K, *spatial)."""
        output = called(self.network, "rate network", condition, "the condition")
        place = (output.to(condition.dtype) + self.raw_init).sigmoid()
        if self.log_rates:
            rate = self.rate_min * (math.log(self.rate_max / self.rate_min) * place).exp()
        else:
            rate = self.rate_min + (self.rate_max - self.rate_min) * place
        return Schedule(rate, self.warp, self.reference_rate)


class GlobalSchedule(LearnedSchedule):
    """CVDM-simple: the learned clock with one learned rate for all pixels and images.  [CVDM App. K]

    Args:
        rate_min: Lower bound of the rate.
        rate_max: Upper bound of the rate.
        rate_init: Rate before training; if not given, an eighth of the way from the lower to the upper bound.
        num_units: Units of the :class:`~sfumato.diffusion.warp.TimeWarp`.
        log_rates: As for :class:`LearnedSchedule`.
    """

    def __init__(
        self,
        *,
        rate_min: float = 8.0,
        rate_max: float = 40.0,
        rate_init: float | None = None,
        num_units: int = 64,
        log_rates: bool = False,
    ) -> None:
        super().__init__(
            _OneNumber(),
            rate_min=rate_min,
            rate_max=rate_max,
            rate_init=rate_init,
            num_units=num_units,
            log_rates=log_rates,
        )


class _OneNumber(nn.Module):
    """The rate network of a schedule that is the same everywhere: one parameter, whatever the condition."""

    reach = 0

    def __init__(self) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.zeros(()))

    def forward(self, condition: Tensor) -> Tensor:
        return self.raw.reshape([1] * condition.ndim)


class PaperSchedule(nn.Module):
    r"""The schedule as printed: a positive rate and two time networks with soft constraints.  [CVDM Sec. 3.2, App. G]

    Only the loss bounds the rate, ties :math:`\tau` to :math:`\rho'` and keeps :math:`\rho` monotone; a test in this
    project shows an instance that is not monotone. ``LearnedSchedule`` is therefore the default.

    Args:
        network: Maps a condition (B, K, *spatial) to raw rates (B, C, *spatial), made positive by softplus.
        rate_init: Rate before training where ``network`` gives 0. With a plain softplus of 0, which is log 2, training
            would start near :math:`\gamma(1) = 1/2` and leave it very slowly.
        num_units: Sigmoid units of each time network.
    """

    def __init__(self, network: Callable[[Tensor], Tensor], *, rate_init: float = 12.0, num_units: int = 1024) -> None:
        super().__init__()
        if rate_init <= 0:
            raise ValueError(f"rate_init is {rate_init}; a rate is positive")
        self.network = network
        self.warp = PaperWarp(num_units)
        self.rate_init = rate_init
        self.raw_init = inverse_softplus(rate_init)

    def forward(self, condition: Tensor) -> Schedule:
        """Run the rate network once and bind the schedule to ``condition``, shape (B, K, *spatial)."""
        output = called(self.network, "rate network", condition, "the condition")
        rate = F.softplus(output.to(condition.dtype) + self.raw_init)
        return Schedule(rate, self.warp, reference_rate=self.rate_init)


class _FixedSchedule(nn.Module):
    """A schedule without parameters, the same for every pixel: rate L, the integral of beta, and a given warp."""

    def __init__(self, rate: float, warp: Warp) -> None:
        super().__init__()
        self.rate = rate
        self.warp = warp

    def forward(self, condition: Tensor) -> Schedule:
        """Bind the schedule to ``condition``; only its dimensions, dtype and device matter."""
        rate = condition.new_full([1] * condition.ndim, self.rate)
        return Schedule(rate, self.warp, reference_rate=self.rate)


class LinearSchedule(_FixedSchedule):
    r"""Fixed :math:`\beta(t) = T (b_0 + (b_1 - b_0) t)`, the baseline CDDPM.  [CVDM Sec. 4; SR3]

    Args:
        beta_start: :math:`b_0`, noise variance added by the first of ``num_steps`` steps.
        beta_end: :math:`b_1`, by the last.
        num_steps: T, which turns variances per step into rates.

    Example:
        >>> schedule = LinearSchedule.named("qpi")(torch.zeros(1, 1, 8, 8))
        >>> round(schedule.gamma(torch.tensor(1.0)).item(), 4)
        0.018
    """

    SETTINGS: ClassVar = {"biosr": (1e-4, 0.03, 500), "qpi": (1e-4, 0.02, 400)}
    """The paper's two settings (b_0, b_1, T), by name of the experiment."""

    def __init__(self, beta_start: float, beta_end: float, num_steps: int) -> None:
        if beta_start < 0 or beta_end <= 0 or num_steps < 1:
            raise ValueError(
                f"beta runs from {beta_start} to {beta_end} in {num_steps} steps; "
                "give a start of at least 0, a positive end and at least one step"
            )
        mean = (beta_start + beta_end) / 2
        super().__init__(num_steps * mean, LinearWarp(beta_start / mean, beta_end / mean))

    @classmethod
    def named(cls, name: str) -> Self:
        """One of the paper's settings: ``biosr`` (T = 500) or ``qpi`` (T = 400)."""
        if name not in cls.SETTINGS:
            raise ValueError(f"no linear schedule is called {name!r}; choose one of {', '.join(cls.SETTINGS)}")
        return cls(*cls.SETTINGS[name])


class CosineSchedule(_FixedSchedule):
    r"""Fixed :math:`\gamma = \cos^2\theta(t)/\cos^2\theta(0)`, stopped where :math:`\gamma(1)` = ``gamma_end``.

    [Nichol & Dhariwal 2021, Eq. 17]; their cosine would reach 0, an infinite rate, at t = 1.

    Args:
        gamma_end: Signal variance that remains at t = 1.
        offset: Their s; :math:`\theta(0) = (\pi/2) s/(1+s)`.
    """

    def __init__(self, gamma_end: float = 1e-4, offset: float = 0.008) -> None:
        if not 0 < gamma_end < 1 or offset <= 0:
            raise ValueError(
                f"gamma_end is {gamma_end} and offset {offset}; give 0 < gamma_end < 1 and a positive offset"
            )
        start = math.pi / 2 * offset / (1 + offset)
        gap = math.asin(math.sqrt(gamma_end) * math.cos(start))
        rate = -math.log(gamma_end)
        super().__init__(rate, CosineWarp(start, gap, rate))
