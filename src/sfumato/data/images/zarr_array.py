"""Open untrusted Zarr arrays, local or at an address; all other modules open them through this one.

The metadata document is checked (:mod:`sfumato.data.images.zarr_documents`), Zarr is given the checked document and no
other copy, and no file or chunk that it reads can be longer than the document says
(:mod:`sfumato.data.images.bounded_codecs`).
"""

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zarr
from zarr.abc.store import ByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.codecs import BytesCodec, ShardingCodec
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata
from zarr.storage import LocalStore, StorePath, WrapperStore

from sfumato.data.images.bounded_codecs import COMPRESSORS, BoundedNumcodec, bounded, encoded_bytes
from sfumato.data.images.image import Array, Box, DamageError
from sfumato.data.images.storage import fsspec_store
from sfumato.data.images.zarr_documents import check_array, get_at_most, is_array, read_document
from sfumato.system.errors import ImageError

__all__ = ["CheckedArray", "open_checked", "store_at"]

_BYTES_PER_CHUNK = 4096
"""Memory that Zarr and this module use per chunk while reading, in addition to its pixels."""
_Metadata = ArrayV2Metadata | ArrayV3Metadata


class _Limits(NamedTuple):
    """Largest numbers of bytes in the parts of an array."""

    chunk: int
    """A decoded chunk."""
    part: int
    """An encoded chunk inside a shard."""
    table: int
    """A shard's table of chunks."""
    file: int
    """A whole file."""


def store_at(place: Path | str) -> Store:
    """Open Zarr's store of a folder or an address, for reading."""
    return LocalStore(place, read_only=True) if isinstance(place, Path) else fsspec_store(place, read_only=True)


def open_checked(store: Store, name: str = "") -> "CheckedArray":
    """Open the array of this name in a store; only its document is read.

    Raises:
        DamageError: If there is no such array, or its document is not accepted.
    """
    prefix = f"{name}/" if name else ""
    document = read_document(store, f"{prefix}zarr.json") or read_document(store, f"{prefix}.zarray")
    if not is_array(document):
        raise DamageError(f"there is no Zarr array in {name or 'it'}", expected="the one that its metadata names")
    return CheckedArray(store, name, document)


class CheckedArray:
    """A checked array, read by region. It is checked again after unpickling.

    Args:
        store: The store that holds it.
        name: Its path in the store.
        document: Its metadata document, as read.

    Attributes:
        metadata: Zarr's metadata, for encoding chunks in the same way.
        shape: Shape of the array.
        chunks: Shape of the blocks that are compressed together.
        shards: Shape of the blocks that share a file, or None if each chunk is a file.
        dtype: Type of the values.
        is_raw: Whether its files hold the values without any encoding.
    """

    def __init__(self, store: Store, name: str, document: dict[str, Any]) -> None:
        check_array(document)
        self._made_of = (store, name, document)
        kind = ArrayV2Metadata if document.get("zarr_format") == 2 else ArrayV3Metadata
        self.metadata: Any = kind.from_dict(document)
        for_reading, self._limits = _bounded(self.metadata)
        path = StorePath(_BoundedStore(store, self._limits), name)
        self._array: zarr.Array[Any] = zarr.Array(zarr.AsyncArray(for_reading, path))
        self.shape: tuple[int, ...] = self._array.shape
        self.chunks: tuple[int, ...] = self._array.chunks
        self.shards: tuple[int, ...] | None = self._array.shards
        self.dtype: np.dtype[Any] = self._array.dtype
        self.is_raw = [type(codec) for codec in getattr(self.metadata, "codecs", ())] == [BytesCodec]

    def __reduce__(self) -> tuple[Any, ...]:
        return (CheckedArray, self._made_of)

    def __getitem__(self, box: Box) -> Array:
        return np.asarray(self._array[box])

    def read(self, corner: Sequence[int], size: Sequence[int], *, memory_budget: int) -> Array:
        """Read the region of this size that starts at this corner.

        Raises:
            ImageError: If it needs more than ``memory_budget`` bytes.
        """
        box = tuple(slice(start, start + length) for start, length in zip(corner, size, strict=True))
        needed = math.prod(size) * self.dtype.itemsize + self.working_bytes(box)
        if needed > memory_budget:
            raise ImageError(
                f"reading {tuple(size)} values of {self.dtype} in chunks of {self.chunks} takes {needed:,} bytes; "
                f"expected at most the memory budget of {memory_budget:,}; pack it again in smaller chunks"
            )
        return self[box]

    def working_bytes(self, box: Box) -> int:
        """Bytes that reading a region needs in addition to the result."""
        touched = _touched(box, self.chunks)
        at_once = min(touched, int(zarr.config.get("async.concurrency")))
        needed = touched * _BYTES_PER_CHUNK + 2 * at_once * self._limits.chunk
        if self.shards is None:
            return needed
        return needed + touched * self._limits.part + 2 * _touched(box, self.shards) * self._limits.table


