"""The axial derivative is exact for polynomials of its order, converges at its order, and is one linear filter."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.physics import through_focus


@given(
    order=st.integers(1, 8),
    extra=st.integers(0, 6),
    seed=st.integers(0, 100),
    derivative=st.integers(0, 2),
)
@settings(deadline=None, max_examples=60)
def test_polynomials_are_differentiated_exactly(order: int, extra: int, seed: int, derivative: int) -> None:
    rng = np.random.default_rng(seed)
    # Uneven, unordered and off-centre distances.
    z = rng.permutation(np.linspace(-3, 5, order + 1 + extra) + rng.uniform(-0.1, 0.1, order + 1 + extra))
    coefficients = rng.normal(size=order + 1)
    if derivative > order:
        with pytest.raises(ValueError, match="order"):
            through_focus.weights(z.tolist(), order, derivative=derivative)
        return
    stack = torch.as_tensor(np.polynomial.polynomial.polyval(z, coefficients))[:, None, None]
    found = through_focus.axial_derivative(stack, z.tolist(), order, derivative=derivative).item()
    expected = coefficients[derivative] * (2 if derivative == 2 else 1)
    assert found == pytest.approx(expected, abs=1e-7 * np.abs(stack.numpy()).max())


def test_against_numpys_polynomial_fit() -> None:
    stack = np.random.default_rng(0).normal(size=(9, 3, 4))
    z = np.linspace(-4, 4, 9)
    expected = np.polynomial.polynomial.polyfit(z, stack.reshape(9, -1), 5)[1].reshape(3, 4)
    found = through_focus.axial_derivative(torch.as_tensor(stack), z.tolist(), 5)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_two_planes_give_the_central_difference() -> None:
    stack = torch.randn(2, 2, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = (stack[:, 1] - stack[:, 0]) / 4
    torch.testing.assert_close(through_focus.axial_derivative(stack, [-2, 2], 1), expected)


@pytest.mark.parametrize("order", [2, 4, 6])
def test_error_falls_at_the_order_of_the_fit(order: int) -> None:
    """On symmetric planes an even order gives a first derivative whose error is of that order in the spacing."""
    errors = []
    for spacing in (0.2, 0.1):
        z = spacing * np.arange(-order // 2, order // 2 + 1)
        errors.append(abs(through_focus.weights(z.tolist(), order) @ np.sin(z + 0.3) - np.cos(0.3)))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.1)


def test_the_papers_fit_is_well_conditioned() -> None:
    """Order 20 over 41 planes of +-40 um: still exact for a polynomial of order 20, and its noise is amplified."""
    z = np.arange(-40.0, 41, 2)
    weights = through_focus.weights(z.tolist(), 20)
    legendre = np.polynomial.legendre.Legendre(np.random.default_rng(0).normal(size=21))
    assert weights @ legendre(z / 40) == pytest.approx(legendre.deriv()(0) / 40, rel=1e-9)
    straight = through_focus.weights(z.tolist(), 1)
    assert np.linalg.norm(weights) > 10 * np.linalg.norm(straight)


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(ValueError, match="order is 2, for derivative 1 from 2 different distances"):
        through_focus.weights([-1, 1, 1], 2)
    with pytest.raises(ValueError, match="there are 3 distances"):
        through_focus.axial_derivative(torch.zeros(2, 4, 4), [-1, 0, 1], 1)
