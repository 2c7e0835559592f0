"""Use an array as an image: one in memory, or a lazy one such as a Dask or Zarr array."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from sfumato.data.images.image import Array, Box, Image, PixelSize
from sfumato.data.images.pixels import as_pixels

__all__ = ["ArrayImage"]


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
    def of(cls, array: Any, *, axes: str, name: str, pixel_size: Mapping[str, PixelSize] | None = None) -> Self:
        """Make an image from an array and the names of its axes, without reading pixels."""
        shape, dtype = tuple(map(int, array.shape)), np.dtype(array.dtype)
        return cls(
            path=name, format="array", axes=axes, shape=shape, dtype=dtype, pixel_size=pixel_size or {}, array=array
        )

    def _fetch(self, box: Box) -> Array:
        return as_pixels(self.array[box], name=self.name)
