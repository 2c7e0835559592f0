"""The choice of pairs, for training and for calibrating: two layers of the viewer, or two folders."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from qtpy import QtWidgets

from sfumato.napari_plugin.layers import Source
from sfumato.napari_plugin.paths import PathLine
from sfumato.napari_plugin.pickers import LayerPicker
from sfumato.system.errors import PairingError

if TYPE_CHECKING:
    from napari.viewer import Viewer

__all__ = ["Pairs", "PairsPicker"]

Pairs: TypeAlias = tuple[Source, Source] | tuple[Path, Path]
"""Inputs and targets: layers, or folders of images with the same names."""


class PairsPicker(QtWidgets.QWidget):
    """Picks inputs and their targets.

    Args:
        viewer: The viewer with the layers.
    """

    def __init__(self, viewer: "Viewer") -> None:
        super().__init__()
        self.kind = QtWidgets.QComboBox()
        self.kind.addItems(["two layers of this viewer", "two folders of images"])
        self.inputs, self.targets = LayerPicker(viewer), LayerPicker(viewer)
        self.input_folder = PathLine.of_folder("Folder of the measured images")
        self.target_folder = PathLine.of_folder("Folder of the true images, with the same names")
        pages = QtWidgets.QStackedWidget()
        for rows in (
            {"Inputs": self.inputs, "Targets": self.targets},
            {"Inputs": self.input_folder, "Targets": self.target_folder},
        ):
            page = QtWidgets.QWidget()
            form = QtWidgets.QFormLayout(page)
            form.setContentsMargins(0, 0, 0, 0)
            for title, choice in rows.items():
                form.addRow(title, choice)
            pages.addWidget(page)
        self.kind.currentIndexChanged.connect(pages.setCurrentIndex)
        column = QtWidgets.QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.kind)
        column.addWidget(pages)

    def chosen(self, ndim: int) -> Pairs:
        """What is picked.

        Args:
            ndim: Spatial axes of the model.

        Raises:
            PairingError: If something is missing, or one layer is picked twice.
            ImageError: If a layer has too few or too many axes.
        """
        if self.kind.currentIndex() == 1:
            folders = self.input_folder.path, self.target_folder.path
            if folders[0] is None or folders[1] is None:
                raise PairingError("a folder is missing; expected one of inputs and one of targets; give both")
            return folders[0], folders[1]
        pickers = self.inputs, self.targets
        if self.inputs.layer is None or self.inputs.layer == self.targets.layer:
            raise PairingError(
                "inputs and targets are not two different layers; expected a measured layer and its truth; open both, "
                "and pick one as inputs and the other as targets"
            )
        sources = [Source.of(picker.layer, picker.channel_axis, ndim) for picker in pickers if picker.layer is not None]
        return sources[0], sources[1]
