"""The centres of some pairs, read once for all that is asked of pairs before a training."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.data.intensity import RescaledPairs
from sfumato.data.sources import PairSource, evenly_spread

__all__ = ["Middle", "middles"]

_MOST_PAIRS, _MIDDLE, _PLANES = 20, 256, 8

Floats = NDArray[np.float64]


class Middle(NamedTuple):
    """The centre of a pair, averaged over channels and planes, as its files have it."""

    name: str
    is_square: bool
    """Whether the whole images are."""
    condition: Floats
    """Shape (H, W)."""
    target: Floats
    """Same shape."""


def middles(source: PairSource) -> list[Middle]:
    """Read the centres of at most 20 pairs, evenly spread; brightness that training would rescale is left as it is.

    Args:
        source: Pairs of a training.
    """
    while isinstance(source, RescaledPairs):
        source = source.source
    found = []
    for sample in evenly_spread(len(source), _MOST_PAIRS):
        spatial = source.spatial(sample)
        most = (_PLANES, _MIDDLE, _MIDDLE)[-len(spatial) :]
        size = [min(side, longest) for side, longest in zip(spatial, most, strict=True)]
        corner = [(side - part) // 2 for side, part in zip(spatial, size, strict=True)]
        condition, target = (_flat(side) for side in source.read(sample, corner, size))
        found.append(Middle(source.name(sample), spatial[-2] == spatial[-1], condition, target))
    return found


def _flat(image: NDArray[np.generic]) -> Floats:
    averaged: Floats = np.real(image).astype(np.float64).mean(tuple(range(image.ndim - 2)))
    return averaged
