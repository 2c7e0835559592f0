"""Read TIFF, OME-TIFF and ImageJ TIFF files.

tifffile parses the directories of a file. Only a table of the positions of all strips or tiles is kept. Regions are
read from it without tifffile, so that images can be shared by threads and processes, and only the necessary parts are
decoded. An uncompressed stack in one block is read through a memory map.

If a file has several images, the first is read, at full resolution. Values are as stored: palettes are not applied.
Resolution tags are trusted if ImageJ wrote them with a unit, or if their pixels are smaller than a printer's.
"""

import json
import logging
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tifffile

from sfumato.data.images.image import DamageError, Image, PixelSize, fill_axes, reading
from sfumato.data.images.ome_xml import is_ome, parse_ome
from sfumato.data.images.png_jpeg import PRINT_PIXEL_M
from sfumato.data.images.raw_image import RawImage
from sfumato.data.images.tiff_image import JPEG, Grid, SegmentPacking, TiffImage, can_unpack

__all__ = ["open_tiff"]

_METRES = {2: 0.0254, 3: 0.01}
"""Length of each unit of the resolution tags."""
_COMPLEX_INTEGERS = 5
_FAX, _WEBP = 3, frozenset({34927, 50001})
_GREY, _RGB, _CMYK, _YCBCR = 1, 2, 5, 6
_JPEG_COLOURS = {_RGB: _RGB, _YCBCR: _RGB, _CMYK: 4}
"""Colour space to decode to (JPEG number), by the photometric number in the TIFF."""
_MOST_TAGS = 4096

# tifffile logs oddities; faults that matter are raised here, so the log is silenced.
logging.getLogger("tifffile").addHandler(logging.NullHandler())


def open_tiff(path: Path, *, memory_budget: int) -> Image:
    """Open a TIFF file.

    Axes come from the OME-XML, ImageJ's metadata or tifffile's own note, without the axes of length 1 that the first
    two always name; samples of a pixel are C. Otherwise pages are Z, or the last letters of ``STCZYX``.
    """
    with reading(path, "TIFF"):
        _check_page_chain(path)
        # Files named in the metadata are never opened; sets of files are refused when planes turn out missing.
        with tifffile.TiffFile(path, _multifile=False) as file:
            if not file.pages:
                raise DamageError("it has no page", expected="at least one")
            stack = _ome_stack(file) if is_ome(file.pages.first.description) else _series_stack(file)
            facts: dict[str, Any] = {
                "path": str(path),
                "format": stack.format,
                "axes": stack.axes,
                "shape": stack.shape,
                "dtype": _stored_dtype(stack.page),
                "pixel_size": stack.pixel_size,
                "metadata": stack.metadata,
                "memory_budget": memory_budget,
                "channel_names": stack.channel_names,
            }
            if stack.block is not None:
                return RawImage(**facts, offset=stack.block, stored=_stored_dtype(stack.page))
            return _packed(path, stack, facts)


def _check_page_chain(path: Path) -> None:
    """Follow the chain of pages once and refuse a circular one, which would be endless."""
    with path.open("rb") as file:
        start = file.read(16)
        order = "<" if start[:1] == b"I" else ">"
        big = start[2:4] in (b"+\0", b"\0+")
        count_code, offset_code, tag_bytes, first = ("Q", "Q", 20, 8) if big else ("H", "I", 12, 4)
        held, seen = path.stat().st_size, set[int]()

        def number(code: str) -> int:
            field = file.read(struct.calcsize(code))
            if len(field) < struct.calcsize(code):
                raise DamageError(f"its page {max(len(seen) - 1, 0)} begins or ends after its {held:,} bytes")
            return int(struct.unpack(order + code, field)[0])

        file.seek(first)
        offset = number(offset_code)
        while offset:
            if offset in seen:
                raise DamageError(f"its page {len(seen)} points back to byte {offset}, where an earlier page is")
            seen.add(offset)
            file.seek(min(offset, held))
            tags = number(count_code)
            if tags > _MOST_TAGS:
                raise DamageError(f"its page {len(seen) - 1} has {tags} tags", expected=f"at most {_MOST_TAGS}")
            file.seek(tags * tag_bytes, 1)
            offset = number(offset_code)


class _Stack(NamedTuple):
    """The pages of one image and their joint properties."""

    format: str
    axes: str
    shape: tuple[int, ...]
    page: Any  # tifffile.TiffPage
    pages: Sequence[Any]
    block: int | None  # offset of the pixels if they are contiguous
    pixel_size: Mapping[str, PixelSize]
    metadata: Mapping[str, Any]
    channel_names: tuple[str, ...] = ()


