"""Read regions from TIFF pages that are packed in strips or tiles."""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from sfumato.data.images.image import Array, Box, Image
from sfumato.data.images.tiff_codec import Packing, unpack

__all__ = ["Grid", "TiffImage"]


class Grid(NamedTuple):
    """How the pages of an image are packed, the same for all pages."""

    shape: tuple[int, int, int, int, int]  # (planes of samples, depth, rows, columns, samples side by side)
    segment: tuple[int, int]  # rows and columns of a strip or tile
    packing: Packing

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
