"""The base class of images: named axes, physical pixel sizes, and pixels read by region.

Axes are letters out of ``STCZYX``, each at most once, in the order of storage: S sample (position, replicate), T time,
C channel, Z depth, Y row, X column. Opening an image reads only its header. A region is a slice or an index per axis
letter, and reading it touches only the parts of the file it needs, as far as the format allows:

.. code-block:: python

    image = open_image("cells.ome.tif")  # axes "TCZYX"
    tile = image.read({"T": 0, "C": 1, "Y": slice(0, 512), "X": slice(512, 1024)})  # shape (Z, 512, 512)
"""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sfumato.data.images import units
from sfumato.system.errors import ImageError, SfumatoError

__all__ = [
    "AXES",
    "DEFAULT_MEMORY_BUDGET",
    "Array",
    "Box",
    "DamageError",
    "Image",
    "PixelSize",
    "Region",
    "arrange",
    "check_axes",
    "check_dtype",
    "check_pixel_size",
    "default_axes",
    "fill_axes",
    "reading",
]

AXES = "STCZYX"
DEFAULT_MEMORY_BUDGET = 4 * 2**30
"""Default for the bytes that one call of ``read`` may take."""

Array = npt.NDArray[Any]
Region = Mapping[str, slice | int]
Box = tuple[slice, ...]

_DTYPES = {"bool"} | {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_DTYPES |= {"float16", "float32", "float64", "complex64", "complex128"}
_QUOTE_LENGTH = 300
_UNITS = {"T": units.TIMES, "Z": units.LENGTHS, "Y": units.LENGTHS, "X": units.LENGTHS}
"""Units of the pixel size along each axis."""


@dataclass(frozen=True)
class PixelSize:
    """Distance between pixels along one axis, in a unit spelt as in OME-Zarr (``micrometer``, ``second``).

    Example:
        >>> PixelSize(62.6, "nanometer").to("micrometer")
        0.0626
    """

    value: float
    unit: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value > 0):
            raise ImageError(f"pixel size is {self.value}; expected a positive number; leave it out if it is unknown")
        if self.unit not in units.SYMBOLS:
            raise ImageError(f"unit is {self.unit!r}; expected a word such as 'micrometer' or 'second'; spell it out")

    @classmethod
    def known(cls, value: float, unit: str | None) -> Self | None:
        """Make a pixel size from the value and unit in a file, or None if they are not a valid size."""
        word = units.unit_from(unit) if unit else None
        return cls(float(value), word) if word and math.isfinite(value) and value > 0 else None

    def to(self, unit: str) -> float:
        """The size in another unit of the same kind."""
        factor = units.ratio(self.unit, unit)
        if factor is None:
            raise ImageError(f"{self.unit} cannot be given in {unit!r}; expected another unit of its kind; ask for one")
        # Twelve digits are more than a file means, and hide the rounding of the conversion.
        return float(f"{self.value * factor:.12g}")


def default_axes(ndim: int) -> str:
    """Default axes of an array without names: the last letters of ``STCZYX``."""
    if not 1 <= ndim <= len(AXES):
        raise ImageError(f"the array has {ndim} axes; expected 1 to {len(AXES)}, out of {AXES}; split or squeeze it")
    return AXES[-ndim:]


def check_axes(axes: str, ndim: int) -> str:
    """Return the axes if they are ``ndim`` different letters of ``STCZYX``, otherwise raise ImageError."""
    if not axes or set(axes) - set(AXES) or len(set(axes)) != len(axes) or len(axes) != ndim:
        raise ImageError(
            f"axes are {axes!r} for an array with {ndim} axes; expected one letter out of {AXES} for each, no letter "
            "twice; name them in the order of storage"
        )
    return axes


