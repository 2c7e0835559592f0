"""What the images of microscope makers' formats have in common: the library that reads them, scenes, frames.

These libraries come with the extra ``microscopes``. An image keeps the path and the number of its scene, and opens the
file for each region, so that it can be pickled and sent to workers like any other.
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from sfumato.data.images.image import Array, Box, Image, PixelSize, fill_axes
from sfumato.system.errors import ImageError

__all__ = ["FramedImage", "Read", "find_scene", "known", "letters_of", "library_of", "named_once", "size_of"]

Read = Callable[[tuple[int, ...], tuple[slice, ...]], Array]
"""Reads part of a frame, given its place along the outer axes and a box of the inner ones."""
_LETTERS = {"S": "C", "P": "S", "M": "S", "N": "S", "H": "S", "V": "S", "\u03bb": "C", "\u039b": "C", "L": "C"}
"""Our letter for an axis of a maker's format: samples and wavelengths are channels, positions and phases samples."""


def library_of(path: object, maker: str, module: str) -> Any:
    """Import the library that reads a format, or say which extra is missing.

    Args:
        path: The file to read.
        maker: Maker and name of the format, such as ``Zeiss CZI``.
        module: Name of the library's module.

    Raises:
        ImageError: If it is not installed.
    """
    try:
        import_module(module.partition(".")[0])  # the package first: an absent one is named as it is installed
        return import_module(module)
    except ImportError as error:
        raise ImageError(
            f"{path} is a {maker} file; expected the library {error.name}, which reads it and is not installed; "
            "pip install 'sfumato[microscopes]'"
        ) from error


def find_scene(path: object, names: Sequence[str], wanted: str | int | None) -> int:
    """Number of a scene, given by name or number; the first by default.

    Raises:
        ImageError: If there is no such scene.

    Example:
        >>> find_scene("a.czi", ["P1", "P2"], "P2"), find_scene("a.czi", ["P1", "P2"], "0")
        (1, 0)
    """
    if wanted is None:
        return 0
    if isinstance(wanted, str) and names.count(wanted) == 1:
        return names.index(wanted)
    number = int(wanted) if str(wanted).isdigit() else -1
    if not 0 <= number < max(len(names), 1):
        told = f"the scenes {_told(names)}" if names else "one scene"
        raise ImageError(
            f"{path} has {told}, and {wanted!r} was asked for; expected a name that occurs once, or a number from 0 to "
            f"{max(len(names), 1) - 1}; choose one of them"
        )
    return number


def _told(names: Sequence[str]) -> str:
    shown = ", ".join(f"{number} ({name})" for number, name in enumerate(names[:20]))
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def named_once(names: Sequence[str | None]) -> tuple[str, ...]:
    """Names of channels, or nothing unless every channel has a name of its own.

    Example:
        >>> named_once(["DAPI", "GFP"]), named_once(["DAPI", None]), named_once(["Grey", "Grey"])
        (('DAPI', 'GFP'), (), ())
    """
    kept = tuple(name for name in names if name)
    return kept if len(set(kept)) == len(names) else ()


def letters_of(axes: Sequence[str]) -> str:
    """Our letters for the axes of a maker's format; positions, phases and the like become S, colours C.

    Example:
        >>> letters_of(["T", "M", "Y", "X"]), letters_of(["Y", "X", "S"])
        ('TSYX', 'YXC')
    """
    letters: list[str] = []
    taken = {axis for axis in axes if axis in "TCZYX"}
    for axis in axes:
        letter = axis if axis in taken else _LETTERS.get(axis, "?")
        letters.append("?" if letter in letters or (letter in taken and letter != axis) else letter)
    return fill_axes(letters)


def size_of(value: Any, unit: str) -> PixelSize | None:
    """A pixel size from a number in a file, without the rounding of its conversion; None if it is not a size."""
    try:
        return PixelSize.known(float(f"{float(value):.9g}"), unit)
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True, kw_only=True)
class FramedImage(Image):
    """An image that its library reads frame by frame; a region takes the frames that it touches, one at a time.

    Attributes:
        frame_ndim: Number of last axes within a frame.
    """

    frame_ndim: int

    @abstractmethod
    def _opened(self) -> AbstractContextManager[Read]:
        """Open the file for reading frames."""

    def _working_bytes(self, box: Box) -> int:
        return 2 * math.prod(self.shape[-self.frame_ndim :]) * self.dtype.itemsize

    def _fetch(self, box: Box) -> Array:
        outer, inner = box[: -self.frame_ndim], box[-self.frame_ndim :]
        result = np.empty([part.stop - part.start for part in box], self.dtype)
        with self._opened() as read:
            for place in itertools.product(*(range(part.start, part.stop) for part in outer)):
                at = tuple(index - part.start for index, part in zip(place, outer, strict=True))
                result[at] = read(place, inner)
        return result


def known(sizes: Mapping[str, PixelSize | None]) -> dict[str, PixelSize]:
    """The sizes that are known."""
    return {axis: size for axis, size in sizes.items() if size is not None}
