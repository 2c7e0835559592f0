"""A run as it trains: its loss, and the newest picture of restored validation images."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import QSize, Qt
from qtpy.QtGui import QPixmap
from qtpy.QtWidgets import QLabel, QSizePolicy, QVBoxLayout, QWidget

from sfumato.napari_plugin.curves import COLOURS, Curve, CurvePlot
from sfumato.napari_plugin.panel import wrapped

if TYPE_CHECKING:
    from sfumato.training.run_folder import RunFolder

__all__ = ["Picture", "RunView"]

_WAITING = "The first picture of validation images comes once something can be sampled."
_STAGES = {"mean": "the mean", "scale": "the scale of its error", "diffusion": "the samples"}
"""What is learned, by the term of the loss that shows it."""
_REST = 10
"""Reading the log takes at most one in so many seconds."""


class Picture(QLabel):
    """A picture as wide as its place."""

    def __init__(self) -> None:
        super().__init__()
        self._whole = QPixmap()
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def show_file(self, path: str) -> None:
        """Show a file."""
        self._whole = QPixmap(path)
        self._fit()

    def resizeEvent(self, event: Any) -> None:  # noqa: N802, Qt's name
        """Scale it again."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        if self._whole.isNull() or self.width() < 2:
            return
        size = QSize(self.width(), self._whole.height() * self.width() // max(1, self._whole.width()))
        shown = self._whole.scaled(
            size, Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation
        )  # fmt: skip
        self.setPixmap(shown)
        self.setFixedHeight(shown.height())


class RunView(QWidget):
    """Shows what a run folder holds.

    Attributes:
        steps: Steps done, and the total; 0 if unknown.
        plot: The loss of what is being learned.
        picture: Restored validation images.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps = (0, 0)
        self.plot, self.picture, self._text = CurvePlot("loss", "step"), Picture(), wrapped(_WAITING)
        self._seen: tuple[float, float] = (0.0, 0.0)
        self._next = 0.0
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        for part in (self.plot, self._text, self.picture):
            column.addWidget(part)

    def clear(self) -> None:
        """Forget the run."""
        self._seen, self._next, self.steps = (0.0, 0.0), 0.0, (0, 0)
        self.plot.show_curves((), title="loss")
        self.picture.clear()
        self._text.setText(_WAITING)

    def follow(self, folder: "RunFolder", *, is_final: bool = False) -> None:
        """Show what is new in a run folder; if it is the last time, however soon after the one before."""
        now = time.monotonic()
        if not folder.metrics_file.exists() or (now < self._next and not is_final):
            return
        changed = folder.metrics_file.stat().st_mtime, 0.0
        if changed == self._seen and not is_final:
            return
        self._seen = changed
        lines, recipe = list(folder.metrics()), folder.recipe()
        if lines and recipe is not None:
            self.steps = int(lines[-1]["step"]), recipe.train.steps
            self._draw(lines)
        panels = sorted(folder.panels.glob("step-*.png"))
        if panels:
            self.picture.show_file(str(panels[-1]))
            step = int(panels[-1].stem.removeprefix("step-"))
            self._text.setText(f"Validation images at step {step}: measured, restored, uncertainty, truth.")
        self._next = now + _REST * (time.monotonic() - now)

    def _draw(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Plot the current stage: the losses of others are of other things."""
        trained = [line for line in lines if "loss" in line]
        if not trained:
            return
        stages = [next((name for name in _STAGES if line.get(name)), "diffusion") for line in trained]
        first = len(stages) - next((i for i, name in enumerate(reversed(stages)) if name != stages[-1]), len(stages))
        shown = trained[first:]
        steps = np.array([line["step"] for line in shown], np.float64)
        curves = [Curve("training", steps, np.array([line["loss"] for line in shown]), COLOURS[1])]
        tested = [(line["step"], line["validation"]) for line in lines if "validation" in line]
        tested = [(step, value) for step, value in tested if step >= steps[0]]
        if tested:
            times, values = np.array(tested, np.float64).T
            curves.append(Curve("validation", times, values, COLOURS[0]))
        last = max(steps[-1], steps[0] + 1)
        self.plot.show_curves(curves, title=f"loss while learning {_STAGES[stages[-1]]}", span=(steps[0], last))
