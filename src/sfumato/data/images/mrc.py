"""MRC files, and the DeltaVision (Priism) dialect that light microscopes write under the same name.

Both start with 1024 bytes of header: size (nx, ny, nz), mode of the numbers, and at byte 40 three floats. In MRC those
are the edges of the cell in angstrom, so that the pixel size is edge / number of intervals. In DeltaVision files, known
by the number -16224 at byte 96, they are the pixel size itself, in micrometre; such files often have neither the id
``MAP`` nor a machine stamp, and their sections may run over depth, time and wavelength.
"""

import math
import struct
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sfumato.data.images.image import Image, PixelSize, carry, check_axes, check_dtype, default_axes, reading
from sfumato.data.images.raw import RawImage
from sfumato.system.errors import ImageError

__all__ = ["is_mrc", "open_mrc"]

ByteOrder = Literal["<", ">"]

_HEADER_BYTES = 1024
_DELTAVISION_ID = -16224
_MODES = {0: "i1", 1: "i2", 2: "f4", 4: "c8", 6: "u2", 12: "f2"}
_DELTAVISION_MODES = {0: "u1", 1: "i2", 2: "f4", 4: "c8", 6: "u2", 7: "i4"}
_IMOD_STAMP, _IMOD_SIGNED = 1146047817, 1
_SECTION_ORDERS = {0: "CTZ", 1: "TZC", 2: "TCZ"}
"""Axes over which DeltaVision sections run, slowest first."""
_VOLUME_STACK = range(401, 631)
"""Space groups that tell of a stack of volumes."""


def is_mrc(header: bytes) -> bool:
    """Whether the first bytes of a file are a header of either dialect."""
    if len(header) < _HEADER_BYTES:
        return False
    return header[208:212] == b"MAP " or any(_number("h", header, 96, order) == _DELTAVISION_ID for order in "<>")


def open_mrc(path: Path, *, axes: str | None, memory_budget: int) -> Image:
    """Open an MRC file of either dialect.

    A single section is ``YX``, several are ``ZYX``, a stack of volumes is ``SZYX``; DeltaVision files with several
    wavelengths or times have C and T as well.
    """
    with reading(path, "MRC"):
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES:
            raise ImageError(
                f"{path} has {len(header)} bytes; expected an MRC header of {_HEADER_BYTES} and pixels after it; copy "
                "it again"
            )
        order = _byte_order(header)
        deltavision = _number("h", header, 96, order) == _DELTAVISION_ID
        stored = _stored_dtype(header, order, deltavision=deltavision, path=path)
        extended = _number("i", header, 92, order)
        layout, shape = _layout(header, order, deltavision=deltavision, path=path)
        named = layout if axes is None else check_axes(axes, len(shape))
        return RawImage(
            path=str(path),
            format="MRC (DeltaVision)" if deltavision else "MRC",
            axes=named,
            shape=shape,
            dtype=check_dtype(stored),
            pixel_size=carry(_pixel_size(header, order, deltavision=deltavision), layout, named),
            memory_budget=memory_budget,
            offset=_HEADER_BYTES + extended if extended >= 0 else -1,
            stored=stored,
        )


def _number(code: str, header: bytes, offset: int, order: str) -> int:
    return int(struct.unpack_from(order + code, header, offset)[0])


def _byte_order(header: bytes) -> ByteOrder:
    """From the DeltaVision id or the machine stamp; where neither speaks, the order in which the mode is one."""
    stamped: ByteOrder = ">" if header[212:214] == b"\x11\x11" else "<"
    other: ByteOrder = "<" if stamped == ">" else ">"
    for order in (stamped, other):
        if _number("h", header, 96, order) == _DELTAVISION_ID:
            return order
    for order in (stamped, other):
        if _number("i", header, 12, order) in _MODES:
            return order
    return stamped


def _stored_dtype(header: bytes, order: ByteOrder, *, deltavision: bool, path: Path) -> np.dtype[Any]:
    """Type of the pixels, from the mode."""
    mode, modes = _number("i", header, 12, order), _DELTAVISION_MODES if deltavision else _MODES
    if mode not in modes:
        raise ImageError(f"{path} has MRC mode {mode}; expected one of {sorted(modes)}; convert it, for example to 2")
    imod = _number("i", header, 152, order) == _IMOD_STAMP
    if mode == 0 and imod and not _number("i", header, 156, order) & _IMOD_SIGNED:
        return np.dtype("u1")
    return np.dtype(order + modes[mode])


def _layout(header: bytes, order: ByteOrder, *, deltavision: bool, path: Path) -> tuple[str, tuple[int, ...]]:
    """Axes and shape."""
    columns, rows, sections = struct.unpack_from(order + "3i", header, 0)
    if min(columns, rows, sections) < 1:
        raise ImageError(
            f"{path} has nx, ny, nz = {columns}, {rows}, {sections} in its header; expected positive numbers; save it "
            "anew"
        )
    if deltavision:
        outer, sizes = _deltavision_sections(header, order, sections)
        return outer + "YX", (*sizes, rows, columns)
    intervals, group = _number("i", header, 36, order), _number("i", header, 88, order)
    if group in _VOLUME_STACK and intervals > 0 and sections % intervals == 0:
        return "SZYX", (sections // intervals, intervals, rows, columns)
    if sections == 1:
        return "YX", (rows, columns)
    directions = struct.unpack_from(order + "3i", header, 64)
    if sorted(directions) == [1, 2, 3]:
        return "".join("XYZ"[direction - 1] for direction in reversed(directions)), (sections, rows, columns)
    return default_axes(3), (sections, rows, columns)


def _deltavision_sections(header: bytes, order: ByteOrder, sections: int) -> tuple[str, tuple[int, ...]]:
    """Axes over which the sections run, without those of length 1, and their lengths."""
    times, waves = max(_number("h", header, 180, order), 1), max(_number("h", header, 196, order), 1)
    sequence = _number("h", header, 182, order)
    depth, rest = divmod(sections, times * waves)
    if rest or sequence not in _SECTION_ORDERS:
        return ("Z", (sections,)) if sections > 1 else ("", ())
    lengths = {"C": waves, "T": times, "Z": depth}
    outer = "".join(axis for axis in _SECTION_ORDERS[sequence] if lengths[axis] > 1)
    return outer, tuple(lengths[axis] for axis in outer)


def _pixel_size(header: bytes, order: ByteOrder, *, deltavision: bool) -> dict[str, PixelSize]:
    """Pixel sizes for X, Y and Z, where the header has any."""
    # Shortest decimals that give the same float: 0.0626, not 0.06260000169.
    edges = [float(str(edge)) for edge in np.frombuffer(header, order + "f4", 3, 40)]
    intervals = [1, 1, 1] if deltavision else struct.unpack_from(order + "3i", header, 28)
    unit = "micrometer" if deltavision else "angstrom"
    sizes = {
        axis: PixelSize.known(edge / interval, unit) if interval > 0 and math.isfinite(edge) else None
        for axis, edge, interval in zip("XYZ", edges, intervals, strict=True)
    }
    return {axis: size for axis, size in sizes.items() if size is not None}