def _ome_stack(file: tifffile.TiffFile) -> _Stack:
    image = parse_ome(file.pages.first.description, len(file.pages))
    file.pages.useframes = True
    file.pages.set_keyframe(image.pages[0])
    pages = [file.pages[index] for index in image.pages]
    page = pages[0]
    letters, lengths = [*image.outer, *page.axes], [*image.sizes, *page.shape]
    both = "C" in letters and "S" in letters and lengths[letters.index("C")] > 1
    kept = [i for i, letter in enumerate(letters) if lengths[i] > 1 or letter in "YX"]
    axes = _letters([letters[i] for i in kept], samples=not both)
    shape = tuple(lengths[i] for i in kept)
    return _Stack("OME-TIFF", axes, shape, page, pages, None, image.pixel_size, image.metadata, image.channel_names)


def _series_stack(file: tifffile.TiffFile) -> _Stack:
    series = file.series[0]
    page, note = series.keyframe, {}
    if series.transform is not None:
        raise DamageError(f"its values are to be transformed as {series.kind} asks", expected="plain numbers")
    if series.kind == "shaped":
        note = json.loads(page.shaped_description or "{}")
    axes = _letters(series.axes, samples=page.samplesperpixel > 1 and series.axes.count("C") == 0)
    sizes = _imagej_sizes(file.imagej_metadata or {}, page) if file.is_imagej else _tag_sizes(page)
    for axis, size in note.get("pixel_size", {}).items():
        sizes[axis] = PixelSize(*size)
    block = series.dataoffset
    pages = [] if block is not None else list(series)
    format = "ImageJ TIFF" if file.is_imagej else "TIFF"
    return _Stack(format, axes, tuple(series.shape), page, pages, block, sizes, note.get("sfumato", {}))


def _letters(axes: Sequence[str], *, samples: bool) -> str:
    """Translate tifffile's axis letters, where S stands for the samples of a pixel."""
    return fill_axes(["C" if axis == "S" and samples else axis for axis in axes])


def _stored_dtype(page: Any) -> np.dtype[Any]:
    """Type of the pixels in the file."""
    if page.dtype is None or page.sampleformat == _COMPLEX_INTEGERS or isinstance(page.bitspersample, tuple):
        raise DamageError(
            f"its pixels have {page.bitspersample} bits of sample format {page.sampleformat}",
            expected="numbers of 1 to 64 bits, all alike",
        )
    stored: np.dtype[Any] = np.dtype(page.dtype).newbyteorder(page.parent.byteorder)
    return stored


def _packed(path: Path, stack: _Stack, facts: dict[str, Any]) -> TiffImage:
    """Make the table of segments, checked against the size of the file."""
    page = stack.page
    tiled, packing = bool(page.is_tiled), _packing(page)
    if tiled and page.tiledepth != 1:
        raise DamageError(f"its tiles are {page.tiledepth} planes deep", expected="flat tiles")
    segment = (page.tilelength, page.tilewidth) if tiled else (page.rowsperstrip, page.imagewidth)
    grid = Grid(tuple(page.shaped), segment, packing)
    if min(grid.shape) < 1 or min(grid.segment) < 1:
        raise DamageError(f"its pages are {grid.shape} in segments of {grid.segment}", expected="positive numbers")
    offsets, lengths = _segments(path, stack.pages, grid)
    together = bool(np.all(offsets[:, 1:] == offsets[:, :-1] + lengths[:, :-1]))
    plain = packing == SegmentPacking(1, 1, packing.stored, 8 * packing.stored.itemsize, False, {})
    return TiffImage(
        **facts,
        grid=grid,
        offsets=offsets,
        lengths=lengths,
        page_ndim=_page_ndim(stack, grid),
        is_plain=together and not tiled and plain,
    )


def _packing(page: Any) -> SegmentPacking:
    """Return how the samples of a page are packed; raises DamageError if they cannot be unpacked."""
    compression, predictor = int(page.compression), int(page.predictor)
    subsampled = page.is_subsampled and compression not in JPEG
    if not can_unpack(compression, predictor) or subsampled:
        raise DamageError(
            f"it is compressed with {getattr(page.compression, 'name', compression)}, predictor {predictor}"
            f"{', subsampled' if subsampled else ''}",
            expected="a compression that the library imagecodecs can undo",
            advice="save it again, for example with deflate",
        )
    options: dict[str, Any] = {}
    if compression in JPEG:
        options = {"tables": page.jpegtables, "bitspersample": page.bitspersample, **_jpeg_colours(page)}
    elif compression == _FAX:
        options = {"t4options": page.tags.valueof(292) or 0}
    elif compression in _WEBP and page.samplesperpixel == 4:
        options = {"hasalpha": True}  # a segment may omit it
    return SegmentPacking(compression, predictor, _stored_dtype(page), page.bitspersample, page.fillorder == 2, options)


