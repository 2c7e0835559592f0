r"""Store values as 16-bit whole numbers with a stated scale, in half the space of float32.

.. math:: \mathrm{value} = \mathrm{scale} \cdot \mathrm{stored} + \mathrm{offset}

The scale is a power of two, so that scaling is exact and only rounding is lost: at most half a scale, which is at most
1/65535 of the largest value. The offset is 0 unless there are negative values.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sfumato.data.images.convert import slabs
from sfumato.data.images.image import Array, Box, Image

__all__ = ["Scale", "as_stored", "as_values", "scale_for"]

_MOST = 2**16 - 1
_PART_BYTES, _FLOAT64_BYTES = 2**27, 8


class Scale(NamedTuple):
    """How values follow from stored numbers.

    Example:
        >>> Scale(0.0625, -2.0).told
        'value = 0.0625 x stored - 2'
    """

    scale: float
    offset: float

    @property
    def told(self) -> str:
        """The formula."""
        sign = "-" if self.offset < 0 else "+"
        return f"value = {self.scale:g} x stored" + (f" {sign} {abs(self.offset):g}" if self.offset else "")

    @classmethod
    def noted(cls, metadata: Mapping[str, Any]) -> "Scale | None":
        """The scale in the metadata of an image; None if it has none."""
        found = [metadata.get(name) for name in cls._fields]
        numbers = [float(value) for value in found if isinstance(value, int | float) and math.isfinite(value)]
        return cls(*numbers) if len(numbers) == len(found) and numbers[0] > 0 else None


def scale_for(images: Iterable[Image]) -> Scale:
    """Choose one scale for all values of some images, which are read part by part.

    Example:
        >>> from sfumato.data.images.pixels import ArrayImage
        >>> scale_for([ArrayImage.of(np.array([[0.0, 4000.0]]), axes="YX", name="two")])
        Scale(scale=0.0625, offset=0.0)
    """
    low, high = 0.0, 0.0
    for image in images:
        for part in slabs(image, image.axes, num_bytes=_PART_BYTES):
            finite = part[np.isfinite(part)]
            if finite.size:
                low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    # One number is kept for an offset that is a multiple of the scale.
    scale = 2.0 ** math.ceil(math.log2((high - low) / (_MOST - 1))) if high > low else 1.0
    return Scale(scale, math.floor(low / scale) * scale)


def as_stored(image: Image, scale: Scale) -> Image:
    """The numbers to store, not yet rounded; a copy of type uint16 rounds them."""
    return _Scaled(**_facts(image), whole=image, factor=1 / scale.scale, start=-scale.offset / scale.scale)


def as_values(image: Image, notes: Mapping[str, Any]) -> Image:
    """The values of an image whose notes say how they follow from its numbers; others are returned unchanged.

    Args:
        image: The image.
        notes: What is noted of it, from :func:`~sfumato.data.images.sidecar.origin_of`.
    """
    scale = Scale.noted(notes)
    if scale is None or image.dtype.kind not in "iu":
        return image
    return _Scaled(**_facts(image), whole=image, factor=scale.scale, start=scale.offset)


def _facts(image: Image) -> dict[str, Any]:
    names = ("path", "format", "axes", "shape", "pixel_size", "metadata", "memory_budget", "channel_names")
    return {name: getattr(image, name) for name in names} | {"dtype": np.dtype(np.float32)}


@dataclass(frozen=True, kw_only=True)
class _Scaled(Image):
    whole: Image
    factor: float
    start: float

    def _working_bytes(self, box: Box) -> int:
        size: int = math.prod(part.stop - part.start for part in box)
        return self.whole._working_bytes(box) + 2 * size * _FLOAT64_BYTES

    def _fetch(self, box: Box) -> Array:
        pixels = self.whole.read(dict(zip(self.axes, box, strict=True)))
        return np.asarray(pixels * np.float64(self.factor) + self.start, np.float32)
