r"""Forward consistency: would the restored image, measured again, reproduce the measurement?

The prediction p of a :class:`~sfumato.audit.forward.Forward` is fitted to the measurement m by

.. math:: q = a + b\,p + c \cdot \nabla p + d\,\nabla^2 p

with a robust fit: an offset, a gain, a shift and a change of width, none of which is a structure; the last one sharpens
a restoration that is too smooth. The residual q - m is examined in three ways. The resolution-scaled error is its local
root mean square, and the correlation map is the local correlation of q and m, both over the width of the blur, as in
SQUIRREL [Culley et al., Nature Methods 15, 263 (2018)]. The third marks structures: q - m, weighted by the blur, in
units of its own standard deviation.

Note:
    That standard deviation is the larger of the measurement noise :math:`\alpha + \beta q`, estimated from
    differences of neighbouring residuals, and the usual misfit of this restoration at this brightness. So the marks
    show what stands out from an imperfect restoration, and not every percent by which it is too bright.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.audit.forward import Forward
from sfumato.audit.structures import Structure, label, smooth, typical_contrast
from sfumato.system.errors import ImageError

__all__ = ["DISCOVERY_RATE", "LEAST_CONTRAST", "Consistency", "ContradictionError", "check_consistency"]

DISCOVERY_RATE = 0.05
"""Expected share of false positives among the marked pixels [Benjamini and Hochberg 1995]."""
LEAST_CONTRAST = 0.25
"""Marks are at least this bright, relative to the median contrast of the image's structures."""

_BINS = 16
_HUBER = 1.345
_ROUNDS = 6

Floats = NDArray[np.float64]


class ContradictionError(ImageError):
    """The measurement falls where the restored image rises, so one cannot be a restoration of the other."""


@dataclass(frozen=True)
class Consistency:
    """A restored image compared with its measurement; all maps are (K, H, W) on the grid of the measurement.

    Attributes:
        projected: The restored image as it would have been measured, q.
        error: Resolution-scaled error, in the units of the measurement.
        correlation: Local correlation of q and m.
        excess: q - m over the blur, in standard deviations, shape (H, W); for images that are not sums of light, the
            size of the residual.
        unsupported: Structures of the restored image that the measurement lacks, the most certain first.
        missing: Structures of the measurement that the restored image lacks.
        marks: Number of the unsupported structure at each pixel, from 1; negative for missing ones, 0 for none; (H, W).
        noise: Standard deviation of the measurement noise at its median brightness, per channel.
        rse: Root mean square of q - m over the image.
        rsp: Correlation of q and m over the image.
        threshold: Threshold on the excess.
    """

    projected: Floats
    error: Floats
    correlation: Floats
    excess: Floats
    unsupported: list[Structure]
    missing: list[Structure]
    marks: NDArray[np.int32]
    noise: tuple[float, ...]
    rse: float
    rsp: float
    threshold: float


def check_consistency(measured: NDArray[np.generic], restored: NDArray[np.generic], forward: Forward) -> Consistency:
    """Compare a restored image with its measurement.

    Args:
        measured: Shape (K, H, W).
        restored: Shape (C, F H, F W).
        forward: Model of the measurement.

    Raises:
        ImageError: If the shapes do not fit.
        ContradictionError: If the measurement falls where the restored image rises.
    """
    m = np.asarray(measured, np.float64)
    p = forward.predict(torch.from_numpy(np.asarray(restored, np.float64))).numpy()
    if p.shape != m.shape:
        raise ImageError(
            f"the restored image, measured again, has shape {p.shape} and the measurement {m.shape}; "
            "give the restored image of this measurement"
        )
    fits = [_fitted(channel, goal) for channel, goal in zip(p, m, strict=True)]
    q = np.stack([fit for fit, _ in fits])
    variance = np.stack([of_noise for _, of_noise in fits])
    inside = np.zeros(m.shape[1:], bool)
    border = min(forward.border_px, (min(m.shape[1:]) - 1) // 2)
    inside[border : m.shape[1] - border, border : m.shape[2] - border] = True
    excess, contrast = (_signed if forward.is_light else _unsigned)(q, m, variance, forward.scale_px, inside)
    threshold = max(_discoveries(excess[inside]), 3.0)
    enough = LEAST_CONTRAST * typical_contrast(smooth(q[0], forward.scale_px)) if forward.is_light else -np.inf
    unsupported, over = label((excess > threshold) & (contrast > enough) & inside, excess)
    missing, under = label((excess < -threshold) & (contrast < -enough) & inside & forward.is_light, -excess)
    return Consistency(
        q,
        np.sqrt(np.stack([smooth(channel, forward.scale_px) for channel in (q - m) ** 2])),
        np.stack([_correlation(*pair, 2 * forward.scale_px) for pair in zip(q, m, strict=True)]),
        excess,
        unsupported,
        missing,
        (over - under).astype(np.int32),
        tuple(float(np.sqrt(np.median(channel))) for channel in variance),
        float(np.sqrt(np.mean((q - m) ** 2))),
        float(np.mean([np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(q, m, strict=True)])),
        threshold,
    )


def _fitted(p: Floats, m: Floats) -> tuple[Floats, Floats]:
    """One channel's q and the variance of the measurement's noise, both (H, W)."""
    dy, dx = np.gradient(p)
    laplacian = np.gradient(dy, axis=0) + np.gradient(dx, axis=1)
    design = np.stack([np.ones_like(p), p, dy, dx, laplacian], axis=-1).reshape(-1, 5)
    scales = np.maximum(design.std(0), 1e-12)
    scales[0] = 1
    weights, variance = np.ones(p.size), np.full(p.shape, 1.0)
    q = m
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)[:, None]
        solution = np.linalg.lstsq(design / scales * root, m.ravel() * root[:, 0], rcond=None)[0]
        q = (design / scales @ solution).reshape(p.shape)
        variance = _noise_variance(q, m)
        misfit = np.abs((q - m) / np.sqrt(variance)).ravel()
        spread = max(float(np.median(misfit)) / 0.6745, 1.0)
        weights = 1 / variance.ravel() / np.maximum(1, misfit / (_HUBER * spread))
    if solution[1] <= 0 and np.ptp(p) > 0:
        raise ContradictionError(
            "the measurement falls where the restored image rises, so one cannot be a restoration of the other; "
            "check that both show the same place, in the same orientation"
        )
    return q, variance


