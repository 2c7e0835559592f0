"""The panel that calibrates a model on held-out layers or folders."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from qtpy import QtWidgets
from qtpy.QtCore import Signal

from sfumato.models.bundled import bundled_models
from sfumato.napari_plugin.calibrating import Calibrating, calibrate_model
from sfumato.napari_plugin.pairs_picker import PairsPicker
from sfumato.napari_plugin.panel import Panel, button, wrapped
from sfumato.napari_plugin.paths import PathLine
from sfumato.napari_plugin.pickers import ModelPicker, narrow_list
from sfumato.system.errors import SfumatoError

if TYPE_CHECKING:
    from napari.viewer import Viewer

    from sfumato.models.intervals import Method

__all__ = ["CalibrateWidget"]

_METHODS: dict[str, "Method"] = {
    "guaranteed on average": "risk_control",
    "guaranteed with 90% confidence": "rcps",
    "corrected, no guarantee": "recalibrated",
}
_ABOUT = "Needs fields with known truth that training never saw: 9 or more for 90%."


class CalibrateWidget(Panel):
    """Pick a model and held-out pairs; intervals with a guaranteed coverage are then stored in the model.

    Args:
        napari_viewer: Provided by napari.
    """

    calibrated = Signal(object)
    """A model file was calibrated."""

    stopped_text = "stopped; the model is unchanged"

    def __init__(self, napari_viewer: "Viewer") -> None:
        super().__init__(button("Cancel", "Stop; the model stays as it is"))
        self.model, self.pairs = ModelPicker(is_small=True), PairsPicker(napari_viewer)
        self.level = QtWidgets.QDoubleSpinBox()
        self.level.setRange(0.01, 0.99)
        self.level.setSingleStep(0.05)
        self.level.setValue(0.9)
        self.level.setToolTip("Fraction of pixels that intervals should cover")
        self.method = narrow_list()
        self.method.addItems(list(_METHODS))
        self.method.setToolTip("What is promised of further images")
        self.are_independent = QtWidgets.QCheckBox("Every frame is a field of its own (unit '.*')")
        self.are_independent.setToolTip("Otherwise the frames of a layer or file count as one unit")
        self.out = PathLine.to_model("the model file, if empty")
        self.calibrate_button = button("Calibrate", "Restore the held-out pairs, and fit the width of the intervals")
        form = QtWidgets.QFormLayout()
        rows = {"Level": self.level, "Coverage": self.method, "Save to": self.out}
        for title, choice in rows.items():
            form.addRow(title, choice)
        form.addRow(self.are_independent)
        held_out = QtWidgets.QVBoxLayout()
        held_out.addWidget(wrapped(_ABOUT))
        held_out.addWidget(self.pairs)
        choices = {"Model": self.model, "Held-out pairs": held_out, "Intervals": form}
        self.arrange(choices, [self.calibrate_button])
        self.calibrate_button.clicked.connect(self.start)

    def start(self) -> None:
        """Calibrate; errors are shown in the panel and as notifications."""
        path, info = self.model.path, self.model.info
        if self.is_running:
            return
        if path is None or info is None:
            self.refuse("there is no model yet; pick a model file first")
            return
        if self.out.path is None and path in bundled_models():
            self.refuse(
                f"{path.stem} comes with sfumato and stays as it is; give a file to save the calibrated model to"
            )
            return
        try:
            pairs = self.pairs.chosen(info.recipe.model.ndim)
        except SfumatoError as error:
            self.refuse(str(error))
            return
        method = _METHODS[self.method.currentText()]
        asked = Calibrating(path, pairs, self.out.path, self.level.value(), method, self.are_independent.isChecked())
        self.run(functools.partial(calibrate_model, asked=asked), self._done, said="restoring the held-out pairs …")

    def _done(self, found: tuple[Path, list[str]]) -> None:
        path, lines = found
        self.status.say("\n".join(lines))
        self.model.open(path)
        self.calibrated.emit(path)
