r"""Problems whose posterior and whose best denoiser are known, for any pixel-wise schedule.

Each is a :class:`sfumato.diffusion.sampling.Denoiser`, so ``sample()`` runs on it as it runs on a trained model;
the network is replaced by :math:`E[y | z_t, x]` in closed form. A sampler is right when its draws follow the exact
posterior.

With :math:`A = diag(\sqrt\gamma)`, :math:`S^2 = diag(1-\gamma)` and :math:`y | x \sim N(m, C)`:

.. math:: E[y | z] = m + C A (A C A + S^2)^{-1} (z - A m)
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sfumato.diffusion.gaussian import amplitudes
from sfumato.diffusion.known import Known
from sfumato.diffusion.sampling import sample
from sfumato.diffusion.schedule import Schedule

__all__ = [
    "Gaussian",
    "Heteroscedastic",
    "LinearGaussian",
    "Mixture",
    "blur_matrix",
    "log_uniform_rates",
    "sampler_moments",
    "smooth_covariance",
]

MakeSchedule = Callable[[Tensor], Schedule]


class _Exact:
    """What all exact problems share: no centre, unit scale, one channel."""

    target_channels = 1

    def __init__(self, schedule: MakeSchedule) -> None:
        self.schedule = schedule

    def read(self, condition: Tensor) -> Known:
        return Known(condition, None, 1.0, self.schedule(condition))

    def clean(self, noisy: Tensor, log_gamma: Tensor, condition: Tensor) -> Tensor:
        raise NotImplementedError

    def predict(self, noisy: Tensor, log_gamma: Tensor, seen: Tensor) -> Tensor:
        return self.clean(noisy, log_gamma, seen)


class Gaussian(_Exact):
    """A correlated Gaussian posterior with mean (d) and covariance (d, d), d being the number of pixels."""

    def __init__(self, schedule: MakeSchedule, mean: Tensor, covariance: Tensor) -> None:
        super().__init__(schedule)
        self.mean, self.covariance = mean, covariance

    def posterior_mean(self, condition: Tensor) -> Tensor:
        """Mean of the posterior, shape (d) or (B, d)."""
        return self.mean

    def clean(self, noisy: Tensor, log_gamma: Tensor, condition: Tensor) -> Tensor:
        z = noisy.flatten(1)
        a, s = (level.expand(1, *noisy.shape[1:]).reshape(-1) for level in amplitudes(log_gamma[:1]))
        m = self.posterior_mean(condition).to(z)
        signal = a[:, None] * self.covariance * a
        gain = torch.linalg.solve(signal + torch.diag(s.square()), a[:, None] * self.covariance)
        clean: Tensor = m + (z - a * m) @ gain
        return clean.view_as(noisy)


class LinearGaussian(Gaussian):
    """The inverse problem x = H y + n with y ~ N(0, C0) and n ~ N(0, R): the posterior mean is linear in x."""

    def __init__(self, schedule: MakeSchedule, operator: Tensor, prior_cov: Tensor, noise_cov: Tensor) -> None:
        data_cov = operator @ prior_cov @ operator.T + noise_cov
        self.gain = torch.linalg.solve(data_cov, operator @ prior_cov).T
        super().__init__(schedule, prior_cov.new_zeros(len(prior_cov)), prior_cov - self.gain @ operator @ prior_cov)

    def posterior_mean(self, condition: Tensor) -> Tensor:
        mean: Tensor = condition.flatten(1) @ self.gain.T
        return mean


class Mixture(_Exact):
    """A mixture of K Gaussians: weights (K), means (K, d), covariances (K, d, d)."""

    def __init__(self, schedule: MakeSchedule, weights: Tensor, means: Tensor, covariances: Tensor) -> None:
        super().__init__(schedule)
        self.weights, self.means, self.covariances = weights, means, covariances

    def clean(self, noisy: Tensor, log_gamma: Tensor, condition: Tensor) -> Tensor:
        z = noisy.flatten(1)
        a, s = (level.expand(1, *noisy.shape[1:]).reshape(-1) for level in amplitudes(log_gamma[:1]))
        logits, cleans = [], []
        for weight, m, covariance in zip(self.weights, self.means, self.covariances, strict=True):
            total = a[:, None] * covariance * a + torch.diag(s.square())
            logits.append(weight.log() + torch.distributions.MultivariateNormal(a * m, total).log_prob(z))
            cleans.append(m + (z - a * m) @ torch.linalg.solve(total, a[:, None] * covariance))
        responsibility = torch.stack(logits).softmax(0)
        return (responsibility[..., None] * torch.stack(cleans)).sum(0).view_as(noisy)

    def draw(self, number: int, generator: torch.Generator) -> Tensor:
        """Exact draws, shape (number, d)."""
        which = torch.multinomial(self.weights, number, replacement=True, generator=generator)
        roots = torch.linalg.cholesky(self.covariances)
        unit = torch.randn(number, self.means.shape[1], dtype=self.means.dtype, generator=generator)
        draws: Tensor = self.means[which] + (roots[which] @ unit[..., None]).squeeze(-1)
        return draws


class Heteroscedastic(_Exact):
    """Pixel by pixel y | x ~ N(f(x), sigma(x)^2): the best network is known, so training can be tested end to end."""

    def posterior_mean(self, condition: Tensor) -> Tensor:
        return 0.8 * torch.sin(2 * condition)

    def posterior_std(self, condition: Tensor) -> Tensor:
        return 0.1 + 0.3 * torch.sigmoid(3 * condition)

    def clean(self, noisy: Tensor, log_gamma: Tensor, condition: Tensor) -> Tensor:
        m, var = self.posterior_mean(condition), self.posterior_std(condition).square()
        gamma, noise_var = log_gamma.exp(), -torch.expm1(log_gamma)
        return m + gamma.sqrt() * var / (gamma * var + noise_var) * (noisy - gamma.sqrt() * m)


def sampler_moments(problem: Gaussian, condition: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
    """Exact mean (d) and covariance (d, d) of what ``sample()`` draws from a Gaussian problem.

    Its draws are then an affine map of all the noise that it takes in, step by step. The map is read off by pushing the
    zero vector and every basis vector of every step's noise through it, as so many samples; no noise is drawn.
    """
    num_pixels = condition[0].numel()
    is_random = settings.get("eta", 0) > 0 or settings.get("solver") == "algorithm2"
    num_inputs = settings["num_steps"] if is_random else 1
    basis = torch.eye(num_pixels, dtype=condition.dtype)

    def push(step: int, shape: torch.Size, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        pushed = torch.zeros(shape, dtype=dtype, device=device)
        if step < num_inputs:
            pushed[1:].view(num_inputs, num_pixels, num_pixels)[step] = basis
        return pushed

    draws = sample(problem, condition, num_samples=1 + num_inputs * num_pixels, seed=push, **settings).flatten(1)
    linear = draws[1:] - draws[0]
    return draws[0], linear.T @ linear


def smooth_covariance(num_pixels: int, std: float, length: float = 3.0) -> Tensor:
    """Covariance of a stationary line of pixels, correlated over ``length`` of them, float64."""
    place = torch.arange(num_pixels, dtype=torch.float64)
    return std**2 * torch.exp(-(place[:, None] - place).abs() / length)


def log_uniform_rates(shape: tuple[int, ...], low: float = 6.0, high: float = 60.0) -> Tensor:
    """Rates from ``low`` to ``high``, uniform in the logarithm, scattered over the pixels in a fixed order, float64."""
    number = int(torch.tensor(shape).prod())
    fractions = torch.linspace(0, 1, number, dtype=torch.float64)
    scattered = fractions[torch.randperm(number, generator=torch.Generator().manual_seed(0))]
    return (low * (high / low) ** scattered).reshape(shape)


def blur_matrix(side: int, width: float) -> Tensor:
    """A periodic Gaussian blur of a (side, side) image as a matrix (side**2, side**2), rows summing to 1, float64."""
    place = torch.arange(side, dtype=torch.float64)
    distance = (place[:, None] - place).abs()
    line = torch.exp(-torch.minimum(distance, side - distance).square() / (2 * width**2))
    line = line / line.sum(1, keepdim=True)
    return torch.kron(line, line)
