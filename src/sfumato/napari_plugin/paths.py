"""A line for a path, with a button that opens a dialog."""

from collections.abc import Callable
from pathlib import Path

from qtpy import QtWidgets

__all__ = ["PathLine"]


class PathLine(QtWidgets.QWidget):
    """A path that may be typed or browsed for.

    Args:
        hint: Shown while it is empty.
        ask: Opens a dialog; given its parent, returns a path, or an empty text.
    """

    def __init__(self, hint: str, ask: Callable[[QtWidgets.QWidget], str]) -> None:
        super().__init__()
        self.line = QtWidgets.QLineEdit()
        self.line.setPlaceholderText(hint)
        self.line.setToolTip(hint)
        self._ask = ask
        button = QtWidgets.QToolButton()
        button.setText("…")
        button.setToolTip("Browse")
        button.clicked.connect(self._browse)
        row = QtWidgets.QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.line, 1)
        row.addWidget(button)

    @classmethod
    def of_folder(cls, hint: str) -> "PathLine":
        """A line for a folder."""
        return cls(hint, lambda parent: str(QtWidgets.QFileDialog.getExistingDirectory(parent, hint)))

    @classmethod
    def to_model(cls, hint: str) -> "PathLine":
        """A line for a model file to be written."""

        def ask(parent: QtWidgets.QWidget) -> str:
            return str(QtWidgets.QFileDialog.getSaveFileName(parent, hint, "", "Models (*.safetensors)")[0])

        return cls(hint, ask)

    @property
    def path(self) -> Path | None:
        """The path; None if it is empty."""
        text = self.line.text().strip()
        return Path(text).expanduser() if text else None

    def set_path(self, path: str | Path) -> None:
        """Show a path."""
        self.line.setText(str(path))

    def _browse(self) -> None:
        if path := self._ask(self):
            self.set_path(path)
