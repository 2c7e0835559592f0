"""The linear filter against least squares by another way, and against the Wiener filter's closed form."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from sfumato.nn.linear_filter import LinearFilter


def images(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("ndim", "side"), [(2, 5), (3, 3)])
def test_a_known_kernel_is_found_with_its_offset(ndim: int, side: int) -> None:
    inputs = images(0, 6, 2, *[20] * ndim).float()
    kernel, offset = images(1, 3, 2, *[side] * ndim).float(), torch.tensor([0.5, -1.0, 2.0])
    convolve = {2: F.conv2d, 3: F.conv3d}[ndim]
    targets = convolve(inputs, kernel, offset, padding=side // 2)  # zeros beyond the border, which the fit must not use
    fitted = LinearFilter(2, 3, side=side, ndim=ndim).fit([(inputs, targets)])
    torch.testing.assert_close(fitted.weight, kernel, atol=2e-4, rtol=0)
    torch.testing.assert_close(fitted.bias, offset, atol=2e-4, rtol=0)
    inner: tuple[Any, ...] = (..., *[slice(side // 2, -(side // 2))] * ndim)
    torch.testing.assert_close(fitted(inputs)[inner], targets[inner], atol=2e-3, rtol=0)


def test_it_is_the_least_squares_solution() -> None:
    inputs, targets = images(2, 4, 1, 16, 16).float(), images(3, 4, 1, 16, 16).float()
    fitted = LinearFilter(1, 1, side=3).fit([(inputs[:2], targets[:2]), (inputs[2:], targets[2:])], ridge=0)
    rows = F.unfold(inputs, 3).transpose(1, 2).flatten(0, 1)
    design = torch.cat([rows, torch.ones(len(rows), 1)], dim=1)
    expected = torch.linalg.lstsq(design.double(), targets[..., 1:-1, 1:-1].flatten().double()[:, None]).solution[:, 0]
    found = torch.cat([fitted.weight.flatten(), fitted.bias])
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)


def test_white_noise_on_white_images_is_shrunk_as_wiener_says() -> None:
    clean, noise = images(4, 64, 1, 32, 32).float(), images(5, 64, 1, 32, 32).float()
    fitted = LinearFilter(1, 1, side=3).fit([(clean + 0.5 * noise, clean)])
    expected = torch.zeros(3, 3)
    expected[1, 1] = 1 / (1 + 0.25)
    torch.testing.assert_close(fitted.weight[0, 0], expected, atol=0.01, rtol=0)


def test_images_count_evenly_by_the_inverse_of_their_error() -> None:
    """Two images that need different factors, one a hundred times brighter: evenly, its factor does not decide."""
    bright, faint = 100 * images(6, 1, 1, 32, 32).float(), images(7, 1, 1, 32, 32).float()
    inputs, targets = torch.cat([bright, faint]), torch.cat([2 * bright, 4 * faint])
    plain, even = (LinearFilter(1, 1, side=1).fit([(inputs, targets)], ridge=0, evenly=way) for way in (False, True))
    assert float(plain.weight) == pytest.approx(2, abs=1e-3)
    # Mean square errors are those of the factors 1 and 3: weights 1 / 1e4 and 1 / 9, for powers 1e4 and 1.
    weights = [float(1 / (image - target).square().mean()) for image, target in zip(inputs, targets, strict=True)]
    added = 1 + float((inputs - targets).square().mean()) / 1000 * weights[1]  # for the faint image alone it matters
    powers = [weights[0] * float(bright.square().mean()), weights[1] / added * float(faint.square().mean())]
    assert float(even.weight) == pytest.approx((2 * powers[0] + 4 * powers[1]) / sum(powers), rel=0.02)


def test_beyond_the_border_pixels_are_copies() -> None:
    fitted = LinearFilter(1, 1, side=3)
    fitted.weight.fill_(1 / 9)
    torch.testing.assert_close(fitted(torch.full((1, 1, 5, 7), 3.0)), torch.full((1, 1, 5, 7), 3.0))


def test_images_smaller_than_the_filter_are_continued_beyond_their_edges() -> None:
    small = torch.randn(40, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    fitted = LinearFilter(1, 1, side=7).fit([(small, 2 * small + 1)], ridge=1e-9)
    torch.testing.assert_close(fitted(small), 2 * small + 1, atol=1e-3, rtol=0)


def test_a_filter_of_blank_images_gives_the_mean_of_the_targets() -> None:
    fitted = LinearFilter(1, 1).fit([(torch.zeros(2, 1, 20, 20), torch.full((2, 1, 20, 20), 3.0))])
    torch.testing.assert_close(fitted(torch.zeros(1, 1, 8, 8)), torch.full((1, 1, 8, 8), 3.0))


def test_even_sides_are_refused() -> None:
    with pytest.raises(ValueError, match="odd"):
        LinearFilter(1, 1, side=4)


@pytest.mark.parametrize("ndim", [2, 3])
def test_a_weakened_filter_is_between_the_image_and_the_filtered_one(ndim: int) -> None:
    inputs = images(6, 2, 2, *[12] * ndim).float()
    fitted = LinearFilter.identity(2, ndim=ndim)
    torch.testing.assert_close(fitted(inputs), inputs)
    fitted.weight.copy_(images(7, *fitted.weight.shape))
    fitted.bias.copy_(images(8, 2))
    whole = fitted(inputs)
    fitted.weaken(0.25)
    torch.testing.assert_close(fitted(inputs), 0.75 * inputs + 0.25 * whole, atol=1e-4, rtol=1e-4)
