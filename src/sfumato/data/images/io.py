"""Open and write images of any supported format.

The first bytes of a file decide which reader opens it; the suffix helps with formats that have no signature. Axes come
from ``axes`` if given, otherwise from the file, otherwise from a rule: the last letters of ``STCZYX`` for plain arrays
(``YX``, ``ZYX``, ``CZYX``...), ``YX`` or ``YXC`` for pictures, Z for the pages of a TIFF.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sfumato.data.images.file_names import MRC_SUFFIXES
from sfumato.data.images.image import (
    DEFAULT_MEMORY_BUDGET,
    Array,
    Image,
    PixelSize,
    arrange,
    check_axes,
    check_dtype,
    check_pixel_size,
    reading,
)
from sfumato.data.images.vendor_image import find_scene
from sfumato.data.images.vendors import open_vendor
from sfumato.system.atomic_files import sync_folder
from sfumato.system.errors import ImageError, UnknownFormatError

__all__ = ["open_image", "under_another_name", "write_image"]

_READABLE = "TIFF, OME-TIFF, OME-Zarr 0.4 and 0.5, MRC, PNG, JPEG, npy, npz, CZI, ND2, LIF or OIB"
_WRITABLE = ".tif, .tiff, .zarr, .png and .npy"
_SNIFFED_BYTES = 1024


def open_image(
    path: str | os.PathLike[str],
    *,
    axes: str | None = None,
    memory_budget: int | None = None,
    scene: str | int | None = None,
) -> Image:
    """Open an image without reading its pixels.

    Args:
        path: A TIFF, OME-TIFF, MRC, PNG, JPEG or npy file; the folder or address of an OME-Zarr image or Zarr array;
            an array in an npz archive, as ``archive.npz/name``; or a CZI, ND2, LIF or OIB file (extra ``microscopes``).
        axes: Letters out of ``STCZYX`` that override the axes in the file, one for each of its axes.
        memory_budget: Bytes that one call of ``read`` may take; 4 GiB by default. It is checked against the header
            before anything is allocated.
        scene: Name or number of the scene (position, series) of a file with several; the first by default.

    Returns:
        The image, which can be read by region.

    Raises:
        ImageError: If the file does not exist, its format is unknown, its header is damaged or it has no such scene.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_image(f"{folder}/stack.tif", np.zeros((3, 8, 8), np.uint8), axes="ZYX")
        ...     image = open_image(f"{folder}/stack.tif")
        ...     image.axes, image.shape, image.read({"Z": 1, "X": slice(0, 4)}).shape
        ('ZYX', (3, 8, 8), (8, 4))
    """
    budget = DEFAULT_MEMORY_BUDGET if memory_budget is None else memory_budget
    name = os.fspath(path)
    if "://" in name:
        from sfumato.data.images.ome_zarr import open_ome_zarr

        image: Image = open_ome_zarr(name, memory_budget=budget)
    else:
        with reading(name, "supported"):
            image = _open_local(Path(name), budget, scene)
    if not image.scenes:
        find_scene(name, (), scene)
    return image if axes is None else image.labelled(axes)


def _open_local(path: Path, budget: int, scene: str | int | None) -> Image:
    """Choose the reader of a file or folder."""
    if path.is_dir():
        from sfumato.data.images.ome_zarr import is_zarr, open_ome_zarr

        if not is_zarr(path):
            raise ImageError(f"{path} is a folder without Zarr metadata; expected one image; open a file inside")
        return open_ome_zarr(path, memory_budget=budget)
    if path.parent.suffix == ".npz" and path.parent.is_file():
        from sfumato.data.images.npy import open_npz

        return open_npz(path.parent, name=path.name, memory_budget=budget)
    if path.exists() and not path.is_file():  # opening a pipe would block forever
        raise ImageError(f"{path} is a pipe, a socket or a device; expected a file or a folder; copy it to a file")
    with path.open("rb") as file:
        start = file.read(_SNIFFED_BYTES)
    vendor = open_vendor(path, start, memory_budget=budget, scene=scene)
    return _open_file(path, start, budget) if vendor is None else vendor


def _open_file(path: Path, start: bytes, budget: int) -> Image:
    """Choose the reader of a file by its first bytes."""
    suffix = path.suffix.lower()
    if start.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        from sfumato.data.images.tiff import open_tiff as open_format
    elif start.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")):
        from sfumato.data.images.png_jpeg import open_picture as open_format
    elif start.startswith(b"\x93NUMPY"):
        from sfumato.data.images.npy import open_npy as open_format
    elif start.startswith(b"PK") and suffix == ".npz":
        from sfumato.data.images.npy import open_npz as open_format
    elif _is_mrc(start) or (start and suffix in MRC_SUFFIXES):
        from sfumato.data.images.mrc import open_mrc as open_format
    elif not start:
        raise UnknownFormatError(f"{path} is empty (0 bytes); expected {_READABLE}; copy or save it again")
    else:
        raise UnknownFormatError(
            f"{path} starts with {start[:8]!r}, which no known format does; expected {_READABLE}; convert it, or copy "
            "it again if it should be one of these"
        )
    return open_format(path, memory_budget=budget)


def _is_mrc(start: bytes) -> bool:
    from sfumato.data.images.mrc import is_mrc  # imports mrcfile, which most users do not need

    return is_mrc(start)


def write_image(
    path: str | os.PathLike[str],
    array: npt.ArrayLike,
    *,
    axes: str,
    pixel_size: Mapping[str, PixelSize] | None = None,
    ome_zarr_version: Literal["0.4", "0.5"] = "0.5",
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write an image, which appears under its name only when it is complete.

    The suffix chooses the format: ``.tif`` and ``.tiff`` OME-TIFF, ``.zarr`` (also ``.ome.zarr``) OME-Zarr, ``.png``
    and ``.npy``. Formats with a fixed order of axes store the image in that order, so it may read back transposed, and
    OME-TIFF drops axes of length 1.

    Args:
        path: Path of the image to write.
        array: Pixels with the axes ``axes``.
        axes: Letters out of ``STCZYX``.
        pixel_size: Pixel sizes by axis letter: lengths for X, Y, Z, a time for T.
        ome_zarr_version: Version of OME-Zarr, for ``.zarr``.
        metadata: JSON values to store with the pixels.
        overwrite: Whether an existing image may be replaced.

    Raises:
        ImageError: If the format cannot hold the image or its pixel sizes, or the path already exists.
    """
    target, pixels = Path(path), np.asarray(array)
    check_axes(axes, pixels.ndim)
    check_dtype(pixels.dtype)
    sizes, notes = dict(pixel_size or {}), dict(metadata or {})
    check_pixel_size(sizes, axes)
    if pixels.size == 0:
        raise ImageError(f"the array has shape {pixels.shape}; expected at least one pixel; there is nothing to write")
    if target.exists() and not overwrite:
        raise ImageError(f"{target} exists already; expected a new name; choose one or pass overwrite=True")
    suffix = target.suffix.lower()
    if suffix not in (".tif", ".tiff", ".zarr", ".png", ".npy"):
        raise ImageError(f"{target} has the suffix {suffix!r}; expected {_WRITABLE}; choose one of these")
    with under_another_name(target) as unfinished:
        if suffix == ".zarr":
            from sfumato.data.images.ome_zarr_writer import write_ome_zarr

            write_ome_zarr(unfinished, pixels, axes, sizes, notes, version=ome_zarr_version, name=target.name)
        elif suffix == ".png":
            _write_png(unfinished, pixels, axes, sizes, notes)
        elif suffix == ".npy":
            _write_npy(unfinished, pixels, axes, sizes, notes)
        else:
            from sfumato.data.images.tiff_writer import write_tiff

            write_tiff(unfinished, pixels, axes, sizes, notes)


