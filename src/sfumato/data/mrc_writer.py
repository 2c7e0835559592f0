"""Writing MRC files in the DeltaVision (Priism) dialect, as the microscopes of the BioSR group do.

The header has what such files have and lacks what they lack: neither the id ``MAP`` nor a machine stamp, one interval
along each axis, and the pixel size itself, in micrometre, where MRC has the edges of the cell. See
:mod:`sfumato.data.mrc` for the reader.
"""

import struct
from pathlib import Path

import numpy as np

from sfumato.data.image import Array
from sfumato.errors import ImageError

__all__ = ["write_deltavision"]

_MODES = {"uint8": 0, "int16": 1, "float32": 2, "uint16": 6}
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
