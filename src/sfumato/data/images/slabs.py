"""Cut an image into slabs that, read in order and concatenated, are the pixels of a file."""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from sfumato.data.images.image import Array, Image, arrange

__all__ = ["slabs"]


def slabs(image: Image, axes: str, *, num_bytes: int, whole: str = "", multiple: int = 1) -> Iterator[Array]:
    """Read an image part by part, in C order.

    Args:
        image: The image to read.
        axes: Order of the axes in the result; axes that the image lacks get length 1, and axes of length 1 may be left
            out.
        num_bytes: Approximate size of a part. Lengths are powers of two, like those of chunks, so that few chunks are
            decoded twice.
        whole: Last axes, which are never cut, whatever their length.
        multiple: If the cut axis comes right before ``whole``, its lengths are multiples of this, except for the last
            part.

    Yields:
        Arrays with all axes; the axes before the cut one have length 1.
    """
    lengths = [dict(zip(image.axes, image.shape, strict=True)).get(axis, 1) for axis in axes]
    inner = [math.prod(lengths[place + 1 :]) * image.dtype.itemsize for place in range(len(axes))]
    last = len(axes) - len(whole) - 1
    cut = next((place for place in range(last) if inner[place] <= num_bytes), last)
    step = 2 ** math.floor(math.log2(max(1, num_bytes // inner[cut])))
    if cut == last:
        step = max(multiple, step // multiple * multiple)
    for before in itertools.product(*(range(length) for length in lengths[:cut])):
        for start in range(0, lengths[cut], step):
            spans = [slice(index, index + 1) for index in before] + [slice(start, min(start + step, lengths[cut]))]
            region = {axis: span for axis, span in zip(axes, spans, strict=False) if axis in image.axes}
            yield np.ascontiguousarray(arrange(image.read(region), image.axes, axes))
