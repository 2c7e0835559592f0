"""Hash decoded pixels, to recognise an image in another file, format or store.

The hash covers the size of the image, its channels and at most 1,024 of its pixels as float64: equal values give equal
hashes, whether they are stored as TIFF or npy, as uint16 or float32. The pixels come from a single block, so that
little of a large file is read: the block in the middle or, if it is blank, the first of some other blocks that is not.
An image that is blank in all of these blocks has no hash, since any two such images would count as the same.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.data.frames import region

__all__ = ["PairHashes", "array_hash", "pixel_hash"]

Array = NDArray[np.generic]

_MOST_PIXELS = 1024
_LEAST_CHANGES = 32
"""Least number of differing neighbours in a block: a few bright pixels on black can be the same in many images."""


class PairHashes(NamedTuple):
    """Hashes of the two images of a pair; None for a blank image."""

    condition: int | None
    target: int | None


def pixel_hash(read: Callable[[list[int], list[int]], Array], channels: int, spatial: Sequence[int]) -> int | None:
    """Hash an image to a 64-bit number; None if the image is blank.

    Args:
        read: Returns a region (channels, *size) of the image, given its corner and size.
        channels: Number of channels.
        spatial: Size of the image in pixels.

    Example:
        >>> image = np.arange(64).reshape(1, 8, 8)
        >>> one, other = (lambda corner, size, of=of: of for of in (image.astype("u2"), image.astype("f4")))
        >>> pixel_hash(one, 1, (8, 8)) == pixel_hash(other, 1, (8, 8))
        True
        >>> pixel_hash(lambda corner, size: np.zeros((1, 8, 8)), 1, (8, 8)) is None
        True
    """
    side = max(1, round((_MOST_PIXELS / channels) ** (1 / len(spatial))))
    size = [min(length, side) for length in spatial]
    for corner in _places(spatial, size):
        pixels = read(corner, size)
        flat = np.ascontiguousarray(pixels).ravel()
        if np.count_nonzero(flat[1:] != flat[:-1]) >= min(_LEAST_CHANGES, max(1, flat.size // 4)):
            facts = np.array([channels, *spatial, *corner], "<i8").tobytes()
            values = flat.astype("<c16" if flat.dtype.kind == "c" else "<f8") + 0.0  # the two zeros become one
            return int.from_bytes(hashlib.blake2b(facts + values.tobytes(), digest_size=8).digest(), "little")
    return None


def array_hash(image: Array) -> int | None:
    """Hash an image (channels, *spatial) in memory as :func:`pixel_hash` does."""
    return pixel_hash(partial(region, image), len(image), image.shape[1:])


def _places(spatial: Sequence[int], size: Sequence[int]) -> Iterator[list[int]]:
    """Yield the corners of blocks: in the middle, then around it, at a quarter and three quarters of each axis."""
    free = [length - part for length, part in zip(spatial, size, strict=True)]
    quarters = [dict.fromkeys(room * quarter // 4 for quarter in (2, 1, 3)) for room in free]
    yield from map(list, itertools.product(*quarters))
