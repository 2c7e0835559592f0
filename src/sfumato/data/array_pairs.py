"""Pairs in memory, or from any object that counts and gives them, as a :class:`~sfumato.data.sources.PairSource`."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.data.frames import region
from sfumato.data.images.pixels import as_pixels
from sfumato.data.pixel_hash import PairHashes, array_hash
from sfumato.data.source_files import SourceFile
from sfumato.system.errors import PairingError

__all__ = ["ArrayPairs", "Pairs"]

Array = NDArray[Any]


class Pairs(Protocol):
    """Numbered pairs: a list, or a dataset of torch."""

    def __len__(self) -> int:
        """Number of pairs."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """A measured image and its truth: arrays or tensors, (channels, *spatial) or, of one channel, (*spatial)."""
        ...


class ArrayPairs:
    """Pairs held in memory.

    Args:
        pairs: Measured images and truths on one grid; each is asked for once.
        ndim: Number of spatial axes.

    Raises:
        PairingError: If there are none, or they differ in size or channels.

    Example:
        >>> pairs = ArrayPairs([(np.zeros((2, 8, 8)), np.zeros((8, 8)))], ndim=2)
        >>> len(pairs), pairs.condition_channels, pairs.target_channels
        (1, 2, 1)
    """

    def __init__(self, pairs: Pairs, *, ndim: int) -> None:
        self.ndim, self.factor = ndim, (1,) * ndim
        self._pairs = [self._checked(number, pairs[number]) for number in range(len(pairs))]
        if not self._pairs:
            raise PairingError("no pair was given; expected measured images with their truths; give some")
        first = self._pairs[0]
        self.condition_channels, self.target_channels = (len(image) for image in first)
        self.dtypes = (first[0].dtype, first[1].dtype)
        for number, pair in enumerate(self._pairs):
            found, expected = ([len(image) for image in images] for images in (pair, first))
            if found != expected:
                raise PairingError(
                    f"{self.name(number)} has {found[0]} and {found[1]} channels and {self.name(0)} has {expected[0]} "
                    f"and {expected[1]}; expected the same in all"
                )

    def _checked(self, number: int, pair: Any) -> tuple[Array, Array]:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise PairingError(
                f"{self.name(number)} is a {type(pair).__name__}; expected two images: what was measured, and the truth"
            )
        condition, target = (as_pixels(image) for image in pair)
        condition, target = (image if image.ndim > self.ndim else image[None] for image in (condition, target))
        if condition.ndim != self.ndim + 1 or condition.shape[1:] != target.shape[1:]:
            raise PairingError(
                f"{self.name(number)} has images of shape {condition.shape} and {target.shape}; expected (channels, "
                f"*spatial) with {self.ndim} spatial axes of the same lengths; resample or crop one of them"
            )
        return condition, target

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self._pairs)

    @property
    def num_images(self) -> int:
        """All are different images."""
        return len(self)

    def name(self, sample: int) -> str:
        """``pair`` and its number."""
        return f"pair {sample}"

    def spatial(self, sample: int) -> tuple[int, ...]:
        """Size of a pair in pixels."""
        return self._pairs[sample][1].shape[1:]

    def smallest(self) -> int:
        """A pair with the shortest side."""
        return min(range(len(self)), key=lambda sample: min(self.spatial(sample)))

    def read(self, sample: int, corner: Sequence[int], size: Sequence[int]) -> tuple[Array, Array]:
        """Both images of a region, each (channels, *size)."""
        condition, target = (region(image, corner, size) for image in self._pairs[sample])
        return np.asarray(condition), np.asarray(target)

    def files(self) -> Iterator[SourceFile]:
        """None."""
        return iter(())

    def hashes(self, sample: int) -> PairHashes:
        """Hashes of both images."""
        return PairHashes(*map(array_hash, self._pairs[sample]))
