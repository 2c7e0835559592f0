"""Samplers against exact posteriors: a sampler is right when its draws follow the distribution they should."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from exact_problems import (
    Gaussian,
    Heteroscedastic,
    LinearGaussian,
    blur_matrix,
    log_uniform_rates,
    sampler_moments,
    smooth_covariance,
)
from networks import seeded
from sfumato import CVDM, LearnedSchedule, sample
from sfumato.diffusion.gaussian import amplitudes, reverse_step
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.sampling_grid import log_snr_grid, uniform_grid
from sfumato.diffusion.schedule import LinearSchedule, PaperSchedule, Schedule
from sfumato.diffusion.warp import LinearWarp
from sfumato.nn import SR3UNet, UNet

CLOCK = LinearWarp(0.3, 1.7)
"""rho = 0.3 t + 0.7 t^2."""


def heteroscedastic(side: int) -> tuple[Heteroscedastic, Tensor]:
    rates = log_uniform_rates((1, 1, side, side), 8, 14)
    problem = Heteroscedastic(lambda condition: Schedule(rates, CLOCK, reference_rate=8.0))
    return problem, torch.linspace(-1.5, 1.5, side, dtype=torch.float64).expand(1, 1, side, side)


@pytest.mark.parametrize("settings", [{}, {"eta": 1.0}, {"num_steps": 16}])
def test_default_settings_draw_the_exact_posterior(settings: dict[str, Any]) -> None:
    """65,536 independent pixels, each with its own rate, mean and std: standardised draws are standard normal."""
    problem, condition = heteroscedastic(256)
    draw = sample(problem, condition, num_samples=1, seed=0, **settings)[0]
    standard = (draw - problem.posterior_mean(condition)) / problem.posterior_std(condition)
    error = 256**-1  # standard error of the mean of 256^2 draws
    assert abs(float(standard.mean())) < 4 * error + 0.005
    assert abs(float(standard.std()) - 1) < 4 * error / 2**0.5 + (0.03 if settings.get("num_steps") else 0.01)


@pytest.mark.parametrize("last_noise", [1e-2, 0.1])
def test_a_draw_lacks_what_its_last_noise_hides(last_noise: float) -> None:
    """It is the mean of what its last state leaves open: of variance v, gamma v^2 / (gamma v + 1 - gamma) is left."""
    rate = torch.full((1, 1, 1, 1), 8.0, dtype=torch.float64)
    condition = torch.zeros(1, 1, 1, 1, dtype=torch.float64)
    gamma = math.exp(-last_noise)
    for variance in (0.05, 0.5):
        problem = Gaussian(
            lambda condition: Schedule(rate, CLOCK, reference_rate=8.0),
            torch.zeros(1, dtype=torch.float64),
            torch.full((1, 1), variance, dtype=torch.float64),
        )
        _, found = sampler_moments(problem, condition, num_steps=1024, last_noise=last_noise)
        left = gamma * variance**2 / (gamma * variance + 1 - gamma)
        assert float(found) == pytest.approx(left, rel=2e-3)


def test_few_uniform_steps_are_over_confident() -> None:
    """The paper's grid with a perfect predictor: far too narrow at 50 steps, less so at 200."""
    problem, condition = heteroscedastic(64)
    stds = []
    for num_steps in (50, 100, 200):
        draws = sample(
            problem,
            condition,
            num_samples=8,
            num_steps=num_steps,
            solver="first_order",
            eta=1.0,
            grid="uniform",
            seed=1,
        )
        standard = (draws - problem.posterior_mean(condition)) / problem.posterior_std(condition)
        stds.append(float(standard.std()))
    assert stds[0] < stds[1] < stds[2] < 0.97


