"""Read pairs from a packed store, which holds any number of images in a few large files.

:func:`~sfumato.data.pack.pack` writes this layout.

::

    store.zarr/                 Zarr 3 group; its attributes hold the version, the splits and whether it is complete
      train/                    one group per split
        condition               (samples, channels, *largest size), sharded; smaller samples end in zeros
        target
        sizes                   (samples, dimensions) in pixels
        name_ends, name_text    UTF-8 text of all names, and where each one ends
      files/                    tables of the files it was made from, compared when packing into it again

Opening a store reads a few kilobytes, whatever the number of samples; the tables are mapped into memory, not loaded.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from zarr.abc.store import Store

from sfumato.data.frames import is_factor
from sfumato.data.images.image import DEFAULT_MEMORY_BUDGET, Array, DamageError, reading
from sfumato.data.images.zarr_array import CheckedArray, open_checked, store_at
from sfumato.data.images.zarr_documents import read_document
from sfumato.data.pixel_hash import PairHashes, pixel_hash
from sfumato.data.shards import ShardedArray
from sfumato.data.source_files import SourceFile
from sfumato.data.sources import evenly_spread
from sfumato.system.errors import PairingError

__all__ = ["ATTRIBUTE", "VERSION", "PackedPairs", "description_of", "packed_splits", "read_whole"]

ATTRIBUTE = "sfumato_pairs"
VERSION = 1
_SHARDS_KNOWN = 16
"""Number of shards per split by which a resumed training recognises the store."""


def packed_splits(path: str | Path) -> list[str]:
    """Names of the splits in a store.

    Raises:
        PairingError: If the store is incomplete or has a newer version.
        ImageError: If it is not a packed store.
    """
    return list(_splits(path))


class PackedPairs:
    """The samples of one split of a packed store, a :class:`~sfumato.data.sources.PairSource`.

    Args:
        path: The store: a folder, or an address that Zarr can open.
        split: Name of the split to read.
    """

    def __init__(self, path: str | Path, split: str = "train") -> None:
        splits = _splits(path)
        if split not in splits:
            raise PairingError(f"{path} has the splits {', '.join(splits)}, not {split!r}; pack it with that split")
        self.path, self.split = str(path), split
        with reading(path, "packed"):
            self._condition, self._target = (_pixels(path, split, side) for side in ("condition", "target"))
            self.ndim = len(self._target.shape) - 2
            self.condition_channels, self.target_channels = self._condition.shape[1], self._target.shape[1]
            self.dtypes = (np.dtype(self._condition.dtype), np.dtype(self._target.dtype))
            self._sizes, self._ends, self._text = (_table(path, split, name) for name in _TABLES)
            self._smallest = int(splits[split]["smallest"])
            factor = splits[split].get("factor")  # stores of earlier versions do not say
            self.factor = None if factor is None else tuple(int(f) for f in factor)
            self._check()

    def __len__(self) -> int:
        return int(self._target.shape[0])

    @property
    def num_images(self) -> int:
        """All samples are different images."""
        return len(self)

    def name(self, sample: int) -> str:
        """Name of the sample in the source it was packed from."""
        start = int(self._ends[sample - 1]) if sample else 0
        return bytes(self._text[start : int(self._ends[sample])]).decode(errors="replace")

    def spatial(self, sample: int) -> tuple[int, ...]:
        """Size of the target."""
        return tuple(int(length) for length in self._sizes[sample])

    def smallest(self) -> int:
        """The sample with the shortest side."""
        return self._smallest

    def read(self, sample: int, corner: Sequence[int], size: Sequence[int]) -> tuple[Array, Array]:
        """Condition (K, *size) and target (C, *size) of a region."""
        condition, target = (_region(array, sample, corner, size) for array in (self._condition, self._target))
        return condition, target

    def files(self) -> Iterator[SourceFile]:
        """Yield the store's description, which covers everything packed, and shards spread evenly over the split."""
        if _is_remote(self.path):
            yield SourceFile("store", self.path)
            return
        yield SourceFile("store zarr.json", Path(self.path, "zarr.json"))
        for side in ("condition", "target"):
            folder = Path(self.path, self.split, side)
            shards = sorted(file for file in folder.glob("c/**/*") if file.name.isdecimal() and file.is_file())
            for place in evenly_spread(len(shards), _SHARDS_KNOWN):
                yield SourceFile(f"shard {shards[place].relative_to(self.path).as_posix()}", shards[place])

    def hashes(self, sample: int) -> PairHashes:
        """Hash both images; only the pixels that are hashed are read."""
        spatial = self.spatial(sample)
        sides = (self._condition, self._target)
        return PairHashes(*(pixel_hash(partial(_region, side, sample), side.shape[1], spatial) for side in sides))

    def _check(self) -> None:
        number = len(self)
        shapes = [(side.shape[0], *side.shape[2:]) for side in (self._condition, self._target)]
        if shapes[0] != shapes[1] or self.ndim not in (2, 3):
            raise DamageError(f"its conditions and targets have the shapes {shapes}", expected="equal ones")
        if self._sizes.shape != (number, self.ndim) or self._ends.shape != (number,):
            raise DamageError(f"its tables have {len(self._sizes)} and {len(self._ends)} rows", expected=str(number))
        if self.factor is not None and not is_factor(self.factor, self.ndim):
            raise DamageError(
                f"its upsampling factor is {self.factor!s:.100}", expected=f"{self.ndim} numbers from 1 to 64"
            )
        if not 0 <= self._smallest < number:
            raise DamageError(f"its smallest sample is number {self._smallest}", expected=f"one of {number}")


