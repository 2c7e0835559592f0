"""Find structures that some posterior samples lack, by comparing samples at the scale of structures.

A standard deviation per pixel mixes noise, edges that move a little and structures that come and go. So samples are
first smoothed at the scale of a structure. A position is a structure if it is a peak in some sample; a sample has the
structure if it is at least half as bright there as the sample in which it is brightest.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.audit.structures import ndimage, smooth, typical_contrast
from sfumato.system.errors import ImageError

__all__ = ["CERTAIN", "Disagreement", "Presence", "check_disagreement"]

CERTAIN = 0.9
"""A structure present in a smaller share of the samples is called uncertain."""

_LEAST_CONTRAST = 0.5
"""Peaks below this share of the median contrast of a sample's structures are ignored."""

Floats = NDArray[np.float64]


class Presence(NamedTuple):
    """A structure, and the share of samples that have it.

    Attributes:
        row: Row of its peak.
        column: Column of its peak.
        share: Share of samples that have it.
        contrast: Contrast where it is brightest, relative to the median contrast of structures.
    """

    row: int
    column: int
    share: float
    contrast: float


@dataclass(frozen=True)
class Disagreement:
    """How the samples of one image disagree.

    Attributes:
        relative_std: Standard deviation of the smoothed samples relative to the local contrast, shape (H, W).
        lacking: Share of samples that lack the structure at a pixel, 0 where there is none, shape (H, W).
        structures: All structures, those in the fewest samples first.
        num_samples: N.
    """

    relative_std: Floats
    lacking: Floats
    structures: list[Presence]
    num_samples: int

    @property
    def uncertain(self) -> list[Presence]:
        """Structures that many samples lack."""
        return [structure for structure in self.structures if structure.share < CERTAIN]


def check_disagreement(draws: NDArray[np.generic], scale_px: float) -> Disagreement:
    """Compare samples of one image.

    Args:
        draws: Shape (N, H, W).
        scale_px: Standard deviation of the finest structures, in pixels of the samples.

    Raises:
        ImageError: If there are fewer than two samples.
    """
    if len(draws) < 2:
        raise ImageError(f"there is {len(draws)} sample; samples can only disagree if there are two; give more")
    tool = ndimage()
    smoothed = np.stack([smooth(np.asarray(draw, np.float64), scale_px) for draw in draws])
    mean = smoothed.mean(0)
    reach = max(1, round(scale_px))
    window = 16 * reach + 1
    background = tool.percentile_filter(mean, 10, size=window)
    typical = float(np.median([typical_contrast(draw) for draw in smoothed]))  # the mean dims what some samples lack
    # A peak may move by this scale from sample to sample and still be the same structure.
    near = np.stack([tool.maximum_filter(draw, size=2 * reach + 1) for draw in smoothed]) - background
    brightest = smoothed.max(0)
    is_peak = brightest == tool.maximum_filter(brightest, size=4 * reach + 1)
    # Fewer pixels are averaged at the border, so noise makes peaks there.
    is_peak[:reach] = is_peak[-reach:] = is_peak[:, :reach] = is_peak[:, -reach:] = False
    rows, columns = np.nonzero(is_peak & (brightest - background > _LEAST_CONTRAST * typical) & (typical > 0))
    heights = near[:, rows, columns]
    shares = (heights >= 0.5 * heights.max(0)).mean(0) if len(rows) else np.zeros(0)
    structures = [
        Presence(int(row), int(column), float(share), float(height / typical))
        for row, column, share, height in zip(rows, columns, shares, heights.max(0, initial=0.0), strict=True)
    ]
    structures.sort(key=lambda structure: (structure.share, -structure.contrast))
    local = tool.maximum_filter(mean, size=window) - tool.minimum_filter(mean, size=window)
    least = max(0.5 * typical, 1e-12)  # without structure, noise is the only contrast
    return Disagreement(
        smoothed.std(0, ddof=1) / np.maximum(local, least),
        _painted(brightest - background, rows, columns, 1 - shares, 2 * reach),
        structures,
        len(draws),
    )


def _painted(height: Floats, rows: NDArray[np.int64], columns: NDArray[np.int64], values: Floats, reach: int) -> Floats:
    """A map with each peak's value on its upper half, up to ``reach``; 0 elsewhere."""
    image = np.zeros(height.shape)
    if len(rows):
        at_peak = np.zeros(height.shape, bool)
        at_peak[rows, columns] = True
        distance, (y, x) = ndimage().distance_transform_edt(~at_peak, return_indices=True)
        table = np.zeros(height.shape)
        table[rows, columns] = values
        covered = (distance <= reach) & (height >= 0.5 * height[y, x])
        image[covered] = table[y, x][covered]
    return image
