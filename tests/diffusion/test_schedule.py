"""Every schedule, fixed or learned, keeps its promises for every value of its parameters (float64)."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sfumato.diffusion.schedule import (
    CosineSchedule,
    GlobalSchedule,
    LearnedSchedule,
    LinearSchedule,
    PaperSchedule,
    Schedule,
)
from sfumato.diffusion.warp import inverse_softplus

RAW = st.floats(-20, 20)
NUM_TIMES = 7

MakeModule = Callable[[list[float]], nn.Module]


class Constant(nn.Module):
    """A rate network that gives one number everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.zeros(()))

    def forward(self, condition: Tensor) -> Tensor:
        return self.raw * torch.ones_like(condition)


def with_parameters(module: nn.Module, raw: list[float]) -> nn.Module:
    """Fill a module's parameters with the given numbers, over and over, in float64."""
    module = module.double()
    place = 0
    for parameter in module.parameters():
        values = [raw[(place + index) % len(raw)] for index in range(parameter.numel())]
        place += parameter.numel()
        parameter.data = torch.tensor(values, dtype=torch.float64).reshape(parameter.shape)
    return module


def bounded(low: float, high: float, raw: float) -> float:
    return low + (high - low) / (1 + math.exp(-raw))


CONSISTENT: dict[str, MakeModule] = {
    "learned": lambda raw: with_parameters(LearnedSchedule(Constant(), num_units=5), raw),
    "global": lambda raw: with_parameters(GlobalSchedule(num_units=5), raw),
    "linear": lambda raw: LinearSchedule(bounded(1e-6, 0.05, raw[0]), bounded(1e-6, 0.05, raw[1]), 500),
    "cosine": lambda raw: CosineSchedule(bounded(1e-9, 0.5, raw[0]), bounded(1e-4, 0.2, raw[1])),
}
ALL: dict[str, MakeModule] = {
    **CONSISTENT,
    "paper": lambda raw: with_parameters(PaperSchedule(Constant(), num_units=5), raw),
}
parameters = st.lists(RAW, min_size=18, max_size=18)


def bind(module: nn.Module) -> Schedule:
    schedule = module(torch.zeros(NUM_TIMES, 1, 2, 2, dtype=torch.float64))
    assert isinstance(schedule, Schedule)
    return schedule


def derivatives(function: Callable[[Tensor], Tensor], t: Tensor) -> tuple[Tensor, Tensor]:
    """First and second time derivative by autograd, one row per time."""
    t = t.clone().requires_grad_()
    value = function(t)
    pixels = value[0].numel()
    (first,) = torch.autograd.grad(value.sum(), t, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), t)
    return first.detach() / pixels, second / pixels


def assert_close_relative(got: Tensor, expected: Tensor, scale: Tensor) -> None:
    """Equality to 1e-8 of the size of the terms that were added up."""
    error = (got - expected).abs()
    assert bool((error <= 1e-8 * scale + 1e-300).all()), f"relative error {(error / scale).max():.2e}"


def pixel(images: Tensor) -> Tensor:
    return images[:, 0, 0, 0].detach()


@pytest.mark.parametrize("name", ALL)
@given(raw=parameters, times=st.lists(st.floats(0, 1), min_size=NUM_TIMES, max_size=NUM_TIMES))
@settings(max_examples=60, deadline=None)
def test_gamma_and_its_derivatives(name: str, raw: list[float], times: list[float]) -> None:
    schedule, t = bind(ALL[name](raw)), torch.tensor(times, dtype=torch.float64)
    first, second = derivatives(schedule.gamma, t)
    gamma, (slope, bend) = pixel(schedule.gamma(t)), term_sizes(schedule, t)
    assert_close_relative(pixel(schedule.gamma(t, 1)), first, slope * gamma)
    assert_close_relative(pixel(schedule.gamma(t, 2)), second, (slope.square() + bend) * gamma)
    assert torch.equal(pixel(schedule.gamma(torch.zeros_like(t))), torch.ones_like(t))