class _RemoteArray:
    """Reads arrays through zarr-python, for stores that are not on a local disk."""

    def __init__(self, address: str, array: CheckedArray) -> None:
        self._address, self._array, self.shape, self.dtype = address, array, array.shape, array.dtype

    def read(self, corner: Sequence[int], size: Sequence[int]) -> Array:
        """Read the region of this size that starts at this corner."""
        with reading(self._address, "packed"):
            return self._array.read(corner, size, memory_budget=DEFAULT_MEMORY_BUDGET)


def _region(array: ShardedArray | _RemoteArray, sample: int, corner: Sequence[int], size: Sequence[int]) -> Array:
    pixels: Array = array.read([sample, 0, *corner], [1, array.shape[1], *size])[0]
    return pixels


_TABLES = {"sizes": "<i4", "name_ends": "<i8", "name_text": "u1"}
"""Types of the small arrays of a split."""


def _is_remote(path: str | Path) -> bool:
    return "://" in str(path)


def _store(path: str | Path) -> Store:
    return store_at(str(path) if _is_remote(path) else Path(path))


def description_of(path: str | Path) -> dict[str, Any] | None:
    """Read the description of a packed store; None if the store is not one."""
    with reading(path, "packed"):
        found = read_document(_store(path), "zarr.json").get("attributes", {}).get(ATTRIBUTE)
    return found if isinstance(found, dict) else None


def _splits(path: str | Path) -> dict[str, dict[str, Any]]:
    """Read the facts of each split of a complete store."""
    if not _is_remote(path) and not Path(path).is_dir():
        raise PairingError(f"the store {path} does not exist; give the path of one that `sfumato pack` wrote")
    found = description_of(path)
    with reading(path, "packed"):
        if found is None:
            raise DamageError("it has no description of pairs", expected="a store that `sfumato pack` wrote")
        version, complete = int(found["version"]), bool(found["complete"])
        splits = {str(name): dict(values) for name, values in found["splits"].items()}
    if version > VERSION:
        raise PairingError(
            f"{path} has version {version} of packed stores, and this sfumato reads up to {VERSION}; upgrade sfumato"
        )
    if not complete:
        raise PairingError(f"{path} is not complete: its packing was stopped; give the same `sfumato pack` command")
    if any("/" in name or name.startswith(".") or not name for name in splits):
        raise PairingError(f"{path} has splits called {sorted(splits)}; expected plain words; pack it again")
    return splits


def read_whole(array: CheckedArray) -> Array:
    """Read all of an array, which must fit the memory budget."""
    return array.read([0] * len(array.shape), array.shape, memory_budget=DEFAULT_MEMORY_BUDGET)


def _pixels(path: str | Path, split: str, side: str) -> ShardedArray | _RemoteArray:
    if _is_remote(path):
        return _RemoteArray(str(path), open_checked(_store(path), f"{split}/{side}"))
    return ShardedArray(Path(path, split, side))


def _table(path: str | Path, split: str, name: str) -> Array:
    """Open a small array stored as one raw chunk; on a local disk it is mapped, not read."""
    array = open_checked(_store(path), f"{split}/{name}")
    if array.dtype != np.dtype(_TABLES[name]) or array.chunks != array.shape or not array.is_raw:
        raise DamageError(f"its table {name} has type {array.dtype} and chunks {array.chunks}", expected="a raw one")
    if _is_remote(path):
        return read_whole(array)
    file = Path(path, split, name, "c", *["0"] * len(array.shape))
    return np.memmap(file, dtype=_TABLES[name], mode="r", shape=array.shape)
