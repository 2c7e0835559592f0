"""The Gaussian algebra against Bayes' rule on a grid and torch.distributions (float64)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from sfumato.diffusion import gaussian
from sfumato.diffusion.gaussian import Gaussian

LEVELS = st.tuples(st.floats(1e-6, 20), st.floats(1e-6, 20)).map(sorted).filter(lambda u: u[1] - u[0] > 1e-6)
VALUES = st.floats(-3, 3)


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


@given(u=st.floats(1e-8, 30), y=VALUES, eps=VALUES)
@settings(deadline=None)
def test_clean_noise_and_velocity_invert_diffuse(u: float, y: float, eps: float) -> None:
    log_gamma = number(-u)
    noisy = gaussian.diffuse(number(y), number(eps), log_gamma)
    v = gaussian.velocity(number(y), number(eps), log_gamma)
    assert gaussian.clean_from_eps(noisy, number(eps), log_gamma).item() == pytest.approx(y, abs=1e-8)
    assert gaussian.clean_from_velocity(noisy, v, log_gamma).item() == pytest.approx(y, abs=1e-12)
    assert gaussian.eps_from_velocity(noisy, v, log_gamma).item() == pytest.approx(eps, abs=1e-12)


@given(levels=LEVELS, y=VALUES)
@settings(deadline=None)
def test_forward_steps_compose_to_the_marginal(levels: list[float], y: float) -> None:
    """[CVDM App. B.1]: marginal at s, then the step s to t, is the marginal at t."""
    log_s, log_t = number(-levels[0]), number(-levels[1])
    at_s, at_t = gaussian.marginal(number(y), log_s), gaussian.marginal(number(y), log_t)
    step = gaussian.forward_step(at_s.mean, log_s, log_t)
    torch.testing.assert_close(step.mean, at_t.mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(step.var + (log_t - log_s).exp() * at_s.var, at_t.var, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize(("u_s", "u_t"), [(0.01, 0.05), (0.3, 0.7), (1.0, 4.0), (0.001, 6.0)])
@pytest.mark.parametrize(("y", "z"), [(0.4, -0.7), (-1.5, 0.2)])
def test_reverse_step_is_bayes_rule(u_s: float, u_t: float, y: float, z: float) -> None:
    """[CVDM App. B.2]: prior times likelihood, normalised on a fine grid of z_s."""
    log_s, log_t = number(-u_s), number(-u_t)
    prior = gaussian.marginal(number(y), log_s)
    grid = prior.mean + prior.var.sqrt() * torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    likelihood = gaussian.forward_step(grid, log_s, log_t)
    log_density = Normal(prior.mean, prior.var.sqrt()).log_prob(grid)
    log_density = log_density + Normal(likelihood.mean, likelihood.var.sqrt()).log_prob(number(z))
    weights = log_density.softmax(0)
    mean = (weights * grid).sum()
    var = (weights * (grid - mean).square()).sum()
    posterior = gaussian.reverse_step(number(z), number(y), log_t, log_s)
    torch.testing.assert_close(posterior.mean, mean, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(posterior.var, var, rtol=1e-7, atol=0)


@given(mean=VALUES, var=st.floats(1e-3, 10), other_mean=VALUES, other_var=st.floats(1e-3, 10))
@settings(deadline=None)
def test_kl_against_torch(mean: float, var: float, other_mean: float, other_var: float) -> None:
    q, p = Gaussian(number(mean), number(var)), Gaussian(number(other_mean), number(other_var))
    expected = kl_divergence(Normal(q.mean, q.var.sqrt()), Normal(p.mean, p.var.sqrt()))
    torch.testing.assert_close(gaussian.gaussian_kl(q, p), expected, rtol=1e-9, atol=1e-12)


def test_amplitudes_keep_their_digits_in_float32() -> None:
    """At log gamma = -1e-9 a clipped gamma would give no noise at all."""
    a, s = gaussian.amplitudes(torch.tensor([-1e-9, -60.0]))
    assert s[0].item() == pytest.approx(1e-9**0.5, rel=1e-6)
    assert a[1].item() == pytest.approx(9.3576e-14, rel=1e-4)
