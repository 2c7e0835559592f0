"""Pairs that are in no file."""

from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from sfumato.data.pixel_hash import PairHashes, array_hash
from sfumato.data.source_files import SourceFile

__all__ = ["Memory"]

Array = NDArray[Any]


class Memory:
    """Samples of any sizes in memory, a :class:`PairSource`."""

    def __init__(self, conditions: Sequence[Array], targets: Sequence[Array]) -> None:
        self.conditions, self.targets = conditions, targets
        self.ndim = targets[0].ndim - 1
        self.condition_channels, self.target_channels = len(conditions[0]), len(targets[0])
        self.dtypes = (conditions[0].dtype, targets[0].dtype)
        self.factor = (1,) * self.ndim

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def num_images(self) -> int:
        """All samples are different images."""
        return len(self)

    def name(self, sample: int) -> str:
        return f"Präparat {sample}"

    def spatial(self, sample: int) -> tuple[int, ...]:
        return self.targets[sample].shape[1:]

    def smallest(self) -> int:
        return min(range(len(self)), key=lambda sample: min(self.spatial(sample)))

    def read(self, sample: int, corner: Sequence[int], size: Sequence[int]) -> tuple[Array, Array]:
        cut = (slice(None), *(slice(c, c + s) for c, s in zip(corner, size, strict=True)))
        return self.conditions[sample][cut], self.targets[sample][cut]

    def files(self) -> Iterator[SourceFile]:
        return iter(())

    def hashes(self, sample: int) -> PairHashes:
        images = (self.conditions[sample], self.targets[sample])
        return PairHashes(*map(array_hash, images))
