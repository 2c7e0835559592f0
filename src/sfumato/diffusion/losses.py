r"""The training objective, one function per term; every term is a mean over pixels and batch.

.. math:: L = L_{diffusion} + L_{prior} + L_{consistency} + \alpha L_{smoothness} \qquad [CVDM Eq. 6]
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sfumato.diffusion.gaussian import Gaussian, eps_from_velocity, gaussian_kl, marginal, velocity
from sfumato.diffusion.schedule import Schedule

__all__ = [
    "LEAST_WEIGHT",
    "Evened",
    "Losses",
    "MeanError",
    "consistency",
    "diffusion",
    "mean",
    "prior",
    "reconstruction",
    "scale",
    "schedule_share",
    "smoothness",
    "snr_smoothness",
    "velocity_diffusion",
    "with_gradient_times",
]

MeanError = Literal["mse", "rmse"]
"""What the mean learns from: with ``mse``, images with large errors decide all; with ``rmse``, each image counts by the
inverse of its own error, so that faint or easy ones are learned as well."""

_LEAST_SQUARE = 1e-10
"""Added to an image's mean square error, whose root has no gradient at 0."""

LEAST_WEIGHT = 1e-3
"""Below this weight (SNR above 2e4) the schedule gets less than its gradient; at t = 0 it would be 0 times infinity."""


class Losses(NamedTuple):
    """The terms of the objective as they enter it, including weights, each of shape ()."""

    diffusion: Tensor
    prior: Tensor
    consistency: Tensor
    smoothness: Tensor
    mean: Tensor
    """Error of the mean network; 0 without one."""
    scale: Tensor
    """Error of the scale network, a negative log-likelihood; 0 without one."""
    reconstruction: Tensor
    """What is unknown of the target after the last step, for the exact bound; 0 for other objectives."""

    @classmethod
    def of_mean(cls, error: Tensor) -> "Losses":
        """The terms of a model whose mean alone learns."""
        nothing = torch.zeros_like(error)
        return cls(nothing, nothing, nothing, nothing, mean=error, scale=nothing, reconstruction=nothing)

    @property
    def total(self) -> Tensor:
        """The total that training minimises: the plain sum."""
        bound = self.diffusion + self.prior + self.reconstruction
        return bound + self.consistency + self.smoothness + self.mean + self.scale


Evened = Callable[[Tensor], Tensor]
"""Weighs the frequencies of an error; see :meth:`~sfumato.diffusion.colour.Colour.evened`."""


def diffusion(error: Tensor, weight: Tensor | None = None, evened: Evened | None = None) -> Tensor:
    r"""Half the mean square of the prediction's error, :math:`\frac12 E\|\epsilon - \hat\epsilon\|^2`.  [CVDM Sec. 3.4]

    Note:
        The paper prints a minus sign, with which the minimum would be an infinite error.

    Args:
        error: Error of noise or velocity, shape (B, C, *spatial).
        weight: Weight of the square error, broadcastable to it; 1 by default.
        evened: Weighs its frequencies.
    """
    if evened is not None:
        error, weight = evened(error if weight is None else weight.sqrt() * error), None
    square = error.square()
    return (square if weight is None else weight * square).mean() / 2


def velocity_diffusion(
    v_hat: Tensor,
    noisy: Tensor,
    target: Tensor,
    eps: Tensor,
    log_gamma: Tensor,
    weight: Tensor | None = None,
    evened: Evened | None = None,
) -> Tensor:
    r"""Square error of the velocity, from which the network learns; the schedule learns from the noise's instead.

    Both gradients come from one pass through the network, if its inputs passed through :func:`with_gradient_times` with
    the factor :func:`schedule_share`. The second term is 0 and gives the schedule the gradient that bypasses the
    network.

    Args:
        v_hat: The predicted velocity, shape (B, C, *spatial).
        noisy: The diffused image made of ``target`` and ``eps``, without a factor on its gradient.
        target: The image to diffuse, shape of ``v_hat``.
        eps: Unit normal noise, shape of ``v_hat``.
        log_gamma: Logarithm of the signal variance, broadcastable to ``v_hat``.
        weight: Weight of the velocity's square error; 1 by default.
        evened: Weighs the frequencies of both errors.
    """
    of_velocity = diffusion(velocity(target, eps, log_gamma).detach() - v_hat, weight, evened)
    of_noise = diffusion(eps - eps_from_velocity(noisy, v_hat.detach(), log_gamma), evened=evened)
    return of_velocity + (of_noise - of_noise.detach())


def schedule_share(log_gamma: Tensor, weight: Tensor | None = None) -> Tensor:
    r"""Factor on the gradient at the network's inputs that makes the schedule learn from the noise's error.

    Since :math:`\epsilon = s z_t + a v`, the errors are related: :math:`\epsilon - \hat\epsilon = a\,(v - \hat v)`.

    So :math:`|\epsilon - \hat\epsilon|^2 = \frac{\gamma}{w} \cdot w\,|v - \hat v|^2`: the share is gamma over the
    weight.

    One number per image is used for all its pixels, which is exact if they have the same rate.

    Args:
        log_gamma: Logarithm of the signal variance, shape (B, C, *spatial); any axis but the first may have length 1.
        weight: Weight of the velocity's square error, of the same shape; 1 by default.

    Returns:
        Shares without gradient, shape (B, 1, ..., 1).
    """
    share = log_gamma.detach().exp() / (1 if weight is None else weight.clamp(min=LEAST_WEIGHT))
    return share.mean(dim=tuple(range(1, share.ndim)), keepdim=True)


