"""Draw quick pictures with Pillow alone: input, restored image, uncertainty and truth."""

import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from sfumato.system.atomic_files import replace_bytes
from sfumato.system.marks import SOFTWARE

__all__ = ["coloured", "draw_panel", "grey", "inner", "limits", "save_picture"]

_GAP, _TITLE, _NARROWEST = 4, 14, 180
_BORDER = 16
"""Scales leave out one part in so many at each side: deconvolution, registration and cameras err at the border."""
_SPREAD = np.array([[0, 0, 0], [61, 38, 108], [166, 54, 106], [238, 122, 64], [255, 243, 176]], dtype=np.float64)
"""A dark-to-bright colour map for uncertainty, readable with any colour vision."""


def draw_panel(
    path: Path,
    condition: NDArray[np.floating],
    mean: NDArray[np.floating],
    std: NDArray[np.floating] | None,
    target: NDArray[np.floating] | None = None,
) -> None:
    """Draw one row per image: measured, restored (mean), uncertainty (standard deviation) and, if known, the truth.

    Args:
        path: PNG file to write.
        condition: First channel, shape (M, H, W).
        mean: Shape (M, H, W).
        std: Shape (M, H, W), or None if it is unknown.
        target: Shape (M, H, W); sets the grey scale of the mean if given.
    """
    ends = [limits(image) for image in (mean if target is None else target)]
    white = 0.0 if std is None else _white(std, ends)
    rows = []
    for number, (measured, restored) in enumerate(zip(condition, mean, strict=True)):
        low, high = ends[number]
        row = {"measured": grey(measured, *limits(measured))}
        row["restored" if std is None else "restored (mean)"] = grey(restored, low, high)
        if std is not None:
            row[f"std, white = {100 * white:.3g}% of range"] = coloured(std[number], white * (high - low))
        if target is not None:
            row["truth"] = grey(target[number], low, high)
        rows.append(row)
    titles = list(rows[0])
    height, width = rows[0]["measured"].shape[:2]
    zoom = max(1, -(-_NARROWEST // width))
    height, width = height * zoom, width * zoom
    sheet = Image.new(
        "RGB", (len(titles) * (width + _GAP) - _GAP, _TITLE + len(rows) * (height + _GAP) - _GAP), "white"
    )
    pen = ImageDraw.Draw(sheet)
    for column, title in enumerate(titles):
        pen.text((column * (width + _GAP) + 2, 1), title, fill="black")
    for number, row in enumerate(rows):
        for column, picture in enumerate(row.values()):
            tile = Image.fromarray(picture).resize((width, height), Image.Resampling.NEAREST)
            sheet.paste(tile, (column * (width + _GAP), _TITLE + number * (height + _GAP)))
    save_picture(sheet, path)


def save_picture(picture: Image.Image, path: Path, *, optimize: bool = False) -> None:
    """Write a PNG atomically, with its producer in the metadata; creates the folder if needed."""
    note, buffer = PngInfo(), io.BytesIO()
    note.add_text("Software", SOFTWARE)
    picture.save(buffer, "PNG", pnginfo=note, optimize=optimize)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(path, buffer.getvalue(), untouched="What was there is intact")


def inner(image: NDArray[np.floating]) -> NDArray[np.floating]:
    """An image (..., H, W) without its border, a sixteenth of each side.

    Example:
        >>> inner(np.zeros((3, 160, 33))).shape, inner(np.zeros((8, 8))).shape
        ((3, 140, 29), (8, 8))
    """
    height, width = image.shape[-2:]
    rows, columns = (slice(side // _BORDER, side - side // _BORDER) for side in (height, width))
    return image[..., rows, columns]


def limits(image: NDArray[np.floating]) -> tuple[float, float]:
    """Values to draw black and white: all but the darkest and brightest 0.1% of what is not at the border.

    Example:
        >>> image = np.tile(np.arange(100.0), (100, 1))
        >>> image[0], image[50, 50] = 1e6, -1e6
        >>> limits(image)
        (6.0, 93.0)
    """
    low, high = np.quantile(inner(image), [0.001, 0.999])
    return float(low), float(high)


def _white(std: NDArray[np.floating], ends: Sequence[tuple[float, float]]) -> float:
    """The fraction of the grey scale at which the largest uncertainty is white, rounded up to two digits."""
    shares = [limits(image)[1] / max(high - low, 1e-12) for image, (low, high) in zip(std, ends, strict=True)]
    share = max(float(max(shares)), 1e-3)
    unit = 10.0 ** (math.floor(math.log10(share)) - 1)
    return math.ceil(share / unit) * unit


def grey(image: NDArray[np.floating], low: float, high: float) -> NDArray[np.uint8]:
    """An image (H, W) as (H, W, 3), black at ``low`` and white at ``high``."""
    scaled = np.clip((image - low) / max(high - low, 1e-12), 0, 1)
    return np.repeat((255 * scaled).astype(np.uint8)[..., None], 3, axis=-1)


def coloured(image: NDArray[np.floating], high: float) -> NDArray[np.uint8]:
    """An image (H, W) of 0 or more as (H, W, 3), from black at 0 over violet and orange to pale yellow at ``high``."""
    place = np.clip(image / max(high, 1e-12), 0, 1) * (len(_SPREAD) - 1)
    channels: Sequence[NDArray[np.floating]] = [
        np.interp(place, np.arange(len(_SPREAD)), _SPREAD[:, channel]) for channel in range(3)
    ]
    return np.stack(channels, axis=-1).astype(np.uint8)
