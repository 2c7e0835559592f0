"""Training frames and patches to compute statistics from, drawn with the run's seed."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sfumato.data.order import permute
from sfumato.data.sources import PairSource
from sfumato.models.recipe import Recipe
from sfumato.system.errors import PairingError

__all__ = ["drawn", "frames", "patches"]

_MOST_FRAMES = 1000
"""Statistics are computed over at most this many training frames, drawn with the run's seed."""
_MOST_PATCHES = 64
_MOST_SATURATED = 0.5


def drawn(number: int, seed: int, most: int) -> list[int]:
    """Numbers below ``number``, at most ``most`` of them, drawn with a seed."""
    return [int(place) for place in permute(np.arange(min(number, most)), number, seed=seed)]


def frames(source: PairSource, seed: int) -> Iterator[tuple[NDArray[np.generic], NDArray[np.generic]]]:
    """Whole frames of conditions and targets, at most a thousand of each; both frames of a pair are read at once."""
    for sample in drawn(len(source), seed, _MOST_FRAMES):
        frames = source.read(sample, [0] * source.ndim, source.spatial(sample))
        for frame, role in zip(frames, ("input", "target"), strict=True):
            _check_pixels(frame, f"the {role} of {source.name(sample)}")
        yield frames


def _check_pixels(frame: NDArray[np.generic], name: str) -> None:
    """Refuse images from which nothing can be learned."""
    if frame.dtype.kind in "fc" and not bool(np.isfinite(frame).all()):
        raise PairingError(f"{name} has NaN or infinite pixels; expected numbers: replace them or leave the pair out")
    if frame.dtype.kind in "iu":
        highest = int(np.iinfo(frame.dtype.name).max)
        saturated = float((frame == highest).mean())
        if saturated > _MOST_SATURATED:
            raise PairingError(
                f"{name} is saturated: {saturated:.0%} of its pixels are {highest}, the largest {frame.dtype}; "
                f"expected at most {_MOST_SATURATED:.0%}: leave the pair out, or convert it without clipping"
            )


def patches(source: PairSource, recipe: Recipe) -> Iterator[NDArray[np.generic]]:
    """Central patches of conditions."""
    for sample in drawn(len(source), recipe.train.seed, _MOST_PATCHES):
        spatial = source.spatial(sample)
        size = [min(length, recipe.data.patch) for length in spatial]
        corner = [(length - part) // 2 for length, part in zip(spatial, size, strict=True)]
        yield source.read(sample, corner, size)[0]