def term_sizes(schedule: Schedule, t: Tensor) -> tuple[Tensor, Tensor]:
    """Sizes of the terms that add up to (log gamma)' and (log gamma)''; in the paper's rho they may cancel."""
    slope, bend = (pixel(schedule.log_gamma(t, order)).abs() for order in (1, 2))
    network = getattr(schedule.warp, "rho_network", None)
    if network is None:
        return slope, bend
    skip, steep, height = (nn.functional.softplus(p) for p in (network.raw_skip, network.raw_slope, network.raw_height))
    arg = steep * (skip * t + network.skip_bias)[:, None] + network.shift
    bump = height * steep * skip * arg.sigmoid() * (-arg).sigmoid()
    n = skip * t + network.skip_bias.abs() + (height * arg.sigmoid()).sum(-1) + network.bias.abs()
    n_dot, n_ddot = skip + bump.sum(-1), (bump * steep * skip).sum(-1)
    rate = pixel(schedule.rate)
    return (rate * (n + t * n_dot)).detach(), (rate * (2 * n_dot + t * n_ddot)).detach()


@pytest.mark.parametrize("name", CONSISTENT)
@given(raw=parameters, times=st.lists(st.floats(1e-4, 1), min_size=NUM_TIMES, max_size=NUM_TIMES))
@settings(max_examples=60, deadline=None)
def test_log_snr_and_its_derivatives(name: str, raw: list[float], times: list[float]) -> None:
    schedule, t = bind(CONSISTENT[name](raw)), torch.tensor(times, dtype=torch.float64)
    first, second = derivatives(schedule.log_snr, t)
    slope, bend = (pixel(schedule.log_gamma(t, order)).abs() for order in (1, 2))
    noise_var = pixel(schedule.noise_var(t))
    assert_close_relative(pixel(schedule.log_snr(t, 1)), first, slope / noise_var)
    assert_close_relative(pixel(schedule.log_snr(t, 2)), second, bend / noise_var + (slope / noise_var).square())
    expected = pixel(schedule.gamma(t)).log() - pixel(schedule.noise_var(t)).log()
    torch.testing.assert_close(pixel(schedule.log_snr(t)), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CONSISTENT)
@given(raw=parameters)
@settings(max_examples=60, deadline=None)
def test_snr_and_its_derivatives(name: str, raw: list[float]) -> None:
    schedule, t = bind(CONSISTENT[name](raw)), torch.linspace(0.05, 1, NUM_TIMES, dtype=torch.float64)
    first, second = derivatives(schedule.snr, t)
    value, log_slope, log_bend = pixel(schedule.snr(t)), pixel(schedule.log_snr(t, 1)), pixel(schedule.log_snr(t, 2))
    assert_close_relative(pixel(schedule.snr(t, 1)), first, value * log_slope.abs())
    assert_close_relative(pixel(schedule.snr(t, 2)), second, value * (log_slope.square() + log_bend.abs()))


@pytest.mark.parametrize("name", CONSISTENT)
@given(raw=parameters)
@settings(max_examples=60, deadline=None)
def test_strictly_decreasing(name: str, raw: list[float]) -> None:
    module = CONSISTENT[name](raw)
    t = torch.linspace(0, 1, 401, dtype=torch.float64)
    schedule = module(torch.zeros(1, 1, 1, 1, dtype=torch.float64))
    # Through log gamma and 1 - gamma, which keep their digits where gamma itself rounds to 1.
    assert bool((pixel(schedule.log_gamma(t)).diff() < 0).all())
    assert bool((pixel(schedule.noise_var(t)).diff() > 0)[: int((t < 0.3).sum())].all())
    assert bool((pixel(schedule.gamma(t)).diff() <= 0).all())
    assert bool((pixel(schedule.log_gamma(t, 1)) < 0).all())
    assert bool((pixel(schedule.log_snr(t[1:])).diff() < 0).all())


