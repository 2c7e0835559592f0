"""NumPy files: ``.npy``, read through a memory map, and the arrays inside ``.npz`` archives.

The header is taken apart by a pattern, not evaluated, and nothing is ever unpickled: arrays of Python objects and
records are refused. Arrays in an archive are named like files in a folder: ``fields.npz/phase``.
"""

import math
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from sfumato.data.images.image import Array, Box, Image, check_axes, check_dtype, default_axes, reading
from sfumato.data.images.raw import RawImage
from sfumato.system.errors import ImageError

__all__ = ["NpzImage", "open_npy", "open_npz", "write_npy", "write_npy_parts"]

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 65536
_HEADER = re.compile(
    r"\{(?=.*'descr': *'(?P<descr>[<>=|]?[biufc]\d{1,2})')(?=.*'fortran_order': *(?P<fortran>True|False))"
    r"(?=.*'shape': *\((?P<shape>[\d, ]*)\))[^{}\[\]]*\}\s*"
)


class _Header(NamedTuple):
    shape: tuple[int, ...]
    stored: np.dtype[Any]
    fortran: bool
    offset: int


def open_npy(path: Path, *, axes: str | None, memory_budget: int) -> Image:
    """Open a ``.npy`` file; without ``axes`` they are the last letters of ``STCZYX``."""
    with reading(path, "npy"):
        with path.open("rb") as file:
            header = _read_header(file, str(path))
        return RawImage(
            path=str(path),
            format="npy",
            axes=_axes(axes, header),
            shape=header.shape,
            dtype=check_dtype(header.stored),
            memory_budget=memory_budget,
            offset=header.offset,
            stored=header.stored,
            fortran=header.fortran,
        )


def _axes(axes: str | None, header: _Header) -> str:
    return default_axes(len(header.shape)) if axes is None else check_axes(axes, len(header.shape))


def _read_header(file: IO[bytes], path: str) -> _Header:
    """Shape, type, order and where the pixels start."""
    start = file.read(8)
    width = 2 if start[6:7] == b"\x01" else 4
    length = int.from_bytes(file.read(width), "little")
    if not start.startswith(_MAGIC) or start[6:7] not in (b"\x01", b"\x02", b"\x03") or length > _LONGEST_HEADER:
        raise ImageError(
            f"{path} starts with {start!r} and a header of {length} bytes; expected {_MAGIC!r}, version 1 to 3 and at "
            f"most {_LONGEST_HEADER} bytes; save it anew with numpy.save"
        )
    text = file.read(length).decode("latin-1")
    match = _HEADER.fullmatch(text)
    if match is None:
        raise ImageError(
            f"{path} has the header {text[:200]!r}; expected the shape, order and type of an array of numbers; records "
            "and Python objects are not read; convert it with numpy.save(..., allow_pickle=False)"
        )
    shape = tuple(int(size) for size in match["shape"].replace(" ", "").split(",") if size)
    return _Header(shape, np.dtype(match["descr"]), match["fortran"] == "True", 8 + width + length)


@dataclass(frozen=True, kw_only=True)
class NpzImage(Image):
    """One array of an ``.npz`` archive; archives are compressed as a whole, so each ``read`` unpacks all of it.

    Attributes:
        archive: Path of the archive.
        member: Name of the array's file inside.
        header: What the array's own header says.
    """

    archive: str
    member: str
    header: _Header

    def _working_bytes(self, box: Box) -> int:
        return 2 * self.nbytes

    def _fetch(self, box: Box) -> Array:
        with zipfile.ZipFile(self.archive) as archive, archive.open(self.member) as file:
            file.read(self.header.offset)
            block = file.read(self.nbytes)
        array = np.frombuffer(block, self.header.stored, math.prod(self.shape))
        return array.reshape(self.shape, order="F" if self.header.fortran else "C")[box]


def open_npz(path: Path, *, name: str | None = None, axes: str | None, memory_budget: int) -> Image:
    """Open one array of an ``.npz`` archive; ``name`` may be left out if it holds only one."""
    with reading(path, "npz"), zipfile.ZipFile(path) as archive:
        names = [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]
        if name not in names and (name is not None or len(names) != 1):
            raise ImageError(
                f"{path} was asked for {'its only array' if name is None else repr(name)} and holds {names}; expected "
                f"one of these; open {path}/{names[0] if names else 'name'}"
            )
        member = f"{name or names[0]}.npy"
        with archive.open(member) as file:
            header = _read_header(file, f"{path}/{member}")
        held, expected = archive.getinfo(member).file_size, math.prod(header.shape) * header.stored.itemsize
        if held != header.offset + expected:
            raise ImageError(
                f"{path}/{member} has {held:,} bytes but its header tells of {header.offset + expected:,}; expected "
                "the whole array; save it anew with numpy.savez"
            )
        return NpzImage(
            path=f"{path}/{name or names[0]}",
            format="npz",
            axes=_axes(axes, header),
            shape=header.shape,
            dtype=check_dtype(header.stored),
            memory_budget=memory_budget,
            archive=str(path),
            member=member,
            header=header,
        )


def write_npy(path: Path, array: Array) -> None:
    """Write an array with its axes in the order given."""
    with path.open("wb") as file:
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)


def write_npy_parts(path: Path, parts: Iterable[Array], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Write an array whose parts, put end to end, are its pixels in C order."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(np.ascontiguousarray(part, dtype).data)
