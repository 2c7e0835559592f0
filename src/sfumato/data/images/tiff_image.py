"""Read regions from TIFF pages that are packed in strips or tiles, and decode these with imagecodecs.

Each decoder stops at the size given in the page's header, so a small file cannot unpack to a large block. The decoders
of JPEG, JPEG 2000 and JPEG XR allocate or write before they compare sizes, so for these the size declared in the strip
is checked first.
"""

import itertools
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import imagecodecs
import numpy as np
import numpy.typing as npt
import tifffile

from sfumato.data.images.image import Array, Box, DamageError, Image
from sfumato.data.images.png_jpeg import jpeg_frame

__all__ = ["JPEG", "Grid", "SegmentPacking", "TiffImage", "can_unpack", "unpack"]

_CCITT = {2: "ccittrle", 3: "ccittfax3", 4: "ccittfax4"}
JPEG = frozenset({6, 7, 33007, 34892})
"""TIFF's numbers of the compression."""
_JPEG_2000, _JPEG_XR = frozenset({33003, 33004, 33005, 34712}), frozenset({22610, 34934})
_JPEG_XR_GREY, _JPEG_XR_COLOURS, _JPEG_XR_SAMPLE_BYTES = 0, 7, {1: 1, 2: 2, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4}
_LERC, _EER = 34887, frozenset({65000, 65001, 65002})
_PICTURES = tifffile.TIFF.IMAGE_COMPRESSIONS | {_LERC}
_EXPANSION = {1: 1, 5: 2800, 8: 1040, 32946: 1040, 32773: 64}
_PICTURE_SAMPLE_BYTES = 12
"""Bytes per sample that picture decoders need in addition to the result, for float and integer copies."""
_JPEG_2000_START, _JPEG_XR_START = b"\xff\x4f\xff\x51", b"WMPHOTO\0"


class SegmentPacking(NamedTuple):
    """How the samples of a page are packed.

    Attributes:
        compression: TIFF's number of the compression.
        predictor: TIFF's number of the predictor applied before compression.
        stored: Type of the samples, with its byte order.
        bits: Bits per sample in the file.
        reverses_bits: Whether the bits of each byte are in reverse order.
        options: Further options of the decoder, such as the tables that all strips of a page share.
    """

    compression: int
    predictor: int
    stored: np.dtype[Any]
    bits: int
    reverses_bits: bool
    options: Mapping[str, Any]

    @property
    def expansion(self) -> float:
        """Largest number of bytes that one packed byte can become."""
        return _EXPANSION.get(self.compression, float("inf"))

    def working_bytes(self, samples: int) -> int:
        """Upper bound on the memory for unpacking, including the result."""
        extra = _PICTURE_SAMPLE_BYTES if self.compression in _PICTURES else 0
        return samples * (3 * self.stored.itemsize + extra)


