"""Base class for sources that rescale the intensities of each image, based on statistics of the whole image."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.data.frames import FrameCache
from sfumato.data.pixel_hash import PairHashes
from sfumato.data.source_files import SourceFile
from sfumato.data.sources import PairSource

__all__ = ["RescaledPairs"]

Array = NDArray[np.generic]
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

    def _measure_whole(self, sample: int) -> NDArray[np.float64]:
        return self._measure(sample, *self.source.read(sample, [0] * self.ndim, self.spatial(sample)))

    @abstractmethod
    def _measure(self, sample: int, condition: Array, target: Array) -> NDArray[np.float64]:
        """Measure a pair of whole images."""

    @abstractmethod
    def _change(self, condition: Array, target: Array, measured: NDArray[np.float64]) -> tuple[Array, Array]:
        """Rescale a region of both images, given the measurements."""
