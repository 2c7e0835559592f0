r"""Describe the training conditions as a distribution of patches, and test whether another image belongs to it.

Each patch is measured in three ways (:func:`features`): its intensities, its noise and the shape of its spectrum, in
this order, form one vector f. The vectors of the training patches have a centre c and a covariance :math:`S = L L^T`,
and

.. math:: w = L^{-1} (f - c), \qquad d_{aspect} = \sqrt{\operatorname{mean}\, w_{aspect}^2}

Since L is triangular, the three parts of w are the intensity, the noise given that intensity, and the spectrum given
both. For each aspect, the mean of d over the patches of an image is standardised by its mean and standard deviation
over training images; the image's deviation is the largest of the three. Those statistics are measured on images left
out of c and S, so the rate of false alarms at the limit is known for any distribution, as long as the image is drawn
like the training images [Vovk et al., Algorithmic Learning in a Random World; conformal prediction].

:func:`fingerprint` summarises the same three aspects in plain lists, for people and other programs.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.data.frames import region

__all__ = ["ASPECTS", "Domain", "Judgement", "corners", "features", "fingerprint", "fit_domain"]

ASPECTS = ("intensity", "noise", "spectrum")
"""The aspects of an image that are compared, in the order used by all arrays here."""

RATE = 0.01
"""Target rate of false alarms, which takes at least 99 training images to reach."""

_LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_PARTS = (slice(0, len(_LEVELS)), slice(len(_LEVELS), len(_LEVELS) + 3), slice(len(_LEVELS) + 3, None))
"""Position of each aspect in a feature vector."""
_FINGERPRINT_LEVELS = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
_BINS = 16
"""Rings of frequencies in a spectrum."""
_FLOOR = 0.01
"""Least variance of a feature, relative to the mean of its aspect."""
_BLOCK = 4
"""Side of the blocks whose noise is compared with their brightness."""
_DARK = 1e-3
"""Noise and power below this share of the training conditions' standard deviation are not told apart."""

_ARRAYS = ("center", "whitening", "patch_limits", "image_means", "image_stds")

Floats = NDArray[np.float64]
Read: TypeAlias = Callable[[tuple[int, ...], tuple[int, ...]], NDArray[np.generic]]


@dataclass(frozen=True)
class Judgement:
    """The comparison of one image with the training images.

    Attributes:
        corners: First pixel of each patch, shape (patches, ndim).
        sides: Side lengths of the patches, shape (ndim).
        distances: Distance of each patch, divided by the distance that one in a hundred training patches exceeds, shape
            (aspects, patches): values above 1 are rare in training.
        deviations: Deviation of the image, in standard deviations of training images, shape (aspects).
        limit: Images like the training images have a largest deviation above this at the rate ``false_alarms``.
        false_alarms: Rate of false alarms at the limit.
    """

    corners: NDArray[np.int64]
    sides: tuple[int, ...]
    distances: Floats
    deviations: Floats
    limit: float
    false_alarms: float

    @property
    def is_unlike(self) -> bool:
        """Whether the image lies outside the training distribution."""
        return bool(self.deviations.max() > self.limit)

    @property
    def reasons(self) -> list[str]:
        """The aspects in which it lies outside, worst first."""
        order = np.argsort(-self.deviations)
        return [ASPECTS[place] for place in order if self.deviations[place] > self.limit]

    @property
    def told(self) -> str:
        """The comparison in one sentence."""
        rate = round(1 / self.false_alarms)
        if not self.is_unlike:
            return (
                "The image is like the training images in intensity, noise and spectrum. "
                f"Of images that are, the test calls 1 of {rate} unlike them."
            )
        sizes = dict(zip(ASPECTS, self.deviations.tolist(), strict=True))
        told = ", ".join(f"{reason} ({sizes[reason]:.1f} sd)" for reason in self.reasons)
        return (
            f"The image is unlike the training images in its {told}; the limit is {self.limit:.1f} sd of training "
            f"images, which 1 of {rate} images like them exceeds. Do not rely on what the model restores of it."
        )


