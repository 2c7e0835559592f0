r"""Measure which side of the pairs is noisier: targets noisier than their inputs are folders that were exchanged.

White noise has as much power at the finest frequencies as anywhere, and images hardly any. So the share of an image's
variance that is noise is about the mean power of what is finer than 0.4 cycles per pixel along both axes, over the mean
power of all frequencies but the zeroth.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.data.pair_middles import Middle

__all__ = ["doubts_of_sides", "noise_share"]

_LEAST_PAIRS = 3
_LEAST_SIDE = 16
_FINEST = 0.4
_NOISY, _TIMES = 0.1, 4.0
"""Of a target that is doubted: its least share of noise, and how often it holds its input's."""

Floats = NDArray[np.float64]


def doubts_of_sides(checked: Sequence[Middle], factor: Sequence[int] | None) -> list[str]:
    """A warning if most targets are far noisier than their inputs, else nothing.

    Args:
        checked: Some pairs of a training.
        factor: Target pixels per measured pixel. Enlarged inputs have lost their finest frequencies, so they are not
            judged.
    """
    if factor is None or max(factor) > 1 or len(checked) < _LEAST_PAIRS:
        return []
    shares = np.array([[noise_share(image) for image in (pair.condition, pair.target)] for pair in checked])
    noisier = (shares[:, 1] >= _NOISY) & (shares[:, 1] > _TIMES * shares[:, 0])
    if 2 * noisier.sum() <= len(checked):
        return []
    before, after = np.median(shares[noisier], axis=0)
    return [
        f"the targets of {noisier.sum()} of {len(checked)} checked pairs are noisier than their inputs: noise, or "
        f"detail as fine as a pixel, is about {after:.0%} of their variance, and {before:.0%} of the inputs'; if the "
        "folders are exchanged, give the measured images with --inputs and the clean ones with --targets"
    ]


def noise_share(image: Floats) -> float:
    """Share of the variance of an image (H, W) that is white noise, roughly; 0 if it is flat, small or not finite.

    Example:
        >>> noise = np.random.default_rng(0).standard_normal((64, 64))
        >>> 0.8 < noise_share(noise) < 1.2
        True
    """
    if min(image.shape) < _LEAST_SIDE or not np.isfinite(image).all():
        return 0.0
    window = np.multiply.outer(*(np.hanning(side) for side in image.shape))
    power = np.abs(np.fft.fft2((image - image.mean()) * window)) ** 2
    power[0, 0] = 0
    rows, columns = (np.abs(np.fft.fftfreq(side)) > _FINEST for side in image.shape)
    return float(power[np.ix_(rows, columns)].mean() / power.mean()) if power.any() else 0.0
