"""Structures in images: smooth at their scale, measure their typical contrast, and list marked regions."""

from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.figures.schedule_and_samples import otsu

__all__ = ["Structure", "label", "ndimage", "smooth", "typical_contrast"]

Floats = NDArray[np.float64]


class Structure(NamedTuple):
    """A marked region.

    Attributes:
        row: Row of its strongest pixel.
        column: Column of its strongest pixel.
        area_px: Number of pixels.
        strength: Value of its strongest pixel.
    """

    row: int
    column: int
    area_px: int
    strength: float


def smooth(image: Floats, scale_px: float) -> Floats:
    """An image (H, W) averaged with Gaussian weights; it is reflected beyond its border."""
    return np.asarray(ndimage().gaussian_filter(image, scale_px, mode="reflect"), np.float64)


def typical_contrast(image: Floats) -> float:
    """Median of the pixels above Otsu's threshold minus the median of the rest; 0 for a flat image."""
    if np.ptp(image) == 0:
        return 0.0
    bright = image > otsu(image)
    return float(np.median(image[bright]) - np.median(image[~bright]))


def label(mask: NDArray[np.bool_], strength: Floats) -> tuple[list[Structure], NDArray[np.int32]]:
    """Connected regions of a mask (H, W), corners included: a list, the strongest first, and their numbers from 1.

    Args:
        mask: The marked pixels.
        strength: Orders the regions by the largest value in each.
    """
    tool = ndimage()
    regions, number = tool.label(mask, np.ones((3, 3)))
    found = []
    for name, box in enumerate(tool.find_objects(regions), start=1):
        inside = regions[box] == name
        row, column = np.unravel_index(int(np.where(inside, strength[box], -np.inf).argmax()), inside.shape)
        top = (int(row + box[0].start), int(column + box[1].start))
        found.append((name, Structure(*top, int(inside.sum()), float(strength[top]))))
    found.sort(key=lambda item: -item[1].strength)
    names = np.zeros(number + 1, np.int32)
    names[[name for name, _ in found]] = np.arange(1, number + 1)
    return [structure for _, structure in found], names[regions]


def ndimage() -> ModuleType:
    """Scipy's image filters; raises an error that says how to install them."""
    try:
        import scipy.ndimage
    except ImportError as error:
        raise ImportError("the audit needs scipy: pip install 'sfumato[evaluate]'") from error
    found: ModuleType = scipy.ndimage
    return found
