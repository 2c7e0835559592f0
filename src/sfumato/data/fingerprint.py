"""Summarise what the conditions of a training set look like, so that unlike inputs can be noticed later."""

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["fingerprint", "log_spectrum", "noise_level"]

_LEVELS = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
_BINS = 16

Floats = NDArray[np.float64]


def fingerprint(patches: Sequence[NDArray[np.generic]]) -> dict[str, object]:
    """Compute quantiles, noise and spectrum of condition patches (K, *spatial), per channel, as plain lists.

    Returns:
        ``levels`` and ``quantiles`` (mean over patches, K x levels) with their ``quantile_spread``; ``noise`` (standard
        deviation of the noise, K) with ``noise_spread``; ``spectrum`` (mean logarithm of the radial power, K x bins,
        from the lowest frequency to Nyquist) with ``spectrum_spread``.
    """
    arrays = [patch.astype(np.float64) for patch in patches]
    quantiles = np.stack([np.quantile(a.reshape(len(a), -1), _LEVELS, axis=1).T for a in arrays])
    noise = np.stack([noise_level(array) for array in arrays])
    spectra = np.stack([log_spectrum(array, least=1e-12) for array in arrays])
    return {
        "levels": list(_LEVELS),
        "quantiles": quantiles.mean(0).tolist(),
        "quantile_spread": quantiles.std(0).tolist(),
        "noise": noise.mean(0).tolist(),
        "noise_spread": noise.std(0).tolist(),
        "spectrum": spectra.mean(0).tolist(),
        "spectrum_spread": spectra.std(0).tolist(),
    }


def noise_level(patch: Floats) -> Floats:
    """Estimate the standard deviation of white noise per channel from second differences, free of smooth structure."""
    difference = np.diff(np.diff(patch, axis=-1), axis=-2)
    middle = np.median(np.abs(difference.reshape(len(patch), -1)), axis=1)
    # The median of |N(0, 1)| is 0.6745; a difference of differences of white noise has 4 times its variance.
    return np.asarray(middle / (0.6745 * 2))


def log_spectrum(patch: Floats, *, least: float | Floats) -> Floats:
    """Logarithm of the radial power of a patch (K, *spatial), in bins from low frequency to Nyquist, shape (K, bins).

    Args:
        patch: The pixels.
        least: Added to the power, so that no logarithm is minus infinity; one number, or one per channel.
    """
    axes = tuple(range(1, patch.ndim))
    window, bins, counts = _rings(patch.shape[1:])
    centred = patch - patch.mean(axes, keepdims=True)
    power = np.abs(np.fft.fftn(centred * window, axes=axes)) ** 2
    sums = np.stack([np.bincount(bins, channel.ravel(), minlength=_BINS + 1)[:_BINS] for channel in power])
    return np.asarray(np.log(sums / np.maximum(counts, 1) + np.reshape(least, (-1, 1))))


@functools.lru_cache(8)
def _rings(spatial: tuple[int, ...]) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """For one patch size: the window (1, *spatial), the ring of each frequency (flat), and the size of each ring."""
    window = np.ones(())
    for axis, length in enumerate(spatial, start=1):
        shape = [-1 if a == axis else 1 for a in range(len(spatial) + 1)]
        window = window * np.hanning(length).reshape(shape)
    frequencies = np.meshgrid(*(np.fft.fftfreq(length) for length in spatial), indexing="ij")
    radius = np.sqrt(sum(f**2 for f in frequencies))
    bins = np.minimum((radius / 0.5 * _BINS).astype(int), _BINS).ravel()
    return window, bins, np.bincount(bins, minlength=_BINS + 1)[:_BINS]