def _touched(box: Box, sizes: Sequence[int]) -> int:
    """Number of blocks of a grid that a region touches."""
    return math.prod(-(-part.stop // size) - part.start // size for part, size in zip(box, sizes, strict=True))


def _bounded(metadata: _Metadata) -> tuple[_Metadata, _Limits]:
    """Copy the metadata with codecs that decode no more than the document declares, and derive the limits."""
    for_reading = copy.copy(metadata)
    if isinstance(metadata, ArrayV2Metadata):
        filters, compressor, limits = _bounded_numcodecs(metadata)
        object.__setattr__(for_reading, "filters", filters)
        object.__setattr__(for_reading, "compressor", compressor)
        return for_reading, limits
    itemsize, shape = metadata.dtype.to_native_dtype().itemsize, metadata.chunk_grid.chunk_shape  # type: ignore[attr-defined]
    codecs, file = bounded(metadata.codecs, shape, itemsize)
    object.__setattr__(for_reading, "codecs", codecs)
    chunk = math.prod(shape) * itemsize
    if len(codecs) != 1 or not isinstance(sharding := metadata.codecs[0], ShardingCodec):
        return for_reading, _Limits(chunk, file, 0, file)
    part = bounded(sharding.codecs, sharding.chunk_shape, itemsize)[1]
    count = math.prod(length // side for length, side in zip(shape, sharding.chunk_shape, strict=True))
    index = bounded(sharding.index_codecs, (count, 2), 8)[1]
    if sharding.index_location.value == "start":  # where its byte range looks like that of a chunk
        part = max(part, index)
    return for_reading, _Limits(math.prod(sharding.chunk_shape) * itemsize, part, index, file)


def _bounded_numcodecs(metadata: ArrayV2Metadata) -> tuple[Any, Any, _Limits]:
    """Bound the filters and the compressor of Zarr 2 to the bytes that each may decode."""
    items = math.prod(metadata.chunks)
    size = widest = items * metadata.dtype.to_native_dtype().itemsize
    codecs: list[Any] = [*(metadata.filters or ()), metadata.compressor]
    found: list[Any] = []
    for codec in codecs:
        if codec is not None and codec.codec_id in COMPRESSORS:
            found.append(BoundedNumcodec(codec.codec_id, size))
            size = encoded_bytes(size)
        else:
            found.append(codec)
            size = items * codec.astype.itemsize if hasattr(codec, "astype") else size
            widest = max(size, widest)
    return tuple(found[:-1]) or None, found[-1], _Limits(widest, size, 0, size)


class _BoundedStore(WrapperStore[Store]):
    """A store whose reads return no more bytes than the array's document allows."""

    def __init__(self, store: Store, limits: _Limits) -> None:
        super().__init__(store)
        self._limits = limits

    def _with_store(self, store: Store) -> "_BoundedStore":
        return type(self)(store, self._limits)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read a file or part of it."""
        if isinstance(byte_range, RangeByteRequest):
            most, asked = self._limits.part, byte_range.end - byte_range.start
        elif isinstance(byte_range, SuffixByteRequest):
            most, asked = self._limits.table, byte_range.suffix
        else:
            return await get_at_most(self._store, key, prototype, self._limits.file)
        if not 0 <= asked <= most:
            raise DamageError(f"{key} has a piece of {asked:,} bytes", expected=f"at most {most:,}")
        return await self._store.get(key, prototype, byte_range)
