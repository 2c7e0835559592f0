"""The dock widget that restores layers."""

import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING

from qtpy import QtWidgets

from sfumato.napari_plugin.layers import Source
from sfumato.napari_plugin.panel import Panel, button, number, wrapped
from sfumato.napari_plugin.pickers import LayerPicker, ModelPicker
from sfumato.napari_plugin.restoring import Asked, Found, accelerators, restore_layer
from sfumato.napari_plugin.saving import Results
from sfumato.system.errors import SfumatoError

if TYPE_CHECKING:
    from napari.viewer import Viewer

__all__ = ["RestoreWidget"]

_PREVIEW = """Restore what the canvas shows, or its middle if that is large.
Models with mean and scale networks, as the presets train, draw no samples for it."""

_SAVE = """Save the last restored layer, with its pixel size and how it was made.
The uncertainty and the interval are saved beside the mean."""


class RestoreWidget(Panel):
    """Pick a model and a layer, preview the region in view, restore the whole layer.

    Args:
        napari_viewer: Provided by napari.
    """

    stopped_text = "stopped; no layer was added"

    def __init__(self, napari_viewer: "Viewer") -> None:
        super().__init__(button("Cancel", "Stop; no layer is added"))
        self._viewer = napari_viewer
        self.model, self.layer = ModelPicker(), LayerPicker(napari_viewer, follows=True)
        spread = "Samples of the posterior: their mean is the restored image, their spread the uncertainty"
        self.samples = number(2, 16, spread)
        self.steps = number(1, 32, "Network calls per sample")
        self.seed = number(0, 0, "The same seed gives the same samples")
        self.device = QtWidgets.QComboBox()
        self.device.addItems(["automatic", "cpu"])
        self.keep_samples = QtWidgets.QCheckBox("also show every sample (slider)")
        self.preview_button = button("Preview here", _PREVIEW)
        self.restore_button = button("Restore", "Restore the whole layer, all frames")
        self.save_button = button("Save as OME-TIFF…", _SAVE)
        self.save_button.setEnabled(False)
        self.save_button.clicked.connect(self._ask_where)
        self.note = wrapped()
        self._results: Results | None = None
        self._arrange()
        self.model.changed.connect(self._model_changed)
        for box in (self.samples, self.steps):
            box.valueChanged.connect(self._show_note)
        self.preview_button.clicked.connect(lambda: self.start(whole=False))
        self.restore_button.clicked.connect(lambda: self.start(whole=True))

    def start(self, *, whole: bool) -> None:
        """Restore the whole layer or the region in view; errors are shown in the panel and as notifications."""
        layer, path, info = self.layer.layer, self.model.path, self.model.info
        if self.is_running:
            return
        if path is None or info is None or layer is None:
            self.refuse("there is no model or no layer yet; pick a model file and an image layer first")
            return
        ndim = info.recipe.model.ndim
        factor = info.factor or (1,) * ndim
        try:
            source = Source.of(layer, self.layer.channel_axis, ndim)
            visible = None if whole else source.visible(layer, self._viewer.dims, factor)
        except SfumatoError as error:
            self.refuse(str(error))
            return
        sampling = {
            "num_samples": self.samples.value(),
            "num_steps": self.steps.value(),
            "seed": self.seed.value(),
            "keep_samples": self.keep_samples.isChecked(),
        }
        frame = source.frame_of(source.place_of(layer, self._viewer.dims.point))
        asked = Asked(source, path, self.device.currentText(), visible, frame, sampling)
        self.run(functools.partial(restore_layer, asked=asked), self._add_layers, said="restoring …")

    def save(self, path: str | Path) -> list[Path]:
        """Save the last restored layer: its mean as this OME-TIFF, the others beside it; returns the files."""
        if self._results is None:
            self.refuse("nothing was restored yet; restore a whole layer first")
            return []
        try:
            files = self._results.save(path)
        except SfumatoError as error:
            self.refuse(str(error))
            return []
        self.status.add(f"saved: {', '.join(map(str, files))}")
        return files

    def _ask_where(self) -> None:
        path, _ = QtWidgets.QFileDialog.getSaveFileName(
            self, "Save what was restored", "restored.ome.tif", "OME-TIFF (*.ome.tif *.tif)"
        )
        if path:
            self.save(path)

    def _add_layers(self, found: Found) -> None:
        for old in [old for old in self._viewer.layers if old.metadata.get("sfumato") == "preview"]:
            self._viewer.layers.remove(old)
        for data, settings in found.layers:
            self._viewer.add_image(data, **settings)
        if found.marks is not None:
            self._viewer.add_points(found.marks[0], **found.marks[1])
        if found.results is not None:
            self._results = found.results
            self.save_button.setEnabled(True)
        drawn = "" if found.about["samples"] else "; no samples were drawn"
        seconds = time.monotonic() - self._started
        self.status.say(
            "\n".join([f"done in {seconds:.1f} s; intervals: {found.about['intervals']}{drawn}", *found.told])
        )

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

            self.device.addItems(accelerators(torch))
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
        form = QtWidgets.QFormLayout()
        rows = {"Samples": self.samples, "Steps": self.steps, "Seed": self.seed, "Device": self.device}
        for title, choice in rows.items():
            form.addRow(title, choice)
        form.addRow(self.keep_samples)
        form.addRow(self.note)
        self.note.hide()
        choices = {"Model": self.model, "Image": self.layer, "Samples": form}
        self.arrange(choices, [self.preview_button, self.restore_button], [self.save_button])
