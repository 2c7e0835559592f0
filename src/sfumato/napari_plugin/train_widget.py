"""The panel that trains a model on layers or folders, and goes on with a run."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qtpy import QtWidgets
from qtpy.QtCore import Signal

from sfumato.models.presets import PRESETS, preset_for
from sfumato.napari_plugin.pairs_picker import PairsPicker
from sfumato.napari_plugin.panel import Panel, button
from sfumato.napari_plugin.paths import PathLine
from sfumato.napari_plugin.run_view import RunView
from sfumato.napari_plugin.training import Training, train_pairs
from sfumato.system.errors import SfumatoError

if TYPE_CHECKING:
    from napari.viewer import Viewer

__all__ = ["TrainWidget"]

_BY_TIME = "by the time"
_SIZES = """Size of the model: small for minutes, default for half an hour or more, large for a GPU.
By the time: small below 10 minutes, and default otherwise."""


class TrainWidget(Panel):
    """Pick pairs, a time and a run folder; watch the loss; stop and resume.

    Args:
        napari_viewer: Provided by napari.

    Attributes:
        settings: Fields of the recipe by section, beside those of the preset; none by default.
    """

    trained = Signal(object)
    """A model file was trained."""

    def __init__(self, napari_viewer: "Viewer") -> None:
        super().__init__(button("Stop", "Stop after this step; the run can be resumed"))
        self.pairs = PairsPicker(napari_viewer)
        self.preset = QtWidgets.QComboBox()
        self.preset.addItems([_BY_TIME, *PRESETS])
        self.preset.setToolTip(_SIZES)
        self.minutes = QtWidgets.QDoubleSpinBox()
        self.minutes.setRange(0.01, 100_000)
        self.minutes.setValue(5)
        self.minutes.setToolTip("Train as many steps as fit into this time; a finished run is extended by as many")
        self.out = PathLine.of_folder("Run folder: everything of the run is saved here")
        self.out.set_path(Path("run").absolute())
        self.settings: dict[str, dict[str, object]] = {}
        self.view = RunView()
        self.train_button = button("Train", "Start a new run in the run folder")
        self.resume_button = button("Resume", "Go on with the run in the run folder; a finished one is extended")
        self._told: list[str] = []
        self._shown = 0
        form = QtWidgets.QFormLayout()
        for title, choice in {"Size": self.preset, "Minutes": self.minutes, "Run folder": self.out}.items():
            form.addRow(title, choice)
        self.arrange(
            {"Pairs to train on": self.pairs, "Training": form, "The run": self.view},
            [self.train_button, self.resume_button],
        )
        self.train_button.clicked.connect(lambda: self.start(resumes=False))
        self.resume_button.clicked.connect(lambda: self.start(resumes=True))

    def start(self, *, resumes: bool) -> None:
        """Start a run, or go on with the one in the run folder."""
        if self.is_running:
            return
        out, minutes = self.out.path, self.minutes.value()
        if out is None:
            self.refuse("no run folder was given; expected a folder to save the run in; choose one")
            return
        preset = preset_for(minutes) if self.preset.currentText() == _BY_TIME else self.preset.currentText()
        try:
            pairs = None if resumes else self.pairs.chosen(2)
        except SfumatoError as error:
            self.refuse(str(error))
            return
        self._told, self._shown = [], 0
        self.view.clear()
        asked = Training(pairs, out, preset, minutes, self.settings)
        work = functools.partial(train_pairs, asked=asked, tell=self._told.append)  # appended to in the thread
        self.run(work, self._done, said="opening the pairs …")

    @property
    def stopped_text(self) -> str:  # type: ignore[override]
        """What a stop leaves."""
        folder = self._folder()
        done = f"stopped at step {self.view.steps[0]}; Resume goes on from there"
        if folder is not None and folder.model_file.exists():
            return f"{done}; the best weights so far: {folder.model_file}"
        return f"{done}; there is no model yet, since the first is saved at the first validation"

    def show_progress(self) -> None:
        """Show new lines, the loss and the newest picture."""
        for line in self._told[self._shown :]:
            self.status.add(line)
            self._shown += 1
        folder = self._folder()
        if folder is None or self._running is None:
            return
        self.view.follow(folder)
        self._running.done, self._running.total = self.view.steps
        super().show_progress()

    def _folder(self) -> Any:
        from sfumato.training.run_folder import RunFolder

        return None if self.out.path is None else RunFolder(self.out.path)

    def _done(self, model: Path | None) -> None:
        self.show_progress()
        if model is not None:
            self.status.add(f"trained: {model}")
            self.trained.emit(model)

    def _finish(self) -> None:
        folder = self._folder()
        if folder is not None:
            self.view.follow(folder, is_final=True)
        super()._finish()
