"""Writing OME-TIFF, and plain TIFF with a note for what OME-TIFF cannot hold."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from sfumato.data import units
from sfumato.data.image import Array, PixelSize, arrange
from sfumato.errors import ImageError

__all__ = ["write_tiff"]

_OME_TYPES = {"int8", "int16", "int32", "uint8", "uint16", "uint32", "float32", "float64", "complex64", "complex128"}
_BIG = 2**32 - 2**25
"""Bytes above which 32-bit offsets are too short."""


def write_tiff(
    path: Path, array: Array, axes: str, pixel_size: Mapping[str, PixelSize], metadata: Mapping[str, Any]
) -> None:
    """Write a TIFF compressed with deflate, one page per plane.

    Axes out of ``TCZYX`` make an OME-TIFF, stored in that order. With S, or numbers that OME does not know (bool,
    64-bit integers, float16), it becomes a TIFF whose first page describes axes and pixel sizes in JSON.
    """
    if not {"Y", "X"} <= set(axes):
        raise ImageError(f"axes are {axes}; expected Y and X among them for a TIFF; name them, or write .npy")
    ordered = "".join(axis for axis in "STCZYX" if axis in axes)
    pixels = np.ascontiguousarray(arrange(array, axes, ordered))
    is_ome = "S" not in axes and pixels.dtype.name in _OME_TYPES
    note: dict[str, Any] = {"axes": ordered}
    if is_ome:
        note |= _ome_sizes(pixel_size)
        if metadata:
            note["Description"] = json.dumps({"sfumato": dict(metadata)})
    else:
        note["pixel_size"] = {axis: (size.value, size.unit) for axis, size in pixel_size.items()}
        note["sfumato"] = dict(metadata)
    tifffile.imwrite(
        path,
        pixels,
        ome=is_ome,
        bigtiff=pixels.nbytes > _BIG,
        photometric="minisblack",
        planarconfig=None,
        compression="zlib",
        metadata=note,
    )


def _ome_sizes(pixel_size: Mapping[str, PixelSize]) -> dict[str, Any]:
    names = {"X": "PhysicalSizeX", "Y": "PhysicalSizeY", "Z": "PhysicalSizeZ", "T": "TimeIncrement"}
    values = {names[axis]: size.value for axis, size in pixel_size.items()}
    return values | {f"{names[axis]}Unit": units.SYMBOLS[size.unit] for axis, size in pixel_size.items()}
