"""The dock widget with all that sfumato does in napari: restore, train and calibrate, as tabs."""

from typing import TYPE_CHECKING

from qtpy.QtCore import QEvent
from qtpy.QtWidgets import QTabWidget, QVBoxLayout, QWidget

from sfumato.napari_plugin.calibrate_widget import CalibrateWidget
from sfumato.napari_plugin.restore_widget import RestoreWidget
from sfumato.napari_plugin.train_widget import TrainWidget

if TYPE_CHECKING:
    from napari.viewer import Viewer

__all__ = ["TabsWidget"]


class TabsWidget(QWidget):
    """Restore, Train and Calibrate; what was trained or calibrated is then the model of the others.

    Args:
        napari_viewer: Provided by napari.
    """

    def __init__(self, napari_viewer: "Viewer") -> None:
        super().__init__()
        self.restore, self.train = RestoreWidget(napari_viewer), TrainWidget(napari_viewer)
        self.calibrate = CalibrateWidget(napari_viewer)
        self.tabs = QTabWidget()
        for title, panel in {"Restore": self.restore, "Train": self.train, "Calibrate": self.calibrate}.items():
            self.tabs.addTab(panel, title)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.tabs)
        for changed in (self.train.trained, self.calibrate.calibrated):
            changed.connect(self.restore.model.open)
        self.train.trained.connect(self.calibrate.model.open)

    def changeEvent(self, event: QEvent) -> None:  # noqa: N802, Qt's name
        """Stop what runs when the dock widget is closed."""
        if event.type() == QEvent.Type.ParentChange and self.parent() is None and hasattr(self, "tabs"):
            for panel in (self.restore, self.train, self.calibrate):
                panel.cancel()
        super().changeEvent(event)
