"""The transport-of-intensity equation: operator against closed forms and Fresnel, solvers against known phases."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from optical_images import WAVE, band_limited, even_band_limited
from sfumato.physics import fresnel, grid, through_focus, tie
from sfumato.physics.grid import Boundary
from sfumato.physics.tie import Solution

SHAPES = st.tuples(st.integers(1, 2), st.integers(2, 9), st.integers(2, 9))
BOUNDARIES: list[Boundary] = ["even", "periodic"]
ITERATIVE = [tie.solve_us_tie, tie.solve_conjugate_gradients]
UNIFORM = torch.ones((), dtype=torch.float64)


def rmse(phase: Tensor, truth: Tensor) -> float:
    """Root mean square error in radians, a constant apart."""
    difference = phase - truth
    return float((difference - difference.mean((-2, -1), keepdim=True)).square().mean().sqrt())


def known(boundary: Boundary, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A phase of 3.5 rad and an intensity from 0.2 to 1, rectangular and with an odd side."""
    if boundary == "even":
        return even_band_limited(72, 95, seed=seed, high=3.5), even_band_limited(72, 95, seed=seed + 1, low=0.2)
    return band_limited(72, 95, seed=seed, high=3.5), band_limited(72, 95, seed=seed + 1, low=0.2)


@given(shape=SHAPES, boundary=st.sampled_from(BOUNDARIES))
@settings(deadline=None, max_examples=40)
def test_the_operator_is_self_adjoint_and_positive(shape: tuple[int, int, int], boundary: Boundary) -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    intensity = torch.rand(shape, generator=generator, dtype=torch.float64)
    images = [tie.transport(phase, intensity, **WAVE, boundary=boundary) for phase in (first, second)]
    torch.testing.assert_close((second * images[0]).sum(), (first * images[1]).sum(), rtol=1e-9, atol=1e-9)
    assert (first * images[0]).sum() >= -1e-12


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_the_operator_is_the_derivative_of_fresnel_propagation(boundary: Boundary) -> None:
    """The difference quotient over +-d comes closer with d squared."""
    phase, intensity = known(boundary)
    slope = tie.transport(phase, intensity, **WAVE, boundary=boundary)
    if boundary == "even":
        phase, intensity = grid.even_continuation(phase), grid.even_continuation(intensity)
    errors = []
    for distance in (0.2, 0.1):
        planes = torch.tensor([-distance, distance], dtype=torch.float64)[:, None, None]
        pair = fresnel.defocused_intensity(phase, intensity, planes, **WAVE)[:, :72, :95]
        difference = through_focus.axial_derivative(pair, [-distance, distance], 1) - slope
        errors.append(float(difference.abs().max() / slope.abs().max()))
    assert errors[1] < 1e-2
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_every_solver_recovers_a_phase_under_uniform_light(boundary: Boundary) -> None:
    phase, _ = known(boundary)
    slope = tie.transport(phase, UNIFORM, **WAVE, boundary=boundary)
    assert rmse(tie.solve_tikhonov(slope, UNIFORM, **WAVE, boundary=boundary), phase) < 1e-3
    for solve in ITERATIVE:
        assert rmse(solve(slope, UNIFORM, **WAVE, boundary=boundary).phase, phase) < 1e-3


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("seed", [0, 10])
def test_iterative_solvers_recover_a_phase_under_uneven_light(boundary: Boundary, seed: int) -> None:
    phase, intensity = known(boundary, seed)
    slope = tie.transport(phase, intensity, **WAVE, boundary=boundary)
    us_tie, gradients = (solve(slope, intensity, **WAVE, boundary=boundary, tolerance=1e-5) for solve in ITERATIVE)
    assert rmse(us_tie.phase, phase) < 1e-3
    assert rmse(gradients.phase, phase) < 1e-3
    assert int(gradients.num_iterations) <= int(us_tie.num_iterations) / 2
    assert float(gradients.residual) < 1e-5
    # One Poisson solve does not do.
    assert rmse(tie.solve_tikhonov(slope, intensity, **WAVE, boundary=boundary), phase) > 0.1


def test_us_tie_contracts_as_theory_says() -> None:
    """In the energy norm an error shrinks by at most 1 - min I / max I = 0.8 at each iteration."""
    phase, intensity = known("periodic")
    slope = tie.transport(phase, intensity, **WAVE, boundary="periodic")

    def energy(number: int) -> float:
        found = tie.solve_us_tie(slope, intensity, **WAVE, boundary="periodic", tolerance=0, max_iterations=number)
        error = found.phase - phase
        return float((error * tie.transport(error, intensity, **WAVE, boundary="periodic")).sum().sqrt())

    errors = [energy(number) for number in (1, 2, 3, 10, 11)]
    for before, after in [(0, 1), (1, 2), (3, 4)]:
        assert errors[after] <= 0.8 * errors[before]


