"""Draw the cover picture of a model's card: input and restored image, two squares in one frame."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sfumato.figures.panels import grey, save_picture

__all__ = ["draw_cover"]

_SIDE = 384


def draw_cover(path: Path, measured: NDArray[np.floating], restored: NDArray[np.floating]) -> None:
    """Draw both images, each cropped to a square and stretched to its own range; twice as wide as high, for catalogues.

    Args:
        path: PNG to write.
        measured: Shape (H, W).
        restored: Shape (H, W), perhaps on a finer grid.
    """
    sheet = Image.new("RGB", (2 * _SIDE, _SIDE))
    for column, image in enumerate((measured, restored)):
        side = min(image.shape)
        top, left = ((size - side) // 2 for size in image.shape)
        square = image[top : top + side, left : left + side]
        picture = Image.fromarray(grey(square, *np.quantile(square, [0.001, 0.999])))
        sheet.paste(picture.resize((_SIDE, _SIDE), Image.Resampling.NEAREST), (column * _SIDE, 0))
    save_picture(sheet, path, optimize=True)
