"""Pairs whose intensities differ from image to image, brought to one scale.

Exposures, gains and stretches often differ between the two images of a pair, and differently for every pair. No network
can know by which factor, and what it guesses is noise in the restored image. Here each target is brought to the scale
of its own input: a + b target is closest to the input, in least squares over the whole frame. Since the noise is in the
input, the fit has no bias from it.
"""

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.data.frames import PairSource
from sfumato.errors import PairingError

__all__ = ["MatchedPairs", "affine_fit"]

Array = NDArray[np.generic]


def affine_fit(source: Array, goal: Array) -> tuple[float, float]:
    """Offset a and slope b for which a + b source is closest to the goal.

    Example:
        >>> affine_fit(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]))
        (1.0, 2.0)
    """
    x, y = (np.asarray(values, np.float64).ravel() for values in (source, goal))
    centred = x - x.mean()
    variance = float(centred @ centred)
    slope = float(centred @ y) / variance if variance > 0 else 0.0
    return float(y.mean() - slope * x.mean()), slope


class MatchedPairs:
    """A :class:`~sfumato.data.frames.PairSource` whose targets have the intensities of their inputs.

    Args:
        source: Pairs with as many input channels as target channels, which show the same thing.
    """

    def __init__(self, source: PairSource) -> None:
        if source.condition_channels != source.target_channels:
            raise PairingError(
                f"data.match_intensity compares channels, but inputs have {source.condition_channels} and targets "
                f"{source.target_channels}; give as many in both, or set it to false"
            )
        self._source = source
        self.ndim = source.ndim
        self.condition_channels, self.target_channels = source.condition_channels, source.target_channels
        self.dtypes = (source.dtypes[0], np.dtype(np.float32))
        self._fits: dict[int, list[tuple[float, float]]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._source)

    def name(self, sample: int) -> str:
        """As the source calls it."""
        return self._source.name(sample)

    def spatial(self, sample: int) -> tuple[int, ...]:
        """Size of the target."""
        return self._source.spatial(sample)

    def smallest(self) -> int:
        """The sample with the shortest side."""
        return self._source.smallest()

    def read(self, sample: int, corner: Sequence[int], size: Sequence[int]) -> tuple[Array, Array]:
        """Condition as stored, target in its intensities as float32."""
        condition, target = self._source.read(sample, corner, size)
        channels = zip(target, self._fit(sample), strict=True)
        return condition, np.stack([(a + b * channel).astype(np.float32) for channel, (a, b) in channels])

    def _fit(self, sample: int) -> list[tuple[float, float]]:
        """Offset and slope per channel, over the whole frame; kept, since a frame is read often."""
        with self._lock:
            if sample in self._fits:
                return self._fits[sample]
        frame = self._source.read(sample, [0] * self.ndim, self._source.spatial(sample))
        fits = [affine_fit(target, condition) for condition, target in zip(*frame, strict=True)]
        if any(slope <= 0 for _, slope in fits):
            raise PairingError(
                f"{self.name(sample)}: the input falls where the target rises, so they cannot be brought to one scale; "
                "check that they show the same place, or set data.match_intensity to false"
            )
        with self._lock:
            self._fits[sample] = fits
        return fits
