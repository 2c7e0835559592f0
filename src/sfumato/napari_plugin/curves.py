"""A small plot widget: two curves need no plotting library, and matplotlib is only in the `evaluate` extra."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QPointF, QRectF, Qt
from qtpy.QtGui import QColor, QFontMetrics, QPainter, QPen, QPolygonF
from qtpy.QtWidgets import QSizePolicy, QWidget

__all__ = ["Curve", "CurvePlot", "ticks"]

COLOURS = ("#E69F00", "#56B4E9", "#CC79A7", "#F0E442")
"""Colours of channels, distinguishable with a colour-vision deficiency (Okabe and Ito)."""


class Curve(NamedTuple):
    """A curve with its name."""

    name: str
    times: NDArray[np.float64]
    values: NDArray[np.float64]
    colour: str | None
    """Colour; None for the colour of the text."""
    dashed: bool = False


class CurvePlot(QWidget):
    """Plots curves against t from 0 to 1, or against another number; its vertical axis starts at 0 if nothing is below.

    Args:
        title: Title above the plot.
        across: Name of the horizontal axis.

    Attributes:
        curves: The plotted curves; set by :meth:`show_curves`.
    """

    def __init__(self, title: str, across: str = "t") -> None:
        super().__init__()
        self._title, self._across, self._span = title, across, (0.0, 1.0)
        self.curves: Sequence[Curve] = ()
        self.setMinimumSize(260, 150)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def show_curves(
        self, curves: Sequence[Curve], *, title: str | None = None, span: tuple[float, float] = (0.0, 1.0)
    ) -> None:
        """Replace the curves; ``span`` is the first and the last number on the horizontal axis."""
        self.curves, self._span, self._title = curves, span, self._title if title is None else title
        self.update()

    def paintEvent(self, event: Any) -> None:  # noqa: N802, Qt's name
        """Draw everything."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        text = self.palette().color(self.foregroundRole())
        metrics = QFontMetrics(self.font())
        top = max((float(curve.values.max()) for curve in self.curves), default=1.0)
        marks = ticks(top, min((float(curve.values.min()) for curve in self.curves), default=0.0))
        labels = [f"{mark:g}" for mark in marks]
        left = max(metrics.horizontalAdvance(label) for label in labels) + 12
        line = metrics.height()
        area = QRectF(left, line + 8, self.width() - left - 14, self.height() - 2 * line - line - 16)

        first, last = self._span

        def at(time: float, value: float) -> QPointF:
            across, up = (time - first) / (last - first), (value - marks[0]) / (marks[-1] - marks[0])
            return QPointF(area.left() + across * area.width(), area.bottom() - up * area.height())

        painter.setPen(text)
        painter.drawText(QRectF(0, 2, self.width(), line), Qt.AlignmentFlag.AlignHCenter, self._title)
        faint = QColor(text)
        faint.setAlpha(60)
        for mark, label in zip(marks, labels, strict=True):
            painter.setPen(faint)
            painter.drawLine(at(first, mark), at(last, mark))
            painter.setPen(text)
            right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(QRectF(0, at(first, mark).y() - line / 2, left - 6, line), right, label)
        for time in (first, (first + last) / 2, last):
            x = min(at(time, 0).x(), self.width() - 30)
            painter.drawText(QRectF(x - 30, area.bottom() + 2, 60, line), Qt.AlignmentFlag.AlignHCenter, f"{time:g}")
        between = QRectF(left, area.bottom() + 2, area.width() * 0.5, line)
        painter.drawText(between, Qt.AlignmentFlag.AlignHCenter, self._across)
        self._draw_curves(painter, at, text)
        self._draw_names(painter, QRectF(left, area.bottom() + line + 2, area.width(), line), metrics, text)

    def _draw_curves(self, painter: QPainter, at: Any, text: QColor) -> None:
        for curve in self.curves:
            painter.setPen(_pen(curve, text))
            points = [at(float(t), float(value)) for t, value in zip(curve.times, curve.values, strict=True)]
            painter.drawPolyline(QPolygonF(points))
            if len(points) == 1:  # which a line does not show
                painter.drawEllipse(points[0], 3.0, 3.0)

    def _draw_names(self, painter: QPainter, place: QRectF, metrics: QFontMetrics, text: QColor) -> None:
        x = place.left()
        for curve in self.curves:
            painter.setPen(_pen(curve, text))
            painter.drawLine(QPointF(x, place.center().y()), QPointF(x + 20, place.center().y()))
            painter.setPen(text)
            wide = metrics.horizontalAdvance(curve.name) + 2
            painter.drawText(QRectF(x + 25, place.top(), wide, place.height()), Qt.AlignmentFlag.AlignLeft, curve.name)
            x += 25 + wide + 14


def _pen(curve: Curve, text: QColor) -> QPen:
    pen = QPen(QColor(curve.colour) if curve.colour else text)
    pen.setWidthF(2 if curve.colour else 1.2)
    if curve.dashed:
        pen.setStyle(Qt.PenStyle.DashLine)
    return pen


def ticks(top: float, low: float = 0.0) -> list[float]:
    """Three to seven round numbers from at most ``low``, or 0, to at least ``top``: 0, 2, 4, 6 and 8 for 7.3."""
    low = min(low, 0.0)
    if not (math.isfinite(top) and math.isfinite(low) and top > low):
        return [0.0, 1.0]
    high = top - low
    power = 10.0 ** math.floor(math.log10(high))
    step = next(step * power for step in (0.2, 0.25, 0.5, 1, 2, 2.5) if high <= 5 * step * power * (1 + 1e-9))
    ends = math.floor(low / step + 1e-9), math.ceil(top / step - 1e-9)
    return [float(f"{step * i:.6g}") for i in range(ends[0], ends[1] + 1)]