def with_gradient_times(factor: Tensor, values: Tensor) -> Tensor:
    """Return exactly the same values; their gradient is multiplied by ``factor``."""
    return values + (factor - 1) * (values - values.detach())


def prior(schedule: Schedule, target: Tensor) -> Tensor:
    r"""Divergence of the fully diffused target from pure noise, :math:`KL(q(z_1|y,x) \| N(0, 1))`.  [CVDM Sec. 3.3]

    .. math:: \tfrac12 [\gamma_1 (y^2 - 1) - \log(1 - \gamma_1)]

    Args:
        schedule: Bound to the condition.
        target: The image to diffuse, shape (B, C, *spatial).
    """
    end = marginal(target, schedule.log_gamma(torch.ones((), dtype=target.dtype, device=target.device)))
    unit = Gaussian(torch.zeros_like(end.mean), torch.ones_like(end.var))
    return gaussian_kl(end, unit).mean()


def reconstruction(schedule: Schedule, t_min: float) -> Tensor:
    r"""What is unknown of the target at the least noise, :math:`-E \log p(y | z_{t_{min}}, x)`.  [CVDM App. D]

    .. math:: p(y | z) = N(z/a, s^2/a^2) \quad\Rightarrow\quad \tfrac12 [1 + \log 2\pi - \log SNR(t_{min})]

    The third term of the bound. Prior and diffusion alone fall as rates rise, since less of the target is then left to
    explain between t_min and 1; with this term the bound of an exact denoiser is the same for all rates.

    Args:
        schedule: Bound to the condition.
        t_min: Where the times of the diffusion term start, above 0.
    """
    start = torch.as_tensor(t_min, dtype=schedule.rate.dtype, device=schedule.rate.device)
    return (1 + math.log(2 * math.pi) - schedule.log_snr(start)).mean() / 2


def consistency(schedule: Schedule, t: Tensor) -> Tensor:
    r"""Soft constraints that tie beta to gamma, and gamma to its ends.  [CVDM Sec. 3.2, the term L_beta]

    .. math:: E\,(\gamma' + \beta\gamma)^2 + (\gamma(0) - 1)^2 + \gamma(1)^2

    The second part is 0 for every schedule, since rho(0) = 0, and is not computed; the first is 0 for all schedules
    except ``PaperSchedule``.

    Args:
        schedule: Bound to the condition.
        t: Times, shape (B).
    """
    end = schedule.gamma(torch.ones((), dtype=t.dtype, device=t.device))
    return schedule.residual(t).square().mean() + end.square().mean()


def smoothness(schedule: Schedule, t: Tensor) -> Tensor:
    r"""Mean square curvature :math:`E\,\gamma''^2`; without it the schedule becomes a step.  [CVDM Sec. 3.4, L_gamma]

    Args:
        schedule: Bound to the condition.
        t: Times, shape (B).
    """
    return schedule.gamma(t, order=2).square().mean()


def snr_smoothness(schedule: Schedule, t: Tensor, *, t_min: float = 0.1) -> Tensor:
    r"""The alternative :math:`E\,SNR''^2`, which the paper derives and then avoids.  [CVDM Sec. 3.4, L_SNR]

    Note:
        SNR is infinite at t = 0, so the expectation runs over [t_min, 1]. The paper has the norm, not its square; with
        the square, both terms are of the same kind, and a mean over a batch estimates it without bias.

    Args:
        schedule: Bound to the condition.
        t: Times in [0, 1], shape (B), moved to [t_min, 1].
        t_min: Where the interval starts, above 0.
    """
    if not 0 < t_min < 1:
        raise ValueError(f"t_min is {t_min}; SNR'' is infinite at 0, so give a number between 0 and 1")
    return schedule.snr(t_min + (1 - t_min) * t, order=2).square().mean()


def mean(target: Tensor, center: Tensor, error: MeanError = "mse") -> Tensor:
    r"""Error of a mean network's output ``center``, in the target's units.

    Args:
        target: Shape (B, C, *spatial).
        center: Same shape.
        error: ``mse``, the mean square over all pixels; or ``rmse``, the mean over images of their root mean square,
            :math:`\frac1B \sum_i (\frac1n |y_i - \mu_i|^2)^{1/2}`.
    """
    square = (target - center).square()
    if error == "mse":
        return square.mean()
    return (square.flatten(1).mean(1) + _LEAST_SQUARE).sqrt().mean()


def scale(left: Tensor, log_sigma: Tensor) -> Tensor:
    r"""Negative log-likelihood of what a mean leaves, if it is normal with a standard deviation for every pixel.

    .. math:: E\,[\log\sigma + \tfrac12 (y - \mu)^2 / \sigma^2] \qquad \text{least where}\quad
              \sigma^2 = E\,[(y - \mu)^2 | x]

    Args:
        left: :math:`y - \mu` without gradient, so that the scale cannot spoil the mean, shape (B, C, *spatial).
        log_sigma: Same shape.
    """
    return (log_sigma + left.square() * (-2 * log_sigma).exp() / 2).mean()
