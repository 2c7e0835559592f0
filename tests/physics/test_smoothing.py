"""The Gaussian blur: scipy's, along every axis."""

import pytest
import torch
from scipy.ndimage import gaussian_filter

from sfumato.physics.smoothing import WIDTHS, gaussian_blur


@pytest.mark.parametrize("width", [0.4, 1.7])
@pytest.mark.parametrize("spatial", [(20, 31), (12, 15, 9)])
def test_it_is_that_of_scipy(spatial: tuple[int, ...], width: float) -> None:
    images = torch.randn(2, 3, *spatial, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = torch.stack(
        [
            torch.stack(
                [torch.from_numpy(gaussian_filter(channel.numpy(), width, mode="nearest")) for channel in image]
            )
            for image in images
        ]
    )
    torch.testing.assert_close(gaussian_blur(images, width), expected, rtol=0, atol=1e-12)


def test_no_width_changes_nothing() -> None:
    images = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(gaussian_blur(images, 0), images)
    with pytest.raises(ValueError, match="at least 0"):
        gaussian_blur(images, -1)


def test_widths_to_choose_from_rise() -> None:
    assert list(WIDTHS) == sorted(set(WIDTHS))
    assert WIDTHS[0] == 0
    assert 9 < WIDTHS[-1] < 10
