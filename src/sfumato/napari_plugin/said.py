"""What a panel says: whole sentences that wrap, scroll when they are long, and can be selected and copied."""

import math
from typing import Any

from qtpy.QtCore import QTimer
from qtpy.QtGui import QColor, QTextOption
from qtpy.QtWidgets import QFrame, QTextEdit

__all__ = ["Said"]

_ERROR = "#E69F00"
"""Colour of errors: readable on dark and light themes, and with a colour-vision deficiency (Okabe and Ito)."""
_MOST_HEIGHT, _MOST_AROUND = 240, 40
"""Pixels of the text, and of the frame and the padding that a theme gives it."""


class Said(QTextEdit):
    """A few lines of text, as high as they are; paths break anywhere, so nothing is cut off in a narrow panel."""

    def __init__(self) -> None:
        super().__init__()
        self.setReadOnly(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setMinimumWidth(100)

        self.is_error = False
        self.textChanged.connect(self._fit)
        self.say("")

    def text(self) -> str:
        """The text that is shown."""
        return str(self.toPlainText())

    def say(self, text: str) -> None:
        """Replace the text."""
        self._show(text, is_error=False)

    def say_error(self, text: str) -> None:
        """Replace the text by an error, whole."""
        self._show(f"error: {text}", is_error=True)

    def add(self, line: str) -> None:
        """Add a line, and show it."""
        self.say(f"{self.text()}\n{line}" if self.text() else line)
        self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())

    def resizeEvent(self, event: Any) -> None:  # noqa: N802, Qt's name
        """Wrap again, and take the height that this needs."""
        super().resizeEvent(event)
        QTimer.singleShot(0, self._fit)  # a height set while being resized is lost

    def _show(self, text: str, *, is_error: bool) -> None:
        self.is_error = is_error
        self.setPlainText(text)
        cursor = self.textCursor()
        cursor.select(cursor.SelectionType.Document)
        style = cursor.charFormat()
        if is_error:
            style.setForeground(QColor(_ERROR))
        else:
            style.clearForeground()
        cursor.setCharFormat(style)
        self.setVisible(bool(text))
        self._fit()

    def _fit(self) -> None:
        around = min(max(self.height() - self.viewport().height(), 0), _MOST_AROUND)
        self.setFixedHeight(min(_MOST_HEIGHT, math.ceil(self.document().size().height()) + around))
