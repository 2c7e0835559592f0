"""Read and write PNG, decoded by imagecodecs, and read JPEG, decoded by Pillow.

The decoders get only the parts of a file that hold pixels: text, profiles, EXIF and animation, which cause warnings and
extra work, are left out. Neither format allows random access, so each ``read`` decodes the whole picture. Grey pictures
are ``YX``, colour ``YXC``; palettes become colours, and CMYK becomes RGB. Values are as stored, 8 or 16 bit; fewer bits
are stretched to 8. EXIF orientation is ignored.
"""

import io
import json
import logging
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import imagecodecs
import numpy as np
from PIL import Image as PillowImage
from PIL import JpegImagePlugin

from sfumato.data.images.image import Array, Box, DamageError, Image, PixelSize, reading
from sfumato.system.errors import ImageError

__all__ = ["PRINT_PIXEL_M", "RasterImage", "check_png", "jpeg_frame", "open_picture", "write_png_rows"]

_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
PRINT_PIXEL_M = 0.0254 / 4800
"""Pixel sizes from here up, in metres, are printing resolutions (up to 4800 dpi), not sizes in the specimen."""

_PNG_PIXEL_CHUNKS = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
_IDAT_BYTES = 2**30
_METADATA_KEY = b"sfumato\0"
_GREY, _COLOUR, _PALETTE, _GREY_ALPHA, _COLOUR_ALPHA = 0, 2, 3, 4, 6
_PNG_CHANNELS = {_GREY: 1, _COLOUR: 3, _PALETTE: 3, _GREY_ALPHA: 2, _COLOUR_ALPHA: 4}
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_KEPT = frozenset(range(0xC0, 0xE1)) | {0xEE}
"""Segments that matter for pixels: tables, frames, scans, JFIF and Adobe's note on colour."""

# imagecodecs logs oddities; faults that matter are raised, so the log is silenced.
logging.getLogger("imagecodecs").addHandler(logging.NullHandler())


class _Picture(NamedTuple):
    """The header, and the file reduced to the parts that hold pixels."""

    width: int
    height: int
    channels: int
    bits: int
    lean: bytes
    pixel_size: dict[str, PixelSize]
    metadata: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RasterImage(Image):
    """A PNG or JPEG picture."""

    def _working_bytes(self, box: Box) -> int:
        # The file twice, Pillow's picture of up to 4 bytes a pixel, and ours.
        height, width = self.shape[:2]
        return Path(self.path).stat().st_size * 2 + height * width * 4 + self.nbytes

    def _fetch(self, box: Box) -> Array:
        file = Path(self.path).read_bytes()
        pixels = _decode_png(_read_png(file)) if self.format == "PNG" else _decode_jpeg(_read_jpeg(file))
        return pixels.reshape(self.shape)[box]


def open_picture(path: Path, *, memory_budget: int) -> Image:
    """Open a PNG or JPEG file."""
    with path.open("rb") as start:
        format = "PNG" if start.read(len(_PNG_MAGIC)) == _PNG_MAGIC else "JPEG"
    with reading(path, format):
        size = path.stat().st_size
        if size > memory_budget:
            raise ImageError(
                f"{path} has {size:,} bytes; expected at most the memory budget of {memory_budget:,}; raise "
                "memory_budget"
            )
        file = path.read_bytes()
        picture = _read_png(file) if format == "PNG" else _read_jpeg(file)
        stored = "YXC" if picture.channels > 1 else "YX"
        shape = (picture.height, picture.width, picture.channels)[: len(stored)]
        return RasterImage(
            path=str(path),
            format=format,
            axes=stored,
            shape=shape,
            dtype=np.dtype("u2" if picture.bits == 16 else "u1"),
            pixel_size=picture.pixel_size,
            metadata=picture.metadata,
            memory_budget=memory_budget,
        )


