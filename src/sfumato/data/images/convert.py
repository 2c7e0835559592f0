"""Copy an image from one format to another, slab by slab, in memory that does not grow with the image."""

import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.data.images.image import Array, Image, PixelSize, arrange, check_dtype
from sfumato.data.images.io import under_another_name
from sfumato.data.images.png_jpeg import check_png
from sfumato.data.images.sidecar import needs_sidecar, write_sidecar
from sfumato.system.atomic_files import advice_on
from sfumato.system.errors import ImageError, StorageError

__all__ = ["check_format", "copy_image", "slabs"]

_SLAB_BYTES = 2**27
"""Bytes of pixels read at once: 1024 rows (the default chunk height) of 32,768 float32 columns."""
_SUFFIXES = (".tif", ".tiff", ".png", ".npy", ".mrc")
_PNG_AXES, _MRC_AXES = "YXC", "ZYX"
"""Axes of an image that has all the axes of the format."""


def copy_image(
    source: Image,
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any] | None = None,
    *,
    dtype: npt.DTypeLike | None = None,
    overwrite: bool = False,
) -> None:
    """Copy an image to a file, which appears under its name only when it is complete.

    Args:
        source: An open image of any format; formats that are read by region take little memory.
        path: Path of the copy; its suffix chooses the format. ``.tif`` and ``.tiff`` write an OME-TIFF if it can hold
            the image and otherwise a plain TIFF; ``.png``, ``.npy`` and ``.mrc`` are also supported.
        metadata: Metadata to store with the pixels; the metadata of the source if None. For ``.npy`` and ``.mrc`` they
            go to a file beside the image, see :mod:`sfumato.data.images.sidecar`.
        dtype: Type of the copy; the type of the source if None. For integer types values are rounded and clipped, and
            NaN becomes 0.
        overwrite: Whether an existing file may be replaced.

    Raises:
        ImageError: If the format cannot hold the image, or the name is taken.
        StorageError: If the file cannot be written, for example because the disk is full.
    """
    target, suffix = Path(path), Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise ImageError(f"{target} has the suffix {suffix!r}; expected {', '.join(_SUFFIXES)}; choose one of these")
    if target.exists() and not overwrite:
        raise ImageError(f"{target} exists already; expected a new name; choose one or pass overwrite=True")
    notes = dict(source.metadata if metadata is None else metadata)
    kind = source.dtype if dtype is None else check_dtype(dtype)
    check_format(target, source.axes, source.shape, kind, source.pixel_size)
    copy = {".png": _copy_png, ".npy": _copy_npy, ".mrc": _copy_mrc}.get(suffix, _copy_tiff)
    try:
        with under_another_name(target) as unfinished:
            copy(source, unfinished, kind, notes)
            if notes and needs_sidecar(target):
                write_sidecar(target, notes, unfinished)
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {error.strerror or error}; expected a folder with space; {advice_on(error)}"
        ) from error


def check_format(
    path: str | os.PathLike[str],
    axes: str,
    shape: Sequence[int],
    dtype: npt.DTypeLike,
    pixel_size: Mapping[str, PixelSize],
) -> None:
    """Refuse an image that the format of a file cannot hold, before there are pixels to write.

    Args:
        path: Path of the file that :func:`copy_image` would write.
        axes: Axes of the image, out of STCZYX.
        shape: Shape of the image.
        dtype: Type of the copy.
        pixel_size: Pixel sizes by axis letter.

    Raises:
        ImageError: If the format cannot hold the image.

    Example:
        >>> check_format("cells.png", "YX", (64, 64), "uint8", {})
    """
    suffix, lengths = Path(path).suffix.lower(), dict(zip(axes, shape, strict=True))
    if suffix == ".png":
        _only(path, lengths, _PNG_AXES)
        check_png(np.dtype(dtype), lengths.get("C", 1), _sizes(pixel_size, "XY"))
    if suffix == ".mrc":
        _only(path, lengths, _MRC_AXES)


