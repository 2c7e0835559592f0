"""Write OME-TIFF files, or plain TIFF with a JSON note for images that OME-TIFF cannot hold."""

import hashlib
import itertools
import json
import math
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from sfumato.data.images import units
from sfumato.data.images.image import Array, PixelSize, arrange
from sfumato.system.errors import ImageError

__all__ = ["TILE", "tiff_order", "write_tiff", "write_tiff_tiles"]

_OME_TYPES = {"int8", "int16", "int32", "uint8", "uint16", "uint32", "float32", "float64", "complex64", "complex128"}
_BIG = 2**32 - 2**25
"""Above this size in bytes, 32-bit offsets are too short."""
TILE = 256
"""Side of a tile in pixels; smaller for smaller images."""
_TILE_UNIT = 16
_NO_IDENTITY = str(uuid.UUID(int=0))
"""Placeholder UUID of an OME-TIFF until all its pixels are known."""


def write_tiff(
    path: Path, array: Array, axes: str, pixel_size: Mapping[str, PixelSize], metadata: Mapping[str, Any]
) -> None:
    """Write a TIFF compressed with deflate, one page per plane.

    Axes out of ``TCZYX`` make an OME-TIFF, stored in that order; ``channels`` in the metadata names its channels. With
    S, or types that OME does not support (bool, 64-bit integers, float16), the file is a plain TIFF whose first page
    describes axes and pixel sizes in JSON.
    """
    ordered = tiff_order(axes)
    pixels = np.ascontiguousarray(arrange(array, axes, ordered))
    tifffile.imwrite(
        path,
        pixels,
        ome=_is_ome(ordered, pixels.dtype),
        bigtiff=pixels.nbytes > _BIG,
        photometric="minisblack",
        planarconfig=None,
        compression="zlib",
        metadata=_note(ordered, pixels.dtype, pixel_size, metadata),
    )
    if _is_ome(ordered, pixels.dtype):
        _identify(path, hashlib.blake2b(pixels.data))


def write_tiff_tiles(
    path: Path,
    parts: Iterable[Array],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    axes: str,
    pixel_size: Mapping[str, PixelSize],
    metadata: Mapping[str, Any],
) -> None:
    """Write a tiled TIFF like :func:`write_tiff`, from parts, so that the whole image is never in memory.

    Args:
        path: Path of the file to write.
        parts: Whole planes, or rows of one plane in multiples of ``TILE``; concatenated they are the pixels.
        shape: Shape of the whole image.
        dtype: Type of the pixels.
        axes: Axes in the order of :func:`tiff_order`.
        pixel_size: Pixel sizes by axis letter.
        metadata: JSON values to store with the pixels.
    """
    tile = tuple(min(TILE, -(-length // _TILE_UNIT) * _TILE_UNIT) for length in shape[-2:])
    num_bytes, seen = math.prod(shape) * dtype.itemsize, hashlib.blake2b()
    with tifffile.TiffWriter(path, bigtiff=num_bytes > _BIG, ome=_is_ome(axes, dtype)) as file:
        file.write(
            _counted(_tiles(parts, tile, dtype), seen),
            shape=shape,
            dtype=dtype,
            tile=tile,
            maxworkers=1,
            photometric="minisblack",
            compression="zlib",
            metadata=_note(axes, dtype, pixel_size, metadata),
        )
    if _is_ome(axes, dtype):
        _identify(path, seen)


def tiff_order(axes: str) -> str:
    """Return the axes in the order of a TIFF, or raise ImageError if it cannot hold them."""
    if not {"Y", "X"} <= set(axes):
        raise ImageError(f"axes are {axes}; expected Y and X among them for a TIFF; name them, or write .npy")
    return "".join(axis for axis in "STCZYX" if axis in axes)


def _tiles(parts: Iterable[Array], tile: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[Array]:
    """Yield tiles row by row, plane by plane; tiles at the edges are padded with zeros."""
    for part in parts:
        for plane in part.reshape(-1, *part.shape[-2:]):
            for y, x in itertools.product(*(range(0, n, side) for n, side in zip(plane.shape, tile, strict=True))):
                piece = plane[y : y + tile[0], x : x + tile[1]]
                full = np.zeros(tile, dtype)
                full[: piece.shape[0], : piece.shape[1]] = piece
                yield full


def _counted(tiles: Iterable[Array], seen: "hashlib.blake2b") -> Iterator[Array]:
    """Yield the tiles unchanged, and add each to a hash."""
    for tile in tiles:
        seen.update(tile.data)
        yield tile


def _identify(path: Path, seen: "hashlib.blake2b") -> None:
    """Give an OME-TIFF a UUID made from its content, so that the same image always gives the same file.

    Args:
        path: Path of the file, which still has the placeholder UUID.
        seen: Hash of its pixels; the description is added to it.
    """
    with tifffile.TiffFile(path) as file:
        tag = file.pages.first.tags["ImageDescription"]
        start, length = tag.valueoffset, tag.count
    with path.open("r+b") as raw:
        raw.seek(start)
        text = raw.read(length)
        seen.update(text)
        identity = uuid.UUID(bytes=seen.digest()[:16], version=5)
        raw.seek(start + text.index(_NO_IDENTITY.encode()))
        raw.write(str(identity).encode())


def _is_ome(axes: str, dtype: np.dtype[Any]) -> bool:
    return "S" not in axes and dtype.name in _OME_TYPES


def _note(
    axes: str, dtype: np.dtype[Any], pixel_size: Mapping[str, PixelSize], metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Metadata from which tifffile makes the description."""
    if not _is_ome(axes, dtype):
        sizes = {axis: (size.value, size.unit) for axis, size in pixel_size.items()}
        return {"axes": axes, "pixel_size": sizes, "sfumato": dict(metadata)}
    note = {"axes": axes, "UUID": _NO_IDENTITY} | _ome_sizes(pixel_size)
    if "channels" in metadata:
        note["Channel"] = {"Name": list(metadata["channels"])}
    return note | ({"Description": json.dumps({"sfumato": dict(metadata)})} if metadata else {})


def _ome_sizes(pixel_size: Mapping[str, PixelSize]) -> dict[str, Any]:
    names = {"X": "PhysicalSizeX", "Y": "PhysicalSizeY", "Z": "PhysicalSizeZ", "T": "TimeIncrement"}
    values = {names[axis]: size.value for axis, size in pixel_size.items()}
    return values | {f"{names[axis]}Unit": units.SYMBOLS[size.unit] for axis, size in pixel_size.items()}
