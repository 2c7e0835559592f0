"""Decompress chunks without exceeding their expected size: a few bytes can claim gigabytes, and most codecs comply.

The size of a chunk is known before it is decoded, so nothing longer is ever produced: streams are cut off, and for
frames that declare their size, it is checked first.
"""

import asyncio
import bz2
import dataclasses
import lzma
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numcodecs import blosc, lz4, zstd
from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ShardingCodec, ZstdCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer

from sfumato.data.images.image import DamageError

__all__ = ["COMPRESSORS", "BoundedNumcodec", "bounded", "decompress", "encoded_bytes", "zstd_bytes"]

_LZMA_DICTIONARY = 2**27
_ZSTD_MAGIC = 0xFD2FB528
_CHECKSUM_BYTES = 4
_STREAMS: dict[str, Callable[[int], Any]] = {
    "gzip": lambda most: zlib.decompressobj(wbits=31),
    "zlib": lambda most: zlib.decompressobj(),
    "bz2": lambda most: bz2.BZ2Decompressor(),
    "lzma": lambda most: lzma.LZMADecompressor(memlimit=most + _LZMA_DICTIONARY),
}
COMPRESSORS = frozenset({*_STREAMS, "zstd", "lz4", "blosc"})
"""Codecs whose output may be any number of times longer than their input."""


def encoded_bytes(num_bytes: int) -> int:
    """Upper bound on the encoded size of this many bytes, even if they do not compress."""
    return num_bytes + num_bytes // 16 + 1024


def decompress(codec: str, packed: Any, most: int) -> Any:
    """Decompress data, unless it is longer than expected.

    Args:
        codec: One of ``COMPRESSORS``.
        packed: Contiguous bytes of any kind.
        most: Largest number of decompressed bytes.

    Raises:
        DamageError: If there would be more; no more than that is ever decompressed.
    """
    data = memoryview(packed).cast("B")
    if codec in _STREAMS:
        return _inflate(codec, data, most)
    if codec == "zstd":
        size = zstd_bytes(data)
        if size is None:  # size not declared, so it must match exactly
            return zstd.decompress(data, np.empty(most, np.uint8))
        _check(size, most)
        return zstd.decompress(data)
    if codec == "lz4":
        _check(int.from_bytes(data[:4], "little"), most)
        return lz4.decompress(data)
    _check(int.from_bytes(data[4:8], "little"), most)
    return blosc.decompress(data)


def zstd_bytes(data: memoryview | bytes) -> int | None:
    """Total decompressed size declared by Zstandard frames; None if a frame does not declare it."""
    data, place, total = memoryview(data), 0, 0
    while place < len(data):
        magic = _little(data, place, 4)
        if magic & 0xFFFFFFF0 == 0x184D2A50:  # a frame to skip
            place += 8 + _little(data, place + 4, 4)
            continue
        if magic != _ZSTD_MAGIC:
            raise DamageError(f"a chunk has {bytes(data[place : place + 4])!r} where Zstandard was expected")
        described = _little(data, place + 4, 1)
        single, kind = bool(described & 32), described >> 6
        place += 5 + (not single) + (0, 1, 2, 4)[described & 3]
        width = (int(single), 2, 4, 8)[kind]
        if not width:
            return None
        total += _little(data, place, width) + (256 if kind == 1 else 0)
        place += width
        last = False
        while not last:
            head = _little(data, place, 3)
            last, place = bool(head & 1), place + 3 + (1 if head >> 1 & 3 == 1 else head >> 3)
        place += _CHECKSUM_BYTES if described & 4 else 0
        _little(data, place, 0)  # is it all there?
    return total


def _little(data: memoryview, place: int, width: int) -> int:
    if place + width > len(data):
        raise DamageError("a chunk ends too early to be decompressed")
    return int.from_bytes(data[place : place + width], "little")


def _check(size: int, most: int) -> None:
    if size > most:
        raise DamageError(f"a chunk claims to become {size:,} bytes", expected=f"at most its own {most:,}")


def _inflate(codec: str, data: memoryview, most: int) -> bytes:
    """Decompress concatenated streams, up to ``most`` bytes."""
    parts, left = [], most
    while data:
        stream = _STREAMS[codec](most)
        parts.append(stream.decompress(data, left + 1))
        left -= len(parts[-1])
        if left < 0:
            raise DamageError("a chunk becomes too long", expected=f"at most its own {most:,} bytes")
        if not stream.eof:
            raise DamageError("a chunk ends too early to be decompressed")
        rest = b"" if codec == "zlib" else stream.unused_data
        data = memoryview(rest.lstrip(b"\0") if codec == "gzip" else rest)
    return parts[0] if len(parts) == 1 else b"".join(parts)


@dataclass(frozen=True)
class BoundedNumcodec:
    """A Zarr 2 compressor that decodes at most ``most`` bytes and does not encode."""

    codec_id: str
    most: int

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Decode with :func:`decompress`."""
        return decompress(self.codec_id, np.ascontiguousarray(buf), self.most)


@dataclass(frozen=True)
class _BoundedCodec(BytesBytesCodec):
    """A Zarr 3 codec that decodes at most ``most`` bytes and does not encode."""

    codec: str
    most: int
    is_fixed_size = False

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        packed = np.ascontiguousarray(chunk_bytes.as_numpy_array())
        decoded = await asyncio.to_thread(decompress, self.codec, packed, self.most)
        return chunk_spec.prototype.buffer.from_bytes(decoded)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        raise NotImplementedError


def bounded(codecs: Sequence[Codec], shape: Sequence[int], itemsize: int) -> tuple[tuple[Codec, ...], int]:
    """Make read-only Zarr 3 codecs that decode no more bytes than a chunk of this shape has.

    Returns:
        The codecs, and the largest number of bytes that an encoded chunk can have.
    """
    kinds: dict[type[Codec], str] = {GzipCodec: "gzip", ZstdCodec: "zstd", BloscCodec: "blosc"}
    size = math.prod(shape) * itemsize
    found: list[Codec] = []
    for codec in codecs:
        if isinstance(codec, ShardingCodec):
            count = math.prod(length // side for length, side in zip(shape, codec.chunk_shape, strict=True))
            inner, part = bounded(codec.codecs, codec.chunk_shape, itemsize)
            index, index_size = bounded(codec.index_codecs, (count, 2), 8)
            found.append(dataclasses.replace(codec, codecs=inner, index_codecs=index))
            size = count * part + index_size
        elif type(codec) in kinds:
            found.append(_BoundedCodec(kinds[type(codec)], size))
            size = encoded_bytes(size)
        else:
            found.append(codec)
            size += _CHECKSUM_BYTES if isinstance(codec, Crc32cCodec) else 0
    return tuple(found), size
