"""Metrics against scikit-image where it is installed, stored values of it, torchmetrics and closed forms."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from optical_images import band_limited
from sfumato.statistics import metrics

torchmetrics_image = pytest.importorskip("torchmetrics.functional.image", reason="the extra `evaluate` is missing")


def pair(*shape: int, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    truth = band_limited(*shape, seed=0, low=-3.0, high=5.0)
    disturbance = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return truth + noise * disturbance * torch.arange(1.0, shape[0] + 1)[:, None, None, None], truth


METRICS: list[Callable[..., Tensor]] = [
    metrics.mae,
    metrics.rmse,
    metrics.nrmse,
    metrics.psnr,
    metrics.ssim,
    metrics.ms_ssim,
]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
def test_one_number_per_image_that_the_others_do_not_change(metric: Callable[..., Tensor]) -> None:
    estimate, truth = pair(3, 1, 176, 181)
    together = metric(estimate, truth)
    assert together.shape == (3,)
    alone = torch.cat([metric(estimate[i : i + 1], truth[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(together, alone)
    # The images are ever noisier.
    ordered = together if metric in METRICS[:3] else -together
    assert torch.equal(ordered.argsort(), torch.arange(3))


@pytest.mark.parametrize("channels", [1, 3])
def test_against_scikit_image(channels: int) -> None:
    skimage = pytest.importorskip("skimage.metrics", reason="scikit-image is not installed; stored values are tested")
    estimate, truth = pair(2, channels, 61, 74)
    ours = {name: getattr(metrics, name)(estimate, truth) for name in ("psnr", "ssim", "nrmse")}
    for number in range(2):
        one, other = estimate[number].numpy(), truth[number].numpy()
        span = other.max() - other.min()
        theirs = {
            "psnr": skimage.peak_signal_noise_ratio(other, one, data_range=span),
            "nrmse": skimage.normalized_root_mse(other, one, normalization="min-max"),
            "ssim": skimage.structural_similarity(
                other,
                one,
                data_range=span,
                gaussian_weights=True,
                sigma=1.5,
                use_sample_covariance=False,
                channel_axis=0,
            ),
        }
        for name, value in theirs.items():
            assert float(ours[name][number]) == pytest.approx(value, abs=1e-4), name


def test_against_stored_values_of_scikit_image() -> None:
    """scikit-image 0.26.0, with the settings of the test above, on ``pair(2, 1, 61, 74)``."""
    estimate, truth = pair(2, 1, 61, 74)
    stored = {"psnr": [38.209165, 32.03226], "nrmse": [0.01229, 0.025026], "ssim": [0.984891, 0.955506]}
    for name, values in stored.items():
        assert getattr(metrics, name)(estimate, truth).tolist() == pytest.approx(values, abs=1e-4), name


def test_ms_ssim_is_the_product_of_its_scales() -> None:
    """Contrast and structure of four halvings and the whole of the fifth, each to its exponent [Wang 2003, Eq. 7]."""
    estimate, truth = pair(1, 1, 192, 180)
    span = float(metrics.value_range(truth))
    one, other, expected = estimate / span, truth / span, torch.ones((), dtype=torch.float64)
    for scale, exponent in enumerate((0.0448, 0.2856, 0.3001, 0.2363, 0.1333)):
        whole, contrast = torchmetrics_image.structural_similarity_index_measure(
            one, other, data_range=1.0, return_contrast_sensitivity=True
        )
        expected = expected * (whole if scale == 4 else contrast.mean()) ** exponent
        one, other = (torch.nn.functional.avg_pool2d(image, 2) for image in (one, other))
    assert metrics.ms_ssim(estimate, truth).item() == pytest.approx(float(expected), abs=1e-4)


def test_perfect_estimates() -> None:
    _, truth = pair(2, 1, 176, 176)
    assert metrics.mae(truth, truth).tolist() == [0, 0]
    assert metrics.psnr(truth, truth).tolist() == [float("inf")] * 2
    assert metrics.ssim(truth, truth).tolist() == pytest.approx([1, 1])
    assert metrics.ms_ssim(truth, truth).tolist() == pytest.approx([1, 1])


@given(gain=st.floats(0.1, 10), offset=st.floats(-5, 5), sign=st.sampled_from([-1, 1]))
@settings(deadline=None, max_examples=30)
def test_affine_fit_undoes_gain_and_offset_and_is_least_squares(gain: float, offset: float, sign: int) -> None:
    estimate, truth = pair(2, 2, 12, 9, noise=0.5)
    fitted = metrics.affine_fit(estimate, truth)
    torch.testing.assert_close(metrics.affine_fit(sign * gain * estimate + offset, truth), fitted, rtol=0, atol=1e-9)
    # What is left is orthogonal to the estimate and to a constant.
    left = fitted - truth
    torch.testing.assert_close(left.mean((-3, -2, -1)), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        (left * estimate).mean((-3, -2, -1)), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-10
    )
    flat = metrics.affine_fit(torch.full_like(truth, 3.0), truth)
    torch.testing.assert_close(flat, truth.mean((-3, -2, -1), keepdim=True).expand_as(truth))


@given(offset=st.floats(-5, 5), other=st.floats(-5, 5))
@settings(deadline=None, max_examples=30)
def test_a_constant_that_nobody_knows_changes_no_score(offset: float, other: float) -> None:
    estimate, truth = pair(2, 2, 176, 178)
    moved = torch.tensor([offset, other], dtype=torch.float64)[:, None, None]
    expected, found = (metrics.without_offset(*both) for both in ((estimate, truth), (estimate + moved, truth - moved)))
    for one, two in zip(expected, found, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-12)
    assert torch.equal(found[1].amin((-2, -1)), torch.zeros(2, 2, dtype=torch.float64))
    torch.testing.assert_close(*(image.mean((-2, -1)) for image in found), rtol=0, atol=1e-12)


def test_similarity_without_the_offset_is_that_of_images_that_are_alike() -> None:
    """About means of 0 the middles of two images can have unlike signs, and the similarity is then 0."""
    x = torch.linspace(0, 2 * torch.pi, 176, dtype=torch.float64)
    truth = (0.5 * torch.sin(7 * x)[:, None] * torch.sin(9 * x) + 0.02 * torch.cos(x))[None, None]
    estimate = truth - 0.08 * torch.cos(x)
    centred = [image - image.mean() for image in (estimate, truth)]
    assert metrics.ms_ssim(*centred).item() == 0
    assert metrics.ms_ssim(*metrics.without_offset(estimate, truth)).item() > 0.9


def test_one_range_for_all_or_one_each() -> None:
    estimate, truth = pair(2, 1, 20, 20)
    assert torch.equal(
        metrics.nrmse(estimate, truth, data_range=4.0),
        metrics.nrmse(estimate, truth, data_range=torch.tensor([4.0, 4.0])),
    )
    torch.testing.assert_close(metrics.nrmse(estimate, truth, data_range=2.0), metrics.rmse(estimate, truth) / 2)


def test_what_cannot_be_is_refused() -> None:
    estimate, truth = pair(1, 1, 175, 200)
    with pytest.raises(ValueError, match="175 x 200 pixels; MS-SSIM with five scales needs 176"):
        metrics.ms_ssim(estimate, truth)
    with pytest.raises(ValueError, match="SSIM needs 11 a side"):
        metrics.ssim(estimate[..., :9], truth[..., :9])
    with pytest.raises(ValueError, match="give both as"):
        metrics.mae(estimate[0], truth[0])
    with pytest.raises(ValueError, match="flat"):
        metrics.psnr(estimate, torch.zeros_like(truth))
