"""The exact denoisers are exact: Tweedie's formula, E[y | z] = (z + (1 - gamma) grad log p(z)) / sqrt(gamma)."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from exact_problems import Gaussian, Heteroscedastic, LinearGaussian, Mixture, log_uniform_rates, smooth_covariance
from sfumato.diffusion.gaussian import amplitudes
from sfumato.diffusion.schedule import Schedule
from sfumato.diffusion.warp import LinearWarp

SIZE = 6
RATES = log_uniform_rates((1, 1, 2, 3))
T = torch.tensor(0.35, dtype=torch.float64)


def schedule(condition: Tensor) -> Schedule:
    return Schedule(RATES, LinearWarp(0.3, 1.7), reference_rate=6.0)


def tweedie(log_density: Callable[[Tensor, Tensor, Tensor], Tensor], noisy: Tensor, log_gamma: Tensor) -> Tensor:
    """The denoiser that a marginal log-density of z implies; the density gets z, a and s as vectors."""
    a, s = (level.flatten() for level in amplitudes(log_gamma))
    z = noisy.flatten(1).requires_grad_()
    (score,) = torch.autograd.grad(log_density(z, a, s).sum(), z)
    return ((z + s.square() * score) / a).detach().view_as(noisy)


def noisy_images() -> Tensor:
    return torch.randn(4, 1, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_gaussian() -> None:
    mean = torch.linspace(-1, 1, SIZE, dtype=torch.float64)
    problem = Gaussian(schedule, mean, smooth_covariance(SIZE, 0.4))
    log_gamma = schedule(RATES).log_gamma(T)

    def log_density(z: Tensor, a: Tensor, s: Tensor) -> Tensor:
        covariance = a[:, None] * problem.covariance * a + torch.diag(s.square())
        density: Tensor = MultivariateNormal(a * mean, covariance).log_prob(z)
        return density

    expected = tweedie(log_density, noisy_images(), log_gamma)
    torch.testing.assert_close(problem.clean(noisy_images(), log_gamma, RATES), expected, rtol=1e-9, atol=1e-10)


def test_mixture() -> None:
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    means = torch.stack([torch.ones(SIZE), -torch.ones(SIZE)]).double()
    covariances = torch.stack([smooth_covariance(SIZE, 0.2), smooth_covariance(SIZE, 0.5, length=1.0)])
    problem = Mixture(schedule, weights, means, covariances)
    log_gamma = schedule(RATES).log_gamma(T)

    def log_density(z: Tensor, a: Tensor, s: Tensor) -> Tensor:
        parts = [
            weight.log() + MultivariateNormal(a * m, a[:, None] * c * a + torch.diag(s.square())).log_prob(z)
            for weight, m, c in zip(weights, means, covariances, strict=True)
        ]
        return torch.stack(parts).logsumexp(0)

    expected = tweedie(log_density, noisy_images(), log_gamma)
    torch.testing.assert_close(problem.clean(noisy_images(), log_gamma, RATES), expected, rtol=1e-9, atol=1e-10)
    draws = problem.draw(50_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws.mean(0), weights @ means, rtol=0, atol=0.02)


def test_heteroscedastic() -> None:
    problem = Heteroscedastic(schedule)
    condition = torch.linspace(-1.5, 1.5, SIZE, dtype=torch.float64).reshape(1, 1, 2, 3)
    log_gamma = schedule(condition).log_gamma(T)
    mean, std = problem.posterior_mean(condition).flatten(), problem.posterior_std(condition).flatten()

    def log_density(z: Tensor, a: Tensor, s: Tensor) -> Tensor:
        density: Tensor = Normal(a * mean, (a.square() * std.square() + s.square()).sqrt()).log_prob(z)
        return density

    expected = tweedie(log_density, noisy_images(), log_gamma)
    torch.testing.assert_close(problem.clean(noisy_images(), log_gamma, condition), expected, rtol=1e-9, atol=1e-10)


def test_linear_gaussian_posterior_is_the_conditional_of_the_joint() -> None:
    """Through the precision of the joint distribution of (y, x), another route than the gain."""
    generator = torch.Generator().manual_seed(1)
    operator = torch.randn(SIZE, SIZE, dtype=torch.float64, generator=generator)
    prior, noise = smooth_covariance(SIZE, 1.0), 0.1 * torch.eye(SIZE, dtype=torch.float64)
    problem = LinearGaussian(schedule, operator, prior, noise)
    precision = torch.linalg.inv(prior) + operator.T @ torch.linalg.inv(noise) @ operator
    covariance = torch.linalg.inv(precision)
    torch.testing.assert_close(problem.covariance, covariance, rtol=1e-8, atol=1e-10)
    measured = torch.randn(2, 1, 2, 3, dtype=torch.float64, generator=generator)
    expected = measured.flatten(1) @ torch.linalg.inv(noise) @ operator @ covariance
    torch.testing.assert_close(problem.posterior_mean(measured), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("low", [6.0, 8.0])
def test_rates_are_log_uniform(low: float) -> None:
    rates = log_uniform_rates((1, 1, 4, 8), low, 60).flatten().sort().values
    steps = rates.log().diff()
    torch.testing.assert_close(steps, steps.mean().expand(31), rtol=1e-9, atol=0)
    assert float(rates[0]) == pytest.approx(low)
