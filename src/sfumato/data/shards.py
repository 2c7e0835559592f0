"""Read regions of sharded Zarr 3 arrays on a local disk with a few system calls.

A shard is a file of compressed chunks with a table of their positions at its end (Zarr's `sharding_indexed` codec).
zarr-python, which writes the shards, needs milliseconds to read a region, and a training batch has dozens of regions.
So they are read here, with one `pread` and one call of zstd per chunk, both without Python's global lock.
"""

import errno
import functools
import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numcodecs.zstd import decompress
from numpy.typing import NDArray

from sfumato.data.images.bounded_codecs import encoded_bytes, zstd_bytes
from sfumato.data.images.image import DEFAULT_MEMORY_BUDGET, Array, DamageError, check_dtype, reading
from sfumato.data.images.zarr_array import store_at
from sfumato.data.images.zarr_documents import check_array, read_document
from sfumato.system.errors import ImageError

__all__ = ["CODECS", "ShardedArray"]

_LITTLE: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
CODECS: list[dict[str, Any]] = [_LITTLE, {"name": "zstd", "configuration": {"level": 1, "checksum": True}}]
"""Codecs inside a shard. Zstd's own checksum detects damaged chunks."""
_INDEX_CODECS: list[dict[str, Any]] = [_LITTLE, {"name": "crc32c"}]
_CHECKSUM_BYTES = 4
_MISSING = 2**64 - 1
_INDICES_KEPT = 256
_LONGEST_INDEX = 2**16
_LARGEST_CHUNK = 2**28


class ShardedArray:
    """An array in the layout that :mod:`sfumato.data.pack` writes. No file stays open, so threads may share it.

    Args:
        folder: Folder of the array, with its `zarr.json`.

    Raises:
        ImageError: If the array has another layout or is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with reading(folder, "packed"):
            document = read_document(store_at(folder), "zarr.json")
            if not document:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(folder))
            check_array(document)
            self.shape, self.shards, self.chunks, self.dtype = _layout(document)
        self._per_shard = tuple(s // c for s, c in zip(self.shards, self.chunks, strict=True))
        self._index = functools.lru_cache(_INDICES_KEPT)(self._read_index)

    def read(self, corner: Sequence[int], size: Sequence[int]) -> Array:
        """Read the region of this size that starts at this corner."""
        ends = [start + length for start, length in zip(corner, size, strict=True)]
        if min(corner) < 0 or any(end > full for end, full in zip(ends, self.shape, strict=True)):
            raise ValueError(f"region from {list(corner)} to {ends} leaves the array of shape {self.shape}")
        if math.prod(size) * self.dtype.itemsize > DEFAULT_MEMORY_BUDGET:
            raise ImageError(
                f"{self.folder}: a region of {tuple(size)} takes more than the memory budget of "
                f"{DEFAULT_MEMORY_BUDGET:,} bytes; expected smaller images; cut them up before packing"
            )
        result = np.empty(tuple(size), self.dtype)
        touched = [range(a // c, -(-b // c)) for a, b, c in zip(corner, ends, self.chunks, strict=True)]
        with reading(self.folder, "packed"):
            for place in itertools.product(*touched):
                starts = [i * c for i, c in zip(place, self.chunks, strict=True)]
                parts = zip(corner, ends, starts, self.chunks, strict=True)
                spans = [(max(first, start), min(end, start + length)) for first, end, start, length in parts]
                result[_box(spans, corner)] = self._chunk(place)[_box(spans, starts)]
        return result

    def _chunk(self, place: Sequence[int]) -> Array:
        shard = tuple(i // n for i, n in zip(place, self._per_shard, strict=True))
        offset, length = (int(value) for value in self._index(shard)[tuple(np.mod(place, self._per_shard))])
        if offset == length == _MISSING:
            return np.zeros(self.chunks, self.dtype)
        file, chunk = self._file(shard), np.empty(self.chunks, self.dtype)
        if length > encoded_bytes(chunk.nbytes):
            raise DamageError(f"{file} has a chunk of {length:,} bytes", expected=f"at most some {chunk.nbytes:,}")
        packed = _pread(file, offset, length)
        if zstd_bytes(packed) not in (chunk.nbytes, None):
            raise DamageError(f"{file} has a chunk of another size", expected=f"{chunk.nbytes:,} bytes when unpacked")
        decompress(packed, chunk)
        return chunk

    def _read_index(self, shard: tuple[int, ...]) -> NDArray[np.uint64]:
        """Read the offset and length of each chunk of a shard, shape (*chunks per shard, 2)."""
        file, num_bytes = self._file(shard), 16 * math.prod(self._per_shard)
        total = file.stat().st_size
        start = total - num_bytes - _CHECKSUM_BYTES
        if start < 0:
            raise DamageError(f"{file.name} has {total} bytes", expected=f"at least {total - start}")
        index = np.frombuffer(_pread(file, start, num_bytes), "<u8").reshape(*self._per_shard, 2)
        offsets, lengths = index[..., 0], index[..., 1]
        there = offsets != _MISSING
        if (offsets[there] > start).any() or (lengths[there] > start - offsets[there]).any():
            raise DamageError(f"{file} has chunks that end after its {total} bytes")
        return index

    def _file(self, shard: Sequence[int]) -> Path:
        return self.folder.joinpath("c", *map(str, shard))


def _box(spans: Sequence[tuple[int, int]], origin: Sequence[int]) -> tuple[slice, ...]:
    """Slices for spans along each axis, counted from an origin."""
    return tuple(slice(first - start, end - start) for (first, end), start in zip(spans, origin, strict=True))


def _pread(file: Path, offset: int, length: int) -> bytes:
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        if hasattr(os, "pread"):
            return os.pread(handle, length, offset)
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, length)
    finally:
        os.close(handle)


def _layout(document: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], np.dtype[Any]]:
    """Return shape, shards, chunks and dtype; raises DamageError if the array has another layout."""
    (codec,) = document["codecs"]
    inner = codec["configuration"]
    shape, shards, chunks = (
        tuple(map(int, sizes))
        for sizes in (document["shape"], document["chunk_grid"]["configuration"]["chunk_shape"], inner["chunk_shape"])
    )
    dtype = check_dtype(document["data_type"])
    known = (
        codec["name"] == "sharding_indexed"
        and [c["name"] for c in inner["codecs"]] == [c["name"] for c in CODECS]
        and [c["name"] for c in inner["index_codecs"]] == [c["name"] for c in _INDEX_CODECS]
        and inner.get("index_location", "end") == "end"
        and all(c.get("configuration", {}).get("endian", "little") == "little" for c in inner["codecs"])
        and document["chunk_key_encoding"] == {"name": "default", "configuration": {"separator": "/"}}
    )
    if not known:
        raise DamageError("its chunks are coded in another way", expected="what `sfumato pack` writes")
    per_shard = [s // c if c > 0 and s % c == 0 else 0 for s, c in zip(shards, chunks, strict=True)]
    if min([*shape, *per_shard]) < 1 or math.prod(per_shard) > _LONGEST_INDEX:
        raise DamageError(f"its shape is {shape} in shards of {shards} and chunks of {chunks}")
    if math.prod(chunks) * dtype.itemsize > _LARGEST_CHUNK:
        raise DamageError(f"a chunk has the shape {chunks}", expected=f"at most {_LARGEST_CHUNK:,} bytes")
    return shape, shards, chunks, dtype