def _write_png(path: Path, pixels: Array, axes: str, sizes: Mapping[str, PixelSize], notes: dict[str, Any]) -> None:
    from sfumato.data.images.png_jpeg import check_png, write_png_rows

    channels = pixels.shape[axes.index("C")] if "C" in axes else 1
    check_png(pixels.dtype, channels, sizes)
    rows = arrange(pixels, axes, "YXC" if "C" in axes else "YX")
    write_png_rows(path, [rows], rows.shape, rows.dtype, sizes, notes)


def _write_npy(path: Path, pixels: Array, axes: str, sizes: Mapping[str, PixelSize], notes: dict[str, Any]) -> None:
    from sfumato.data.images.npy import write_npy_parts

    if sizes or notes:
        raise ImageError(
            f"pixel sizes {sorted(sizes)} and metadata {sorted(notes)} were given for a .npy file; expected none, as "
            "it holds numbers alone; leave them out, or write .tif or .zarr"
        )
    write_npy_parts(path, [pixels], pixels.shape, pixels.dtype)


@contextmanager
def under_another_name(target: Path) -> Iterator[Path]:
    """Provide a temporary path beside the target; it is renamed to the target on success and removed on failure."""
    unfinished = target.with_name(f".{uuid.uuid4().hex}.unfinished{target.suffix}")
    try:
        if not target.parent.is_dir():
            raise ImageError(f"{target.parent} is not a folder; expected one for {target.name}; make it first")
        yield unfinished
        if target.is_dir():
            former = target.with_name(f".{uuid.uuid4().hex}.former")
            target.rename(former)
            unfinished.rename(target)
            shutil.rmtree(former)
        else:
            if unfinished.is_file():  # its source may be deleted as soon as it has its name
                with unfinished.open("r+b") as file:
                    os.fsync(file.fileno())
            unfinished.replace(target)
        sync_folder(target.parent)
    finally:
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        else:
            unfinished.unlink(missing_ok=True)
