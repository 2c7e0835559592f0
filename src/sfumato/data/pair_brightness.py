r"""Measure whether the brightness of targets against inputs differs from pair to pair, before a network guesses it.

Of the centres of both images, averaged into blocks so that neither noise nor blur counts, the least-squares slope

.. math:: b = \frac{\operatorname{cov}(input, target)}{\operatorname{var}(target)}

says how many units of the input one unit of the target is. One slope for all pairs is what normalisation takes away.
Slopes that differ cannot be known from the input, unless it was the input's exposure alone that differed.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.data.pair_middles import Middle

__all__ = ["brightness_note", "slope_between"]

_LEAST_PAIRS = 4
_BLOCK = 8
"""Side in pixels: wider than the blur of most microscopes."""
_LEAST_BLOCKS = 16
_ALIKE = 0.7
"""Least correlation of the blocks: below, a slope says little of brightness."""
_ENDS = (0.1, 0.9)
_FAR = 1.25
"""Ratio of the slopes at these quantiles: noise, content and blur alone change them by less."""

Floats = NDArray[np.float64]


def brightness_note(checked: Sequence[Middle]) -> str | None:
    """Say so if brightness differs between pairs, and which setting helps; None if there is nothing to tell.

    Args:
        checked: Some pairs of a training, neither matched nor scaled, with as many channels on both sides.
    """
    slopes = [slope for pair in checked if (slope := slope_between(pair.condition, pair.target)) is not None]
    if len(slopes) < _LEAST_PAIRS:
        return None
    low, high = np.quantile(slopes, _ENDS)
    if high < _FAR * low:
        return None
    return (
        f"brightness differs from pair to pair: in {len(slopes)} checked pairs one unit of the target is "
        f"{low:.3g} to {high:.3g} units of the input; if the two images of a pair were exposed or stretched "
        "separately, add --set data.match_intensity=true, which brings each target to the scale of its input, as a "
        "network cannot know the factor"
    )


def slope_between(condition: Floats, target: Floats) -> float | None:
    """Units of an input (H, W) per unit of its target; None if they have too little in common to tell.

    Example:
        >>> target = np.random.default_rng(0).random((64, 64))
        >>> round(slope_between(0.4 * target + 7, target), 6)
        0.4
    """
    seen, sought = (_blocks(image) for image in (condition, target))
    if seen.size < _LEAST_BLOCKS or not (np.isfinite(seen).all() and np.isfinite(sought).all()):
        return None
    seen, sought = seen - seen.mean(), sought - sought.mean()
    together, sizes = float(seen @ sought), (float(seen @ seen), float(sought @ sought))
    if min(sizes) == 0 or together < _ALIKE * (sizes[0] * sizes[1]) ** 0.5:
        return None
    return together / sizes[1]


def _blocks(image: Floats) -> Floats:
    """Means of square blocks, as a line."""
    rows, columns = (length // _BLOCK for length in image.shape)
    cut = image[: rows * _BLOCK, : columns * _BLOCK]
    return np.asarray(cut.reshape(rows, _BLOCK, columns, _BLOCK).mean((1, 3)).ravel())
