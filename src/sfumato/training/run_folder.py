"""The folder of a run: recipe, metrics, checkpoints, panels and model.

::

    run/
      recipe.yaml           the resolved recipe
      statistics.json       normalisation and fingerprint of the training set
      device.txt            the device that it was begun on
      inputs.json           which files it trains on, by size, times and a hash of a part of each
      metrics.jsonl         one line per logged step
      checkpoints/          the last two training states
      panels/               restored validation images
      tensorboard/          the same metrics and panels for TensorBoard, if it is installed
      model.safetensors     the best weights on validation, all that restoring needs
      students/             of a student: those with more calls that were taught on the way
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sfumato.models import recipe as recipes
from sfumato.models.model_file import is_model
from sfumato.models.ownership import Written
from sfumato.models.recipe import Recipe
from sfumato.system.atomic_files import replace_text
from sfumato.system.errors import RunError
from sfumato.system.lock import held_alone
from sfumato.system.marks import Kind, json_with

__all__ = ["RunFolder"]

_STATISTICS = json_with("statistics of a run", ("condition", "target", "audit"))
_INPUTS = json_with("record of a run's images", ("version", "total", "files"))


class RunFolder:
    """Paths and small files of one run.

    Args:
        path: Folder of the run, which may not exist yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.recipe_file = self.path / "recipe.yaml"
        self.statistics_file = self.path / "statistics.json"
        self.inputs_file = self.path / "inputs.json"
        self.device_file = self.path / "device.txt"
        self.metrics_file = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.panels = self.path / "panels"
        self.tensorboard = self.path / "tensorboard"
        self.model_file = self.path / "model.safetensors"
        self.students = self.path / "students"

    def recipe(self) -> Recipe | None:
        """The recipe of the run in this folder, if any."""
        return recipes.load(self.recipe_file) if self.recipe_file.exists() else None

    def device(self) -> str | None:
        """The device of the run in this folder, if any; version 0.1 did not record it, and used the processor."""
        if self.device_file.exists():
            return self.device_file.read_text(encoding="utf-8").strip()
        return "cpu" if self.recipe_file.exists() else None

    def keep_device(self, name: str) -> None:
        """Record the device of the run, for when it is resumed."""
        if not self.device_file.exists() or self.device() != name:
            replace_text(self.device_file, f"{name}\n", untouched="The device was not recorded")

    def is_finished(self) -> bool:
        """Whether the run in this folder has done all of its steps."""
        held = self.recipe()
        return held is not None and (self.checkpoints / f"step-{held.train.steps:08d}.safetensors").exists()

    def student_file(self, calls: int) -> Path:
        """The model file of a student on the way to one of fewer calls."""
        return self.students / f"calls-{calls}.safetensors"

    def files(self) -> list[Written]:
        """The files that a run writes here; a run that was started before owns its files, and its recipe is kept."""
        if self._is_begun():
            return [Written(self.model_file, Kind("model", is_model))]
        panels = {self.panels / "step-00000000.png", *self.panels.glob("step-*.png")}
        others = [self.model_file, self.metrics_file, self.device_file, *self._states(), *sorted(panels)]
        others += [*sorted(self.students.glob("calls-*.safetensors")), self.recipe_file]
        # The recipe is written last, so a kill at the start can leave the other two files without it.
        first = [Written(self.statistics_file, _STATISTICS), Written(self.inputs_file, _INPUTS)]
        return [*first, *(Written(file, Kind("file of a run", lambda _: False)) for file in others)]

    def _is_begun(self) -> bool:
        """Whether there is a recipe with its statistics, or with empty folders, as left by a kill in version 0.1."""
        if not self.recipe_file.exists():
            return False
        if self.statistics_file.exists():
            return _STATISTICS.is_ours(self.statistics_file)
        others = (self.metrics_file, self.model_file, *self._states())
        return self.checkpoints.is_dir() and not any(path.exists() for path in others)

    def _states(self) -> list[Path]:
        return sorted(self.checkpoints.glob("step-*.safetensors"))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder against other trainings; if it was created for that and stays empty, it is removed."""
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self._make(self.path)
        try:
            with held_alone(self.path):
                yield
        finally:
            for folder in made:
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def start(self, recipe: Recipe) -> None:
        """Create the folder of a new run. The recipe is written last: a folder with a recipe is a run."""
        self._make(self.path, self.checkpoints, self.panels, *([] if recipe.student is None else [self.students]))
        replace_text(self.recipe_file, recipes.dump(recipe), untouched="No run was started")

    def _make(self, *folders: Path) -> None:
        try:
            for folder in folders:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"cannot write to the run folder {self.path}: {error.strerror or error}; "
                "choose a folder that you may write to, with --out"
            ) from error

    def log(self, **values: Any) -> None:
        """Append one line to the metrics."""
        with self.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The logged lines, without one truncated by a kill."""
        if self.metrics_file.exists():
            for line in self.metrics_file.read_text(encoding="utf-8").splitlines():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:
                    return

    def rewind(self, step: int) -> None:
        """Remove everything logged after a step, so that no step is logged twice when the run resumes from it."""
        kept = [values for values in self.metrics() if values["step"] <= step]
        text = "".join(json.dumps(values) + "\n" for values in kept)
        replace_text(self.metrics_file, text, untouched="The metrics are as they were")

    def settle(self) -> None:
        """Make the log durable before a checkpoint that relies on it is written."""
        if self.metrics_file.exists():
            with self.metrics_file.open("r+b") as file:  # Windows flushes only files opened for writing
                os.fsync(file.fileno())
