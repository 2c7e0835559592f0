"""Read and write MRC files, also in the DeltaVision (Priism) dialect of light microscopes, which has the same suffix.

Both start with 1024 bytes of header: size (nx, ny, nz), mode of the numbers, and at byte 40 three floats. In MRC these
are the edges of the cell in angstrom, so the pixel size is edge / number of intervals. In DeltaVision files, recognised
by the number -16224 at byte 96, they are the pixel size itself, in micrometre; such files often have neither the id
``MAP`` nor a machine stamp, and their sections may run over depth, time and wavelength. Both dialects are written, MRC
as MRC2014 and DeltaVision like the files from the microscopes of the BioSR group, with one interval along each axis.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from mrcfile.dtypes import HEADER_DTYPE
from mrcfile.utils import dtype_from_mode, mode_from_dtype, spacegroup_is_volume_stack

from sfumato.data.images.image import Array, Image, PixelSize, default_axes, reading
from sfumato.data.images.raw_image import RawImage
from sfumato.system.errors import ImageError

__all__ = ["is_mrc", "open_mrc", "write_deltavision", "write_mrc_parts"]

ByteOrder = Literal["<", ">"]

_HEADER_BYTES = HEADER_DTYPE.itemsize
_DELTAVISION_ID = -16224
_DELTAVISION_DTYPE = np.dtype(
    {
        "names": ["id", "imod_stamp", "imod_flags", "times", "sequence", "waves", "first_wave"],
        "formats": ["i2", "i4", "i4", "i2", "i2", "i2", "i2"],
        "offsets": [96, 152, 156, 180, 182, 196, 198],
        "itemsize": _HEADER_BYTES,
    }
)
"""Fields that DeltaVision and IMOD store in the free space of the MRC header."""
_MODES = (0, 1, 2, 4, 6, 12)
_DELTAVISION_MODES = {0: "u1", 1: "i2", 2: "f4", 4: "c8", 6: "u2", 7: "i4"}
_IMOD_STAMP, _IMOD_SIGNED = 1146047817, 1
_SECTION_ORDERS = {0: "CTZ", 1: "TZC", 2: "TCZ"}
"""Axes over which DeltaVision sections run, slowest first."""
_DELTAVISION_TYPES = {"uint8": 0, "int16": 1, "float32": 2, "uint16": 6}
_MRC_TYPES = ("int8", "int16", "float32", "complex64", "uint16", "float16")
_MRC2014 = 20140
_VOLUME, _STACK = 1, 0
"""Space groups: sections of one volume, or separate images."""
_RIGHT_ANGLE = 90.0


class _Header:
    """The first bytes of a file, by the names that mrcfile gives them."""

    def __init__(self, content: bytes) -> None:
        stamped: ByteOrder = ">" if content[212:214] == b"\x11\x11" else "<"
        orders: tuple[ByteOrder, ...] = (stamped, "<" if stamped == ">" else ">")
        # From the DeltaVision id or the machine stamp; without either, the byte order in which the mode is valid.
        ids = [order for order in orders if _view(content, _DELTAVISION_DTYPE, order)["id"] == _DELTAVISION_ID]
        modes = [order for order in orders if _view(content, HEADER_DTYPE, order)["mode"] in _MODES]
        self.order = [*ids, *modes, stamped][0]
        self.is_deltavision = bool(ids)
        self.mrc = _view(content, HEADER_DTYPE, self.order)
        self.extra = _view(content, _DELTAVISION_DTYPE, self.order)

    def numbers(self, *names: str) -> tuple[int, ...]:
        """Integer fields of the MRC header."""
        return tuple(int(self.mrc[name]) for name in names)


def _view(content: bytes, dtype: np.dtype[Any], order: ByteOrder) -> Any:
    return np.frombuffer(content, dtype.newbyteorder(order), 1)[0]


def is_mrc(header: bytes) -> bool:
    """Whether the first bytes of a file are a header of either dialect."""
    if len(header) < _HEADER_BYTES:
        return False
    return header[208:212] == b"MAP " or _Header(header).is_deltavision


def open_mrc(path: Path, *, memory_budget: int) -> Image:
    """Open an MRC file of either dialect.

    A single section is ``YX``, several are ``ZYX``, a stack of volumes is ``SZYX``; DeltaVision files with several
    wavelengths or times have C and T as well.
    """
    with reading(path, "MRC"):
        with path.open("rb") as file:
            content = file.read(_HEADER_BYTES)
        if len(content) < _HEADER_BYTES:
            raise ImageError(
                f"{path} has {len(content)} bytes; expected an MRC header of {_HEADER_BYTES} and pixels after it; copy "
                "it again"
            )
        header = _Header(content)
        stored, (extended,) = _stored_dtype(header, path), header.numbers("nsymbt")
        layout, shape = _layout(header, path)
        return RawImage(
            path=str(path),
            format="MRC (DeltaVision)" if header.is_deltavision else "MRC",
            axes=layout,
            shape=shape,
            dtype=stored,
            pixel_size=_pixel_size(header),
            memory_budget=memory_budget,
            offset=_HEADER_BYTES + extended if extended >= 0 else -1,
            stored=stored,
        )


def _stored_dtype(header: _Header, path: Path) -> np.dtype[Any]:
    """Type of the pixels, from the mode."""
    (mode,) = header.numbers("mode")
    modes = sorted(_DELTAVISION_MODES if header.is_deltavision else _MODES)
    if mode not in modes:
        raise ImageError(f"{path} has MRC mode {mode}; expected one of {modes}; convert it, for example to 2")
    is_unsigned = header.extra["imod_stamp"] == _IMOD_STAMP and not header.extra["imod_flags"] & _IMOD_SIGNED
    if mode == 0 and is_unsigned:
        return np.dtype("u1")
    stored = np.dtype(_DELTAVISION_MODES[mode]) if header.is_deltavision else dtype_from_mode(mode)
    native: np.dtype[Any] = stored.newbyteorder(header.order)
    return native


def _layout(header: _Header, path: Path) -> tuple[str, tuple[int, ...]]:
    """Axes and shape."""
    columns, rows, sections = header.numbers("nx", "ny", "nz")
    if min(columns, rows, sections) < 1:
        raise ImageError(
            f"{path} has nx, ny, nz = {columns}, {rows}, {sections} in its header; expected positive numbers; save it "
            "again"
        )
    if header.is_deltavision:
        outer, sizes = _deltavision_sections(header, sections)
        return outer + "YX", (*sizes, rows, columns)
    intervals, group = header.numbers("mz", "ispg")
    if spacegroup_is_volume_stack(group) and intervals > 0 and sections % intervals == 0:
        return "SZYX", (sections // intervals, intervals, rows, columns)
    if sections == 1:
        return "YX", (rows, columns)
    directions = header.numbers("maps", "mapr", "mapc")
    if sorted(directions) == [1, 2, 3]:
        return "".join("XYZ"[direction - 1] for direction in directions), (sections, rows, columns)
    return default_axes(3), (sections, rows, columns)


def _deltavision_sections(header: _Header, sections: int) -> tuple[str, tuple[int, ...]]:
    """Axes over which the sections run, without those of length 1, and their lengths."""
    times, waves = max(int(header.extra["times"]), 1), max(int(header.extra["waves"]), 1)
    sequence = int(header.extra["sequence"])
    depth, rest = divmod(sections, times * waves)
    if rest or sequence not in _SECTION_ORDERS:
        return ("Z", (sections,)) if sections > 1 else ("", ())
    lengths = {"C": waves, "T": times, "Z": depth}
    outer = "".join(axis for axis in _SECTION_ORDERS[sequence] if lengths[axis] > 1)
    return outer, tuple(lengths[axis] for axis in outer)


def _pixel_size(header: _Header) -> dict[str, PixelSize]:
    """Pixel sizes for X, Y and Z, where the header has any."""
    # Shortest decimals that give the same float: 0.0626, not 0.06260000169.
    edges = [float(str(np.float32(edge))) for edge in header.mrc["cella"].item()]
    intervals = (1, 1, 1) if header.is_deltavision else header.numbers("mx", "my", "mz")
    unit = "micrometer" if header.is_deltavision else "angstrom"
    sizes = {
        axis: PixelSize.known(edge / interval, unit) if interval > 0 and math.isfinite(edge) else None
        for axis, edge, interval in zip("XYZ", edges, intervals, strict=True)
    }
    return {axis: size for axis, size in sizes.items() if size is not None}


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
    if pixels.ndim != 3 or pixels.dtype.name not in _DELTAVISION_TYPES:
        raise ImageError(
            f"the image has shape {sections.shape} and type {sections.dtype}; expected (Z, Y, X) or (Y, X) of "
            f"{', '.join(_DELTAVISION_TYPES)}; convert it first"
        )
    header = _new_header(pixels.shape, _DELTAVISION_TYPES[pixels.dtype.name])
    header["cella"] = (pixel_um[0], pixel_um[0], pixel_um[1])
    header["mx"] = header["my"] = header["mz"] = 1
    header["nlabl"], header["label"][0, 0] = 1, title.encode("ascii", "replace")
    extra = header.view(_DELTAVISION_DTYPE.newbyteorder("<"))
    extra["id"], extra["times"], extra["waves"] = _DELTAVISION_ID, 1, 1
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
    header = _new_header(tuple(reversed(lengths.values())), mode_from_dtype(dtype))
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


def _new_header(shape: tuple[int, ...], mode: int) -> Array:
    """Make the header of both dialects: (sections, rows, columns), one interval per pixel, right angles, X fastest."""
    header = np.zeros(1, HEADER_DTYPE.newbyteorder("<"))
    for name, length in zip(("nz", "ny", "nx", "mz", "my", "mx"), shape * 2, strict=True):
        header[name] = length
    header["mode"], header["cellb"] = mode, (_RIGHT_ANGLE,) * 3
    header["mapc"], header["mapr"], header["maps"] = 1, 2, 3
    return header
