"""The smoothed output of a small network against its closed form."""

import numpy as np
import pytest
import torch

from sfumato.nn.head import Head


def fill(head: Head, weight: float) -> None:
    """Give the last layer, which starts at zero, weights."""
    head.out.load_state_dict({name: torch.full_like(value, weight) for name, value in head.out.state_dict().items()})


@pytest.mark.parametrize("ndim", [2, 3])
def test_a_smoothed_output_is_a_binomial_average_of_the_plain_one(ndim: int) -> None:
    torch.manual_seed(0)
    plain, smooth = (Head(3, 2, width=4, ndim=ndim, smooths=smooths) for smooths in (False, True))
    fill(plain, 1.0)
    smooth.load_state_dict(plain.state_dict())
    images = torch.randn(1, 3, *[9] * ndim)
    with torch.no_grad():
        rough, found = plain(images)[0].numpy(), smooth(images)[0].numpy()
    expected = np.pad(rough, [(0, 0), *[(2, 2)] * ndim], mode="edge")
    for axis in range(1, ndim + 1):
        expected = np.apply_along_axis(np.convolve, axis, expected, np.array([1, 4, 6, 4, 1]) / 16, mode="valid")
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (plain.reach, smooth.reach) == (2, 4)


def test_smoothing_keeps_what_is_constant_up_to_the_border() -> None:
    head = Head(1, 1, width=2, smooths=True)
    for weights in head.parameters():
        torch.nn.init.zeros_(weights)
    fill(head, 0.7)  # the bias too
    found = head(torch.zeros(1, 1, 5, 6)).detach()
    torch.testing.assert_close(found, torch.full((1, 1, 5, 6), 0.7))


def test_no_pixel_beyond_the_reach_changes_an_output() -> None:
    torch.manual_seed(1)
    head = Head(1, 1, width=2, smooths=True).double()
    fill(head, 1.0)
    image = torch.randn(1, 1, 21, 21, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(head(image)[0, 0, 10, 10], image)
    rows, columns = slope[0, 0].nonzero().T
    assert max(int((rows - 10).abs().max()), int((columns - 10).abs().max())) == head.reach