def check_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return the type in native byte order, or raise ImageError if pixels cannot have it."""
    native = np.dtype(dtype).newbyteorder("=")
    if native.name not in _DTYPES:
        raise ImageError(
            f"pixels are of type {native.name!r}; expected bool, or integers, floats or complex numbers of 8 to 128 "
            "bits; convert them first"
        )
    return native


def check_pixel_size(sizes: Mapping[str, PixelSize], axes: str) -> None:
    """Refuse pixel sizes for axes that do not exist or cannot have one."""
    for axis, size in sizes.items():
        if axis not in axes or size.unit not in _UNITS.get(axis, ()):
            raise ImageError(
                f"pixel size of {axis!r} is {size.value} {size.unit} for axes {axes}; expected a length for X, Y, Z or "
                "a time for T, of axes that are there; leave the others out"
            )


class DamageError(Exception):
    """A fault that a reader found in a file; :func:`reading` turns it into an :class:`ImageError`.

    Args:
        found: What was found, as a clause about the file.
        expected: What was expected; by default a whole and valid file.
        advice: What to do; by default to copy or save the file again.
    """

    def __init__(self, found: str, *, expected: str = "", advice: str = "") -> None:
        super().__init__(found)
        self.expected = expected
        self.advice = advice


@contextmanager
def reading(path: str | PurePath, format: str) -> Iterator[None]:
    """Turn any exception that a library raises inside this context into an :class:`ImageError` that quotes it."""
    try:
        yield
    except SfumatoError:
        raise
    except FileNotFoundError as error:
        missing = error.filename or path
        raise ImageError(f"{missing} does not exist; expected a {format} image there; check the path") from error
    except PermissionError as error:
        raise ImageError(f"{path} may not be read; expected a readable {format} image; check its rights") from error
    except Exception as error:
        quoted = f"{type(error).__name__}: {error}"[:_QUOTE_LENGTH]
        damage = error if isinstance(error, DamageError) else DamageError(quoted)
        expected = damage.expected or f"a whole and valid {format} image"
        advice = damage.advice or "copy it again or save it again"
        raise ImageError(f"{path} could not be read: {damage}; expected {expected}; {advice}") from error


@dataclass(frozen=True, kw_only=True)
class Image(ABC):
    """An image on disk. Nothing is kept open, so it may be shared by threads, forked and pickled.

    Attributes:
        path: File, folder or address.
        format: Name of the format.
        axes: Letters out of ``STCZYX`` in the order of storage.
        shape: Length of each axis.
        dtype: Type of the pixels, in native byte order.
        pixel_size: Pixel sizes by axis letter, for the axes where the file gives a number with a unit.
        metadata: The metadata passed to ``write_image``; empty for images not written by sfumato.
        memory_budget: Bytes that one call of ``read`` may take.
        channel_names: Names of the channels, where the file gives one for each; otherwise empty.
        scenes: Names of the scenes (positions, series) in the file; empty if the format has no scenes.
        scene: Number of the scene that this image is.
    """

    path: str
    format: str
    axes: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pixel_size: Mapping[str, PixelSize] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    memory_budget: int = DEFAULT_MEMORY_BUDGET
    channel_names: tuple[str, ...] = ()
    scenes: tuple[str, ...] = ()
    scene: int = 0

    def __post_init__(self) -> None:
        check_axes(self.axes, len(self.shape))
        object.__setattr__(self, "dtype", check_dtype(self.dtype))
        if min(self.shape) < 1:
            raise ImageError(f"{self.path} has shape {self.shape}; expected at least one pixel; save the image again")
        sizes = {a: s for a, s in self.pixel_size.items() if a in self.axes and s.unit in _UNITS.get(a, ())}
        object.__setattr__(self, "pixel_size", sizes)
        if len(self.channel_names) != self.num_channels:
            object.__setattr__(self, "channel_names", ())

    @property
    def num_channels(self) -> int:
        """Length of the axis C; 1 without it."""
        return self.shape[self.axes.index("C")] if "C" in self.axes else 1

    @property
    def name(self) -> str:
        """Last part of the path."""
        return PurePath(self.path).name

    @property
    def nbytes(self) -> int:
        """Bytes of all pixels together, once in memory."""
        return math.prod(self.shape) * self.dtype.itemsize

    def labelled(self, axes: str) -> Self:
        """The same image with other letters for its axes; pixel sizes stay with the position of an axis."""
        check_axes(axes, len(self.shape))
        sizes = {new: self.pixel_size[old] for old, new in zip(self.axes, axes, strict=True) if old in self.pixel_size}
        return replace(self, axes=axes, pixel_size=sizes)

    def read(self, region: Region | None = None) -> Array:
        """Read a part of the pixels.

        Args:
            region: A slice (without step) or an index for each axis letter; axes left out are read whole. Indices
                count from 0 and lie within the image.

        Returns:
            Array with the axes of the image in order, without those given as an index; native byte order,
            C-contiguous.

        Raises:
            ImageError: If the region lies outside, needs more than ``memory_budget`` or the file is damaged there.
        """
        parts: Region = {**dict.fromkeys(self.axes, slice(None)), **(region or {})}
        box = self._box(parts)
        size = tuple(part.stop - part.start for part in box)
        with reading(self.path, self.format):
            needed = math.prod(size) * self.dtype.itemsize + self._working_bytes(box)
            if needed > self.memory_budget:
                raise ImageError(
                    f"{self.path}: reading {size} pixels of {self.dtype} ({self.axes}) takes {needed:,} bytes; "
                    f"expected at most the memory budget of {self.memory_budget:,}; read a smaller region or raise "
                    "memory_budget"
                )
            array = np.ascontiguousarray(self._fetch(box), dtype=self.dtype)
            kept = [length for axis, length in zip(self.axes, size, strict=True) if isinstance(parts[axis], slice)]
            return array.reshape(kept)

    def _box(self, region: Region) -> Box:
        """Return one checked slice per axis, from a region that names them all."""
        unknown = set(region) - set(self.axes)
        if unknown:
            raise ImageError(
                f"{self.path}: the region names the axes {sorted(unknown)}; expected some of {self.axes}; leave the "
                "others out"
            )
        lengths = zip(self.axes, self.shape, strict=True)
        return tuple(self._slice(axis, length, region[axis]) for axis, length in lengths)

    def _slice(self, axis: str, length: int, part: slice | int) -> slice:
        """Return part of one axis as a slice with both ends inside the image."""
        try:
            span = part if isinstance(part, slice) else slice(operator.index(part), operator.index(part) + 1)
            start = 0 if span.start is None else operator.index(span.start)
            stop = length if span.stop is None else operator.index(span.stop)
            fits = 0 <= start < stop <= length and span.step in (None, 1)
        except TypeError:
            fits = False
        if not fits:
            raise ImageError(
                f"{self.path}: the region of axis {axis} is {part}; expected an index or a slice without step inside "
                f"0 to {length}, with at least one pixel; clip it to the image"
            )
        return slice(start, stop)

    def _working_bytes(self, box: Box) -> int:
        """Bytes that reading needs in addition to the result."""
        return 0

    @abstractmethod
    def _fetch(self, box: Box) -> Array:
        """Read the pixels of one box, with all axes; may raise any exception."""


def arrange(array: Array, axes: str, wanted: str) -> Array:
    """View an array with its axes in another order.

    Args:
        array: An array with the axes ``axes``.
        axes: Letters of its axes.
        wanted: Letters of the result; new ones get length 1, and only axes of length 1 may be left out.

    Example:
        >>> arrange(np.zeros((3, 4, 5)), "ZYX", "TYXZ").shape
        (1, 4, 5, 3)
    """
    check_axes(axes, array.ndim)
    check_axes(wanted, len(wanted))
    lost = [axis for axis, length in zip(axes, array.shape, strict=True) if axis not in wanted and length != 1]
    if lost:
        raise ImageError(
            f"axes {axes} of shape {array.shape} were asked for as {wanted}; expected {', '.join(lost)} to stay or to "
            "have length 1; select one index of it first"
        )
    kept = [axis for axis in wanted if axis in axes]
    dropped = [axis for axis in axes if axis not in wanted]
    ordered = array.transpose([axes.index(axis) for axis in kept + dropped])
    lengths = dict(zip(axes, array.shape, strict=True))
    return ordered.reshape([lengths.get(axis, 1) for axis in wanted])


def fill_axes(letters: Sequence[str]) -> str:
    """Replace unknown axis letters, from right to left, by the unused ones of Z, C, T, S."""
    free = [axis for axis in "ZCTS" if axis not in letters]
    filled = [letter if letter in AXES else (free.pop(0) if free else "?") for letter in reversed(letters)]
    return "".join(reversed(filled))
