"""Writing MRC files: MRC2014, and the DeltaVision (Priism) dialect, as the microscopes of the BioSR group do.

A DeltaVision header has what such files have and lacks what they lack: neither the id ``MAP`` nor a machine stamp, one
interval along each axis, and the pixel size itself, in micrometre, where MRC has the edges of the cell. See
:mod:`sfumato.data.images.mrc` for the reader.
"""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.data.images.image import Array, PixelSize
from sfumato.system.errors import ImageError

__all__ = ["write_deltavision", "write_mrc_parts"]

_MODES = {"uint8": 0, "int16": 1, "float32": 2, "uint16": 6}
_MRC_MODES = {"int8": 0, "int16": 1, "float32": 2, "complex64": 4, "uint16": 6, "float16": 12}
_MRC2014 = 20140
_VOLUME, _STACK = 1, 0
"""Space groups: sections of one volume, or images by themselves."""
_TITLES = 10
_RIGHT_ANGLE = 90.0
_ID = -16224
_TITLE_BYTES = 80


def write_deltavision(
    path: str | Path,
    sections: Array,
    *,
    pixel_um: tuple[float, float],
    wavelength_um: float = 0.0,
    title: str = "",
) -> None:
    """Write an image as little-endian sections after a header of 1024 bytes.

    Args:
        path: Where to.
        sections: Shape (Z, Y, X) or (Y, X); uint8, int16, uint16 or float32.
        pixel_um: Side of a pixel, and distance of sections.
        wavelength_um: Of the light that was detected; kept in whole nanometres.
        title: Free text of up to 80 ASCII characters.

    Raises:
        ImageError: If the format cannot hold the image.
    """
    pixels = sections[None] if sections.ndim == 2 else sections
    if pixels.ndim != 3 or pixels.dtype.name not in _MODES:
        raise ImageError(
            f"the image has shape {sections.shape} and type {sections.dtype}; expected (Z, Y, X) or (Y, X) of "
            f"{', '.join(_MODES)}; convert it first"
        )
    num_sections, rows, columns = pixels.shape
    header = bytearray(1024)
    struct.pack_into("<4i", header, 0, columns, rows, num_sections, _MODES[pixels.dtype.name])
    struct.pack_into("<3i", header, 28, 1, 1, 1)
    struct.pack_into("<3f", header, 40, pixel_um[0], pixel_um[0], pixel_um[1])
    struct.pack_into("<3f", header, 52, *[_RIGHT_ANGLE] * 3)
    struct.pack_into("<3i", header, 64, 1, 2, 3)
    struct.pack_into("<h", header, 96, _ID)
    struct.pack_into("<h", header, 180, 1)  # times
    struct.pack_into("<2h", header, 196, 1, round(wavelength_um * 1000))  # wavelengths, and the first of them
    struct.pack_into("<i", header, 220, 1)  # titles
    header[224 : 224 + _TITLE_BYTES] = title.encode("ascii", "replace")[:_TITLE_BYTES].ljust(_TITLE_BYTES, b"\0")
    try:
        with Path(path).open("wb") as file:
            file.write(header)
            file.write(np.ascontiguousarray(pixels, pixels.dtype.newbyteorder("<")).tobytes())
    except OSError as error:
        raise ImageError(f"cannot write {path}: {error}; expected a folder with space; check it") from error


def write_mrc_parts(
    path: Path,
    parts: Iterable[Array],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    pixel_size: Mapping[str, PixelSize],
    text: str = "",
) -> None:
    """Write an MRC2014 file, little-endian, whose sections come in parts.

    Args:
        path: Where to.
        parts: Put end to end they are the pixels.
        shape: Of them all, (Z, Y, X) or (Y, X).
        dtype: Of them all.
        pixel_size: For X, Y and Z; kept as the edges of the cell in angstrom.
        text: For the header's ten labels of 80 ASCII characters; what is longer is cut off.

    Raises:
        ImageError: If the format cannot hold the image.
    """
    if len(shape) not in (2, 3) or dtype.name not in _MRC_MODES:
        raise ImageError(
            f"the image has shape {shape} and type {dtype}; an MRC holds (Z, Y, X) or (Y, X) of "
            f"{', '.join(_MRC_MODES)}; convert it, or write .tif"
        )
    lengths = dict(zip("XYZ", (*reversed(shape), 1), strict=False))
    edges = [pixel_size[axis].to("angstrom") * lengths[axis] if axis in pixel_size else 0.0 for axis in "XYZ"]
    header = bytearray(1024)
    struct.pack_into("<4i", header, 0, *lengths.values(), _MRC_MODES[dtype.name])
    struct.pack_into("<3i", header, 28, *lengths.values())
    struct.pack_into("<3f", header, 40, *edges)
    struct.pack_into("<3f", header, 52, *[_RIGHT_ANGLE] * 3)
    struct.pack_into("<3i", header, 64, 1, 2, 3)
    struct.pack_into("<i", header, 88, _VOLUME if len(shape) == 3 else _STACK)
    struct.pack_into("<i", header, 108, _MRC2014)
    header[208:216] = b"MAP DD\0\0"
    labels = text.encode("ascii", "replace")[: _TITLES * _TITLE_BYTES]
    struct.pack_into("<i", header, 220, -(-len(labels) // _TITLE_BYTES))
    header[224 : 224 + len(labels)] = labels
    # Least, greatest and mean below both, and a negative deviation: the format's way to say that they are not known.
    struct.pack_into("<3f", header, 76, 0.0, -1.0, -2.0)
    struct.pack_into("<f", header, 216, -1.0)
    with path.open("wb") as file:
        file.write(header)
        for part in parts:
            file.write(np.ascontiguousarray(part, dtype.newbyteorder("<")).data)
