"""Scale integer pictures to shares of the largest value of their type: 255 in a byte becomes 1."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.data.images.image import Array, Box, Image

__all__ = ["as_shares", "brightest"]


def brightest(dtype: np.dtype[Any]) -> float:
    """Largest value of an integer type; 1 for other types, whose values already are shares.

    Example:
        >>> brightest(np.dtype(np.uint8)), brightest(np.dtype(np.float32))
        (255.0, 1.0)
    """
    return float(np.iinfo(dtype.name).max) if dtype.kind in "iu" else 1.0


def as_shares(image: Image) -> Image:
    """Scale an image of integers so that its largest possible value is 1; other images are returned unchanged.

    Example:
        >>> from sfumato.data.images.array_image import ArrayImage
        >>> picture = ArrayImage.of(np.array([[0, 255]], np.uint8), axes="YX", name="two")
        >>> as_shares(picture).read().tolist()
        [[0.0, 1.0]]
    """
    if image.dtype.kind not in "iu":
        return image
    return _Shares(
        path=image.path,
        format=image.format,
        axes=image.axes,
        shape=image.shape,
        dtype=np.dtype(np.float32),
        pixel_size=image.pixel_size,
        memory_budget=image.memory_budget,
        whole=image,
    )


@dataclass(frozen=True, kw_only=True)
class _Shares(Image):
    whole: Image

    def _working_bytes(self, box: Box) -> int:
        return self.whole._working_bytes(box)

    def _fetch(self, box: Box) -> Array:
        whole = self.whole.read(dict(zip(self.axes, box, strict=True)))
        return np.asarray(whole, np.float32) / np.float32(brightest(self.whole.dtype))