@pytest.mark.parametrize("name", CONSISTENT)
@given(raw=parameters, times=st.lists(st.floats(0, 1), min_size=NUM_TIMES, max_size=NUM_TIMES))
@settings(max_examples=30, deadline=None)
def test_beta_is_minus_the_slope_of_log_gamma(name: str, raw: list[float], times: list[float]) -> None:
    schedule, t = bind(CONSISTENT[name](raw)), torch.tensor(times, dtype=torch.float64)
    slope, _ = derivatives(schedule.log_gamma, t)
    assert_close_relative(pixel(schedule.beta(t)), -slope, slope.abs())
    residual = pixel(schedule.residual(t)).abs()
    assert bool((residual <= 1e-12 * pixel(schedule.beta(t))).all())


@pytest.mark.parametrize("name", CONSISTENT)
@given(raw=parameters)
@settings(max_examples=20, deadline=None)
def test_gamma_is_the_exponential_of_the_integral_of_beta(name: str, raw: list[float]) -> None:
    """[CVDM Eq. 11], by quadrature on graded intervals, to 1e-8."""
    # Mild parameters: a sigmoid of slope 20 would test the quadrature, not the schedule.
    module = CONSISTENT[name]([value / 5 for value in raw])
    nodes, weights = np.polynomial.legendre.leggauss(60)
    edges = np.linspace(0, 1, 9)
    t = np.concatenate([(b - a) / 2 * nodes + (a + b) / 2 for a, b in itertools.pairwise(edges)])
    w = torch.from_numpy(np.concatenate([(edges[1] - edges[0]) / 2 * weights] * 8))
    schedule = module(torch.zeros(len(t), 1, 1, 1, dtype=torch.float64))
    integral = (w * pixel(schedule.beta(torch.from_numpy(t)))).sum()
    end = pixel(schedule.gamma(torch.ones(1, dtype=torch.float64)))[0]
    assert math.isclose(math.exp(-integral), end, rel_tol=1e-8)


@given(raw=parameters)
@settings(max_examples=60, deadline=None)
def test_learned_schedule_is_bounded_and_gauged(raw: list[float]) -> None:
    schedule = bind(CONSISTENT["learned"](raw))
    one = torch.ones(NUM_TIMES, dtype=torch.float64)
    assert bool((schedule.rate >= 8).all())
    assert bool((schedule.rate <= 40).all())
    torch.testing.assert_close(schedule.warp(one).rho, one, rtol=1e-12, atol=0)


def test_learned_schedule_starts_at_twelve_and_t_squared() -> None:
    schedule = LearnedSchedule(Constant())(torch.zeros(1, 1, 4, 4))
    assert schedule.rate.flatten().tolist() == pytest.approx([12.0] * 16, rel=1e-6)
    t = torch.linspace(0, 1, 21)
    assert (schedule.warp(t).rho - t.square()).abs().max() < 0.02


def test_paper_schedule_reports_its_residual() -> None:
    """beta and gamma come from two networks: what their equation leaves is lambda gamma (tau - rho')."""
    raw = [math.sin(7 * k) for k in range(18)]
    schedule, t = bind(ALL["paper"](raw)), torch.linspace(0.1, 0.9, NUM_TIMES, dtype=torch.float64)
    slope, _ = derivatives(schedule.gamma, t)
    expected = slope + pixel(schedule.beta(t)) * pixel(schedule.gamma(t))
    torch.testing.assert_close(pixel(schedule.residual(t)), expected, rtol=1e-10, atol=1e-12)
    assert expected.abs().max() > 0.01


def test_paper_schedule_can_fail_to_decrease() -> None:
    """A negative bias, which nothing forbids, makes rho fall and gamma exceed 1. This is why it is not the default."""
    module = PaperSchedule(Constant(), num_units=5).double()
    with torch.no_grad():
        module.warp.rho_network.bias.fill_(-0.5)
    t = torch.linspace(0, 1, 101, dtype=torch.float64)
    gamma = pixel(module(torch.zeros(101, 1, 1, 1, dtype=torch.float64)).gamma(t))
    assert gamma.max() > 1.1
    assert gamma.diff().max() > 0


