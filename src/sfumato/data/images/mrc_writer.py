"""Write MRC2014 files, and DeltaVision (Priism) files like those from the microscopes of the BioSR group.

As in such files, a DeltaVision header has neither the id ``MAP`` nor a machine stamp, one interval along each axis, and
the pixel size itself, in micrometre, where MRC has the edges of the cell. See :mod:`sfumato.data.images.mrc` for the
reader.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mrcfile.dtypes import HEADER_DTYPE
from mrcfile.utils import mode_from_dtype

from sfumato.data.images.image import Array, PixelSize
from sfumato.data.images.mrc import DELTAVISION_DTYPE, DELTAVISION_ID
from sfumato.system.errors import ImageError

__all__ = ["write_deltavision", "write_mrc_parts"]

_DELTAVISION_MODES = {"uint8": 0, "int16": 1, "float32": 2, "uint16": 6}
_MRC_TYPES = ("int8", "int16", "float32", "complex64", "uint16", "float16")
_MRC2014 = 20140
_VOLUME, _STACK = 1, 0
"""Space groups: sections of one volume, or separate images."""
_RIGHT_ANGLE = 90.0


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
        path: Path of the file to write.
        sections: Shape (Z, Y, X) or (Y, X); uint8, int16, uint16 or float32.
        pixel_um: Side of a pixel, and distance between sections.
        wavelength_um: Wavelength of the detected light; stored in whole nanometres.
        title: Free text of up to 80 ASCII characters.

    Raises:
        ImageError: If the format cannot hold the image.
    """
    pixels = sections[None] if sections.ndim == 2 else sections
    if pixels.ndim != 3 or pixels.dtype.name not in _DELTAVISION_MODES:
        raise ImageError(
            f"the image has shape {sections.shape} and type {sections.dtype}; expected (Z, Y, X) or (Y, X) of "
            f"{', '.join(_DELTAVISION_MODES)}; convert it first"
        )
    header = _header(pixels.shape, _DELTAVISION_MODES[pixels.dtype.name])
    header["cella"] = (pixel_um[0], pixel_um[0], pixel_um[1])
    header["mx"] = header["my"] = header["mz"] = 1
    header["nlabl"], header["label"][0, 0] = 1, title.encode("ascii", "replace")
    extra = header.view(DELTAVISION_DTYPE.newbyteorder("<"))
    extra["id"], extra["times"], extra["waves"] = DELTAVISION_ID, 1, 1
    extra["first_wave"] = round(wavelength_um * 1000)
    try:
        with Path(path).open("wb") as file:
            file.write(header.tobytes())
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
    """Write a little-endian MRC2014 file from parts of its pixels.

    Args:
        path: Path of the file to write.
        parts: Arrays that, concatenated, are the pixels.
        shape: Shape of the whole image, (Z, Y, X) or (Y, X).
        dtype: Type of the pixels.
        pixel_size: Pixel sizes for X, Y and Z; stored as the edges of the cell in angstrom.
        text: Text for the header's ten labels of 80 ASCII characters; anything longer is cut off.

    Raises:
        ImageError: If the format cannot hold the image.
    """
    if len(shape) not in (2, 3) or dtype.name not in _MRC_TYPES:
        raise ImageError(
            f"the image has shape {shape} and type {dtype}; an MRC holds (Z, Y, X) or (Y, X) of "
            f"{', '.join(_MRC_TYPES)}; convert it, or write .tif"
        )
    lengths = dict(zip("XYZ", (*reversed(shape), 1), strict=False))
    header = _header(tuple(reversed(lengths.values())), mode_from_dtype(dtype))
    header["cella"] = tuple(
        pixel_size[axis].to("angstrom") * length if axis in pixel_size else 0.0 for axis, length in lengths.items()
    )
    header["ispg"], header["nversion"] = _VOLUME if len(shape) == 3 else _STACK, _MRC2014
    header["map"], header["machst"] = b"MAP ", tuple(b"DD\0\0")
    # A maximum below the minimum, a mean below both and a negative deviation mean "unknown" in this format.
    header["dmin"], header["dmax"], header["dmean"], header["rms"] = 0.0, -1.0, -2.0, -1.0
    room = header["label"]
    labels = text.encode("ascii", "replace")[: room.nbytes]
    header["nlabl"] = -(-len(labels) // room.itemsize)
    room[0] = np.frombuffer(labels.ljust(room.nbytes, b"\0"), room.dtype)
    with path.open("wb") as file:
        file.write(header.tobytes())
        for part in parts:
            file.write(np.ascontiguousarray(part, dtype.newbyteorder("<")).data)


def _header(shape: tuple[int, ...], mode: int) -> Array:
    """Make the header of both dialects: (sections, rows, columns), one interval per pixel, right angles, X fastest."""
    header = np.zeros(1, HEADER_DTYPE.newbyteorder("<"))
    for name, length in zip(("nz", "ny", "nx", "mz", "my", "mx"), shape * 2, strict=True):
        header[name] = length
    header["mode"], header["cellb"] = mode, (_RIGHT_ANGLE,) * 3
    header["mapc"], header["mapr"], header["maps"] = 1, 2, 3
    return header