@pytest.mark.parametrize("solve", ITERATIVE)
def test_phase_from_a_pair_of_defocused_images(solve: Callable[..., Solution]) -> None:
    phase, intensity = known("periodic")
    planes = torch.tensor([-0.1, 0.1], dtype=torch.float64)[:, None, None]
    slope = through_focus.axial_derivative(
        fresnel.defocused_intensity(phase, intensity, planes, **WAVE), [-0.1, 0.1], 1
    )
    assert rmse(solve(slope, intensity, **WAVE, boundary="periodic").phase, phase) < 1e-3


@pytest.mark.parametrize("solve", ITERATIVE)
def test_images_of_a_batch_do_not_disturb_each_other(solve: Callable[..., Solution]) -> None:
    """One easy, one hard, one empty: each stops on its own and gets what it gets alone."""
    phase, intensity = known("periodic")
    intensities = torch.stack([torch.ones_like(intensity), intensity, intensity])
    slopes = tie.transport(phase.expand(3, -1, -1), intensities, **WAVE) * torch.tensor([1.0, 1.0, 0.0])[:, None, None]
    together = solve(slopes, intensities, **WAVE)
    assert together.num_iterations.shape == together.residual.shape == (3,)
    for place in range(3):
        alone = solve(slopes[place], intensities[place], **WAVE)
        torch.testing.assert_close(together.phase[place], alone.phase, rtol=0, atol=1e-10)
        assert together.num_iterations[place] == alone.num_iterations
    assert together.num_iterations[2] == 0
    assert together.num_iterations[0] < together.num_iterations[1]


def test_us_tie_stops_when_the_residual_grows() -> None:
    """With less light claimed than there is, steps overshoot; the published rule stops the divergence."""
    phase, intensity = known("periodic")
    slope = tie.transport(phase, intensity, **WAVE, boundary="periodic")
    noise = torch.randn(slope.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    signed = torch.where(noise > 0, -intensity, intensity)
    found = tie.solve_us_tie(slope + noise, signed, **WAVE, boundary="periodic")
    assert int(found.num_iterations) < 1000
    assert float(found.residual) > 1e-3


def test_regularisation_damps_slow_structures() -> None:
    """A wave of frequency f keeps K^4 / (K^4 + reg / p^4) of its height."""
    columns = torch.arange(64, dtype=torch.float64)
    phase = (2 * torch.pi * columns / 32).cos().expand(64, 64)
    slope = tie.transport(phase, UNIFORM, **WAVE, boundary="periodic")
    found = tie.solve_tikhonov(slope, UNIFORM, **WAVE, boundary="periodic", reg=1e-3)
    strength = (2 * torch.pi / 32) ** 4
    torch.testing.assert_close(found, phase * strength / (strength + 1e-3), rtol=0, atol=1e-9)


def test_what_no_phase_explains_is_left_out() -> None:
    """A mean and a checkerboard in dI/dz neither change the phase nor keep the solvers from stopping."""
    phase, intensity = band_limited(64, 64, seed=0, high=3.5), band_limited(64, 64, seed=1, low=0.2)
    slope = tie.transport(phase, intensity, **WAVE, boundary="periodic")
    board = (-1.0) ** (torch.arange(64)[:, None] + torch.arange(64))
    for solve in ITERATIVE:
        clean = solve(slope, intensity, **WAVE, boundary="periodic")
        spoilt = solve(slope + 0.3 + 0.1 * board, intensity, **WAVE, boundary="periodic")
        torch.testing.assert_close(spoilt.phase, clean.phase, rtol=0, atol=1e-9)
        assert spoilt.num_iterations == clean.num_iterations


def test_gradients() -> None:
    phase = band_limited(5, 6, seed=0, cutoff=0.3).requires_grad_()
    intensity = band_limited(5, 6, seed=1, low=0.3, cutoff=0.3).requires_grad_()
    assert torch.autograd.gradcheck(lambda *inputs: tie.transport(*inputs, **WAVE), (phase, intensity))
    slope = tie.transport(phase, intensity, **WAVE).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda *inputs: tie.solve_tikhonov(*inputs, **WAVE, reg=1e-2), (slope, intensity))
    for solve in ITERATIVE:
        few = {"tolerance": 0.0, "max_iterations": 3}
        assert torch.autograd.gradcheck(
            lambda *inputs, solve=solve, few=few: solve(*inputs, **WAVE, **few).phase, (slope, intensity)
        )


def test_single_precision_suffices() -> None:
    phase, intensity = known("even")
    slope = tie.transport(phase, intensity, **WAVE)
    found = tie.solve_conjugate_gradients(slope.float(), intensity.float(), **WAVE)
    assert found.phase.dtype == torch.float32
    assert rmse(found.phase.double(), phase) < 1e-3


def test_what_cannot_be_is_refused() -> None:
    image = torch.ones(4, 4)
    with pytest.raises(ValueError, match="lowest intensity is 0"):
        tie.solve_tikhonov(image, torch.zeros(4, 4), **WAVE)
    with pytest.raises(ValueError, match="boundary is 'zero'"):
        tie.transport(image, image, **WAVE, boundary="zero")  # type: ignore[arg-type]
