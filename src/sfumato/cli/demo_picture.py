"""The demo's picture: measured, restored, uncertainty, truth and error side by side, drawn with Pillow alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from sfumato.figures.panels import coloured, grey, save_picture

__all__ = ["Panel", "draw_row"]

_SIDE, _GAP, _EDGE = 288, 14, 16
_TITLE, _HEAD, _FOOT, _BAR = 40, 50, 62, 12
_INK, _PALE = (20, 20, 20), (95, 95, 95)

Font: TypeAlias = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True)
class Panel:
    """One image with its scale.

    Attributes:
        title: Name of the image.
        note: What the image shows, in a few words.
        image: Shape (H, W).
        low: Value drawn black.
        high: Value drawn white, or pale yellow.
        unit: Unit of the values.
        is_spread: Whether to draw it in colours from 0 instead of grey levels.
    """

    title: str
    note: str
    image: NDArray[np.floating]
    low: float
    high: float
    unit: str
    is_spread: bool = False

    def colours(self, values: NDArray[np.floating]) -> NDArray[np.uint8]:
        """Return values of shape (H, W) as colours of shape (H, W, 3)."""
        return coloured(values, self.high) if self.is_spread else grey(values, self.low, self.high)


def draw_row(path: Path, title: str, panels: list[Panel], *, width_um: float, bar_um: float = 1.0) -> None:
    """Draw images in a row, each with title, note and colour bar; the first also gets a scale bar.

    Args:
        path: PNG file to write.
        title: Title of the whole picture.
        panels: The images, square views of the same field; their pixel sizes may differ.
        width_um: Width of the field.
        bar_um: Length of the scale bar.
    """
    width = 2 * _EDGE + len(panels) * (_SIDE + _GAP) - _GAP
    sheet = Image.new("RGB", (width, _TITLE + _HEAD + _SIDE + _FOOT), "white")
    pen = ImageDraw.Draw(sheet)
    pen.text((_EDGE, 12), title, fill=_INK, font=_font(19))
    for place, panel in enumerate(panels):
        left, top = _EDGE + place * (_SIDE + _GAP), _TITLE + _HEAD
        pen.text((left, _TITLE + 3), panel.title, fill=_INK, font=_font(20))
        pen.text((left, _TITLE + 27), panel.note, fill=_PALE, font=_font(14))
        picture = Image.fromarray(panel.colours(panel.image))
        sheet.paste(picture.resize((_SIDE, _SIDE), Image.Resampling.NEAREST), (left, top))
        _draw_scale(sheet, pen, panel, left, top + _SIDE + 8)
    _draw_length(pen, bar_um, width_um, _EDGE, _TITLE + _HEAD + _SIDE)
    save_picture(sheet, path)


def _draw_scale(sheet: Image.Image, pen: ImageDraw.ImageDraw, panel: Panel, left: int, top: int) -> None:
    """A colour bar with its ends and unit."""
    ramp = np.linspace(panel.low, panel.high, _SIDE, dtype=np.float64)
    sheet.paste(Image.fromarray(panel.colours(np.tile(ramp, (_BAR, 1)))), (left, top))
    pen.rectangle((left, top, left + _SIDE - 1, top + _BAR - 1), outline=_PALE)
    for text, x, anchor in (
        (f"{panel.low:.3g}", left, "la"),
        (panel.unit, left + _SIDE // 2, "ma"),
        (f"{panel.high:.3g}", left + _SIDE, "ra"),
    ):
        pen.text((x, top + _BAR + 5), text, fill=_INK, font=_font(14), anchor=anchor)


def _draw_length(pen: ImageDraw.ImageDraw, bar_um: float, width_um: float, left: int, bottom: int) -> None:
    length = round(_SIDE * bar_um / width_um)
    pen.rectangle((left + 10, bottom - 16, left + 10 + length, bottom - 11), fill="white", outline="black")
    pen.text(
        (left + 10 + length / 2, bottom - 19), f"{bar_um:g} um", fill="white", font=_font(15), anchor="ms",
        stroke_width=2, stroke_fill="black",
    )  # fmt: skip


def _font(size: int) -> Font:
    return ImageFont.load_default(size)