def deblurring() -> tuple[LinearGaussian, Tensor]:
    """A 16 x 16 image, blurred and noisy, with a smooth prior."""
    side = 16
    line = smooth_covariance(side, 1.0, length=4.0)
    blur, prior_cov, noise_var = blur_matrix(side, 1.5), torch.kron(line, line), 0.01
    rates = log_uniform_rates((1, 1, side, side), 6, 30)
    problem = LinearGaussian(
        lambda condition: Schedule(rates, CLOCK, reference_rate=6.0),
        blur,
        prior_cov,
        noise_var * torch.eye(side**2, dtype=torch.float64),
    )
    unit, noise = torch.randn(2, side**2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    measured = blur @ torch.linalg.cholesky(prior_cov) @ unit + noise_var**0.5 * noise
    return problem, measured.reshape(1, 1, side, side)


def test_deblurring_has_the_exact_mean_and_covariance() -> None:
    problem, condition = deblurring()
    mean, covariance = sampler_moments(problem, condition, num_steps=32)
    scale = problem.covariance.diagonal().sqrt()
    exact_mean = problem.posterior_mean(condition)[0]
    assert float(((mean - exact_mean) / scale).square().mean().sqrt()) < 0.02
    assert float((covariance - problem.covariance).norm() / problem.covariance.norm()) < 0.02
    assert float(((covariance.diagonal().sqrt() / scale) - 1).abs().mean()) < 0.01


@pytest.mark.parametrize(("solver", "order"), [("first_order", 1.0), ("2m", 2.0)])
def test_order_of_convergence(solver: str, order: float) -> None:
    rates = log_uniform_rates((1, 1, 1, 12))
    problem = Gaussian(
        lambda condition: Schedule(rates, CLOCK, reference_rate=6.0),
        torch.zeros(12, dtype=torch.float64),
        smooth_covariance(12, 0.3),
    )
    condition = torch.zeros(1, 1, 1, 12, dtype=torch.float64)
    _, limit = sampler_moments(problem, condition, num_steps=4096, solver=solver)
    errors = []
    for num_steps in (64, 256):
        _, covariance = sampler_moments(problem, condition, num_steps=num_steps, solver=solver)
        errors.append((covariance - limit).norm())
    assert float((errors[0] / errors[1]).log() / torch.tensor(4.0).log()) == pytest.approx(order, abs=0.15 * order)


@pytest.mark.parametrize("grid", ["log_snr", "uniform"])
@pytest.mark.parametrize("solver", ["first_order", "algorithm2"])
def test_ancestral_sampling_is_the_papers_posterior(solver: str, grid: str) -> None:
    """First order with eta 1 is [CVDM App. B.2]; Algorithm 2 has its mean, and beta_hat for variance."""
    problem, condition = heteroscedastic(8)
    schedule = problem.schedule(condition)
    fractions = log_snr_grid(12, 8.0) if grid == "log_snr" else uniform_grid(12, CLOCK, condition)
    noise, shape = NoiseField(seed=4), torch.Size([1, 1, 1, 8, 8])
    levels = [schedule.log_gamma(torch.ones((), dtype=torch.float64)) * fraction for fraction in fractions]
    z = noise(0, shape, dtype=torch.float64)[0]
    for step, (now, after) in enumerate(itertools.pairwise(levels), start=1):
        mean, var = reverse_step(z, problem.clean(z, now, condition), now, after)
        if solver == "algorithm2":
            var = 1 - (now - after).exp()
        z = mean + var.sqrt() * noise(step, shape, dtype=torch.float64)[0]
    expected = problem.clean(z, levels[-1], condition)
    eta = 1.0 if solver == "first_order" else 0.0
    draw = sample(problem, condition, num_samples=1, num_steps=12, solver=solver, eta=eta, grid=grid, seed=noise)  # type: ignore[arg-type]
    torch.testing.assert_close(draw[0], expected, rtol=0, atol=1e-10)


def test_algorithm2_mean_is_the_papers_formula() -> None:
    """z_s = (z_t - beta_hat eps_hat / sqrt(1 - gamma_t)) / sqrt(1 - beta_hat), gamma_t including alpha_t."""
    problem, condition = heteroscedastic(8)
    z = torch.randn(1, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    log_t, log_s = torch.full_like(z, -2.0), torch.full_like(z, -1.5)
    a, s = amplitudes(log_t)
    eps = (z - a * problem.predict(z, log_t, problem.read(condition).seen)) / s
    beta_hat = 1 - (log_t - log_s).exp()
    printed = (z - beta_hat / (1 - log_t.exp()).sqrt() * eps) / (1 - beta_hat).sqrt()
    mean, _ = reverse_step(z, problem.clean(z, log_t, condition), log_t, log_s)
    torch.testing.assert_close(printed, mean, rtol=1e-12, atol=1e-12)


class Counting(nn.Module):
    """A network that counts how often it is asked."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.calls = network, 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        output: Tensor = self.network(images)
        return output


def test_rate_and_mean_networks_run_once() -> None:
    rate, mean, network = (Counting(UNet(k, 1, base=4, num_scales=2, norm="channel")) for k in (1, 1, 4))
    model = CVDM(LearnedSchedule(rate), network, mean_network=mean)
    sample(model, torch.zeros(2, 1, 8, 8), num_samples=5, num_steps=7, seed=0)
    assert (rate.calls, mean.calls, network.calls) == (1, 1, 7)


@pytest.mark.parametrize("settings", [{}, {"eta": 1.0}])
@pytest.mark.parametrize(
    ("channels_in", "channels_out", "spatial"), [(2, 1, (17, 20)), (1, 3, (5, 9, 6)), (4, 4, (8, 7))]
)
def test_batch_and_samples_can_be_split(
    channels_in: int, channels_out: int, spatial: tuple[int, ...], settings: dict[str, Any]
) -> None:
    """What is drawn for an image depends on its number and the sample's, not on what is drawn beside it."""
    ndim = len(spatial)
    rate = seeded(lambda: UNet(channels_in, channels_out, base=4, num_scales=3, ndim=ndim, norm="channel"))
    network = seeded(
        lambda: UNet(channels_in + 2 * channels_out, channels_out, base=4, num_scales=3, ndim=ndim, norm="channel")
    )
    model = CVDM(LearnedSchedule(rate), network, target_channels=channels_out)
    condition = torch.randn(3, channels_in, *spatial, generator=torch.Generator().manual_seed(0))
    together = sample(model, condition, num_samples=4, num_steps=5, seed=9, **settings)
    assert together.shape == (4, 3, channels_out, *spatial)
    for image, number in itertools.product(range(3), range(4)):
        noise = NoiseField(seed=9, sample=number, image=image)
        alone = sample(model, condition[image : image + 1], num_samples=1, num_steps=5, seed=noise, **settings)
        torch.testing.assert_close(alone[0, 0], together[number, image], rtol=1e-4, atol=1e-4)


def test_same_seed_same_draws_other_seed_others() -> None:
    problem, condition = heteroscedastic(8)
    first, again, other = (sample(problem, condition, num_samples=2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=0.01)
    assert not torch.allclose(first[0], first[1], atol=0.01)


def test_center_and_scale_are_undone() -> None:
    """An untrained network predicts v = 0, so xhat = a z, which is z itself at the last call."""
    condition = torch.full((1, 1, 8, 8), 3.0)
    for options, network_channels in (({"residual": True}, 3), ({"mean_network": lambda x: x}, 4)):
        model = CVDM(
            LinearSchedule.named("qpi"), UNet(network_channels, 1, base=4, norm="channel"), scale=0.01, **options
        )
        draws = sample(model, condition, num_samples=4, num_steps=4, seed=0)
        assert float(draws.mean()) == pytest.approx(3.0, abs=0.02)
        assert 0 < float(draws.std()) < 0.02


def test_clamp_and_initial() -> None:
    problem, condition = heteroscedastic(8)
    draws = sample(problem, condition, num_samples=2, seed=0, clamp=(-0.1, 0.2))
    assert float(draws.min()) == -0.1
    assert float(draws.max()) == pytest.approx(0.2)
    start = NoiseField(seed=3)(0, torch.Size([2, 1, 1, 8, 8]), dtype=torch.float64)
    given = sample(problem, condition, num_samples=2, seed=0, initial=start)
    assert torch.equal(given, sample(problem, condition, num_samples=2, seed=3))


def test_single_precision_is_enough() -> None:
    """The logarithms of amplitudes keep float32 within 1e-3 of float64, over six decades of noise."""
    problem, condition = heteroscedastic(64)
    start = NoiseField(seed=2)(0, torch.Size([1, 1, 1, 64, 64]), dtype=torch.float64)
    double = sample(problem, condition, num_samples=1, num_steps=200, seed=0, initial=start)
    rates = log_uniform_rates((1, 1, 64, 64), 8, 14).float()
    problem = Heteroscedastic(lambda condition: Schedule(rates, CLOCK, reference_rate=8.0))
    single = sample(problem, condition.float(), num_samples=1, num_steps=200, seed=0, initial=start.float())
    assert single.dtype == torch.float32
    assert float((single - double).abs().max()) < 1e-3


def test_a_broken_schedule_is_refused() -> None:
    module = PaperSchedule(torch.zeros_like)
    with torch.no_grad():
        module.warp.rho_network.bias.fill_(-3.0)
    with pytest.raises(ValueError, match="use LearnedSchedule"):
        sample(CVDM(module, torch.zeros_like), torch.zeros(1, 1, 4, 4), num_samples=1, seed=0)


def test_a_schedule_that_rises_again_is_refused_on_the_uniform_grid() -> None:
    """rho = t (t + ... - 0.3) is negative at first: gamma would exceed 1 there, and its noise would be NaN."""
    module = PaperSchedule(torch.zeros_like)
    with torch.no_grad():
        module.warp.rho_network.bias.fill_(-0.3)
    model, x = CVDM(module, lambda images: torch.zeros_like(images[:, :1])), torch.zeros(1, 1, 4, 4)
    with pytest.raises(ValueError, match=r"from t = 0 to 0.1, .* use grid='log_snr'"):
        sample(model, x, num_samples=1, num_steps=10, seed=0, grid="uniform")
    assert bool(sample(model, x, num_samples=1, num_steps=10, seed=0).isfinite().all())


def test_draws_of_a_model_in_training_depend_on_the_seed_alone() -> None:
    """Dropout would draw from torch's global generator; afterwards every layer has its own mode back."""
    network = seeded(lambda: SR3UNet(3, 1, base=8, multipliers=(1, 2), num_blocks=1, dropout=0.5))
    model, x = CVDM(LinearSchedule.named("qpi"), network).train(), torch.zeros(1, 1, 8, 8)
    network.down.eval()
    modes = [layer.training for layer in model.modules()]
    in_training = [sample(model, x, num_samples=1, num_steps=3, seed=0) for _ in range(2)]
    assert [layer.training for layer in model.modules()] == modes
    assert torch.equal(*in_training)
    assert torch.equal(in_training[0], sample(model.eval(), x, num_samples=1, num_steps=3, seed=0))
    with pytest.raises(ValueError, match="channels"):
        sample(model.train(), torch.zeros(1, 2, 8, 8), num_samples=1, seed=0)
    assert all(layer.training for layer in model.modules())


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (torch.full((1, 1, 4, 4), torch.nan), "NaN or infinite pixels; replace them"),
        (torch.full((1, 1, 4, 4), -torch.inf), "NaN or infinite"),
        (torch.zeros(1, 1, 4, 4, dtype=torch.uint8), "condition is torch.uint8; normalise it"),
        (torch.zeros(1, 2, 4, 4), r"takes images of 1 channels and is given 2: the condition"),
        (torch.zeros(1, 1, 4, 4, 4), r"shape \(1, 1, 4, 4, 4\), .* 1 channels and 2 spatial axes"),
    ],
)
def test_wrong_conditions_say_what_to_give(condition: Tensor, words: str) -> None:
    model = CVDM(
        LearnedSchedule(UNet(1, 1, base=4, num_scales=2, norm="channel")),
        UNet(3, 1, base=4, num_scales=2, norm="channel"),
    )
    with pytest.raises(ValueError, match=words):
        sample(model, condition, num_samples=1, seed=0)


def test_a_nan_is_refused_even_if_the_schedule_does_not_look_at_it() -> None:
    model = CVDM(LinearSchedule.named("qpi"), lambda images: images[:, :1])
    with pytest.raises(ValueError, match="NaN"):
        sample(model, torch.tensor([[[[0.0, torch.nan]]]]), num_samples=1, seed=0)


def test_every_image_is_shown_its_own_center() -> None:
    """Two draws of three images: the centre goes with its image, in what the network sees and in what is returned."""
    seen: list[Tensor] = []

    def network(images: Tensor) -> Tensor:
        seen.append(images)
        return torch.zeros_like(images[:, :1])

    model = CVDM(LinearSchedule.named("qpi"), network, mean_network=lambda x: 10 * x, scale=1e-3)
    condition = torch.arange(3.0).reshape(3, 1, 1, 1).expand(3, 1, 4, 4)
    draws = sample(model, condition, num_samples=2, num_steps=2, seed=0)
    for images in seen:
        torch.testing.assert_close(images[:, 1], 10 * images[:, 0])
    torch.testing.assert_close(draws, 10 * condition.expand_as(draws), rtol=0, atol=0.01)


def test_one_step_returns_the_first_prediction() -> None:
    problem, condition = heteroscedastic(8)
    start = torch.zeros(1, 1, 1, 8, 8, dtype=torch.float64)
    end = problem.schedule(condition).log_gamma(torch.ones((), dtype=torch.float64))
    draw = sample(problem, condition, num_samples=1, num_steps=1, seed=0, initial=start)
    assert torch.equal(draw[0], problem.clean(start[0], end, condition))


def test_every_pixel_reaches_its_own_end_with_the_papers_schedule() -> None:
    """rho(1) need not be 1 there; sampling starts from the gamma that training ended with."""
    seen: list[Tensor] = []

    def network(images: Tensor) -> Tensor:
        seen.append(images[:, 1:2])
        return torch.zeros_like(images[:, :1])

    module = PaperSchedule(torch.zeros_like)
    sample(CVDM(module, network), torch.zeros(1, 1, 4, 4), num_samples=1, num_steps=2, seed=0)
    expected = module(torch.zeros(1, 1, 4, 4)).gamma(torch.ones(()))
    torch.testing.assert_close(seen[0], expected.detach().expand_as(seen[0]))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_samples": 0}, "num_samples is 0; expected a whole number of at least 1"),
        ({"num_steps": -3}, "num_steps is -3"),
        ({"solver": "heun"}, "2m, first_order, gaussian, first_order_gaussian, algorithm2"),
        ({"grid": "cosine"}, "log_snr, uniform"),
        ({"eta": 1.5}, "from 0"),
        ({"solver": "algorithm2", "eta": 0.5}, "leave eta at 0"),
        ({"solver": "gaussian", "eta": 0.5}, "leave eta at 0"),
        ({"clamp": (1, -1)}, r"clamp is \(1, -1\); give the lowest value first"),
        ({"clamp": (0.0, float("nan"))}, "give the lowest value first"),
        ({"initial": torch.zeros(1, 1, 8, 8).double()}, r"expected \(1, 1, 1, 8, 8\)"),
        ({"initial": torch.zeros(1, 1, 1, 8, 8)}, "is torch.float32; expected .* torch.float64"),
    ],
)
def test_wrong_settings_say_what_to_give(settings: dict[str, Any], words: str) -> None:
    problem, condition = heteroscedastic(8)
    with pytest.raises(ValueError, match=words):
        sample(problem, condition, **{"num_samples": 1, "seed": 0, **settings})


