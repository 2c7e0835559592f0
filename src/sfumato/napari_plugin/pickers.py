"""The choices that both widgets offer: a model file with its card, and a layer with its channel axis."""

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napari.layers import Image
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QComboBox, QFileDialog, QFormLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from sfumato.models.bundled import bundled_models
from sfumato.napari_plugin.background import Background
from sfumato.napari_plugin.layers import channel_choices

if TYPE_CHECKING:
    from napari.viewer import Viewer

    from sfumato.models.model_file import ModelInfo

__all__ = ["LayerPicker", "ModelPicker", "narrow"]

_NONE = "choose a model file"


def narrow(box: QComboBox) -> QComboBox:
    """Let a list be narrower than its longest entry, so that a dock widget stays narrow."""
    box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    box.setMinimumContentsLength(12)
    return box


class ModelPicker(QWidget):
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
        self._list = narrow(QComboBox())
        self._list.addItem(_NONE, None)
        for path in bundled_models():
            self._list.addItem(f"{path.stem} (comes with sfumato)", path)
        self._list.activated.connect(self._activated)
        button = QPushButton("Open…")
        button.setToolTip("Open a model file (model.safetensors) of `sfumato train`")
        button.clicked.connect(self._ask)
        self._card = QLabel()
        self._card.setWordWrap(True)
        self._card.setTextFormat(Qt.TextFormat.RichText)
        self._card.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        row = QHBoxLayout()
        row.addWidget(self._list, 1)
        row.addWidget(button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(row)
        if is_small:
            self._card.hide()
            return
        column.addWidget(self._card)

    @property
    def card_text(self) -> str:
        """Text of the card."""
        return str(self._card.text())

    def open(self, path: str | Path) -> None:
        """Read the header of a model file and show its card; errors are shown as napari notifications."""
        path = Path(path)

        def work(_: Background) -> Any:
            from sfumato.models.model_file import inspect_model
            from sfumato.napari_plugin.card import card

            info = inspect_model(path)
            return info, card(info)

        if self._reading is not None:
            self._reading.stop()
        self._card.setText(f"reading {path.name} …")
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
        place = self._list.findData(path)
        if place < 0:
            self._list.addItem(path.name, path)
            place = self._list.count() - 1
        self._list.setCurrentIndex(place)
        self.changed.emit()

    def _finish(self, reading: Background) -> None:
        if self._reading is reading and reading.failed:
            self.path = self.info = None
            self._card.setText("")
            self._list.setCurrentIndex(0)
            self.changed.emit()

    def _activated(self, place: int) -> None:
        path = self._list.itemData(place)
        if path is not None:
            self.open(path)

    def _ask(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Open a model", "", "Models (*.safetensors);;All files (*)")
        if path:
            self.open(path)


class LayerPicker(QWidget):
    """Picks an image layer of the viewer and its channel axis."""

    changed = Signal()
    """The layer or its channel axis has changed."""

    def __init__(self, viewer: "Viewer") -> None:
        super().__init__()
        self._viewer = viewer
        self._layers = narrow(QComboBox())
        self._channels = narrow(QComboBox())
        self._channels.setToolTip("Axis of the layer that holds the channels the model takes together")
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.addRow("Layer", self._layers)
        form.addRow("Channels", self._channels)
        self._layers.currentIndexChanged.connect(self._list_channels)
        self._channels.currentIndexChanged.connect(lambda _: self.changed.emit())
        for event in (viewer.layers.events.inserted, viewer.layers.events.removed, viewer.layers.events.reordered):
            event.connect(self._list_layers)
        self._list_layers()

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
        self._channels.setCurrentIndex(
            [self._channels.itemData(i) for i in range(self._channels.count())].index(channel_axis)
        )

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
