"""The four terms against their formulas, and against torch.distributions."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from sfumato.diffusion import losses
from sfumato.diffusion.gaussian import diffuse
from sfumato.diffusion.losses import Losses
from sfumato.diffusion.schedule import LearnedSchedule, PaperSchedule, Schedule
from sfumato.diffusion.warp import LinearWarp

RATES = torch.linspace(2, 9, 24, dtype=torch.float64).reshape(2, 1, 3, 4)
SCHEDULE = Schedule(RATES, LinearWarp(0.5, 1.5), reference_rate=2.0)
TIMES = torch.tensor([0.3, 0.8], dtype=torch.float64)


def test_prior_is_the_divergence_from_q_to_pure_noise() -> None:
    y = torch.randn(2, 1, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gamma = (-RATES).exp()
    q = Normal(gamma.sqrt() * y, (1 - gamma).sqrt())
    unit = Normal(torch.zeros_like(y), torch.ones_like(y))
    expected = kl_divergence(q, unit).mean()
    torch.testing.assert_close(losses.prior(SCHEDULE, y), expected, rtol=1e-10, atol=0)
    torch.testing.assert_close((gamma * (y * y - 1) - (1 - gamma).log()).mean() / 2, expected, rtol=1e-10, atol=0)
    assert (kl_divergence(unit, q).mean() - expected).abs() > 0.1 * expected


def test_consistency_of_a_consistent_schedule_is_its_end() -> None:
    expected = (-2 * RATES).exp().mean()
    torch.testing.assert_close(losses.consistency(SCHEDULE, TIMES), expected, rtol=1e-12, atol=0)


def test_consistency_of_the_papers_schedule_contains_its_residual() -> None:
    schedule = PaperSchedule(torch.zeros_like).double()(torch.zeros(2, 1, 3, 4, dtype=torch.float64))
    expected = schedule.residual(TIMES).square().mean() + schedule.gamma(torch.ones(1).double()).square().mean()
    torch.testing.assert_close(losses.consistency(schedule, TIMES), expected)
    assert schedule.residual(TIMES).square().mean() > 1e-4


def test_the_mean_learns_from_all_pixels_or_from_each_image_by_its_own_error() -> None:
    target = torch.zeros(3, 1, 4, 4, dtype=torch.float64)
    center = torch.tensor([0.01, 1.0, 3.0], dtype=torch.float64)[:, None, None, None].expand_as(target).requires_grad_()
    assert float(losses.mean(target, center).detach()) == pytest.approx((1e-4 + 1 + 9) / 3)
    assert float(losses.mean(target, center, "rmse").detach()) == pytest.approx((0.01 + 1 + 3) / 3, rel=1e-5)
    (slope,) = torch.autograd.grad(losses.mean(target, center, "rmse"), center)
    # |y - mu| has the same slope everywhere, however large the error.
    torch.testing.assert_close(slope, torch.full_like(slope, 1 / (3 * 16)), rtol=1e-5, atol=0)


def test_an_exact_image_has_a_finite_slope() -> None:
    exact = torch.zeros(1, 1, 4, 4, requires_grad=True)
    (slope,) = torch.autograd.grad(losses.mean(torch.zeros(1, 1, 4, 4), exact, "rmse"), exact)
    assert torch.equal(slope, torch.zeros_like(slope))


def test_smoothness_is_a_mean_over_every_image_of_the_batch() -> None:
    """The reference code regularises the first image only."""
    each = [losses.smoothness(Schedule(RATES[i : i + 1], SCHEDULE.warp, 2.0), TIMES[i : i + 1]) for i in range(2)]
    torch.testing.assert_close(losses.smoothness(SCHEDULE, TIMES), torch.stack(each).mean(), rtol=1e-12, atol=0)
    assert (each[0] - each[1]).abs() > 0.1


def test_snr_smoothness_looks_only_above_t_min() -> None:
    moved = 0.2 + 0.8 * TIMES
    expected = SCHEDULE.snr(moved, 2).square().mean()
    torch.testing.assert_close(losses.snr_smoothness(SCHEDULE, TIMES, t_min=0.2), expected, rtol=1e-12, atol=0)
    at_zero = losses.snr_smoothness(SCHEDULE, torch.zeros(2, dtype=torch.float64), t_min=0.2)
    assert bool(at_zero.isfinite())
    with pytest.raises(ValueError, match="between 0 and 1"):
        losses.snr_smoothness(SCHEDULE, TIMES, t_min=0.0)


def test_the_schedules_share_is_gamma_over_the_weight() -> None:
    """Of min(1, 20 / SNR): gamma below an SNR of 20, gamma^2 / (20 (1 - gamma)) above; one number per image."""
    gamma = torch.tensor([[0.1, 0.9], [0.97, 0.99]], dtype=torch.float64)[:, None]
    weight = (20 * (1 - gamma) / gamma).clamp(max=1)
    share = losses.schedule_share(gamma.log(), weight)
    expected = torch.tensor([0.5, (0.97**2 / 0.6 + 0.99**2 / 0.2) / 2], dtype=torch.float64)
    torch.testing.assert_close(share, expected[:, None, None])
    torch.testing.assert_close(losses.schedule_share(gamma.log())[:, 0, 0], gamma.mean((1, 2)))


def test_the_share_is_finite_where_the_weight_vanishes() -> None:
    log_gamma = torch.zeros(1, 1, 2, dtype=torch.float64)
    assert losses.schedule_share(log_gamma, torch.zeros_like(log_gamma)).item() == pytest.approx(1e3)


def test_the_schedule_learns_from_the_noise_while_the_network_learns_from_the_velocity() -> None:
    """A network v_hat = k z: both derivatives in closed form, whatever the weight of the velocity's error."""
    u, weight = (torch.tensor(values, dtype=torch.float64)[:, None] for values in ([0.2, 3.0], [0.3, 2.0]))
    generator = torch.Generator().manual_seed(0)
    y, eps = torch.randn(2, 2, 50, dtype=torch.float64, generator=generator)
    k = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    rate = u.clone().requires_grad_()
    noisy = diffuse(y, eps, -rate)
    share = losses.schedule_share(-rate, weight)
    v_hat = k * losses.with_gradient_times(share, noisy)
    found = losses.velocity_diffusion(v_hat, noisy, y, eps, -rate, weight)
    of_rate, of_k = torch.autograd.grad(found, [rate, k])

    a, s = (-u / 2).exp(), (1 - (-u).exp()).sqrt()
    z, v = a * y + s * eps, a * eps - s * y
    a_slope, s_slope = -a / 2, a**2 / (2 * s)
    z_slope = a_slope * y + s_slope * eps
    error = eps - s * z - a * 0.7 * z
    slope = s_slope * z + s * z_slope + 0.7 * (a_slope * z + a * z_slope)
    torch.testing.assert_close(of_rate, -(error * slope).sum(1, keepdim=True) / y.numel())
    torch.testing.assert_close(of_k, -(weight * (v - 0.7 * z) * z).mean())
    torch.testing.assert_close(found, (weight * (v - 0.7 * z).square()).mean() / 2)


def test_total_is_the_sum() -> None:
    terms = Losses(*(torch.tensor(float(2**k)) for k in range(7)))
    assert terms.total.item() == 127


def test_a_learned_schedule_gets_gradient_from_smoothness() -> None:
    module = LearnedSchedule(torch.zeros_like)
    losses.smoothness(module(torch.zeros(2, 1, 3, 4)), TIMES.float()).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in module.warp.parameters())
    assert sum(float(p.grad.abs().sum()) for p in module.warp.parameters() if p.grad is not None) > 0


def test_smoothness_is_the_mean_square_of_the_second_derivative() -> None:
    """Against autograd's second derivative, pixel by pixel."""
    expected = []
    for rate, t in zip(RATES, TIMES, strict=True):
        time = t.clone().requires_grad_()
        for pixel in rate.flatten():
            gamma = torch.exp(-pixel * SCHEDULE.warp(time).rho)
            (first,) = torch.autograd.grad(gamma, time, create_graph=True)
            (second,) = torch.autograd.grad(first, time)
            expected.append(second.square())
    torch.testing.assert_close(losses.smoothness(SCHEDULE, TIMES), torch.stack(expected).mean(), rtol=1e-10, atol=0)