@pytest.mark.parametrize("clamp", [None, (-0.4, 0.3)])
@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("solver", ["first_order", "2m"])
def test_every_step_is_the_family_as_written(solver: str, eta: float, clamp: tuple[float, float] | None) -> None:
    """The update of the module's formula, written out with a, s and l instead of their logarithms, five calls long."""
    problem, condition = heteroscedastic(4)
    noise, shape = NoiseField(seed=6), torch.Size([1, 1, 1, 4, 4])
    end = problem.schedule(condition).log_gamma(torch.ones((), dtype=torch.float64))
    gammas = [(end * fraction).exp() for fraction in log_snr_grid(5, 8.0)]
    z, before, h_before = noise(0, shape, dtype=torch.float64)[0], None, None
    for step, gamma in enumerate(gammas):
        clean = problem.clean(z, gamma.log(), condition)
        if clamp is not None:
            clean = clean.clamp(*clamp)
        if step == 4:
            break
        (a0, s0), (a1, s1) = ((g.sqrt(), (1 - g).sqrt()) for g in (gamma, gammas[step + 1]))
        h = (a1 / s1).log() - (a0 / s0).log()
        guess = clean
        if solver == "2m" and before is not None and h_before is not None:
            guess = clean + (clean - before) * h / (2 * h_before)
        z = s1 / s0 * (-(eta**2) * h).exp() * z + a1 * (1 - (-(1 + eta**2) * h).exp()) * guess
        z = z + s1 * (1 - (-2 * eta**2 * h).exp()).sqrt() * noise(step + 1, shape, dtype=torch.float64)[0]
        before, h_before = clean, h
    draw = sample(problem, condition, num_samples=1, num_steps=5, solver=solver, eta=eta, clamp=clamp, seed=noise)  # type: ignore[arg-type]
    torch.testing.assert_close(draw[0], clean, rtol=1e-7, atol=1e-8)