def _png_chunks(file: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield the name, the content and the whole of each chunk."""
    position = len(_PNG_MAGIC)
    while position + 12 <= len(file):
        length, name = struct.unpack_from(">I4s", file, position)
        whole = file[position : position + length + 12]
        if len(whole) < length + 12:
            raise DamageError(f"its chunk {name!r} of {length:,} bytes has only {len(whole):,} left in the file")
        yield name, whole[8:-4], whole
        position += length + 12


def _read_png(file: bytes) -> _Picture:
    lean, seen, transparent, header = [_PNG_MAGIC], set[bytes](), False, (0, 0, 0, -1, 0, 0, 0)
    sizes: dict[str, PixelSize] = {}
    metadata: dict[str, Any] = {}
    for name, content, whole in _png_chunks(file):
        if name in _PNG_PIXEL_CHUNKS or (name == b"tRNS" and header[3] == _PALETTE):
            lean.append(whole)
        if name == b"IHDR" and not seen:
            header = struct.unpack(">IIBBBBB", content)
        elif name == b"pHYs":
            sizes = _png_pixel_size(content)
        elif name == b"tEXt" and content.startswith(_METADATA_KEY):
            metadata = dict(json.loads(content[len(_METADATA_KEY) :]))
        transparent |= name == b"tRNS"
        seen.add(name)
    width, height, bits, colour, *_ = header
    if colour not in _PNG_CHANNELS or b"IDAT" not in seen:
        raise DamageError(
            f"it has colour type {colour}, {bits} bits and the chunks {sorted(seen)[:9]}",
            expected="grey, colour or palette, with pixels",
        )
    channels = 4 if colour == _PALETTE and transparent else _PNG_CHANNELS[colour]
    return _Picture(width, height, channels, bits, b"".join(lean), sizes, metadata)


def _png_pixel_size(content: bytes) -> dict[str, PixelSize]:
    """Pixel sizes of a pHYs chunk, unless they are meant for a printer."""
    per_m_x, per_m_y, is_metre = struct.unpack(">IIB", content)
    if not is_metre or min(per_m_x, per_m_y) * PRINT_PIXEL_M <= 1:
        return {}
    # Seven digits: storing whole pixels per metre loses the rest.
    return {axis: PixelSize(float(f"{1e6 / n:.7g}"), "micrometer") for axis, n in (("X", per_m_x), ("Y", per_m_y))}


def _decode_png(picture: _Picture) -> Array:
    pixels = np.empty((picture.height, picture.width, picture.channels), np.uint16 if picture.bits == 16 else np.uint8)
    imagecodecs.png_decode(picture.lean, out=pixels)
    return pixels


def jpeg_frame(file: bytes) -> tuple[int, int, int, int]:
    """Bits, rows, columns and channels that a JPEG declares before its first scan, or zeros."""
    for marker, content in _jpeg_segments(file):
        if marker in _JPEG_FRAMES:
            bits, rows, columns, channels = struct.unpack_from(">BHHB", content, 4)
            return bits, rows, columns, channels
    return 0, 0, 0, 0


def _jpeg_segments(file: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the marker and the whole of each segment; the first scan includes everything after it."""
    position = 2
    while position + 4 <= len(file) and file[position] == 0xFF:
        marker, length = file[position + 1], int.from_bytes(file[position + 2 : position + 4], "big")
        if marker == 0xFF:
            position += 1
            continue
        if marker == 0xDA:
            break
        yield marker, file[position : position + 2 + length]
        position += 2 + length
    yield 0xDA, file[position:]


def _read_jpeg(file: bytes) -> _Picture:
    bits, height, width, channels = jpeg_frame(file)
    if bits != 8 or channels not in (1, 3, 4) or not height or not width:
        raise DamageError(
            f"it declares {width} x {height} pixels, {channels} channels, {bits} bits",
            expected="a size and 1, 3 or 4 channels of 8 bits before the first scan",
        )
    lean = file[:2] + b"".join(segment for marker, segment in _jpeg_segments(file) if marker in _JPEG_KEPT)
    return _Picture(width, height, min(channels, 3), bits, lean, {}, {})


def _decode_jpeg(picture: _Picture) -> Array:
    pillow: PillowImage.Image = JpegImagePlugin.JpegImageFile(io.BytesIO(picture.lean))
    return np.asarray(pillow.convert("RGB") if pillow.mode == "CMYK" else pillow)


def check_png(dtype: np.dtype[Any], channels: int, pixel_size: Mapping[str, PixelSize]) -> None:
    """Raise ImageError for an image that a PNG cannot hold."""
    if dtype.name not in ("uint8", "uint16") or channels > 4 or set(pixel_size) not in (set(), {"X", "Y"}):
        raise ImageError(
            f"the image is {dtype} with {channels} channels and pixel sizes for {sorted(pixel_size)}; a PNG holds "
            "uint8 or uint16, up to 4 channels, and sizes for X and Y together; convert it, or write .tif"
        )
    if pixel_size:
        _pixels_per_m(pixel_size)


def write_png_rows(
    path: Path,
    parts: Iterable[Array],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    pixel_size: Mapping[str, PixelSize],
    metadata: Mapping[str, Any],
) -> None:
    """Write a PNG file.

    Args:
        path: Path of the file to write.
        parts: Rows that, concatenated, are the pixels.
        shape: (Y, X) or (Y, X, C) with 1 to 4 channels.
        dtype: uint8 or uint16.
        pixel_size: Pixel sizes for X and Y; stored as whole pixels per metre.
        metadata: JSON values to store with the pixels.
    """
    height, width, channels = (*shape, 1)[:3]
    colour = {1: _GREY, 2: _GREY_ALPHA, 3: _COLOUR, 4: _COLOUR_ALPHA}[channels]
    with path.open("wb") as file:
        file.write(_PNG_MAGIC)
        file.write(_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, dtype.itemsize * 8, colour, 0, 0, 0)))
        if pixel_size:
            file.write(_chunk(b"pHYs", _pixels_per_m(pixel_size)))
        if metadata:
            file.write(_chunk(b"tEXt", _METADATA_KEY + json.dumps(dict(metadata)).encode("ascii")))
        packer = zlib.compressobj(6)
        for part in parts:
            rows = np.ascontiguousarray(part, dtype.newbyteorder(">")).reshape(len(part), -1).view(np.uint8)
            filtered = np.pad(rows, ((0, 0), (1, 0)))  # each row after its filter, 0: none
            _write_idat(file, packer.compress(filtered.data))
        _write_idat(file, packer.flush())
        file.write(_chunk(b"IEND", b""))


def _pixels_per_m(pixel_size: Mapping[str, PixelSize]) -> bytes:
    per_m = [round(1 / pixel_size[axis].to("meter")) for axis in "XY"]
    if not all(1 / PRINT_PIXEL_M < n < 2**32 for n in per_m):
        raise ImageError(
            f"pixel sizes are {pixel_size}; a PNG can keep 0.3 nanometer to 5 micrometer; leave them out, or write .tif"
        )
    return struct.pack(">IIB", *per_m, 1)


def _write_idat(file: IO[bytes], packed: bytes) -> None:
    for start in range(0, len(packed), _IDAT_BYTES):
        file.write(_chunk(b"IDAT", packed[start : start + _IDAT_BYTES]))


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