def slabs(image: Image, axes: str, *, num_bytes: int, whole: str = "", multiple: int = 1) -> Iterator[Array]:
    """Read an image part by part, in C order.

    Args:
        image: The image to read.
        axes: Order of the axes in the result; axes that the image lacks get length 1, and axes of length 1 may be left
            out.
        num_bytes: Approximate size of a part. Lengths are powers of two, like those of chunks, so that few chunks are
            decoded twice.
        whole: Last axes, which are never cut, whatever their length.
        multiple: If the cut axis comes right before ``whole``, its lengths are multiples of this, except for the last
            part.

    Yields:
        Arrays with all axes; the axes before the cut one have length 1.
    """
    lengths = [dict(zip(image.axes, image.shape, strict=True)).get(axis, 1) for axis in axes]
    inner = [math.prod(lengths[place + 1 :]) * image.dtype.itemsize for place in range(len(axes))]
    last = len(axes) - len(whole) - 1
    cut = next((place for place in range(last) if inner[place] <= num_bytes), last)
    step = 2 ** math.floor(math.log2(max(1, num_bytes // inner[cut])))
    if cut == last:
        step = max(multiple, step // multiple * multiple)
    for before in itertools.product(*(range(length) for length in lengths[:cut])):
        for start in range(0, lengths[cut], step):
            spans = [slice(index, index + 1) for index in before] + [slice(start, min(start + step, lengths[cut]))]
            region = {axis: span for axis, span in zip(axes, spans, strict=False) if axis in image.axes}
            yield np.ascontiguousarray(arrange(image.read(region), image.axes, axes))


def _copy_tiff(source: Image, path: Path, dtype: np.dtype[Any], notes: dict[str, Any]) -> None:
    from sfumato.data.images.tiff_writer import TILE, tiff_order, write_tiff_tiles

    axes = tiff_order(source.axes)
    parts = _parts(source, axes, dtype, whole="X", multiple=TILE)
    write_tiff_tiles(path, parts, _shape(source, axes), dtype, axes, source.pixel_size, notes)


def _copy_png(source: Image, path: Path, dtype: np.dtype[Any], notes: dict[str, Any]) -> None:
    from sfumato.data.images.png_jpeg import write_png_rows

    axes = _PNG_AXES if "C" in source.axes else "YX"
    parts = _parts(source, axes, dtype, whole=axes[1:])
    write_png_rows(path, parts, _shape(source, axes), dtype, _sizes(source.pixel_size, "XY"), notes)


def _copy_npy(source: Image, path: Path, dtype: np.dtype[Any], notes: dict[str, Any]) -> None:
    from sfumato.data.images.npy import write_npy_parts

    write_npy_parts(path, _parts(source, source.axes, dtype), source.shape, dtype)


def _copy_mrc(source: Image, path: Path, dtype: np.dtype[Any], notes: dict[str, Any]) -> None:
    from sfumato.data.images.mrc import write_mrc_parts

    axes = _MRC_AXES if "Z" in source.axes else "YX"
    text = json.dumps({"sfumato": notes}) if notes else ""
    write_mrc_parts(
        path, _parts(source, axes, dtype), _shape(source, axes), dtype, _sizes(source.pixel_size, "XYZ"), text
    )


def _parts(source: Image, axes: str, dtype: np.dtype[Any], *, whole: str = "", multiple: int = 1) -> Iterator[Array]:
    for slab in slabs(source, axes, num_bytes=_SLAB_BYTES, whole=whole, multiple=multiple):
        yield _converted(slab, dtype)


def _converted(pixels: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind not in "iu" or pixels.dtype == dtype:
        return pixels.astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    rounded: Array = np.clip(np.nan_to_num(np.rint(pixels)), limits.min, limits.max)
    return rounded.astype(dtype)


def _shape(source: Image, axes: str) -> tuple[int, ...]:
    lengths = dict(zip(source.axes, source.shape, strict=True))
    return tuple(lengths.get(axis, 1) for axis in axes)


def _sizes(pixel_size: Mapping[str, PixelSize], axes: str) -> dict[str, PixelSize]:
    return {axis: size for axis, size in pixel_size.items() if axis in axes}


def _only(path: str | os.PathLike[str], lengths: Mapping[str, int], axes: str) -> None:
    """Refuse an image with axes that a format lacks, unless they have length 1."""
    lost = [axis for axis, length in lengths.items() if axis not in axes and length > 1]
    if lost or not {"Y", "X"} <= set(lengths):
        raise ImageError(
            f"{os.fspath(path)} would have the axes {''.join(lengths)} and shape {tuple(lengths.values())}; expected "
            f"{axes} in this format, others of length 1; write .tif, or one file for each index"
        )
