"""Read MRC files, including the DeltaVision (Priism) dialect that light microscopes write with the same suffix.

Both start with 1024 bytes of header: size (nx, ny, nz), mode of the numbers, and at byte 40 three floats. In MRC these
are the edges of the cell in angstrom, so the pixel size is edge / number of intervals. In DeltaVision files, recognised
by the number -16224 at byte 96, they are the pixel size itself, in micrometre; such files often have neither the id
``MAP`` nor a machine stamp, and their sections may run over depth, time and wavelength.
"""

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
from mrcfile.dtypes import HEADER_DTYPE
from mrcfile.utils import dtype_from_mode, spacegroup_is_volume_stack

from sfumato.data.images.image import Image, PixelSize, RawImage, default_axes, reading
from sfumato.system.errors import ImageError

__all__ = ["DELTAVISION_DTYPE", "DELTAVISION_ID", "is_mrc", "open_mrc"]

ByteOrder = Literal["<", ">"]

_HEADER_BYTES = HEADER_DTYPE.itemsize
DELTAVISION_ID = -16224
DELTAVISION_DTYPE = np.dtype(
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


class _Header:
    """The first bytes of a file, by the names that mrcfile gives them."""

    def __init__(self, content: bytes) -> None:
        stamped: ByteOrder = ">" if content[212:214] == b"\x11\x11" else "<"
        orders: tuple[ByteOrder, ...] = (stamped, "<" if stamped == ">" else ">")
        # From the DeltaVision id or the machine stamp; without either, the byte order in which the mode is valid.
        ids = [order for order in orders if _view(content, DELTAVISION_DTYPE, order)["id"] == DELTAVISION_ID]
        modes = [order for order in orders if _view(content, HEADER_DTYPE, order)["mode"] in _MODES]
        self.order = [*ids, *modes, stamped][0]
        self.is_deltavision = bool(ids)
        self.mrc = _view(content, HEADER_DTYPE, self.order)
        self.extra = _view(content, DELTAVISION_DTYPE, self.order)

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
