"""The frame of a panel: choices that scroll, buttons, progress, what was said, and one piece of work at a time."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from napari.utils.notifications import show_error
from qtpy import QtWidgets
from qtpy.QtCore import QEvent, Qt, QTimer

from sfumato.napari_plugin.background import Background
from sfumato.napari_plugin.said import Said

__all__ = ["Panel", "boxed", "button", "number", "wrapped"]

_POLL_MS = 500
"""Each change repaints the window, which takes 50 ms with software OpenGL; hence no endless bar either."""

Content: TypeAlias = QtWidgets.QWidget | QtWidgets.QLayout


class Panel(QtWidgets.QWidget):
    """A panel of choices that starts work in a thread.

    Attributes:
        status: What the work said, and its errors, whole.
        progress: How far it is.
        cancel_button: Stops it.
    """

    stopped_text = "stopped"
    """Said when the work was stopped."""

    def __init__(self, cancel: QtWidgets.QPushButton) -> None:
        super().__init__()
        self._running: Background | None = None
        self._started = 0.0
        self.status, self.progress, self.cancel_button = Said(), QtWidgets.QProgressBar(), cancel
        self._starters: Sequence[QtWidgets.QPushButton] = ()
        self._timer = QTimer(self)
        self._timer.setInterval(_POLL_MS)
        self._timer.timeout.connect(self.show_progress)
        cancel.clicked.connect(self.cancel)

    @property
    def is_running(self) -> bool:
        """Whether work is running."""
        return self._running is not None

    def run(self, work: Callable[[Background], Any], returned: Callable[[Any], None], *, said: str) -> None:
        """Start work; ``returned`` gets its result. Errors are shown here and as napari notifications."""
        self._started = time.monotonic()
        self.status.say(said)
        self._running = Background(work, returned=returned, finished=self._finish)
        self.destroyed.connect(self._running.stop)
        self._show_running(True)

    def cancel(self) -> None:
        """Stop; no unfinished result is shown."""
        if self._running is not None:
            self._running.stop()
            self.status.add("stopping …")

    def refuse(self, text: str) -> None:
        """Say why nothing was started."""
        self.status.say_error(text)
        show_error(text)

    def changeEvent(self, event: QEvent) -> None:  # noqa: N802, Qt's name
        """Stop when the dock widget is closed: napari removes it from its window and does not keep it."""
        if event.type() == QEvent.Type.ParentChange and self.parent() is None and getattr(self, "_running", None):
            self.cancel()
        super().changeEvent(event)

    def show_progress(self) -> None:
        """Show how far the work is; called twice a second."""
        work = self._running
        if work is None or work.is_stopped:
            return
        if work.total:
            self.progress.setValue(100 * work.done // work.total)
        if work.doing or not work.total:
            self.progress.setFormat(work.doing or "%p%")
            return
        passed = time.monotonic() - self._started
        left = passed * (work.total - work.done) / max(work.done, 1)
        self.progress.setFormat(f"%p%, about {left:.0f} s left" if work.done else "%p%")

    def arrange(
        self,
        choices: Mapping[str, Content],
        starters: Sequence[QtWidgets.QPushButton],
        others: Sequence[QtWidgets.QPushButton] = (),
    ) -> None:
        """Lay out boxes of choices by title, the buttons that start work, the one that stops it, and others."""
        inside = QtWidgets.QWidget()
        column = QtWidgets.QVBoxLayout(inside)
        for title, content in choices.items():
            column.addWidget(boxed(title, content))
        column.addStretch(1)
        scrolled = QtWidgets.QScrollArea()  # on a small screen the choices scroll and the buttons stay visible
        scrolled.setFrameShape(QtWidgets.QFrame.Shape.NoFrame)
        scrolled.setWidget(inside)
        scrolled.setWidgetResizable(True)
        scrolled.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        row = QtWidgets.QHBoxLayout()
        for one in (*starters, self.cancel_button):
            row.addWidget(one)
        whole = QtWidgets.QVBoxLayout(self)
        whole.addWidget(scrolled, 1)
        whole.addLayout(row)
        whole.addWidget(self.progress)
        whole.addWidget(self.status)
        for one in others:
            whole.addWidget(one)
        self.setMinimumWidth(340)
        self._starters = starters
        self._show_running(False)

    def _finish(self) -> None:
        work, self._running = self._running, None
        if work is not None and work.error:
            self.status.say_error(work.error)
        elif work is not None and work.is_stopped:
            self.status.say(self.stopped_text)
        self._show_running(False)

    def _show_running(self, running: bool) -> None:
        for one in self._starters:
            one.setEnabled(not running)
        self.cancel_button.setEnabled(running)
        self.progress.setValue(0)
        self.progress.setFormat("%p%")
        self.progress.setTextVisible(running)
        (self._timer.start if running else self._timer.stop)()


def boxed(title: str, content: Content) -> QtWidgets.QGroupBox:
    """Put a widget or a layout into a box with a title."""
    box = QtWidgets.QGroupBox(title)
    if isinstance(content, QtWidgets.QLayout):
        box.setLayout(content)
    else:
        QtWidgets.QVBoxLayout(box).addWidget(content)
    return box


def wrapped(text: str = "") -> QtWidgets.QLabel:
    """Make a label that wraps its lines, so that a dock widget stays narrow."""
    label = QtWidgets.QLabel(text)
    label.setWordWrap(True)
    return label


def number(least: int, value: int, tip: str) -> QtWidgets.QSpinBox:
    """Make a box for a whole number."""
    box = QtWidgets.QSpinBox()
    box.setToolTip(tip)
    box.setRange(least, 10_000 if least else 2**31 - 1)
    box.setValue(value)
    return box


def button(text: str, tip: str) -> QtWidgets.QPushButton:
    """Make a button with a tooltip."""
    made = QtWidgets.QPushButton(text)
    made.setToolTip(tip)
    return made