def test_paper_schedule_starts_consistent_with_beta_zero_at_zero() -> None:
    schedule = PaperSchedule(Constant())(torch.zeros(3, 1, 1, 1))
    t = torch.tensor([0.0, 0.5, 1.0])
    assert pixel(schedule.beta(t))[0] == 0
    assert pixel(schedule.residual(t)).abs().max() < 0.2


@pytest.mark.parametrize(("name", "product"), [("biosr", 5.0e-4), ("qpi", 0.0175)])
def test_linear_settings_are_the_papers(name: str, product: float) -> None:
    """The continuous gamma(1) against the product over the paper's T steps, which differs by O(1/T)."""
    start, end, num_steps = LinearSchedule.SETTINGS[name]
    discrete = torch.prod(1 - torch.linspace(start, end, num_steps, dtype=torch.float64))
    assert float(discrete) == pytest.approx(product, rel=0.02)
    schedule = LinearSchedule.named(name)(torch.zeros(1, 1, 1, 1, dtype=torch.float64))
    assert schedule.gamma(torch.tensor(1.0)).item() == pytest.approx(float(discrete), rel=0.1)
    t = torch.tensor(0.25, dtype=torch.float64)
    assert schedule.beta(t).item() == pytest.approx(num_steps * (start + (end - start) * 0.25), rel=1e-12)


def test_cosine_ends_where_told() -> None:
    schedule = CosineSchedule()(torch.zeros(1, 1, 1, 1, dtype=torch.float64))
    assert schedule.gamma(torch.ones((), dtype=torch.float64)).item() == pytest.approx(1e-4, rel=1e-9)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LinearSchedule.named("bio"), "biosr, qpi"),
        (lambda: LinearSchedule(0.1, -0.1, 10), "positive end"),
        (lambda: CosineSchedule(gamma_end=0.0), "0 < gamma_end < 1"),
        (lambda: LearnedSchedule(Constant(), rate_min=13, rate_init=12), "0 < min < init < max"),
        (lambda: GlobalSchedule(rate_max=7), "0 < min < init < max"),
        (lambda: PaperSchedule(Constant(), rate_init=-1), "positive"),
        (lambda: LearnedSchedule(Constant(), num_units=0), "at least 1"),
    ],
)
def test_wrong_settings_say_what_to_give(make: Callable[[], nn.Module], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_time_may_be_one_number_for_all_images() -> None:
    schedule = bind(CONSISTENT["learned"]([0.3] * 18))
    one, many = torch.tensor(0.4, dtype=torch.float64), torch.full((NUM_TIMES,), 0.4, dtype=torch.float64)
    assert torch.equal(schedule.gamma(one), schedule.gamma(many))


def test_the_sampling_grid_is_placed_by_a_constant_of_the_model() -> None:
    """The lower bound of a bounded rate, the initial rate of the paper's, the integral of a fixed beta."""
    condition = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    modules = {
        8.0: LearnedSchedule(lambda images: 5 * images),
        4.0: GlobalSchedule(rate_min=4.0),
        11.0: PaperSchedule(torch.zeros_like, rate_init=11.0),
        400 * 0.0201 / 2: LinearSchedule.named("qpi"),
        -math.log(1e-4): CosineSchedule(),
    }
    for expected, module in modules.items():
        assert module(condition).reference_rate == pytest.approx(expected)


@pytest.mark.parametrize(("bounds", "start"), [({}, 12.0), ({"rate_min": 4.0, "rate_max": 20.0}, 6.0)])
def test_rates_start_an_eighth_of_the_way_up(bounds: dict[str, Any], start: float) -> None:
    condition = torch.zeros(1, 1, 4, 4)
    for module in (LearnedSchedule(torch.zeros_like, **bounds), GlobalSchedule(**bounds)):
        torch.testing.assert_close(module(condition).rate, torch.full_like(module(condition).rate, start))


def test_log_rates_move_by_factors_and_stay_within_their_bounds() -> None:
    """The same change of the network's output multiplies a low and a high rate alike, unlike with even rates."""
    raw = torch.tensor([-200.0, -1.0, 0.0, 1.0, 200.0], dtype=torch.float64).reshape(1, 1, 1, 5)
    module = LearnedSchedule(lambda images: images, rate_min=4.0, rate_max=64.0, rate_init=16.0, log_rates=True)
    schedule = module(raw)
    place = 1 / (1 + math.exp(-1.0))
    expected = [4.0, 4 * 16 ** (1 - place), 16.0, 4 * 16**place, 64.0]
    assert schedule.rate.flatten().tolist() == pytest.approx(expected, rel=1e-12)
    assert schedule.reference_rate == 16.0
    assert GlobalSchedule(rate_min=4.0, rate_max=60.0, log_rates=True)(raw).rate.item() == pytest.approx(11.0, rel=1e-6)


def test_cosine_starts_at_its_offset() -> None:
    """beta(0) = 2 theta' tan(theta_0) with theta_0 = (pi/2) s/(1+s)."""
    start, end = math.pi / 2 * 0.05 / 1.05, math.acos(0.1 * math.cos(math.pi / 2 * 0.05 / 1.05))
    schedule = CosineSchedule(gamma_end=0.01, offset=0.05)(torch.zeros(1, 1, 1, 1, dtype=torch.float64))
    expected = 2 * (end - start) * math.tan(start)
    assert schedule.beta(torch.zeros((), dtype=torch.float64)).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["learned", "cosine"])
