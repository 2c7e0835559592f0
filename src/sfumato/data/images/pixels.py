"""Take pixels from arrays: check them, convert them to floats without losing levels, or use an array as an image.

The array is one in memory, or a lazy one such as a Dask or Zarr array.
"""

from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Self

import numpy as np
from torch import Tensor

from sfumato.data.images.image import Array, Box, Image
from sfumato.system.errors import ImageError

__all__ = ["MOST_WHOLE", "ArrayImage", "as_pixels", "floats"]

MOST_WHOLE = 2**24
"""float32 represents all integers up to this one exactly."""


def as_pixels(given: Any, *, name: str = "the image") -> Array:
    """Convert an array, a tensor or lists of numbers to an array of real numbers.

    Args:
        given: Anything that NumPy can convert to an array.
        name: Name used in errors.

    Raises:
        ImageError: If it is empty, holds anything but real numbers, or has masked pixels.

    Example:
        >>> as_pixels([[1, 2], [3, 4]]).shape
        (2, 2)
    """
    if isinstance(given, str | PathLike):
        raise ImageError(
            f"{name} is a path, {str(given)[:80]!r}; expected pixels; read it first, with "
            "sfumato.data.images.io.open_image(path).read(), or restore the file with `sfumato restore`"
        )
    if isinstance(given, Tensor):
        given = given.detach().cpu()
        given = (given.float() if given.is_floating_point() and given.itemsize < 4 else given).numpy()
    try:
        array = np.asanyarray(given)
    except (TypeError, ValueError) as error:
        raise ImageError(f"{name} is not an array: {error}; expected numbers; give a NumPy array") from error
    if array.dtype.kind not in "biuf":
        raise ImageError(f"{name} is of type {array.dtype}; expected real numbers; convert it first")
    if array.size == 0:
        raise ImageError(f"{name} has shape {array.shape}, so no pixels; expected at least one; check how it was cut")
    if isinstance(array, np.ma.MaskedArray):
        masked = int(np.count_nonzero(array.mask))
        if masked:
            raise ImageError(
                f"{name} has {masked} masked pixels, which no network can leave out; expected a number in each; fill "
                "them first, such as with array.filled(value)"
            )
        array = array.data
    return np.asarray(array)


def floats(pixels: Array) -> Array:
    """Copy pixels to float32 or, if some exceed 2**24, to float64 with the others rounded to float32.

    Each pixel thus has the same value whichever region of an image it is read with.

    Example:
        >>> floats(np.array([3, 2**24 + 1])).tolist()
        [3.0, 16777217.0]
    """
    with np.errstate(over="ignore"):
        near = pixels.astype(np.float32, order="C")
    if pixels.dtype.itemsize <= (2 if pixels.dtype.kind in "iu" else 4):
        return near
    exact = pixels.astype(np.float64)
    far = np.abs(exact) > MOST_WHOLE
    return np.where(far, exact, near) if bool(far.any()) else near


@dataclass(frozen=True, kw_only=True)
class ArrayImage(Image):
    """An image backed by any object with a shape and a dtype that returns a NumPy array for a tuple of slices.

    Attributes:
        array: The array, with the axes of the image.

    Example:
        >>> image = ArrayImage.of(np.arange(6).reshape(2, 3), axes="YX", name="six")
        >>> image.read({"Y": 1, "X": slice(0, 2)}).tolist()
        [3, 4]
    """

    array: Any = field(compare=False, repr=False)

    @classmethod
    def of(cls, array: Any, *, axes: str, name: str) -> Self:
        """Make an image from an array and the names of its axes, without reading pixels."""
        shape, dtype = tuple(map(int, array.shape)), np.dtype(array.dtype)
        return cls(path=name, format="array", axes=axes, shape=shape, dtype=dtype, array=array)

    def _fetch(self, box: Box) -> Array:
        return as_pixels(self.array[box], name=self.name)