def _noise_variance(q: Floats, m: Floats) -> Floats:
    """Variance alpha + beta q, from second differences of the residual, in which slow misfit cancels."""
    residual = q - m
    difference = np.diff(np.diff(residual, axis=0), axis=1) / 2
    light = (q[1:, 1:] + q[:-1, 1:] + q[1:, :-1] + q[:-1, :-1]) / 4
    order = np.argsort(light.ravel())
    parts = [part for part in np.array_split(order, _BINS) if len(part)]
    middles = np.array([light.ravel()[part].mean() for part in parts])
    variances = np.array([(np.median(np.abs(difference.ravel()[part])) / 0.6745) ** 2 for part in parts])
    least = max(1e-3 * float(variances.mean()), 1e-6 * float(m.var()), 1e-24)
    weights = 1 / np.maximum(variances, least)
    slope = float(np.polyfit(middles, variances, 1, w=weights)[0]) if np.ptp(middles) > 0 else 0.0
    slope = max(slope, 0.0)
    offset = float(np.average(variances - slope * middles, weights=weights))
    return np.maximum(offset + slope * q, max(least, 0.5 * float(variances.min())))


def _signed(
    q: Floats, m: Floats, variance: Floats, scale_px: float, inside: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Excess light over the blur, in standard deviations and in units of the measurement; channels are summed."""
    light = np.sum([smooth(channel, scale_px) for channel in q - m], axis=0)
    spread = np.sqrt(np.sum([_smooth_variance(channel, scale_px) for channel in variance], axis=0))
    brightness = np.sum([smooth(channel, scale_px) for channel in q], axis=0)
    return light / (spread * _ordinary_misfit(light / spread, brightness, inside)), light


def _unsigned(
    q: Floats, m: Floats, variance: Floats, scale_px: float, inside: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Mean square of the residual over the blur, as a normal deviate [Wilson and Hilferty 1931], and its size."""
    square = np.mean([smooth(channel, scale_px) for channel in (q - m) ** 2 / variance], axis=0)
    impulse = np.zeros(2 * [8 * int(np.ceil(scale_px)) + 1])
    impulse[tuple(side // 2 for side in impulse.shape)] = 1
    freedom = len(q) / float((smooth(impulse, scale_px) ** 2).sum())
    ordinary = max(float(np.median(square[inside])), 1.0)
    cube = np.cbrt(square / ordinary)
    return (cube - (1 - 2 / (9 * freedom))) / np.sqrt(2 / (9 * freedom)), square


def _smooth_variance(variance: Floats, scale_px: float) -> Floats:
    """Variance of a smoothed image whose pixels have independent noise."""
    # The square of a Gaussian is a Gaussian of width / sqrt(2), with sum 1 / (4 pi width^2).
    return smooth(variance, scale_px / np.sqrt(2)) / (4 * np.pi * scale_px**2)


def _ordinary_misfit(excess: Floats, brightness: Floats, inside: NDArray[np.bool_]) -> Floats:
    """Robust standard deviation of the excess at each pixel's brightness, at least 1."""
    values, light = excess[inside], brightness[inside]
    parts = np.array_split(np.argsort(light), _BINS)
    middles = [float(light[part].mean()) for part in parts if len(part)]
    spreads = [float(np.median(np.abs(values[part]))) / 0.6745 for part in parts if len(part)]
    return np.maximum(np.interp(brightness, middles, spreads), 1.0)


def _discoveries(excess: Floats) -> float:
    """Threshold on the size of normal deviates beyond which a share of ``DISCOVERY_RATE`` is chance."""
    sizes = np.sort(np.abs(excess).ravel())[::-1]
    chance = torch.erfc(torch.from_numpy(sizes.copy()) / 2**0.5).numpy()
    passed = chance * len(sizes) <= DISCOVERY_RATE * np.arange(1, len(sizes) + 1)
    return float(sizes[np.nonzero(passed)[0][-1]]) if passed.any() else float(np.inf)


def _correlation(q: Floats, m: Floats, scale_px: float) -> Floats:
    def mean(image: Floats) -> Floats:
        return smooth(image, scale_px)

    a, b = mean(q), mean(m)
    together, first, second = mean(q * m) - a * b, mean(q * q) - a * a, mean(m * m) - b * b
    least = 1e-12 * max(float(m.var()), float(q.var()), 1e-24)
    product = np.maximum(first, least) * np.maximum(second, least)
    return np.asarray(np.clip(together / np.sqrt(product), -1, 1))
