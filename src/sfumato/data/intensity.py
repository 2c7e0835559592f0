r"""Rescale the intensities of each image by statistics of the whole image, as it is read.

:class:`ScaledPairs` are for sets in which the intensities of different images are not comparable. Each channel of each
image is scaled by its own quantiles:

.. math:: scaled = 2\,(value - q_{low}) / (q_{high} - q_{low}) - 1

Without this, where light levels differ forty-fold, almost nothing would be left of the faint images. The restored
intensities are then known only up to a scale.

:class:`MatchedPairs` are for pairs whose intensities differ from image to image. Exposures, gains and contrast
stretches often differ between the two images of a pair, and differently for every pair. A network cannot know the
factor, and its guesses show up as noise in the restored image. So each target is brought to the scale of its own input:
a + b target is the least-squares fit to the input over the whole frame. Since the noise is in the input, it does not
bias the fit.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.data.frames import FrameCache
from sfumato.data.pixel_hash import PairHashes
from sfumato.data.source_files import SourceFile
from sfumato.data.sources import PairSource
from sfumato.system.errors import PairingError

__all__ = ["MatchedPairs", "RescaledPairs", "ScaledPairs", "image_range", "offset_and_slope", "scale_to"]

Array = NDArray[np.generic]
Floats = NDArray[np.float64]
_CACHE_BYTES = 2**26


class RescaledPairs(ABC):
    """A :class:`~sfumato.data.sources.PairSource` that rescales the intensities of another one.

    Whole images are measured once and the results are cached, up to a budget, since training reads each image often.

    Args:
        source: The unchanged images.
    """

    def __init__(self, source: PairSource) -> None:
        self.source = source
        self.ndim = source.ndim
        self.condition_channels, self.target_channels = source.condition_channels, source.target_channels
        self.dtypes, self.factor = source.dtypes, source.factor
        self._measured = FrameCache(_CACHE_BYTES)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def num_images(self) -> int:
        """Number of different images of the source."""
        return self.source.num_images

    def name(self, sample: int) -> str:
        """Name of the sample in the source."""
        return self.source.name(sample)

    def spatial(self, sample: int) -> tuple[int, ...]:
        """Size of the sample in the source."""
        return self.source.spatial(sample)

    def smallest(self) -> int:
        """The sample of the source with the shortest side."""
        return self.source.smallest()

    def hashes(self, sample: int) -> PairHashes:
        """Hashes of the unscaled images, since the same image may be scaled differently in another set."""
        return self.source.hashes(sample)

    def read(self, sample: int, corner: Sequence[int], size: Sequence[int]) -> tuple[Array, Array]:
        """Read the condition and target of a region, rescaled by the measurements of the whole images."""
        measured = np.asarray(self._measured.get(sample, lambda: self._measure_whole(sample)), np.float64)
        return self._change(*self.source.read(sample, corner, size), measured)

    def files(self) -> Iterator[SourceFile]:
        """Files of the source."""
        return self.source.files()

    def _measure_whole(self, sample: int) -> Floats:
        return self._measure(sample, *self.source.read(sample, [0] * self.ndim, self.spatial(sample)))

    @abstractmethod
    def _measure(self, sample: int, condition: Array, target: Array) -> Floats:
        """Measure a pair of whole images."""

    @abstractmethod
    def _change(self, condition: Array, target: Array, measured: Floats) -> tuple[Array, Array]:
        """Rescale a region of both images, given the measurements."""


def image_range(image: Array, quantiles: tuple[float, float]) -> Floats:
    """Quantiles of each channel of an image (C, *spatial), shape (2, C)."""
    return np.quantile(image.reshape(len(image), -1).astype(np.float64), quantiles, axis=1)


def scale_to(image: Array, low_high: Floats) -> NDArray[np.float32]:
    """Scale an image (C, *spatial) so that its range (2, C) becomes -1 to 1; a constant channel becomes 0.

    Example:
        >>> image = np.array([[0.0, 5.0, 10.0]])
        >>> scale_to(image, image_range(image, (0.0, 1.0))).tolist()
        [[-1.0, 0.0, 1.0]]
    """
    low, high = (values.reshape(-1, *[1] * (image.ndim - 1)) for values in low_high)
    half = np.where(high > low, (high - low) / 2, 1)
    return np.asarray((image - (low + high) / 2) / half, np.float32)


class ScaledPairs(RescaledPairs):
    """A source whose images are each scaled by their own quantiles.

    Args:
        source: The unscaled images.
        quantiles: Levels of the quantiles that become -1 and 1.
    """

    def __init__(self, source: PairSource, quantiles: tuple[float, float]) -> None:
        super().__init__(source)
        self.quantiles = quantiles
        self.dtypes = (np.dtype(np.float32), np.dtype(np.float32))

    def _measure(self, sample: int, condition: Array, target: Array) -> Floats:
        """Ranges of all channels of conditions, then of targets, shape (2, K + C)."""
        return np.concatenate([image_range(side, self.quantiles) for side in (condition, target)], axis=1)

    def _change(self, condition: Array, target: Array, measured: Floats) -> tuple[Array, Array]:
        number = self.condition_channels
        return scale_to(condition, measured[:, :number]), scale_to(target, measured[:, number:])


def offset_and_slope(source: Array, goal: Array) -> tuple[float, float]:
    """Return the offset a and slope b for which a + b source is closest to the goal in least squares.

    Example:
        >>> offset_and_slope(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]))
        (1.0, 2.0)
    """
    x, y = (np.asarray(values, np.float64).ravel() for values in (source, goal))
    centred = x - x.mean()
    variance = float(centred @ centred)
    slope = float(centred @ y) / variance if variance > 0 else 0.0
    return float(y.mean() - slope * x.mean()), slope


class MatchedPairs(RescaledPairs):
    """A source whose targets are matched to the intensities of their inputs.

    Args:
        source: Pairs with the same number of input and target channels, which show the same thing.
    """

    def __init__(self, source: PairSource) -> None:
        if source.condition_channels != source.target_channels:
            raise PairingError(
                f"data.match_intensity compares channels, but inputs have {source.condition_channels} and targets "
                f"{source.target_channels}; give as many in both, or set it to false"
            )
        super().__init__(source)
        self.dtypes = (source.dtypes[0], np.dtype(np.float32))

    def _measure(self, sample: int, condition: Array, target: Array) -> Floats:
        """Fit the offset and slope of every channel, shape (C, 2)."""
        fits = np.array([offset_and_slope(*channel) for channel in zip(target, condition, strict=True)])
        if (fits[:, 1] <= 0).any():
            raise PairingError(
                f"{self.name(sample)}: the input falls where the target rises, so they cannot be brought to one scale; "
                "check that they show the same place, or set data.match_intensity to false"
            )
        return fits

    def _change(self, condition: Array, target: Array, measured: Floats) -> tuple[Array, Array]:
        channels = zip(target, measured.tolist(), strict=True)
        return condition, np.stack([(a + b * channel).astype(np.float32) for channel, (a, b) in channels])
