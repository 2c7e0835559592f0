"""The paper's appendices D, E and F on a Gaussian problem whose every expectation is known (float64).

For y ~ N(0, C) per pixel the best denoiser's square error is C (1 - gamma) / (gamma C + 1 - gamma).
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from sfumato.diffusion import bound, gaussian
from sfumato.diffusion.schedule import CosineSchedule, LearnedSchedule, LinearSchedule, Schedule
from sfumato.diffusion.warp import LinearWarp

VARIANCE = torch.tensor([0.5, 0.1, 0.02], dtype=torch.float64).reshape(1, 1, 1, 3)
RATES = torch.tensor([6.0, 9.0, 14.0], dtype=torch.float64).reshape(1, 1, 1, 3)
T_MIN = 0.1


def schedule_with(start: float, end: float) -> Schedule:
    """Pixel-wise rates on a clock whose speed grows from ``start`` to ``end``."""
    return Schedule(RATES, LinearWarp(start, end), reference_rate=6.0)


def mean_square_error(schedule: Schedule) -> Callable[[Tensor], Tensor]:
    def error_sq(t: Tensor) -> Tensor:
        gamma, noise_var = schedule.gamma(t), schedule.noise_var(t)
        return VARIANCE * noise_var / (gamma * VARIANCE + noise_var)

    return error_sq


def slope(sizes: list[int], errors: list[float]) -> float:
    """Least-squares exponent of errors ~ sizes ** slope."""
    x = torch.tensor(sizes, dtype=torch.float64).log()
    y = torch.tensor(errors, dtype=torch.float64).log()
    x = x - x.mean()
    return float((x * y).sum() / x.square().sum())


def test_step_loss_is_the_kl_of_two_reverse_steps() -> None:
    """[CVDM App. D]: with the same variance, KL reduces to a difference of SNR times the square error, per pixel."""
    schedule = schedule_with(0.4, 1.6)
    s, t = torch.tensor(0.4, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    y, guess, noisy = torch.randn(3, *RATES.shape, dtype=torch.float64, generator=generator)
    q = gaussian.reverse_step(noisy, y, schedule.log_gamma(t), schedule.log_gamma(s))
    p = gaussian.reverse_step(noisy, guess, schedule.log_gamma(t), schedule.log_gamma(s))
    expected = kl_divergence(Normal(q.mean, q.var.sqrt()), Normal(p.mean, p.var.sqrt())).sum()
    torch.testing.assert_close(bound.step_loss(schedule, (y - guess).square(), s, t), expected, rtol=1e-9, atol=0)


def test_monte_carlo_estimator_is_unbiased() -> None:
    """[CVDM App. E.1]: its exact mean over all step numbers is L_T, and random ones scatter around it."""
    schedule = schedule_with(0.4, 1.6)
    error_sq = mean_square_error(schedule)
    exact = bound.discrete_loss(schedule, error_sq, 20, T_MIN)
    every = bound.monte_carlo_loss(schedule, error_sq, 20, T_MIN, torch.arange(2, 21))
    torch.testing.assert_close(every.mean(), exact, rtol=1e-12, atol=0)
    drawn = torch.randint(2, 21, (2000,), generator=torch.Generator().manual_seed(1))
    estimates = bound.monte_carlo_loss(schedule, error_sq, 20, T_MIN, drawn)
    assert (estimates.mean() - exact).abs() < 4 * estimates.std() / math.sqrt(2000)
    assert estimates.std() > 0.1 * exact


def test_noise_weight_is_minus_the_relative_slope_of_snr() -> None:
    """[CVDM App. E.3]: SNR' |y - yhat|^2 = (SNR'/SNR) |eps - eps_hat|^2, pixel by pixel."""
    schedule, t = schedule_with(0.4, 1.6), torch.tensor(0.37, dtype=torch.float64)
    generator = torch.Generator().manual_seed(2)
    y, eps, eps_hat = torch.randn(3, *RATES.shape, dtype=torch.float64, generator=generator)
    log_gamma = schedule.log_gamma(t)
    guess = gaussian.clean_from_eps(gaussian.diffuse(y, eps, log_gamma), eps_hat, log_gamma)
    by_image = -schedule.snr(t, order=1) * (y - guess).square()
    by_noise = -schedule.log_snr(t, order=1) * (eps - eps_hat).square()
    torch.testing.assert_close(by_noise, by_image, rtol=1e-9, atol=0)
    torch.testing.assert_close(-schedule.log_snr(t, 1), schedule.beta(t) / schedule.noise_var(t), rtol=1e-12, atol=0)


def test_continuous_loss_of_an_exact_denoiser_is_half_the_log_det() -> None:
    r"""Exact denoiser: L_inf = 1/2 sum log[(1 + C SNR(t_min)) / (1 + C SNR(1))], whatever the path between the ends."""
    for schedule in (schedule_with(0.4, 1.6), schedule_with(1.0, 1.0)):
        ends = [schedule.snr(torch.tensor(t, dtype=torch.float64)) for t in (T_MIN, 1.0)]
        expected = ((1 + VARIANCE * ends[0]).log() - (1 + VARIANCE * ends[1]).log()).sum() / 2
        loss = bound.continuous_loss(schedule, mean_square_error(schedule), T_MIN)
        torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)


def test_discrete_loss_converges_as_one_over_steps() -> None:
    """[CVDM App. E.2]: |L_T - L_inf| falls with slope -1."""
    schedule = schedule_with(0.4, 1.6)
    error_sq = mean_square_error(schedule)
    limit = bound.continuous_loss(schedule, error_sq, T_MIN)
    sizes = [64, 128, 256, 512, 1024]
    errors = [float((bound.discrete_loss(schedule, error_sq, T, T_MIN) - limit).abs()) for T in sizes]
    assert slope(sizes, errors) == pytest.approx(-1, abs=0.1)


@pytest.mark.parametrize("num_steps", [4, 8, 16, 32, 64, 128, 256])
def test_discretisation_bound_holds(num_steps: int) -> None:
    """[CVDM App. E.2]: |S_T - I| <= E1 + E2 + E3, with E1 through the largest SNR'' of each step."""
    schedule = schedule_with(0.4, 1.6)
    error_sq = mean_square_error(schedule)
    discrete = bound.discrete_loss(schedule, error_sq, num_steps, T_MIN)
    distance = 2 * (discrete - bound.continuous_loss(schedule, error_sq, T_MIN)).abs()
    limit = bound.discretisation_bound(schedule, error_sq, num_steps, T_MIN)
    assert distance <= limit.total
    # E1 also bounds what it stands for: the finite differences against the derivatives.
    grid = bound.times(num_steps, T_MIN)
    h = (1 - T_MIN) / num_steps
    gaps = [
        (((schedule.snr(grid[i]) - schedule.snr(grid[i - 1])) / h - schedule.snr(grid[i], 1)) * error_sq(grid[i])).sum()
        for i in range(2, num_steps + 1)
    ]
    assert (torch.stack(gaps).sum() * h).abs() <= limit.difference


def test_larger_curvature_of_snr_has_the_larger_constant() -> None:
    """The reason for the smoothness term: T times the bound, in the limit, grows with SNR''."""
    constants, curvatures = [], []
    for schedule in (schedule_with(0.4, 1.6), schedule_with(1.0, 1.0)):
        limit = bound.discretisation_bound(schedule, mean_square_error(schedule), 512, T_MIN)
        constants.append((float(limit.difference) * 512, float(limit.total) * 512))
        t = bound.times(400, T_MIN)
        values = torch.stack([schedule.snr(time, 2).square().sum() for time in t])
        curvatures.append(float(values.mean()))
    assert curvatures[0] > 2 * curvatures[1]
    assert constants[0][0] > 1.5 * constants[1][0]
    assert constants[0][1] > constants[1][1]


SCHEDULES = {
    "learned": LearnedSchedule(torch.zeros_like).double(),
    "linear": LinearSchedule.named("qpi"),
    "cosine": CosineSchedule(gamma_end=1e-2),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_discrete_rate_converges_with_the_square_of_steps(name: str) -> None:
    """[CVDM App. F]: max |beta_hat - beta(t_i) / T| falls with slope -2."""
    schedule = SCHEDULES[name](torch.zeros(1, 1, 1, 1, dtype=torch.float64))
    sizes, errors = [200, 400, 800, 1600], []
    for num_steps in sizes:
        t = torch.arange(1, num_steps + 1, dtype=torch.float64) / num_steps
        difference = bound.beta_hat(schedule, t, num_steps) - schedule.beta(t) / num_steps
        errors.append(float(difference.detach().abs().max()))
    assert slope(sizes, errors) == pytest.approx(-2, abs=0.1)


def test_bound_terms_are_what_the_paper_defines() -> None:
    """E1 tends to (h/2) integral |SNR''| err, E2 is |Riemann sum - integral|, E3 the first term alone."""
    schedule = schedule_with(0.4, 1.6)
    error_sq = mean_square_error(schedule)
    num_steps = 400
    h = (1 - T_MIN) / num_steps
    limit = bound.discretisation_bound(schedule, error_sq, num_steps, T_MIN)
    fine = torch.linspace(T_MIN, 1, 4001, dtype=torch.float64)
    curvature = torch.stack([(schedule.snr(t, 2).abs() * error_sq(t)).sum() for t in fine])
    assert float(limit.difference) == pytest.approx(h / 2 * float(torch.trapezoid(curvature, fine)), rel=0.03)
    slopes = torch.stack([(schedule.snr(t, 1) * error_sq(t)).sum() for t in fine])
    at_steps = torch.stack([(schedule.snr(t, 1) * error_sq(t)).sum() for t in bound.times(num_steps, T_MIN)[1:]])
    riemann = float((at_steps.sum() * h - torch.trapezoid(slopes, fine)).abs())
    assert float(limit.riemann) == pytest.approx(riemann, rel=1e-3)
    assert float(limit.first) == pytest.approx(abs(float(at_steps[0])) * h, rel=1e-12)


def test_bound_takes_the_largest_curvature_of_a_step() -> None:
    """With four steps SNR'' varies much within one: the sum of its maxima is far above that of its means."""
    schedule = schedule_with(0.4, 1.6)
    error_sq = mean_square_error(schedule)
    grid = bound.times(4, T_MIN)
    h = (1 - T_MIN) / 4
    expected = 0.0
    for i in range(2, 5):
        inside = torch.linspace(float(grid[i - 1]), float(grid[i]), 200, dtype=torch.float64)
        largest = torch.stack([schedule.snr(t, 2).abs() for t in inside]).amax(0)
        expected += float((h * h / 2 * largest * error_sq(grid[i])).sum())
    limit = bound.discretisation_bound(schedule, error_sq, 4, T_MIN)
    assert float(limit.difference) == pytest.approx(expected, rel=1e-3)


ONE = torch.ones(1, 1, 1, 3, dtype=torch.float64)
WRONG: dict[str, Callable[[Schedule], object]] = {
    "t_min is 0.0; SNR is infinite at 0": lambda s: bound.continuous_loss(s, lambda t: ONE, 0.0),
    "t_min is 1.0; .* between 0 and 1": lambda s: bound.continuous_loss(s, lambda t: ONE, 1.0),
    "num_nodes is 0": lambda s: bound.continuous_loss(s, lambda t: ONE, T_MIN, num_nodes=0),
    "t_min is 0; .*": lambda s: bound.discrete_loss(s, lambda t: ONE, 10, 0),
    "num_steps is 1; give at least 2": lambda s: bound.discrete_loss(s, lambda t: ONE, 1, T_MIN),
    "num_steps is -3; give at least 2": lambda s: bound.discretisation_bound(s, lambda t: ONE, -3, T_MIN),
    "t_min is nan": lambda s: bound.discretisation_bound(s, lambda t: ONE, 5, math.nan),
    "t_min is -0.1": lambda s: bound.times(5, -0.1),
    "from 1 to 5; draw them from 2 to 5": lambda s: bound.monte_carlo_loss(
        s, lambda t: ONE, 5, T_MIN, torch.arange(1, 6)
    ),
    "from 2 to 6; draw them from 2 to 5": lambda s: bound.monte_carlo_loss(
        s, lambda t: ONE, 5, T_MIN, torch.arange(2, 7)
    ),
    "s is 0.0 and t 0.5; give 0 < s < t": lambda s: bound.step_loss(s, ONE, torch.tensor(0.0), torch.tensor(0.5)),
    "s is 0.5 and t 0.25": lambda s: bound.step_loss(s, ONE, torch.tensor(0.5), torch.tensor(0.25)),
    "num_steps is 0; give at least 1": lambda s: bound.beta_hat(s, torch.tensor(0.5), 0),
    "t reaches 0.05, inside the first step; give t >= 1/10": lambda s: bound.beta_hat(s, torch.tensor(0.05), 10),
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_settings_say_what_to_give(words: str) -> None:
    with pytest.raises(ValueError, match=words):
        WRONG[words](schedule_with(0.4, 1.6))


def test_the_first_step_is_allowed_in_float32() -> None:
    for num_steps in (3, 7, 49, 1000):
        t = torch.arange(1, num_steps + 1) / num_steps
        schedule = Schedule(torch.ones(num_steps, 1, 1, 1), LinearWarp(1.0, 1.0), reference_rate=1.0)
        assert bool((bound.beta_hat(schedule, t, num_steps) > 0).all())
