"""Smoothing against the average that it is."""

import numpy as np
import pytest
import torch

from sfumato.nn.binomial import Binomial


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_each_axis_is_averaged_with_binomial_weights(ndim: int) -> None:
    images = torch.randn(1, 2, *[9] * ndim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = np.pad(images[0].numpy(), [(0, 0), *[(2, 2)] * ndim], mode="edge")
    for axis in range(1, ndim + 1):
        expected = np.apply_along_axis(np.convolve, axis, expected, np.array([1, 4, 6, 4, 1]) / 16, mode="valid")
    np.testing.assert_allclose(Binomial()(images)[0].numpy(), expected, atol=1e-12)


def test_no_pixel_beyond_the_reach_changes_an_output() -> None:
    image = torch.randn(1, 1, 11, 11, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(Binomial()(image)[0, 0, 5, 5], image)
    rows, columns = slope[0, 0].nonzero().T
    assert max(int((rows - 5).abs().max()), int((columns - 5).abs().max())) == Binomial.reach
