"""The dock widget that restores layers."""

import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napari.utils.notifications import show_error
from qtpy import QtWidgets
from qtpy.QtCore import QEvent, Qt, QTimer

from sfumato.napari_plugin.background import Background
from sfumato.napari_plugin.layers import Region, Source
from sfumato.napari_plugin.pickers import LayerPicker, ModelPicker, boxed, load_model, wrapped
from sfumato.system.errors import SfumatoError

if TYPE_CHECKING:
    from napari.viewer import Viewer

__all__ = ["RestoreWidget"]

_POLL_MS = 500
"""Each change repaints the window, which takes 50 ms with software OpenGL; hence no endless bar either."""


_PREVIEW = """Restore what the canvas shows, or its middle if that is large.
Models with mean and scale networks, as the presets train, draw no samples for it."""


class RestoreWidget(QtWidgets.QWidget):
    """Pick a model and a layer, preview the region in view, restore the whole layer.

    Args:
        napari_viewer: Provided by napari.
    """

    def __init__(self, napari_viewer: "Viewer") -> None:
        super().__init__()
        self._viewer = napari_viewer
        self._running: Background | None = None
        self._started = 0.0
        self.model, self.layer = ModelPicker(), LayerPicker(napari_viewer)
        spread = "Samples of the posterior: their mean is the restored image, their spread the uncertainty"
        self.samples = _number(2, 16, spread)
        self.steps = _number(1, 32, "Network calls per sample")
        self.seed = _number(0, 0, "The same seed gives the same samples")
        self.device = QtWidgets.QComboBox()
        self.device.addItems(["automatic", "cpu"])
        self.keep_samples = QtWidgets.QCheckBox("also show every sample (slider)")
        self.preview_button = _button("Preview here", _PREVIEW)
        self.restore_button = _button("Restore", "Restore the whole layer, all frames")
        self.cancel_button = _button("Cancel", "Stop; no layer is added")
        self.progress = QtWidgets.QProgressBar()
        self.note, self.status = wrapped(), wrapped()
        self._arrange()
        self._timer = QTimer(self)
        self._timer.setInterval(_POLL_MS)
        self._timer.timeout.connect(self._show_progress)
        self.model.changed.connect(self._model_changed)
        for box in (self.samples, self.steps):
            box.valueChanged.connect(self._show_note)
        self.preview_button.clicked.connect(lambda: self.start(whole=False))
        self.restore_button.clicked.connect(lambda: self.start(whole=True))
        self.cancel_button.clicked.connect(self.cancel)
        self._show_running(False)

    @property
    def is_running(self) -> bool:
        """Whether a restoration is running."""
        return self._running is not None

    def start(self, *, whole: bool) -> None:
        """Restore the whole layer or the region in view; errors are shown as napari notifications."""
        layer, path, info = self.layer.layer, self.model.path, self.model.info
        if self.is_running:
            return
        if path is None or info is None or layer is None:
            show_error("there is no model or no layer yet; pick a model file and an image layer first")
            return
        ndim = info.recipe.model.ndim
        factor = info.factor or (1,) * ndim
        try:
            source = Source.of(layer, self.layer.channel_axis, ndim)
            visible = None if whole else source.visible(layer, self._viewer.dims, factor)
        except SfumatoError as error:
            show_error(str(error))
            return
        asked = {
            "num_samples": self.samples.value(),
            "num_steps": self.steps.value(),
            "seed": self.seed.value(),
            "keep_samples": self.keep_samples.isChecked(),
        }
        work = functools.partial(
            _restore, source=source, path=path, device=self.device.currentText(), visible=visible, asked=asked
        )
        self._started = time.monotonic()
        self._running = Background(work, returned=self._add_layers, finished=self._finish)
        self.destroyed.connect(self._running.stop)
        self.status.setText("restoring …")
        self._show_running(True)

    def cancel(self) -> None:
        """Stop; no unfinished result is shown."""
        if self._running is not None:
            self._running.stop()
            self.status.setText("stopping …")

    def changeEvent(self, event: QEvent) -> None:  # noqa: N802, Qt's name
        """Stop when the dock widget is closed: napari removes it from its window and does not keep it."""
        if event.type() == QEvent.Type.ParentChange and self.parent() is None and getattr(self, "_running", None):
            self.cancel()
        super().changeEvent(event)

    def _add_layers(self, layers: list[tuple[Any, dict[str, Any]]]) -> None:
        for old in [old for old in self._viewer.layers if old.metadata.get("sfumato") == "preview"]:
            self._viewer.layers.remove(old)
        for data, settings in layers:
            self._viewer.add_image(data, **settings)
        about = layers[-1][1]["metadata"]
        drawn = "" if about["samples"] else "; no samples were drawn"
        seconds = time.monotonic() - self._started
        told = [f"done in {seconds:.1f} s; intervals: {about['intervals']}{drawn}", about["likeness"]]
        self.status.setText("\n".join(filter(None, told)))

    def _finish(self) -> None:
        if self._running is not None and self._running.is_stopped:
            self.status.setText("stopped; no layer was added")
        elif self._running is not None and self._running.failed:
            self.status.setText("failed; see napari's notification")
        self._running = None
        self._show_running(False)

    def _show_progress(self) -> None:
        work = self._running
        if work is None or not work.total or work.is_stopped:
            return
        self.progress.setValue(100 * work.done // work.total)
        passed = time.monotonic() - self._started
        left = passed * (work.total - work.done) / max(work.done, 1)
        self.progress.setFormat(f"%p%, about {left:.0f} s left" if work.done else "%p%")

    def _show_running(self, running: bool) -> None:
        self.preview_button.setEnabled(not running)
        self.restore_button.setEnabled(not running)
        self.cancel_button.setEnabled(running)
        self.progress.setValue(0)
        self.progress.setFormat("%p%")
        self.progress.setTextVisible(running)
        (self._timer.start if running else self._timer.stop)()

    def _model_changed(self) -> None:
        """Set the settings that the model was calibrated with, or its recipe's."""
        if self.model.info is None:
            return
        from sfumato.restoration.intervals import sampled_by

        sampled = sampled_by(self.model.info)
        self.samples.setValue(sampled.num_samples)
        self.steps.setValue(sampled.num_steps)
        if self.device.count() == 2:
            import torch  # already imported

            self.device.addItems(_accelerators(torch))
        self._show_note()

    def _show_note(self) -> None:
        """Show when the model's calibration does not hold."""
        known = None if self.model.info is None else self.model.info.calibration
        wanted = (self.samples.value(), self.steps.value())
        if known is None or (known.sampled.num_samples, known.sampled.num_steps) == wanted:
            self.note.hide()
            return
        was = known.sampled
        self.note.setText(
            f"No calibrated interval: the model was calibrated with {was.num_samples} samples of {was.num_steps} steps."
        )
        self.note.show()

    def _arrange(self) -> None:
        inside = QtWidgets.QWidget()
        column = QtWidgets.QVBoxLayout(inside)
        form = QtWidgets.QFormLayout()
        rows = {"Samples": self.samples, "Steps": self.steps, "Seed": self.seed, "Device": self.device}
        for title, choice in rows.items():
            form.addRow(title, choice)
        form.addRow(self.keep_samples)
        form.addRow(self.note)
        self.note.hide()
        for title, content in (("Model", self.model), ("Image", self.layer), ("Samples", form)):
            column.addWidget(boxed(title, content))
        column.addStretch(1)
        choices = QtWidgets.QScrollArea()  # on a small screen the choices scroll and the buttons stay visible
        choices.setFrameShape(QtWidgets.QFrame.Shape.NoFrame)
        choices.setWidget(inside)
        choices.setWidgetResizable(True)
        choices.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        row = QtWidgets.QHBoxLayout()
        for button in (self.preview_button, self.restore_button, self.cancel_button):
            row.addWidget(button)
        whole = QtWidgets.QVBoxLayout(self)
        whole.addWidget(choices, 1)
        whole.addLayout(row)
        whole.addWidget(self.progress)
        whole.addWidget(self.status)
        self.setMinimumWidth(340)


def _number(least: int, value: int, tip: str) -> QtWidgets.QSpinBox:
    box = QtWidgets.QSpinBox()
    box.setToolTip(tip)
    box.setRange(least, 10_000 if least else 2**31 - 1)
    box.setValue(value)
    return box


def _button(text: str, tip: str) -> QtWidgets.QPushButton:
    button = QtWidgets.QPushButton(text)
    button.setToolTip(tip)
    return button


def _accelerators(torch: Any) -> list[str]:
    found = ["cuda"] if torch.cuda.is_available() else []
    return [*found, "mps"] if torch.backends.mps.is_available() else found


def _restore(
    work: Background, *, source: Source, path: Path, device: str, visible: Region | None, asked: dict[str, Any]
) -> list[tuple[Any, dict[str, Any]]]:
    """In the thread: load the model, restore, and make layers of the results."""
    import torch

    from sfumato.restoration.conditions import Measured, upsampling_factor
    from sfumato.restoration.interactive import FieldOfView, Parts
    from sfumato.restoration.likeness import likeness

    if device == "automatic":
        device = [*_accelerators(torch), "cpu"][0]
    model = load_model(path, device, "restore")
    work.count(0)
    measured = Measured(source.image, model)
    field = None if visible is None else FieldOfView((visible[0],), *visible[1:])
    if field is not None and model.model.draws_samples and model.model.knows_std:
        asked = {"seed": asked["seed"], "fast": True}
    parts = Parts(measured, model, field=field, **asked)
    found = likeness(measured, model, parts.field.frames)
    work.total = parts.num_calls
    images = parts.restore(work.count)
    about = {
        "sfumato": "restored" if field is None else "preview",
        "model": str(path),
        "model_sha256": model.sha256,
        "samples": parts.sampled.num_samples,
        "steps": parts.sampled.num_steps,
        "seed": asked["seed"],
        "intervals": parts.label,
        "likeness": "" if found is None else f"{'Warning: ' if found.is_warned else ''}{found.text}",
    }
    where, prefix = parts.field, "" if field is None else "preview: "
    factor = upsampling_factor(model)
    return source.layers(images, frames=where.frames, corner=where.corner, factor=factor, prefix=prefix, metadata=about)
