"""The choices that both widgets offer: a model file with its card, and a layer with its channel axis."""

import functools
import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napari.layers import Image
from qtpy import QtWidgets
from qtpy.QtCore import Qt, Signal

from sfumato.models.bundled import bundled_models
from sfumato.napari_plugin.background import Background
from sfumato.napari_plugin.layers import channel_choices
from sfumato.napari_plugin.panel import wrapped
from sfumato.napari_plugin.said import Said

if TYPE_CHECKING:
    from napari.viewer import Viewer

    from sfumato.models.model_file import LoadedModel, ModelInfo

__all__ = ["LayerPicker", "ModelPicker", "load_model", "narrow_list"]


@functools.lru_cache(maxsize=2)
def _loaded(path: Path, changed: int, device: str, user: str) -> "LoadedModel":
    from sfumato.models.model_file import load

    return load(path, device=device)


def load_model(path: Path, device: str, user: str) -> "LoadedModel":
    """Load a model file, or return the model loaded before if the file is unchanged.

    Args:
        path: Model file.
        device: Device to load it on.
        user: Name of the widget; each has a model of its own, since layers of one that is restoring may carry hooks.
    """
    return _loaded(path, path.stat().st_mtime_ns if path.exists() else 0, device, user)


def narrow_list() -> QtWidgets.QComboBox:
    """Make a list that may be narrower than its longest entry, so that a dock widget stays narrow."""
    box = QtWidgets.QComboBox()
    box.setSizeAdjustPolicy(QtWidgets.QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    box.setMinimumContentsLength(12)
    return box


class ModelPicker(QtWidgets.QWidget):
    """Picks a model file; its header is read in a thread and shown as a card.

    Args:
        is_small: Whether to show the card only as a tooltip.
    """

    changed = Signal()
    """The model has changed, or there is none now."""

    def __init__(self, *, is_small: bool = False) -> None:
        super().__init__()
        self.path: Path | None = None
        self.info: ModelInfo | None = None
        self._reading: Background | None = None
        self._list = narrow_list()
        self._list.addItem("choose a model file", None)
        for path in bundled_models():
            self._list.addItem(f"{path.stem} (comes with sfumato)", path)
        self._list.activated.connect(self._activated)
        button = QtWidgets.QPushButton("Open…")
        button.setToolTip("Open a model file (model.safetensors) of `sfumato train`")
        button.clicked.connect(self._ask)
        self._card = wrapped()
        self._card.setTextFormat(Qt.TextFormat.RichText)
        self._card.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._error = Said()
        row = QtWidgets.QHBoxLayout()
        row.addWidget(self._list, 1)
        row.addWidget(button)
        column = QtWidgets.QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(row)
        if not is_small:
            column.addWidget(self._card)
        column.addWidget(self._error)

    @property
    def error_text(self) -> str:
        """Why the last file could not be read; empty if it could."""
        return self._error.text()

    @property
    def card_text(self) -> str:
        """Text of the card."""
        return str(self._card.text())

    def open(self, path: str | Path) -> None:
        """Read the header of a model file and show its card; errors are shown below it, and as napari notifications."""
        path = Path(path)

        def work(_: Background) -> Any:
            from sfumato.models.model_file import inspect_model

            info = inspect_model(path)
            return info, _card(info)

        if self._reading is not None:
            self._reading.stop()
        self._card.setText(f"reading {path.name} …")
        self._error.say("")
        self._reading = reading = Background(
            work, returned=lambda found: self._show(path, *found), finished=lambda: self._finish(reading)
        )

    def _show(self, path: Path, info: "ModelInfo", lines: dict[str, str]) -> None:
        self.path, self.info = path, info
        rows = "".join(  # a file may contain anything, so it is escaped
            f"<tr><td style='padding-right:8px'><b>{title}</b></td><td>{html.escape(text)}</td></tr>"
            for title, text in lines.items()
        )
        self._card.setText(f"<table>{rows}</table>")
        self._list.setToolTip(self._card.text())
        places = [place for place in range(1, self._list.count()) if _is_same(self._list.itemData(place), path)]
        if not places:  # Qt itself would compare identities, and list a path once more each time
            self._list.addItem(f"{path.parent.name}/{path.name}", path)
        self._list.setCurrentIndex(places[0] if places else self._list.count() - 1)
        self.changed.emit()

    def _finish(self, reading: Background) -> None:
        if self._reading is reading and reading.error:
            self.path = self.info = None
            self._card.setText("")
            self._error.say_error(reading.error)
            self._list.setCurrentIndex(0)
            self.changed.emit()

    def _activated(self, place: int) -> None:
        path = self._list.itemData(place)
        if path is not None:
            self.open(path)

    def _ask(self) -> None:
        path, _ = QtWidgets.QFileDialog.getOpenFileName(
            self, "Open a model", "", "Models (*.safetensors);;All files (*)"
        )
        if path:
            self.open(path)


def _is_same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _card(info: "ModelInfo") -> dict[str, str]:
    """Describe a model in a few lines, by title, for the user who picks it."""
    from sfumato.restoration.conditions import told_channels
    from sfumato.restoration.intervals import sampled_by

    recipe, sampled = info.recipe, sampled_by(info)
    lines = {
        "Problem": recipe.problem if recipe.name in ("", recipe.problem) else f"{recipe.problem} ({recipe.name})",
        "Channels": f"{told_channels(info)}, {'volumes' if recipe.model.ndim == 3 else 'images'}",
        "Pixels": _pixels(info),
        "Normalisation": _normalisation(info),
    }
    if recipe.model.method == "regression":
        return lines | {"Calibration": "none: a regression gives one image and no uncertainty"}
    lines["Sampling"] = f"{sampled.num_samples} samples of {sampled.num_steps} steps"
    lines["Calibration"] = "none" if info.calibration is None else info.calibration.label
    if info.fast_calibration is not None:
        lines["Without samples"] = info.fast_calibration.label
    return lines


def _pixels(info: "ModelInfo") -> str:
    if info.factor is None:
        size = "the file does not say how many are restored per measured one"
    elif set(info.factor) == {1}:
        size = "as measured"
    else:
        size = f"{' x '.join(map(str, info.factor))} restored per measured one"
    trained = info.audit.get("forward")
    pixel = trained.get("pixel_um") if isinstance(trained, dict) else None
    return size if pixel is None else f"{size}; trained at {pixel} um"


def _normalisation(info: "ModelInfo") -> str:
    data = info.recipe.data
    if data.scales_each_image:
        low, high = data.quantiles
        return f"each image by its quantiles {low:g} and {high:g}"
    ends = ", ".join(
        f"{offset - scale:.4g} to {offset + scale:.4g}"
        for offset, scale in zip(info.condition.offset, info.condition.scale, strict=True)
    )
    name = "quantiles" if data.normalize == "quantile" else "mean and deviation"
    return f"{name} of the training set; inputs of {ends} become -1 to 1"


class LayerPicker(QtWidgets.QWidget):
    """Picks an image layer of the viewer and its channel axis.

    Args:
        viewer: The viewer.
        follows: Whether the layer that is selected in the viewer is picked.
    """

    changed = Signal()
    """The layer or its channel axis has changed."""

    def __init__(self, viewer: "Viewer", *, follows: bool = False) -> None:
        super().__init__()
        self._viewer = viewer
        self._layers = narrow_list()
        self._channels = narrow_list()
        self._channels.setToolTip("Axis of the layer that holds the channels the model takes together")
        form = QtWidgets.QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.addRow("Layer", self._layers)
        form.addRow("Channels", self._channels)
        self._layers.currentIndexChanged.connect(self._list_channels)
        self._channels.currentIndexChanged.connect(lambda _: self.changed.emit())
        for event in (viewer.layers.events.inserted, viewer.layers.events.removed, viewer.layers.events.reordered):
            event.connect(self._list_layers)
        if follows:
            viewer.layers.selection.events.active.connect(self._follow)
        self._list_layers()
        if follows:
            self._follow()

    @property
    def layer(self) -> Image | None:
        """The chosen layer."""
        return self._layers.currentData()

    @property
    def channel_axis(self) -> int | None:
        """The channel axis of its data, or None."""
        return None if self._channels.currentData() is None else int(self._channels.currentData())

    def choose(self, layer: Image, channel_axis: int | None = None) -> None:
        """Select a layer from code."""
        self._layers.setCurrentIndex([self._layers.itemData(i) for i in range(self._layers.count())].index(layer))
        axes = [self._channels.itemData(i) for i in range(self._channels.count())]
        self._channels.setCurrentIndex(axes.index(channel_axis))

    def _follow(self, event: Any = None) -> None:
        """Pick the layer that was selected in the viewer, if it is an image that may be restored."""
        active = self._viewer.layers.selection.active
        for place in range(self._layers.count()):
            if self._layers.itemData(place) == active:  # napari wraps what it gives to plugins
                self._layers.setCurrentIndex(place)

    def _list_layers(self, event: Any = None) -> None:
        chosen = self.layer
        layers = [layer for layer in self._viewer.layers if isinstance(layer, Image) and not _is_ours(layer)]
        self._layers.blockSignals(True)
        self._layers.clear()
        for layer in layers:
            self._layers.addItem(layer.name, layer)
            layer.events.name.disconnect(self._rename)  # otherwise each change would connect the layer once more
            layer.events.name.connect(self._rename)
        self._layers.setCurrentIndex(layers.index(chosen) if chosen in layers else len(layers) - 1)
        self._layers.blockSignals(False)
        if self.layer is not chosen:
            self._list_channels()

    def _rename(self, event: Any = None) -> None:
        for place in range(self._layers.count()):
            self._layers.setItemText(place, self._layers.itemData(place).name)

    def _list_channels(self, place: int = 0) -> None:
        self._channels.blockSignals(True)
        self._channels.clear()
        for name, axis in ({} if self.layer is None else channel_choices(self.layer)).items():
            self._channels.addItem(name, axis)
        self._channels.blockSignals(False)
        self.changed.emit()


def _is_ours(layer: Image) -> bool:
    """Whether a layer is a result, which should not be restored again."""
    return "sfumato" in layer.metadata
