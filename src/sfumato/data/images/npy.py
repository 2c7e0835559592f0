"""Read and write NumPy files: ``.npy``, through a memory map, and the arrays inside ``.npz`` archives.

NumPy reads the header, at most 10,000 bytes of it, and nothing is ever unpickled: arrays of Python objects and records
are refused. Arrays in an archive are addressed like files in a folder: ``fields.npz/phase``.
"""

import math
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as numpy_format

from sfumato.data.images.image import Array, Box, DamageError, Image, default_axes, reading
from sfumato.data.images.raw_image import RawImage
from sfumato.system.errors import ImageError

__all__ = ["NpzImage", "open_npy", "open_npz", "write_npy_parts"]


class _Header(NamedTuple):
    shape: tuple[int, ...]
    stored: np.dtype[Any]
    fortran: bool
    offset: int


def open_npy(path: Path, *, memory_budget: int) -> Image:
    """Open a ``.npy`` file; its axes are the last letters of ``STCZYX``."""
    with reading(path, "npy"):
        with path.open("rb") as file:
            header = _read_header(file, str(path))
        return RawImage(
            path=str(path),
            format="npy",
            axes=default_axes(len(header.shape)),
            shape=header.shape,
            dtype=header.stored,
            memory_budget=memory_budget,
            offset=header.offset,
            stored=header.stored,
            fortran=header.fortran,
        )


def _read_header(file: IO[bytes], path: str) -> _Header:
    """Read the shape, type, order and offset of the pixels."""
    version = numpy_format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise DamageError(f"its format has the version {version}", expected="1 to 3", advice="save it with numpy.save")
    # Version 3 differs from 2 only in the names of records.
    read = numpy_format.read_array_header_1_0 if version == (1, 0) else numpy_format.read_array_header_2_0
    shape, fortran, stored = read(file)
    if stored.kind not in "biufc":
        raise ImageError(
            f"{path} holds values of type {stored}; expected an array of numbers; records and Python objects are not "
            "read; convert it with numpy.save(..., allow_pickle=False)"
        )
    return _Header(shape, stored, fortran, file.tell())


@dataclass(frozen=True, kw_only=True)
class NpzImage(Image):
    """One array of an ``.npz`` archive; arrays are compressed as a whole, so each ``read`` unpacks the whole array.

    Attributes:
        archive: Path of the archive.
        member: Name of the array's file inside.
        header: Header of the array.
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


def open_npz(path: Path, *, name: str | None = None, memory_budget: int) -> Image:
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
                f"{path}/{member} has {held:,} bytes but its header declares {header.offset + expected:,}; expected "
                "the whole array; save it again with numpy.savez"
            )
        return NpzImage(
            path=f"{path}/{name or names[0]}",
            format="npz",
            axes=default_axes(len(header.shape)),
            shape=header.shape,
            dtype=header.stored,
            memory_budget=memory_budget,
            archive=str(path),
            member=member,
            header=header,
        )


def write_npy_parts(path: Path, parts: Iterable[Array], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Write an array from parts that, concatenated, are its pixels in C order."""
    header = {"descr": numpy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        numpy_format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(np.ascontiguousarray(part, dtype).data)