def test_small_noise_keeps_its_digits_in_float32(name: str) -> None:
    """At t = 1e-5 a difference of two numbers near 1 would leave few of them, or none."""
    t = torch.tensor([1e-5])
    double, single = CONSISTENT[name]([0.5] * 18), CONSISTENT[name]([0.5] * 18).float()
    exact = double(torch.zeros(1, 1, 1, 1, dtype=torch.float64)).noise_var(t.double()).item()
    assert single(torch.zeros(1, 1, 1, 1)).noise_var(t).item() == pytest.approx(exact, rel=1e-4)


def test_sigmoid_steps_keep_their_digits() -> None:
    """Units that saturate (shift 20) still rise; their rise is 1e-9, below what a difference in float32 can hold."""
    module = LearnedSchedule(Constant(), num_units=1)
    with torch.no_grad():
        for parameter, value in zip(module.warp.parameters(), (-20.0, -20.0, 3.0, 3.0, 15.0), strict=True):
            parameter.fill_(value)
    t = torch.linspace(0.1, 1, 10)
    single = module.warp(t).rho.detach().double()
    exact = module.double().warp(t.double()).rho.detach()
    torch.testing.assert_close(single, exact, rtol=1e-4, atol=0)


@pytest.mark.parametrize("gamma_end", [1e-4, 1e-8, 1e-14])
def test_cosine_keeps_its_digits_in_float32_up_to_its_end(gamma_end: float) -> None:
    """Where cos theta is 1e-7, float32 holds neither 1 - cos theta nor pi/2 - theta, unless measured from the end."""
    module, t = CosineSchedule(gamma_end), torch.tensor([1e-5, 1e-2, 0.3, 0.5, 0.9, 0.99, 1 - 2**-20, 1.0])
    single, exact = (module(torch.zeros(8, 1, 1, 1, dtype=dtype)) for dtype in (torch.float32, torch.float64))
    for order in (0, 1, 2):
        got, expected = single.log_gamma(t, order), exact.log_gamma(t.double(), order)
        torch.testing.assert_close(got.double(), expected, rtol=2e-6, atol=0)
    assert exact.gamma(torch.ones((), dtype=torch.float64))[0].item() == pytest.approx(gamma_end, rel=1e-9)


def test_large_rates_do_not_overflow() -> None:
    """exp(710) is more than a float can hold."""
    assert inverse_softplus(1e4) == 1e4
    for value in (1e-9, 0.1, 2.0, 30.0):
        assert inverse_softplus(value) == pytest.approx(math.log(math.expm1(value)), rel=1e-12)
    schedule = PaperSchedule(torch.zeros_like, rate_init=1000.0)(torch.zeros(1, 1, 2, 2))
    assert schedule.rate.max().item() == pytest.approx(1000)
