r"""Check that the two images of a pair show the same place, with equal pixel sizes and the same orientation.

Pixel sizes are compared in the headers of all pairs, and pairs that differ are refused. Orientation is checked on the
pixels of some pairs: the centres are averaged into blocks, and the input is correlated with the target in all eight
orientations of a square. A pair is doubted only where another orientation fits far better than the target as it is:

.. math:: |r_{other}| \ge 0.5, \qquad |r_{other}| \ge |r_{as\ it\ is}| + 0.3

and only if half of the pairs agree, or the others fit as they are: smooth images whose inputs say little about their
targets can fit in some orientation by chance.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.data.intensity import RescaledPairs
from sfumato.data.pair_middles import Middle
from sfumato.data.pairs import named
from sfumato.data.sources import FilePairs, FrameReader, PairSource, advice_if_transposed
from sfumato.system.errors import PairingError

__all__ = ["check_sizes", "doubts_of_orientation"]

_SIZE_TOLERANCE = 0.05
"""Files round their pixel sizes; another objective changes them by more than this."""
_BLOCKS = 64
_LEAST, _MARGIN = 0.5, 0.3

Floats = NDArray[np.float64]

_WAYS: dict[str, Callable[[Floats], Floats]] = {
    "": lambda image: image,
    "flipped left to right": np.fliplr,
    "flipped upside down": np.flipud,
    "turned by 180 degrees": lambda image: np.rot90(image, 2),
    "transposed": np.transpose,
    "turned by 90 degrees": np.rot90,
    "turned by 270 degrees": lambda image: np.rot90(image, 3),
    "transposed and turned by 180 degrees": lambda image: np.rot90(image, 2).T,
}
"""Orientations by what they do to a target; from `transposed` on they apply to square targets only."""
_OF_RECTANGLES = 4


def check_sizes(source: PairSource) -> None:
    """Refuse pairs of files with contradictory sizes; of a packed store, nothing is known of them.

    Args:
        source: Pairs that show the same thing.

    Raises:
        PairingError: If pixel sizes differ, or the numbers of pixels show that targets are transposed.
    """
    while isinstance(source, RescaledPairs):
        source = source.source
    if isinstance(source, FilePairs):
        for pair, (condition, target) in zip(source.pairs, source.readers, strict=True):
            _check_sizes(pair.name, condition, target, source.factor)


def _check_sizes(name: str, condition: FrameReader, target: FrameReader, factor: Sequence[int]) -> None:
    for axis, times in zip(condition.axes, factor, strict=True):
        sizes = [reader.image.pixel_size.get(axis) for reader in (condition, target)]
        if sizes[0] is None or sizes[1] is None:
            continue
        got, expected = sizes[1].to(sizes[0].unit), sizes[0].value / times
        if abs(np.log(got / expected)) > np.log1p(_SIZE_TOLERANCE):
            finer = f", {times} times as fine" if times > 1 else ""
            raise PairingError(
                f"{name}: along {axis} a pixel of the input is {sizes[0].value:g} {sizes[0].unit} and one of the "
                f"target {got:g}; expected {expected:g}{finer}, as for two images of one field; check that they belong "
                "together, resample one of them, or correct the pixel size in its file"
            )
    if advice := advice_if_transposed(condition, target):
        raise PairingError(
            f"{name}: the input has {condition.spatial} pixels and the target {target.spatial}; expected as many times "
            f"more along Y as along X; {advice}"
        )


def doubts_of_orientation(checked: Sequence[Middle]) -> list[str]:
    """A warning for each orientation in which some targets would fit their inputs better."""
    found: dict[str, list[tuple[str, float, float]]] = {}
    as_they_are = []
    for pair in checked:
        likeness = _likeness(pair.condition, pair.target, list(_WAYS)[: None if pair.is_square else _OF_RECTANGLES])
        as_they_are.append(likeness[""])
        way = max(likeness, key=lambda way: likeness[way])
        if likeness[way] >= max(_LEAST, likeness[""] + _MARGIN):
            found.setdefault(way, []).append((pair.name, likeness[""], likeness[way]))
    doubts = []
    for way, pairs in found.items():
        if 2 * len(pairs) < len(checked) and np.median(as_they_are) < _LEAST:
            continue
        names = named([name for name, _, _ in pairs])
        before, after = (np.mean([pair[place] for pair in pairs]) for place in (1, 2))
        advice = "set data.target_axes with X and Y exchanged (XY)" if way == "transposed" else "correct the files"
        doubts.append(
            f"the targets of {len(pairs)} of the {len(checked)} checked pairs fit their inputs better if {way}: "
            f"{names} (correlation {after:.2f}, and {before:.2f} as they are); if they are oriented wrongly, "
            f"{advice}"
        )
    return doubts


def _likeness(condition: Floats, target: Floats, ways: Sequence[str]) -> dict[str, float]:
    """Absolute correlation of an input with its target in each orientation; 0 if an image has no structure."""
    if not (np.isfinite(condition).all() and np.isfinite(target).all()):
        return {"": 0.0}  # reported when statistics are computed
    seen, sought = (_structure(image) for image in (condition, target))
    return {way: abs(float((seen * _WAYS[way](sought)).sum())) for way in ways}


def _structure(image: Floats) -> Floats:
    """Average an image into blocks, remove its slope (uneven light has an orientation) and scale to unit length."""
    side = max(1, -(-max(image.shape) // _BLOCKS))
    rows, columns = (length // side for length in image.shape)
    blocks = image[: rows * side, : columns * side].reshape(rows, side, columns, side).mean((1, 3))
    grid = np.indices(blocks.shape).reshape(2, -1)
    plane = np.stack([np.ones(blocks.size), *grid], axis=1)
    rest = blocks.ravel() - plane @ np.linalg.lstsq(plane, blocks.ravel(), rcond=None)[0]
    length = float(np.linalg.norm(rest))
    flat = length <= 1e-9 * max(1.0, float(np.abs(blocks).max())) * blocks.size**0.5
    return np.zeros_like(blocks) if flat else (rest / length).reshape(blocks.shape)
