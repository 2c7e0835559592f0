r"""Gaussian algebra of the diffusion process, in closed form and elementwise.

.. math:: q(z_t | y, x) = N(\sqrt{\gamma_t}\, y,\; 1 - \gamma_t) \qquad [CVDM Eq. 1]

Every function takes :math:`\log\gamma` instead of :math:`\gamma`, so that the noise variance near t = 0 and the signal
near t = 1 keep their digits. Tensors have shape (B, C, *spatial) or broadcast to it. Times are ordered s < t.
"""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "Gaussian",
    "amplitudes",
    "clean_from_eps",
    "clean_from_velocity",
    "diffuse",
    "eps_from_velocity",
    "forward_step",
    "gaussian_kl",
    "gaussian_velocity",
    "marginal",
    "reverse_step",
    "velocity",
]


class Gaussian(NamedTuple):
    """A normal distribution per pixel. ``var`` is a variance, not a standard deviation."""

    mean: Tensor
    var: Tensor


def amplitudes(log_gamma: Tensor) -> tuple[Tensor, Tensor]:
    r"""Standard deviations of signal and noise, :math:`a = \sqrt\gamma` and :math:`s = \sqrt{1 - \gamma}`."""
    # The floor keeps the root's gradient finite at t = 0, which a uniform draw of t hits occasionally.
    noise_var = (-torch.expm1(log_gamma)).clamp_min(torch.finfo(log_gamma.dtype).tiny)
    return (log_gamma / 2).exp(), noise_var.sqrt()


def marginal(target: Tensor, log_gamma: Tensor) -> Gaussian:
    r"""The diffused target's distribution :math:`q(z_t | y, x)`.  [CVDM Eq. 1]"""
    return Gaussian((log_gamma / 2).exp() * target, -torch.expm1(log_gamma))


def diffuse(target: Tensor, eps: Tensor, log_gamma: Tensor) -> Tensor:
    r"""Diffuse a target: :math:`z_t = \sqrt{\gamma_t}\, y + \sqrt{1 - \gamma_t}\, \epsilon`.  [CVDM App. D]"""
    a, s = amplitudes(log_gamma)
    return a * target + s * eps


def clean_from_eps(noisy: Tensor, eps: Tensor, log_gamma: Tensor) -> Tensor:
    r"""The target implied by a noise: :math:`y = (z_t - \sqrt{1 - \gamma_t}\,\epsilon)/\sqrt{\gamma_t}`.

    [CVDM Eq. 8]. An error in :math:`\epsilon` is amplified by :math:`s/a`, which is unbounded towards t = 1.
    """
    a, s = amplitudes(log_gamma)
    return (noisy - s * eps) / a


def velocity(target: Tensor, eps: Tensor, log_gamma: Tensor) -> Tensor:
    r"""The velocity :math:`v = a\,\epsilon - s\,y`, a network output that amplifies no error.  [Salimans & Ho 2022]"""
    a, s = amplitudes(log_gamma)
    return a * eps - s * target


def gaussian_velocity(noisy: Tensor, log_gamma: Tensor, std: float = 0.5) -> Tensor:
    r"""The expected velocity of a Gaussian target with mean 0: a multiple of the noisy image.

    .. math:: E[v | z_t] = \frac{a s (1 - \sigma^2)}{a^2 \sigma^2 + s^2}\, z_t

    Args:
        noisy: :math:`z_t`, with noise of the target's spectrum.
        log_gamma: Logarithm of the signal variance, broadcastable to ``noisy``.
        std: Standard deviation :math:`\sigma` of the target.
    """
    a, s = amplitudes(log_gamma)
    return a * s * (1 - std**2) / (a.square() * std**2 + s.square()) * noisy


def clean_from_velocity(noisy: Tensor, v: Tensor, log_gamma: Tensor) -> Tensor:
    r"""The target implied by a velocity: :math:`y = a z_t - s v`."""
    a, s = amplitudes(log_gamma)
    return a * noisy - s * v


def eps_from_velocity(noisy: Tensor, v: Tensor, log_gamma: Tensor) -> Tensor:
    r"""The noise implied by a velocity: :math:`\epsilon = s z_t + a v`."""
    a, s = amplitudes(log_gamma)
    return s * noisy + a * v


def forward_step(noisy_s: Tensor, log_gamma_s: Tensor, log_gamma_t: Tensor) -> Gaussian:
    r"""One step of the forward process, from s to t.  [CVDM App. B.1]

    .. math:: q(z_t | z_s, x) = N(\sqrt{1 - \hat\beta}\, z_s,\; \hat\beta), \qquad \hat\beta = 1 - \gamma_t/\gamma_s
    """
    log_alpha_ts = log_gamma_t - log_gamma_s
    return Gaussian((log_alpha_ts / 2).exp() * noisy_s, -torch.expm1(log_alpha_ts))


def reverse_step(noisy_t: Tensor, clean: Tensor, log_gamma_t: Tensor, log_gamma_s: Tensor) -> Gaussian:
    r"""One step back, from t to s, if the target were ``clean``.  [CVDM App. B.2; Eq. 2 with a predicted ``clean``]

    .. math:: q(z_s | z_t, y, x) = N\Big(\sqrt{1 - \hat\beta}\,\frac{1 - \gamma_s}{1 - \gamma_t} z_t
              + \sqrt{\gamma_s}\,\frac{\hat\beta}{1 - \gamma_t} y,\; \hat\beta\,\frac{1 - \gamma_s}{1 - \gamma_t}\Big)
    """
    log_alpha_ts = log_gamma_t - log_gamma_s
    beta_hat = -torch.expm1(log_alpha_ts)
    noise_var_t = -torch.expm1(log_gamma_t)
    ratio = torch.expm1(log_gamma_s) / torch.expm1(log_gamma_t)
    kept = (log_alpha_ts / 2).exp() * ratio
    pulled = (log_gamma_s / 2).exp() * beta_hat / noise_var_t
    return Gaussian(kept * noisy_t + pulled * clean, beta_hat * ratio)


def gaussian_kl(q: Gaussian, p: Gaussian) -> Tensor:
    r"""Divergence :math:`KL(q \| p)` per pixel, in nats.

    .. math:: \tfrac12 [\sigma_q/\sigma_p + (\mu_q - \mu_p)^2/\sigma_p - 1 - \log(\sigma_q/\sigma_p)]
    """
    ratio = q.var / p.var
    return (ratio + (q.mean - p.mean).square() / p.var - 1 - ratio.log()) / 2