class Grid(NamedTuple):
    """How the pages of an image are packed, the same for all pages."""

    shape: tuple[int, int, int, int, int]  # (planes of samples, depth, rows, columns, samples side by side)
    segment: tuple[int, int]  # rows and columns of a strip or tile
    packing: SegmentPacking

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Number of segments along planes, depth, rows and columns."""
        planes, depth, rows, columns, _ = self.shape
        return planes, depth, -(-rows // self.segment[0]), -(-columns // self.segment[1])

    def working_bytes(self) -> int:
        """Memory needed to unpack a segment."""
        return self.packing.working_bytes(math.prod(self.segment) * self.shape[4])


@dataclass(frozen=True, kw_only=True)
class TiffImage(Image):
    """An image whose pages are packed in strips or tiles; reading a region decodes only those it touches.

    Attributes:
        grid: How each page is packed.
        offsets: Start of each segment, shape (pages, segments).
        lengths: Packed bytes of each segment, shape (pages, segments).
        page_ndim: Number of last axes within a page.
        is_plain: Whether the pixels of each page are one unpacked block, which is read through a memory map.
    """

    grid: Grid
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    page_ndim: int
    is_plain: bool

    def _working_bytes(self, box: Box) -> int:
        return 0 if self.is_plain else self.grid.working_bytes() + int(self.lengths.max())

    def _fetch(self, box: Box) -> Array:
        outer, inner = box[: -self.page_ndim], box[-self.page_ndim :]
        sizes = self.shape[: -self.page_ndim]
        spans = iter(part for part, n in zip(inner, self.shape[-self.page_ndim :], strict=True) if n > 1)
        page_box = tuple(next(spans) if n > 1 else slice(0, 1) for n in self.grid.shape)
        size = [part.stop - part.start for part in page_box]
        result = np.empty([math.prod(part.stop - part.start for part in outer), *size], self.dtype)
        with Path(self.path).open("rb") as file:
            for place, index in enumerate(itertools.product(*(range(part.start, part.stop) for part in outer))):
                page = int(np.ravel_multi_index(index, sizes)) if sizes else 0
                if self.is_plain:
                    block: Array = np.memmap(
                        file, self.grid.packing.stored, "r", int(self.offsets[page, 0]), self.grid.shape
                    )
                    result[place] = block[page_box]
                else:
                    self._fetch_page(file, page, page_box, result[place])
        return result.reshape([part.stop - part.start for part in box])

    def _fetch_page(self, file: IO[bytes], page: int, box: Box, result: Array) -> None:
        """Decode a box of one page into ``result``, both with the five axes of the grid."""
        planes, depth, rows, columns, samples = box
        height, width = self.grid.segment
        for plane, z, y, x in itertools.product(
            range(planes.start, planes.stop),
            range(depth.start, depth.stop),
            range(rows.start // height, -(-rows.stop // height)),
            range(columns.start // width, -(-columns.stop // width)),
        ):
            segment = int(np.ravel_multi_index((plane, z, y, x), self.grid.counts))
            top, bottom = max(rows.start, y * height), min(rows.stop, (y + 1) * height)
            left, right = max(columns.start, x * width), min(columns.stop, (x + 1) * width)
            pixels = self._segment(file, page, segment, y, x)
            cut = pixels[top - y * height : bottom - y * height, left - x * width : right - x * width, samples]
            result[
                plane - planes.start,
                z - depth.start,
                top - rows.start : bottom - rows.start,
                left - columns.start : right - columns.start,
            ] = cut

    def _segment(self, file: IO[bytes], page: int, segment: int, row: int, column: int) -> Array:
        """Read one strip or tile, shape (rows, columns, samples), at least the part inside the image."""
        height, width = self.grid.segment
        shape = (height, width, self.grid.shape[4])
        if self.lengths[page, segment] == 0:
            return np.zeros(shape, self.dtype)
        file.seek(int(self.offsets[page, segment]))
        packed = file.read(int(self.lengths[page, segment]))
        left = self.grid.shape[2] - row * height, self.grid.shape[3] - column * width
        return unpack(packed, self.grid.packing, shape, (min(height, left[0]), min(width, left[1])))


def can_unpack(compression: int, predictor: int) -> bool:
    """Whether a decoder exists."""
    known: bool = compression in tifffile.TIFF.DECOMPRESSORS and predictor in tifffile.TIFF.UNPREDICTORS
    return known and compression not in _EER


def unpack(packed: bytes, packing: SegmentPacking, shape: tuple[int, int, int], least: tuple[int, int]) -> Array:
    """Decode the pixels of one strip or tile.

    Args:
        packed: Bytes as stored in the file.
        packing: How they are packed.
        shape: (rows, columns, samples) of a full strip or tile.
        least: Rows and columns inside the image; a file may omit the others.

    Returns:
        At least the pixels inside the image.
    """
    if packing.compression in _CCITT:
        decode = getattr(imagecodecs, f"{_CCITT[packing.compression]}_decode")
        bits = imagecodecs.bitorder_decode(packed) if packing.reverses_bits else packed
        return np.asarray(decode(bits, least[0], shape[1], **packing.options)).reshape(-1, *shape[1:])
    if packing.compression in _PICTURES:
        return _picture(packed, packing, shape, least)
    return _numbers(packed, packing, shape, least[0])


def _picture(packed: bytes, packing: SegmentPacking, shape: tuple[int, int, int], least: tuple[int, int]) -> Array:
    """Decode a strip or tile that is a picture of its own, full or cropped to the image."""
    fitting = list(dict.fromkeys([shape[:2], least, (least[0], shape[1])]))
    declared = _declared_size(packed, packing.compression, packing.stored.itemsize)
    if declared is not None and declared not in fitting:
        raise DamageError(f"a strip or tile is a picture of {declared} pixels; its header declares {shape[:2]}")
    if b"ANMF" in packed[:256]:
        raise DamageError("a strip or tile is an animation", expected="a single picture")
    decode, refusals = tifffile.TIFF.DECOMPRESSORS[packing.compression], []
    for size in fitting if declared is None else [declared]:
        result: Array = np.empty((*size, shape[2]), packing.stored.newbyteorder("="))
        try:
            return np.asarray(decode(packed, out=result, **packing.options)).reshape(result.shape)
        except ValueError as error:  # of another size
            refusals.append(error)
    raise refusals[0]


def _declared_size(packed: bytes, compression: int, itemsize: int) -> tuple[int, int] | None:
    """Rows and columns that a picture declares, for decoders that would trust them."""
    if compression in JPEG:
        _, rows, columns, _ = jpeg_frame(packed)
        return rows, columns
    if compression in _JPEG_2000:
        start = packed.index(_JPEG_2000_START) + len(_JPEG_2000_START)
        right, bottom, left, top = struct.unpack_from(">4I", packed, start + 4)
        return bottom - top, right - left
    if compression in _JPEG_XR:
        start = packed.index(_JPEG_XR_START) + len(_JPEG_XR_START)
        is_short, depth = packed[start + 2] & 128, packed[start + 3]
        if _JPEG_XR_SAMPLE_BYTES.get(depth & 15) != itemsize or depth >> 4 not in (_JPEG_XR_GREY, _JPEG_XR_COLOURS):
            raise DamageError(f"a strip or tile is a JPEG XR of the colours and bits {depth}")
        columns, rows = struct.unpack_from(">2H" if is_short else ">2I", packed, start + 4)
        return rows + 1, columns + 1
    return None


def _numbers(packed: bytes, packing: SegmentPacking, shape: tuple[int, int, int], least_rows: int) -> Array:
    """Decode a strip or tile of plain numbers, row by row, each row in whole bytes."""
    rows, columns, samples = shape
    row_bytes = -(-columns * samples * packing.bits // 8)
    block: Any = imagecodecs.bitorder_decode(packed) if packing.reverses_bits else packed
    if packing.compression != 1:
        block = tifffile.TIFF.DECOMPRESSORS[packing.compression](block, out=rows * row_bytes)
    held = min(rows, len(block) // row_bytes)
    if held < least_rows:
        raise DamageError(
            f"a strip or tile unpacks to {len(block):,} bytes; its header declares {least_rows * row_bytes:,}"
        )
    pixels = _samples(block[: held * row_bytes], packing, columns * samples).reshape(held, columns, samples)
    if packing.predictor == 1:
        return pixels
    return np.asarray(tifffile.TIFF.UNPREDICTORS[packing.predictor](pixels, axis=1))


def _samples(block: bytes, packing: SegmentPacking, row_length: int) -> Array:
    """Return all samples of a block, in native byte order if a predictor remains to be undone."""
    stored, native = packing.stored, packing.stored.newbyteorder("=")
    if packing.bits == 24 and stored.kind == "f":
        return np.asarray(imagecodecs.float24_decode(block, byteorder="<" if stored.str[0] == "<" else ">"))
    if packing.bits != 8 * stored.itemsize:
        return np.asarray(imagecodecs.packints_decode(block, stored, packing.bits, runlen=row_length))
    if packing.predictor == 1:
        return np.frombuffer(block, stored)
    is_differenced_in_bytes = packing.predictor in (3, 34894, 34895)  # floats, whose predictor swaps them too
    return np.frombuffer(block, native if is_differenced_in_bytes else stored).astype(native, copy=False)
