"""Fresnel propagation conserves energy, composes, is undone by -z, and spreads a Gaussian beam as theory says."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from optical_images import WAVE, band_limited
from sfumato.physics import fresnel, grid

SHAPES = st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 9))
DISTANCES = st.floats(-50, 50)


def random_field(*shape: int, seed: int = 0, dtype: torch.dtype = torch.complex128) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@given(shape=SHAPES, first=DISTANCES, second=DISTANCES)
@settings(deadline=None, max_examples=50)
def test_energy_composition_and_inverse(shape: tuple[int, int, int], first: float, second: float) -> None:
    field = random_field(*shape)
    there = fresnel.propagate(field, first, **WAVE)
    assert float(there.abs().square().sum() / field.abs().square().sum()) == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(
        fresnel.propagate(there, second, **WAVE), fresnel.propagate(field, first + second, **WAVE), rtol=0, atol=1e-9
    )
    torch.testing.assert_close(fresnel.propagate(there, -first, **WAVE), field, rtol=0, atol=1e-10)


@given(shape=SHAPES, distance=DISTANCES)
@settings(deadline=None, max_examples=25)
def test_adjoint_is_propagation_back(shape: tuple[int, int, int], distance: float) -> None:
    u, v = random_field(*shape, seed=1), random_field(*shape, seed=2)
    left = torch.vdot(v.flatten(), fresnel.propagate(u, distance, **WAVE).flatten())
    right = torch.vdot(fresnel.propagate(v, -distance, **WAVE).flatten(), u.flatten())
    torch.testing.assert_close(left, right, rtol=0, atol=1e-10)


def test_single_precision_conserves_energy_to_a_millionth() -> None:
    field = random_field(3, 200, 311, dtype=torch.complex64)
    there = fresnel.propagate(field, 40.0, **WAVE)
    assert there.dtype == torch.complex64
    ratio = there.abs().double().square().sum() / field.abs().double().square().sum()
    assert abs(float(ratio) - 1) < 1e-6


def test_a_gaussian_beam_spreads_by_its_closed_form() -> None:
    r"""Width :math:`w(z) = w_0 \sqrt{1 + (z \lambda / \pi w_0^2)^2}`, and the intensity on the axis falls as 1/w^2."""
    waist, distance = 1.0, 6.0
    places = (torch.arange(256, dtype=torch.float64) - 128) * 0.1
    radius = places[:, None].square() + places.square()
    spread = fresnel.propagate((-radius / waist**2).exp(), distance, wavelength_um=0.5, pixel_um=0.1).abs().square()
    width = waist * math.sqrt(1 + (distance * 0.5 / (math.pi * waist**2)) ** 2)
    torch.testing.assert_close(spread, (waist / width) ** 2 * (-2 * radius / width**2).exp(), rtol=0, atol=1e-9)


def test_distances_make_a_stack_of_each_image() -> None:
    field = random_field(2, 1, 5, 8)
    distances = torch.tensor([-2.0, 0.0, 3.0], dtype=torch.float64)
    stack = fresnel.propagate(field, distances[:, None, None], **WAVE)
    assert stack.shape == (2, 3, 5, 8)
    for plane, distance in enumerate(distances.tolist()):
        torch.testing.assert_close(stack[:, plane], fresnel.propagate(field[:, 0], distance, **WAVE))


def test_a_margin_keeps_light_from_coming_back_at_the_other_side() -> None:
    """A step at the seam of the periodic continuation is no step of the even one: the border stays dark of fringes."""
    ramp = torch.linspace(0.2, 1, 64, dtype=torch.float64).expand(48, 64)
    plain, wide = (fresnel.propagate(ramp, 2.0, **WAVE, margin=margin).abs() for margin in (0, 40))
    assert wide.shape == (48, 64)
    assert float((wide - ramp).abs().max()) < 0.1 * float((plain - ramp).abs().max())


@given(size=st.integers(1, 6), margin=st.integers(0, 20))
@settings(deadline=None, max_examples=30)
def test_margins_are_even_and_periodic(size: int, margin: int) -> None:
    image = torch.arange(1.0, size + 1).expand(size, size)
    wide = grid.even_margin(image, margin)
    period = grid.even_continuation(image)
    columns = (torch.arange(size + 2 * margin) - margin) % (2 * size)
    assert torch.equal(wide[0], period[0][columns])
    assert torch.equal(grid.crop(wide, margin), image)


def test_gradients() -> None:
    phase = band_limited(5, 6, seed=0, high=2.0, cutoff=0.4).requires_grad_()
    intensity = band_limited(5, 6, seed=1, low=0.3, cutoff=0.4).requires_grad_()
    distance = torch.tensor([[[1.0]], [[-2.0]]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda *inputs: fresnel.defocused_intensity(*inputs, **WAVE, margin=2), (phase, intensity, distance)
    )


def test_what_cannot_be_is_refused() -> None:
    field = torch.ones(4, 4)
    with pytest.raises(ValueError, match="pixel_um is 0"):
        fresnel.propagate(field, 1.0, wavelength_um=0.5, pixel_um=0)
    with pytest.raises(ValueError, match="wavelength_um is -1"):
        fresnel.propagate(field, 1.0, wavelength_um=-1, pixel_um=0.2)
    with pytest.raises(ValueError, match="margin is -3"):
        fresnel.propagate(field, 1.0, **WAVE, margin=-3)
