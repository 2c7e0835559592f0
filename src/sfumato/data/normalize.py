r"""Normalise images with one affine map per channel, fitted to the training set and stored in the model.

.. math:: normalised = (value - offset) / scale

Statistics are computed in one pass over the images, in memory that does not grow with their number. Means and squares
are merged block by block (Chan, Golub & LeVeque 1983). Quantiles of integers up to 16 bits come from histograms and are
exact. Quantiles of other types use one pixel from every run of `stride` pixels, at a position within the run given by a
hash of (image, run). The stride starts at 1, where quantiles are exact, and doubles whenever more than 2**21 pixels per
channel are kept. From at least M = 2**20 pixels, a quantile at level q is off by about
:math:`\sqrt{q (1 - q) / M}` in level: 3e-5 at q = 0.001. The same images always give the same numbers.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.data.images.pixels import MOST_WHOLE, floats
from sfumato.data.order import uniform
from sfumato.system.errors import PairingError

__all__ = ["Normalization", "fit_together"]

_BLOCK = 2**20
"""Pixels converted to float64 at a time."""
_MOST_KEPT = 2**21
"""Pixels per channel kept for the quantiles of floats."""
_LOWEST, _HIGHEST = -(2**15), 2**16 - 1
"""Range of all integers of at most 16 bits, signed or not."""


@dataclass(frozen=True)
class Normalization:
    """An affine map per channel.

    Attributes:
        offset: Value that maps to 0, one number per channel.
        scale: Difference that maps to 1, positive, one number per channel.

    Example:
        >>> normalization = Normalization(offset=(100.0,), scale=(50.0,))
        >>> normalization.apply(torch.tensor([[50.0, 150.0]]).reshape(1, 1, 1, 2)).flatten().tolist()
        [-1.0, 1.0]
    """

    offset: tuple[float, ...]
    scale: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.offset or len(self.offset) != len(self.scale):
            raise ValueError(
                f"got {len(self.offset)} offsets and {len(self.scale)} scales; give one of each per channel"
            )
        if not all(map(math.isfinite, self.offset)) or not all(0 < scale < math.inf for scale in self.scale):
            raise ValueError(
                f"offsets are {self.offset} and scales {self.scale}; give finite offsets and finite, positive scales"
            )

    def apply(self, images: Tensor, *, axis: int = 1) -> Tensor:
        """Normalise images given in the data's units.

        Args:
            images: Shape (B, C, *spatial), or any with C channels along ``axis``; integers become float32.
            axis: Axis of the channels.
        """
        images = images if images.is_floating_point() else images.to(torch.float32)
        return (images - self._along(self.offset, images, axis)) / self._along(self.scale, images, axis)

    def of_pixels(self, pixels: NDArray[Any], *, axis: int = 1) -> Tensor:
        """Normalise pixels of any type, given in the data's units, to float32.

        Where float32 cannot tell pixels apart, the offset is subtracted in float64, so that they keep their levels.
        """
        held = torch.from_numpy(floats(pixels))
        near = self.apply(held.to(torch.float32), axis=axis)
        if held.dtype == torch.float32:
            return near
        return torch.where(held.abs() > MOST_WHOLE, self.apply(held, axis=axis).to(torch.float32), near)

    def invert(self, images: Tensor, *, axis: int = 1) -> Tensor:
        """Convert normalised images, shape (B, C, *spatial), back to the data's units."""
        return images * self._along(self.scale, images, axis) + self._along(self.offset, images, axis)

    def invert_spread(self, std: Tensor, *, axis: int = 1) -> Tensor:
        """Convert standard deviations, shape (B, C, *spatial), to the data's units: scaled but not shifted."""
        return std * self._along(self.scale, std, axis)

    def to_json(self) -> dict[str, list[float]]:
        """Return the values as numbers that JSON keeps to the bit."""
        return {"offset": list(self.offset), "scale": list(self.scale)}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Rebuild from the output of :meth:`to_json`; raises ValueError for anything else."""
        if not isinstance(values, dict) or set(values) != {"offset", "scale"}:
            raise ValueError("a normalisation has the keys `offset` and `scale` and no other")
        columns = [_numbers(name, values[name]) for name in ("offset", "scale")]
        return cls(*columns)

    def _along(self, numbers: tuple[float, ...], images: Tensor, axis: int) -> Tensor:
        """Return the numbers, one per channel, in a shape that broadcasts against the images."""
        if images.shape[axis] != len(numbers):
            raise ValueError(
                f"images have {images.shape[axis]} channels but the normalisation {len(numbers)}; "
                "bring the images to the channels that the model was trained with"
            )
        shape = [1] * images.ndim
        shape[axis] = -1
        return torch.tensor(numbers, dtype=images.dtype, device=images.device).reshape(shape)


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise ValueError(f"{name} is {values!r:.80}; a normalisation has a list of numbers there")
    try:
        return tuple(map(float, values))
    except OverflowError:
        raise ValueError(f"{name} has a number beyond the range of floats") from None


def fit_together(
    kind: Literal["quantile", "mean_std"],
    images: Iterable[tuple[NDArray[Any], ...]],
    quantiles: tuple[float, float] = (0.001, 0.999),
) -> list[Normalization]:
    """Fit the normalisations of sets whose images are read together, such as conditions and targets, in one pass.

    Every pixel counts once.

    Args:
        kind: ``quantile`` maps the two quantiles to -1 and 1; ``mean_std`` maps the mean to 0 and the standard
            deviation to 1. Each channel is treated separately.
        images: Tuples with one image of each set, shape (C, *spatial), with the same C in all images of a set.
        quantiles: Levels for ``quantile``; values between two pixels are interpolated as in ``numpy.quantile``.

    Returns:
        One normalisation per set.

    Raises:
        PairingError: If a channel is constant (at its quantiles), an image has NaN or infinite pixels, or images differ
            in their number of channels.

    Example:
        >>> fit_together("quantile", [(np.arange(5).reshape(1, 5),)], quantiles=(0.0, 1.0))
        [Normalization(offset=(2.0,), scale=(2.0,))]
    """
    sets: list[_Quantiles | _Moments] = []
    channels: list[int] = []
    for number, arrays in enumerate(images):
        channels = channels or [array.shape[0] if array.ndim else 0 for array in arrays]
        sets = sets or [_Quantiles(quantiles) if kind == "quantile" else _Moments() for _ in arrays]
        for statistics, array, expected in zip(sets, arrays, channels, strict=True):
            statistics.add(number, _checked(number, array, expected))
    if not sets:
        raise PairingError("the training set has no image; check the folders, the manifest and the split")
    return [statistics.normalization() for statistics in sets]


def _checked(number: int, array: NDArray[Any], channels: int) -> NDArray[Any]:
    """Return an image as (C, pixels), after checking that it is real and has the channels of the images before it."""
    if array.ndim < 2 or array.size == 0 or array.dtype.kind not in "biuf":
        raise PairingError(
            f"image {number} of the training set has shape {array.shape} and dtype {array.dtype}; "
            "expected channels and pixels of real numbers: leave the image out or convert it"
        )
    if len(array) != channels:
        raise PairingError(
            f"image {number} of the training set has {len(array)} channels and those before it {channels}; "
            "bring all images to the same channels"
        )
    return array.reshape(channels, -1)


def _blocks(number: int, array: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    """Yield pieces of an image, shape (C, n), as float64; raises PairingError if a pixel is not finite."""
    for start in range(0, array.shape[1], _BLOCK):
        block = array[:, start : start + _BLOCK].astype(np.float64)
        if not np.isfinite(block).all():
            channel = int(np.argmin(np.isfinite(block).all(axis=1)))
            raise PairingError(
                f"image {number} of the training set has NaN or infinite pixels in channel {channel}; "
                "replace them or leave the image out"
            )
        yield block


def _normalization(offset: list[float], scale: list[float]) -> Normalization:
    for channel, spread in enumerate(scale):
        if not 0 < spread < math.inf:
            raise PairingError(
                f"channel {channel} of the training set has a spread of {spread:g}, beyond the range of numbers; "
                "multiply the images by a factor that brings them near 1"
            )
    return Normalization(tuple(offset), tuple(scale))


class _Moments:
    """Accumulates the mean and population standard deviation per channel."""

    def __init__(self) -> None:
        self._count = 0
        self._mean = self._squares = np.zeros(1)
        self._low, self._high = np.array([math.inf]), np.array([-math.inf])

    @np.errstate(over="ignore")
    def add(self, number: int, array: NDArray[Any]) -> None:
        for block in _blocks(number, array):
            mean = block.mean(axis=1)
            squares = np.square(block - mean[:, None]).sum(axis=1)
            added, total = block.shape[1], self._count + block.shape[1]
            shift = mean - self._mean
            self._squares = self._squares + squares + np.square(shift) * (self._count * added / total)
            self._mean = self._mean + shift * (added / total)
            self._low, self._high = np.minimum(self._low, block.min(axis=1)), np.maximum(self._high, block.max(axis=1))
            self._count = total

    def normalization(self) -> Normalization:
        for channel, (low, high) in enumerate(zip(self._low, self._high, strict=True)):
            if low == high:
                raise PairingError(
                    f"channel {channel} of the training set is {low:g} everywhere, so it has no scale; "
                    "leave the channel out or check that the right files were given"
                )
        return _normalization(self._mean.tolist(), np.sqrt(self._squares / self._count).tolist())


class _Quantiles:
    """Accumulates two quantiles per channel: exact for integers up to 16 bits, otherwise from a bounded sample."""

    def __init__(self, levels: tuple[float, float]) -> None:
        self._levels = levels
        self._histograms: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self._kept: list[NDArray[np.float64]] = []
        self._num_kept = 0
        self._stride = 1

    def add(self, number: int, array: NDArray[Any]) -> None:
        if array.dtype.kind in "biu" and (array.dtype.kind == "b" or array.dtype.itemsize <= 2):
            self._count_values(array)
        else:
            self._sample(number, array)

    def _count_values(self, array: NDArray[Any]) -> None:
        if not len(self._histograms):
            self._histograms = np.zeros((len(array), _HIGHEST - _LOWEST + 1), dtype=np.int64)
        for channel, histogram in zip(array, self._histograms, strict=True):
            for start in range(0, len(channel), _BLOCK):
                values = channel[start : start + _BLOCK].astype(np.int64) - _LOWEST
                histogram += np.bincount(values, minlength=len(histogram))

    def _sample(self, number: int, array: NDArray[Any]) -> None:
        for block_number, block in enumerate(_blocks(number, array)):
            runs = np.arange(-(-block.shape[1] // self._stride), dtype=np.uint64)
            draws = uniform(number, block_number, runs) if self._stride > 1 else np.zeros(len(runs))
            places = ((runs + draws) * self._stride).astype(np.int64)
            self._kept.append(block[:, places[places < block.shape[1]]])
            self._num_kept += self._kept[-1].shape[1]
            while self._num_kept > _MOST_KEPT:
                self._kept = [np.concatenate(self._kept, axis=1)[:, ::2].copy()]
                self._num_kept = self._kept[0].shape[1]
                self._stride *= 2

    def normalization(self) -> Normalization:
        offset, scale = [], []
        for channel, pixels in enumerate(self._sorted_pixels()):
            low, high = (_quantile(*pixels, level) for level in self._levels)
            if low == high:
                raise PairingError(
                    f"channel {channel} of the training set is {low:g} at both quantiles {self._levels[0]:g} and "
                    f"{self._levels[1]:g}: it is constant, or nearly; leave the channel out, check that the right "
                    "files were given, or set data.quantiles wider apart or data.normalize to mean_std"
                )
            offset.append(low / 2 + high / 2)
            scale.append(high / 2 - low / 2)
        return _normalization(offset, scale)

    def _sorted_pixels(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        """Yield the sorted values of each channel, and the number of pixels up to each value."""
        kept = np.concatenate(self._kept, axis=1) if self._kept else np.zeros((len(self._histograms), 0))
        histograms = self._histograms if len(self._histograms) else np.zeros((len(kept), 0), dtype=np.int64)
        for sampled, histogram in zip(kept, histograms, strict=True):
            present = np.flatnonzero(histogram)
            values = np.concatenate([(present + _LOWEST).astype(np.float64), sampled])
            weights = np.concatenate([histogram[present], np.full(len(sampled), self._stride)])
            order = np.argsort(values, kind="stable")
            yield values[order], np.cumsum(weights[order])


def _quantile(values: NDArray[np.float64], counts: NDArray[np.int64], level: float) -> float:
    """Quantile of sorted values, given the number of pixels up to each value."""
    position = level * float(counts[-1] - 1)
    below = math.floor(position)
    places = np.searchsorted(counts, [below, min(below + 1, int(counts[-1]) - 1)], side="right")
    low, high = values[places].tolist()
    return float(low + (high - low) * (position - below))