@dataclass(frozen=True)
class Domain:
    """A description of the training conditions in plain numbers.

    Attributes:
        patch: Side of the patches in pixels of the target's grid.
        unit: Standard deviation of the training conditions, one per channel (K).
        center: c, shape (K, features).
        whitening: Inverse of L, shape (K, features, features).
        patch_limits: Distance that one in a hundred left-out training patches exceeds, per aspect.
        image_means: Mean distance of left-out training images, per aspect.
        image_stds: Standard deviation of that distance, per aspect.
        limit: Largest deviation that still counts as like the training images.
        num_images: Number of training images behind these statistics.
    """

    patch: int
    unit: tuple[float, ...]
    center: Floats
    whitening: Floats
    patch_limits: Floats
    image_means: Floats
    image_stds: Floats
    limit: float
    num_images: int

    @property
    def false_alarms(self) -> float:
        """Rate at which images like the training images exceed the limit; a small rate needs many images."""
        return max(RATE, 1 / (self.num_images + 1))

    def judge(self, image: NDArray[np.generic]) -> Judgement:
        """Compare an image (K, *spatial), in the units of the training conditions and on the target's grid."""
        return self.judge_read(image.shape[1:], functools.partial(region, image))

    def judge_read(self, spatial: Sequence[int], read: Read, most: int | None = None) -> Judgement:
        """Compare an image of any size that is read patch by patch.

        Args:
            spatial: Size of the image on the target's grid.
            read: Returns a region (K, *sides), given its corner and sides, in the units of the training conditions.
            most: Look at no more than about this many patches, spread evenly; at all by default.
        """
        sides = tuple(min(self.patch, length) for length in spatial)
        places = list(corners(spatial, self.patch, most))
        found = np.stack([features(read(corner, sides), self.unit) for corner in places])
        distances = _distances(found, self.center, self.whitening)
        deviations = (distances.mean(1) - self.image_means) / self.image_stds
        relative = distances / self.patch_limits[:, None]
        return Judgement(np.array(places), sides, relative, deviations, self.limit, self.false_alarms)

    def to_json(self) -> dict[str, Any]:
        """Return the values as numbers that JSON keeps to the bit."""
        numbers = {"patch": self.patch, "unit": list(self.unit), "limit": self.limit, "num_images": self.num_images}
        return {name: getattr(self, name).tolist() for name in _ARRAYS} | numbers

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Rebuild from the output of :meth:`to_json`; raises ValueError for anything else."""
        try:
            arrays: dict[str, Any] = {name: np.array(values[name], np.float64) for name in _ARRAYS}
            numbers: dict[str, Any] = {name: int(values[name]) for name in ("patch", "num_images")}
            unit = tuple(float(value) for value in values["unit"])
            made = cls(unit=unit, limit=float(values["limit"]), **arrays, **numbers)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"the description of the training images is invalid: {error!r:.100}") from error
        shape, aspects = (len(made.unit), made.center.shape[-1]), (len(ASPECTS),)
        shapes = [shape, (*shape, shape[1]), aspects, aspects, aspects]
        fits = [arrays[name].shape == expected for name, expected in zip(_ARRAYS, shapes, strict=True)]
        finite = [bool(np.isfinite(array).all()) for array in arrays.values()]
        if not all(fits) or not all(finite) or made.patch < 1 or made.num_images < 1:
            raise ValueError("the description of the training images has numbers that do not fit together")
        return made


def corners(spatial: Sequence[int], side: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
    """Yield the first pixels of patches that cover an image side by side; the last patch of a row ends at the border.

    With ``most``, of patches that would be more than this, along each axis only some, spread evenly.

    Example:
        >>> list(corners((4, 10), 4))
        [(0, 0), (0, 4), (0, 6)]
    """
    starts = [[min(start, max(length - side, 0)) for start in range(0, length, side)] for length in spatial]
    if most is not None:
        along = max(1, int(most ** (1 / len(spatial))))
        starts = [[row[int(at)] for at in np.linspace(0, len(row) - 1, min(along, len(row)))] for row in starts]
    yield from itertools.product(*map(dict.fromkeys, starts))


def features(patch: NDArray[np.generic], unit: Sequence[float]) -> Floats:
    """Compute the features of a patch (K, *spatial), one aspect after another, shape (K, features).

    Intensity is described by quantiles. Noise is described by the logarithms of its standard deviation in the whole
    patch, in its dark half and in its bright half, since shot noise grows with the light and camera noise does not. The
    spectrum is described by the logarithm of the power in each ring of frequencies, relative to the mean of the rings.
    """
    pixels = patch.astype(np.float64)
    dark = _DARK * np.asarray(unit)
    quantiles = np.quantile(pixels.reshape(len(pixels), -1), _LEVELS, axis=1).T
    noise = 0.5 * np.log(_noise(pixels) ** 2 + dark[:, None] ** 2)
    power = log_spectrum(pixels, least=dark**2)
    return np.concatenate([quantiles, noise, power - power.mean(1, keepdims=True)], axis=1)


def _features_of_all(patches: Sequence[NDArray[np.generic]], unit: Floats) -> Floats:
    """Compute the features of equally large patches, shape (patches, K, features), as if they were channels of one."""
    number, channels = len(patches), len(patches[0])
    return features(np.concatenate(patches), np.tile(unit, number).tolist()).reshape(number, channels, -1)


def _noise(pixels: Floats) -> Floats:
    """Standard deviation of the noise in a patch (K, *spatial), in its dark and in its bright blocks, shape (K, 3)."""
    height, width = (length // _BLOCK for length in pixels.shape[-2:])
    if min(height, width) < 2:
        return np.repeat(noise_level(pixels)[:, None], 3, axis=1)
    cut = pixels[..., : height * _BLOCK, : width * _BLOCK]
    blocks = cut.reshape(*pixels.shape[:-2], height, _BLOCK, width, _BLOCK).swapaxes(-3, -2)
    blocks = blocks.reshape(len(pixels), -1, _BLOCK, _BLOCK)
    brightness = blocks.mean((-2, -1))
    power = (np.diff(np.diff(blocks, axis=-1), axis=-2) ** 2).mean((-2, -1)) / 4
    middle = np.median(brightness, axis=1, keepdims=True)
    halves = [
        np.sqrt((power * half).sum(1) / np.maximum(half.sum(1), 1))
        for half in (brightness <= middle, brightness >= middle)
    ]
    return np.stack([noise_level(pixels), *halves], axis=1)


def fit_domain(images: Sequence[Sequence[NDArray[np.generic]]], patch: int) -> Domain | None:
    """Describe training images, each given by some patches (K, *spatial); None for fewer than three images.

    Each image is left out once, and its distances are measured from the centre and covariance of the others.
    """
    if len(images) < 3:
        return None
    pixels = [np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1) for parts in images]
    unit = np.maximum(np.concatenate(pixels, axis=1).astype(np.float64).std(1), 1e-12)
    tables = [_features_of_all(parts, unit) for parts in images]
    left_out = [
        _distances(table, *_gaussian(np.concatenate([*tables[:number], *tables[number + 1 :]])))
        for number, table in enumerate(tables)
    ]
    of_images = np.stack([distances.mean(1) for distances in left_out], axis=1)
    means, stds = of_images.mean(1), np.maximum(of_images.std(1), 1e-12)
    largest = np.sort(((of_images - means[:, None]) / stds[:, None]).max(0))
    rank = min(math.ceil((1 - RATE) * (len(images) + 1)), len(images))
    limits = np.quantile(np.concatenate(left_out, axis=1), 0.99, axis=1)
    center, whitening = _gaussian(np.concatenate(tables))
    return Domain(
        patch,
        tuple(unit.tolist()),
        center,
        whitening,
        np.maximum(limits, 1e-12),
        means,
        stds,
        limit=float(largest[rank - 1]),
        num_images=len(images),
    )


def _gaussian(table: Floats) -> tuple[Floats, Floats]:
    """Centre (K, features) and triangular whitening (K, features, features) of patches (patches, K, features)."""
    center = table.mean(0)
    number, _, size = table.shape
    shrinkage = size / (size + number)  # few patches cannot determine all correlations
    whitenings = []
    for channel in np.moveaxis(table - center, 1, 0):
        covariance = channel.T @ channel / number
        variances = np.diag(covariance)
        floor = np.zeros(size)
        for part in _PARTS:
            floor[part] = max(_FLOOR * float(variances[part].mean()), 1e-12)
        shrunk = (1 - shrinkage) * covariance + np.diag(shrinkage * variances + floor)
        whitenings.append(np.linalg.inv(np.linalg.cholesky(shrunk)))
    return center, np.stack(whitenings)


def _distances(table: Floats, center: Floats, whitening: Floats) -> Floats:
    """Distances of patches (patches, K, features), shape (aspects, patches): the largest over channels."""
    white = np.einsum("kij,pkj->pki", whitening, table - center)
    return np.stack([np.sqrt((white[..., part] ** 2).mean(-1)).max(1) for part in _PARTS])


def fingerprint(patches: Sequence[NDArray[np.generic]]) -> dict[str, object]:
    """Compute quantiles, noise and spectrum of condition patches (K, *spatial), per channel, as plain lists.

    Returns:
        ``levels`` and ``quantiles`` (mean over patches, K x levels) with their ``quantile_spread``; ``noise`` (standard
        deviation of the noise, K) with ``noise_spread``; ``spectrum`` (mean logarithm of the radial power, K x bins,
        from the lowest frequency to Nyquist) with ``spectrum_spread``.
    """
    arrays = [patch.astype(np.float64) for patch in patches]
    quantiles = np.stack([np.quantile(a.reshape(len(a), -1), _FINGERPRINT_LEVELS, axis=1).T for a in arrays])
    noise = np.stack([noise_level(array) for array in arrays])
    spectra = np.stack([log_spectrum(array, least=1e-12) for array in arrays])
    return {
        "levels": list(_FINGERPRINT_LEVELS),
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
    window = functools.reduce(np.multiply.outer, map(np.hanning, spatial))[None]
    frequencies = np.meshgrid(*(np.fft.fftfreq(length) for length in spatial), indexing="ij")
    radius = np.sqrt(sum(f**2 for f in frequencies))
    bins = np.minimum((radius / 0.5 * _BINS).astype(int), _BINS).ravel()
    return window, bins, np.bincount(bins, minlength=_BINS + 1)[:_BINS]
