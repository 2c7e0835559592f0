"""One step of each solver against closed forms; tests/diffusion/test_sampling.py judges what they draw."""

import itertools

import pytest
import torch
from torch import Tensor

from sfumato.diffusion.gaussian import reverse_step
from sfumato.diffusion.solvers import (
    SOLVERS,
    NoiseLevel,
    Past,
    Step,
    algorithm2,
    first_order,
    gaussian,
    remembered,
    second_order,
)

LOG_T, LOG_S = torch.tensor([[-2.0, -7.0], [-1.5, -0.4]], dtype=torch.float64)
STATE, CLEAN, BEFORE, NOISE = torch.randn(
    4, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
).unbind()
STEP = Step.between(NoiseLevel.at(LOG_T), NoiseLevel.at(LOG_S), CLEAN, None)


def noise() -> Tensor:
    return NOISE


def no_noise() -> Tensor:
    raise AssertionError("noise was drawn")


def test_ancestral_step_and_algorithm2_have_the_posteriors_mean_and_their_own_variance() -> None:
    mean, var = reverse_step(STATE, CLEAN, LOG_T, LOG_S)
    ancestral = first_order(STATE, STEP, 1.0, noise)
    torch.testing.assert_close(ancestral, mean + var.sqrt() * NOISE)
    beta_hat = 1 - (LOG_T - LOG_S).exp()
    torch.testing.assert_close(algorithm2(STATE, STEP, 0.0, noise), mean + beta_hat.sqrt() * NOISE)


def test_a_step_without_noise_keeps_the_noise_that_the_prediction_implies() -> None:
    """DDIM: z_1 = a_1 y + s_1 eps with eps = (z_0 - a_0 y) / s_0."""
    eps = (STATE - (LOG_T / 2).exp() * CLEAN) / (1 - LOG_T.exp()).sqrt()
    expected = (LOG_S / 2).exp() * CLEAN + (1 - LOG_S.exp()).sqrt() * eps
    torch.testing.assert_close(first_order(STATE, STEP, 0.0, no_noise), expected)


@pytest.mark.parametrize("eta", [0.0, 0.5])
def test_second_order_extrapolates_to_the_middle_of_the_step(eta: float) -> None:
    """Predictions on a line in l: half a step beyond the last one lies what is taken for the whole step."""
    slope, h_before = CLEAN - BEFORE, torch.tensor([0.5, 2.0], dtype=torch.float64)
    middle = CLEAN + slope / h_before * STEP.h / 2
    found = second_order(STATE, STEP._replace(past=Past(BEFORE, h_before)), eta, noise)
    torch.testing.assert_close(found, first_order(STATE, STEP._replace(clean=middle), eta, noise))


def test_the_gaussian_step_is_exact_for_its_gaussian_and_for_a_constant_rest() -> None:
    """Against many small steps of the plain first-order solver, with D = G z + E."""
    constant = torch.tensor([0.3, -0.8], dtype=torch.float64)

    def denoised(state: Tensor, log_gamma: Tensor) -> Tensor:
        gamma = log_gamma.exp()
        return gamma.sqrt() / 4 / (gamma / 4 + 1 - gamma) * state + constant

    levels = [NoiseLevel.at(LOG_T + (LOG_S - LOG_T) * place / 20_000) for place in range(20_001)]
    state = STATE
    for now, after in itertools.pairwise(levels):
        step = Step.between(now, after, denoised(state, now.log_gamma), None)
        state = first_order(state, step, 0.0, no_noise)
    found = gaussian(STATE, STEP._replace(clean=denoised(STATE, LOG_T)), 0.0, no_noise)
    torch.testing.assert_close(found, state, atol=1e-4, rtol=5e-4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_past_that_is_the_present_is_no_past(solver: str) -> None:
    """To the bit: a graph without branches gives its first step such a past."""
    past = Past(remembered(solver, STATE, STEP.now, CLEAN), torch.ones_like(STEP.h))
    present = STEP._replace(past=past)
    assert torch.equal(*(SOLVERS[solver](STATE, step, 0.0, noise) for step in (present, STEP)))
