r"""How close an estimate is to the truth, one number per image.

.. math:: MAE = \langle |\hat y - y| \rangle, \quad PSNR = 20\log_{10}\frac{L}{RMSE}, \quad NRMSE = \frac{RMSE}{L}

with L the range of the truth. SSIM follows Wang et al. (2004), with a Gaussian window of 1.5 pixels; MS-SSIM follows
Wang, Simoncelli & Bovik (2003), with five scales and their exponents [CVDM App. G.1]. Both come from torchmetrics.

Images have shape (B, C, H, W); results have shape (B).
"""

from types import ModuleType

from torch import Tensor

__all__ = ["affine_fit", "mae", "ms_ssim", "nrmse", "psnr", "rmse", "ssim", "value_range", "without_offset"]

_EXPONENTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Exponents of the five scales, from fine to coarse [Wang 2003]; they sum to 1."""

_WINDOW = 11
_SMALLEST_SIDE = _WINDOW * 2 ** (len(_EXPONENTS) - 1)


def value_range(truth: Tensor) -> Tensor:
    """Largest minus smallest value of each image, shape (B)."""
    return truth.amax((-3, -2, -1)) - truth.amin((-3, -2, -1))


def mae(estimate: Tensor, truth: Tensor) -> Tensor:
    """Mean absolute error of each image, in the units of the images.

    Example:
        >>> import torch
        >>> mae(torch.zeros(2, 1, 4, 4), torch.ones(2, 1, 4, 4)).tolist()
        [1.0, 1.0]
    """
    _check(estimate, truth)
    return (estimate - truth).abs().mean((-3, -2, -1))


def rmse(estimate: Tensor, truth: Tensor) -> Tensor:
    """Root mean square error of each image, in the units of the images."""
    _check(estimate, truth)
    return (estimate - truth).square().mean((-3, -2, -1)).sqrt()


def nrmse(estimate: Tensor, truth: Tensor, *, data_range: Tensor | float | None = None) -> Tensor:
    """Root mean square error over the range.

    Args:
        estimate: Shape (B, C, H, W).
        truth: Shape (B, C, H, W).
        data_range: Range of the truth, one for all or one per image (B); by default each image's own.
    """
    return rmse(estimate, truth) / _range(truth, data_range)


def psnr(estimate: Tensor, truth: Tensor, *, data_range: Tensor | float | None = None) -> Tensor:
    """Peak signal-to-noise ratio of each image, in decibels; infinite for a perfect estimate. See :func:`nrmse`."""
    return -20 * nrmse(estimate, truth, data_range=data_range).log10()


def ssim(estimate: Tensor, truth: Tensor, *, data_range: Tensor | float | None = None) -> Tensor:
    """Structural similarity of each image, at most 1. See :func:`nrmse`.

    Note:
        Statistics are those of the window's pixels, not unbiased ones, as in the original; scikit-image gives the same
        with ``gaussian_weights=True, sigma=1.5, use_sample_covariance=False``.
    """
    pair = _scaled(estimate, truth, data_range, "SSIM", _WINDOW)
    _, similarity = _torchmetrics().structural_similarity_index_measure(
        *pair, data_range=1.0, sigma=1.5, reduction="none", return_full_image=True
    )
    # torchmetrics would also count windows that reach beyond the border; the original and scikit-image do not.
    margin = _WINDOW // 2
    inner: Tensor = similarity[..., margin:-margin, margin:-margin]
    return inner.mean((-3, -2, -1))


def ms_ssim(estimate: Tensor, truth: Tensor, *, data_range: Tensor | float | None = None) -> Tensor:
    """Multi-scale structural similarity of each image, from 0 to 1. See :func:`nrmse`.

    Raises:
        ValueError: If a side is under 176 pixels: the coarsest of five scales would be smaller than the window.

    Note:
        A negative similarity at some scale, which has no real root, counts as 0.
    """
    pair = _scaled(estimate, truth, data_range, "MS-SSIM with five scales", _SMALLEST_SIDE)
    result: Tensor = _torchmetrics().multiscale_structural_similarity_index_measure(
        *pair, data_range=1.0, sigma=1.5, betas=_EXPONENTS, normalize="relu", reduction="none"
    )
    return result


def affine_fit(estimate: Tensor, truth: Tensor) -> Tensor:
    r"""Fit each estimate to the truth's scale: :math:`a\hat y + b` with the a, b of least squares.

    For problems whose intensities are not absolute, such as fluorescence at different exposures.

    Example:
        >>> import torch
        >>> truth = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> torch.allclose(affine_fit(7 - 2 * truth, truth), truth, atol=1e-5)
        True
    """
    _check(estimate, truth)
    axes = (-3, -2, -1)
    centre, level = estimate.mean(axes, keepdim=True), truth.mean(axes, keepdim=True)
    spread = (estimate - centre).square().mean(axes, keepdim=True)
    together = ((estimate - centre) * (truth - level)).mean(axes, keepdim=True)
    # A flat estimate has no scale: its best fit is the truth's mean.
    slope = (together / spread).where(spread > 0, 0.0)
    return level + slope * (estimate - centre)


def without_offset(estimate: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Both images without a constant that no method can know, such as the mean of a phase, shapes (B, C, H, W).

    The estimate gets the truth's mean, and the truth is shifted so that its least value is 0: structural similarity
    compares means, and is 0 for similar images whose means have opposite signs.

    Example:
        >>> import torch
        >>> truth = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> estimate, against = without_offset(truth - 40, truth + 7)
        >>> torch.equal(estimate, truth), torch.equal(against, truth)
        (True, True)
    """
    _check(estimate, truth)
    against = truth - truth.amin((-2, -1), keepdim=True)
    return estimate - estimate.mean((-2, -1), keepdim=True) + against.mean((-2, -1), keepdim=True), against


def _check(estimate: Tensor, truth: Tensor) -> None:
    if estimate.shape != truth.shape or truth.ndim != 4:
        raise ValueError(
            f"estimate has shape {tuple(estimate.shape)} and truth {tuple(truth.shape)}; give both as (B, C, H, W)"
        )


def _range(truth: Tensor, data_range: Tensor | float | None) -> Tensor:
    """The range of each image, shape (B)."""
    span = value_range(truth) if data_range is None else truth.new_zeros(len(truth)) + data_range
    if not bool((span > 0).all()):
        raise ValueError("a truth is flat or its data_range not above 0, so errors have no scale; give a data_range")
    return span


def _scaled(
    estimate: Tensor, truth: Tensor, data_range: Tensor | float | None, metric: str, least_side: int
) -> tuple[Tensor, Tensor]:
    """Both images over the range, if they are large enough for a metric."""
    _check(estimate, truth)
    height, width = truth.shape[-2:]
    if min(height, width) < least_side:
        raise ValueError(
            f"the images are {height} x {width} pixels; {metric} needs {least_side} a side: evaluate larger images"
        )
    scale = _range(truth, data_range)[:, None, None, None]
    return estimate / scale, truth / scale


def _torchmetrics() -> ModuleType:
    try:
        from torchmetrics.functional import image
    except ImportError as error:
        raise ImportError("SSIM and MS-SSIM need torchmetrics: pip install 'sfumato[evaluate]'") from error
    return image
