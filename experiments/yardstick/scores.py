"""What a restored image scores against its truth."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sfumato.statistics import metrics
from sfumato.statistics.scores import crps, spread_and_error
from yardstick.problems import Problem

__all__ = ["BANDS", "Restored", "central", "score"]

BANDS = 8
SAMPLED = 256
"""Side of the central square on which samples are scored: those of whole W2S images cost more than a training."""
Values = dict[str, float]


@dataclass(frozen=True)
class Restored:
    """What a contender gives, in the units of the truth.

    Attributes:
        mean: The image that it writes, shape (C, H, W).
        samples: Of the image or its :func:`central` part, shape (N, C, h, w), N at least 2; None if it has none.
        seconds: Processor seconds that it took.
    """

    mean: Tensor
    samples: Tensor | None
    seconds: float


def score(restored: Restored, truth: Tensor, problem: Problem) -> Values:
    """Errors as shares of the data's range (phases: in radians), coverage, and power of one sample over the truth's.

    The error of the mean is measured after the fit that the problem allows; samples are measured as they are, but for
    the mean of a phase.

    Args:
        restored: In units of the truth.
        truth: Shape (C, H, W).
        problem: Says what is fitted.
    """
    mean, against = restored.mean.double()[None], truth.double()[None]
    if problem.remove_mean:
        mean, against = metrics.without_offset(mean, against)
    if problem.affine:
        mean = metrics.affine_fit(mean, against)
    low, high = np.percentile(against.numpy(), [0.1, 99.9])
    values = {
        "MAE": float(metrics.mae(mean, against)) / problem.unit,
        "RMSE": float(metrics.rmse(mean, against)) / problem.unit,
        "PSNR": float(metrics.psnr(mean, against, data_range=float(high - low))),
        "seconds": restored.seconds,
    }
    if restored.samples is not None:
        samples, wanted = (_centred(central(images).double(), problem) for images in (restored.samples, truth))
        values |= _of_samples(samples, wanted, problem)
    return values


def central(images: Tensor) -> Tensor:
    """The central square of images (..., H, W) on which samples are scored; small images are taken whole."""
    for axis in (-2, -1):
        length = images.shape[axis]
        if length > SAMPLED:
            images = images.narrow(axis, (length - SAMPLED) // 2, SAMPLED)
    return images


def _of_samples(samples: Tensor, truth: Tensor, problem: Problem) -> Values:
    """``within`` is the share of pixels between the least and the largest sample: (N - 1) / (N + 1) is right."""
    spread, error = spread_and_error(samples[:, None], truth[None])
    inside = (truth >= samples.amin(0)) & (truth <= samples.amax(0))
    power = _power(samples[0, 0], problem.bands) / _power(truth[0], problem.bands)
    return {
        "CRPS": float(crps(samples[:, None], truth[None])) / problem.unit,
        "within": float(inside.double().mean()),
        "spread over error": float((spread / error).sqrt()),
        **{f"power {band + 1}": float(value) for band, value in enumerate(power)},
    }


def _centred(images: Tensor, problem: Problem) -> Tensor:
    return images - images.mean((-2, -1), keepdim=True) if problem.remove_mean else images


def _power(image: Tensor, highest: float) -> Tensor:
    """Power in rings of equal width up to a share of the Nyquist frequency, shape (BANDS)."""
    windows = [torch.hann_window(length, periodic=False, dtype=torch.float64) for length in image.shape]
    power = torch.fft.fft2((image - image.mean()) * windows[0][:, None] * windows[1]).abs().square()
    frequencies = [2 * torch.fft.fftfreq(length) for length in image.shape]
    radius = torch.hypot(*torch.meshgrid(*frequencies, indexing="ij"))
    band = (radius / highest * BANDS).long()
    return torch.stack([power[band == number].sum() for number in range(BANDS)])