def _jpeg_colours(page: Any) -> dict[str, int]:
    """Colour spaces of a JPEG inside a TIFF and of the result, where the JPEG itself does not specify them."""
    if page.planarconfig != 1:
        return {"outcolorspace": _GREY}
    if page.extrasamples or page.photometric not in _JPEG_COLOURS:
        return {}
    wanted = {"outcolorspace": _JPEG_COLOURS[page.photometric]}
    return wanted | ({"colorspace": _RGB} if page.photometric == _RGB and not page.is_jfif else {})


def _segments(path: Path, pages: Sequence[Any], grid: Grid) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Offset and length of every segment of every page."""
    count, held = math.prod(grid.counts), path.stat().st_size
    offsets, lengths = [], []
    for number, page in enumerate(pages):
        if page is None or len(page.dataoffsets) != count or len(page.databytecounts) != count:
            found = "none" if page is None else f"{len(page.dataoffsets)} and {len(page.databytecounts)}"
            raise DamageError(
                f"its page {number} has {found} offsets and lengths of strips or tiles", expected=f"{count} of each"
            )
        offsets.append(np.array(page.dataoffsets, np.uint64))
        lengths.append(np.array(page.databytecounts, np.uint64))
        ends = offsets[-1].astype(float) + lengths[-1].astype(float)
        if ends.max() > held:
            raise DamageError(f"its page {number} reaches to byte {int(ends.max()):,} and it has {held:,}")
        if np.any((lengths[-1] == 0) & (offsets[-1] != 0)):
            raise DamageError(f"its page {number} has strips or tiles of 0 bytes")
        expansion = grid.packing.expansion
        most, least = float(lengths[-1].sum()) * expansion, math.prod(grid.shape) * grid.packing.bits / 8
        if lengths[-1].all() and most < least:
            raise DamageError(
                f"its page {number} of {grid.shape} pixels is packed in {int(lengths[-1].sum()):,} bytes",
                expected=f"at least {int(least / expansion):,} bytes",
            )
    return np.stack(offsets), np.stack(lengths)


def _page_ndim(stack: _Stack, grid: Grid) -> int:
    """Number of last axes within one page; the other axes run over pages."""
    long = [n for n in grid.shape if n > 1]
    for ndim in range(len(stack.shape), 0, -1):
        inner, outer = stack.shape[-ndim:], stack.shape[:-ndim]
        if [n for n in inner if n > 1] == long and math.prod(outer) == len(stack.pages):
            return ndim
    raise DamageError(f"its shape {stack.shape} does not match {len(stack.pages)} pages of {grid.shape}")


def _imagej_sizes(note: Mapping[str, Any], page: Any) -> dict[str, PixelSize]:
    """Pixel sizes written by ImageJ: tags for X and Y, and a note with the unit of all axes."""
    unit = str(note.get("unit", ""))
    sizes = {axis: PixelSize.known(1 / density, unit) for axis, density in _densities(page)}
    sizes["Z"] = PixelSize.known(_positive(note.get("spacing")), unit)
    sizes["T"] = PixelSize.known(_positive(note.get("finterval")), "second")
    known = {axis: size for axis, size in sizes.items() if size is not None}
    return known or _tag_sizes(page)


def _positive(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _tag_sizes(page: Any) -> dict[str, PixelSize]:
    """Pixel sizes from the resolution tags, unless they are meant for a printer."""
    tag = page.tags.get("ResolutionUnit")
    metre = _METRES.get(int(tag.value)) if tag is not None else None
    if metre is None:
        return {}
    sizes = {axis: metre / density for axis, density in _densities(page)}
    return {axis: PixelSize(size * 1e6, "micrometer") for axis, size in sizes.items() if size < PRINT_PIXEL_M}


def _densities(page: Any) -> Iterator[tuple[str, float]]:
    """Yield the pixels per unit along X and Y, where the tags are valid."""
    for axis in "XY":
        tag = page.tags.get(f"{axis}Resolution")
        if tag is not None and min(tag.value) > 0:
            yield axis, tag.value[0] / tag.value[1]
