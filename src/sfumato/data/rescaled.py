"""Pairs whose intensities are changed image by image, each region as the whole image asks for."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.data.cache import FrameCache
from sfumato.data.pixel_hash import PairHashes
from sfumato.data.source_files import SourceFile
from sfumato.data.sources import PairSource

__all__ = ["RescaledPairs"]

Array = NDArray[np.generic]
_CACHE_BYTES = 2**26


class RescaledPairs(ABC):
    """A source seen through maps of its intensities, a :class:`~sfumato.data.sources.PairSource`.

    What a whole image asks for is measured once and kept, up to a budget, since training reads an image often.

    Args:
        source: The images as they are.
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
        """The source's."""
        return self.source.name(sample)

    def spatial(self, sample: int) -> tuple[int, ...]:
        """The source's."""
        return self.source.spatial(sample)

    def smallest(self) -> int:
        """The source's."""
        return self.source.smallest()

    def hashes(self, sample: int) -> PairHashes:
        """The source's: the same image has another range in another set."""
        return self.source.hashes(sample)

    def read(self, sample: int, corner: Sequence[int], size: Sequence[int]) -> tuple[Array, Array]:
        """Condition and target of a region, changed by what the whole images hold."""
        measured = np.asarray(self._measured.get(sample, lambda: self._measure_whole(sample)), np.float64)
        return self._change(*self.source.read(sample, corner, size), measured)

    def files(self) -> Iterator[SourceFile]:
        """The source's."""
        return self.source.files()

    def _measure_whole(self, sample: int) -> NDArray[np.float64]:
        return self._measure(sample, *self.source.read(sample, [0] * self.ndim, self.spatial(sample)))

    @abstractmethod
    def _measure(self, sample: int, condition: Array, target: Array) -> NDArray[np.float64]:
        """What must be known of a pair of whole images."""

    @abstractmethod
    def _change(self, condition: Array, target: Array, measured: NDArray[np.float64]) -> tuple[Array, Array]:
        """A region of both, given what was measured."""
