"""Strips and tiles of a TIFF page, from packed bytes to pixels.

Each decoder stops at the size that the page's header gives, so that a small file cannot unpack into a large block.
LZW is left to the libtiff inside Pillow, which gets the bytes as a picture of one row.
"""

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import TiffImagePlugin

from sfumato.data.images.image import Array, DamageError

__all__ = ["CODECS", "EXPANSION", "PREDICTORS", "unpack", "unpredict"]

_NONE, _LZW, _DEFLATE, _OLD_DEFLATE, _PACKBITS = 1, 5, 8, 32946, 32773
_HORIZONTAL, _FLOATING = 2, 3

PREDICTORS = {1: "none", _HORIZONTAL: "horizontal", _FLOATING: "floating point"}
EXPANSION = {_NONE: 1, _LZW: 2800, _DEFLATE: 1040, _OLD_DEFLATE: 1040, _PACKBITS: 64}
"""How many bytes one packed byte can become at most."""


def _inflate(packed: bytes, size: int) -> bytes:
    stream = zlib.decompressobj()
    block = stream.decompress(packed, size)
    if not stream.eof:
        stream.decompress(stream.unconsumed_tail, 1)  # on to the checksum
    return block


def _unpack_bits(packed: bytes, size: int) -> bytes:
    """Runs and literals: a byte n below 128 copies n + 1 bytes, one above 128 repeats the next 257 - n times."""
    parts, total, position = [], 0, 0
    while total < size and position + 1 < len(packed):
        count = packed[position]
        if count < 128:
            part = packed[position + 1 : position + 2 + count]
            position += 2 + count
        else:
            part = packed[position + 1 : position + 2] * (257 - count) if count > 128 else b""
            position += 2 if count > 128 else 1
        parts.append(part)
        total += len(part)
    return b"".join(parts)


def _unpack_lzw(packed: bytes, size: int) -> bytes:
    """Unpack through Pillow, as the only strip of an 8-bit TIFF with one row of ``size`` pixels."""
    short, long = 3, 4
    tags = [(256, long, size), (257, long, 1), (258, short, 8), (259, short, _LZW), (262, short, 1)]
    start = 8 + 2 + 12 * (len(tags) + 4) + 4
    tags += [(273, long, start), (277, short, 1), (278, long, 1), (279, long, len(packed))]
    entries = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    header = struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + entries + bytes(4)
    return TiffImagePlugin.TiffImageFile(io.BytesIO(header + packed)).tobytes()


CODECS: dict[int, Callable[[bytes, int], bytes]] = {
    _NONE: lambda packed, size: packed[:size],
    _LZW: _unpack_lzw,
    _DEFLATE: _inflate,
    _OLD_DEFLATE: _inflate,
    _PACKBITS: _unpack_bits,
}
"""Decoders by TIFF compression number: packed bytes and size to at most that many bytes."""


def unpack(packed: bytes, compression: int, shape: tuple[int, ...], stored: np.dtype[Any]) -> Array:
    """Pixels of one strip or tile.

    Args:
        packed: As in the file.
        compression: A key of ``CODECS``.
        shape: (rows, columns, samples).
        stored: Type with byte order; bool stands for one bit per pixel, each row in whole bytes.
    """
    rows, columns, samples = shape
    bits = 1 if stored == np.bool_ else 8 * stored.itemsize
    row_bytes = -(-columns * samples * bits // 8)
    size = rows * row_bytes
    block = CODECS[compression](packed, size) if packed else b""
    if len(block) < size:
        raise DamageError(f"a strip or tile unpacks to {len(block):,} bytes; its header tells of {size:,}")
    if bits == 1:
        bytewise = np.frombuffer(block, np.uint8, size).reshape(rows, row_bytes)
        return np.unpackbits(bytewise, axis=1, count=columns * samples).astype(bool).reshape(shape)
    return np.frombuffer(block, stored, rows * columns * samples).reshape(shape)


def unpredict(block: Array, predictor: int) -> Array:
    """Undo what was done to pixels before packing, shape (rows, columns, samples)."""
    if predictor == _HORIZONTAL:
        numbers = block.astype(block.dtype.newbyteorder("="))
        whole = numbers if numbers.dtype.kind in "iu" else numbers.view(f"u{numbers.dtype.itemsize}")
        sums = np.cumsum(whole, axis=1, dtype=whole.dtype)
        return sums.view(numbers.dtype)
    if predictor == _FLOATING:
        rows, columns, samples = block.shape
        itemsize = block.dtype.itemsize
        steps = np.ascontiguousarray(block).view(np.uint8).reshape(rows, -1, samples)
        planes = np.cumsum(steps, axis=1, dtype=np.uint8).reshape(rows, itemsize, columns * samples)
        numbers = np.ascontiguousarray(planes.transpose(0, 2, 1))
        return numbers.view(f">f{itemsize}").reshape(block.shape)
    return block
