"""The folder of a run: its recipe, its metrics, its checkpoints, its panels and its model.

::

    run/
      recipe.yaml           the resolved recipe
      statistics.json       normalisation and fingerprint of the training set
      inputs.json           which files it trains on, by size, times and a hash of a part of each
      metrics.jsonl         one line per logged step
      checkpoints/          the last two training states
      panels/               restored validation images
      tensorboard/          the same metrics and panels for TensorBoard, if it is installed
      model.safetensors     the best weights on validation, all that restoring needs
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
        path: Where the run is or will be.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.recipe_file = self.path / "recipe.yaml"
        self.statistics_file = self.path / "statistics.json"
        self.inputs_file = self.path / "inputs.json"
        self.metrics_file = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.panels = self.path / "panels"
        self.tensorboard = self.path / "tensorboard"
        self.model_file = self.path / "model.safetensors"

    def recipe(self) -> Recipe | None:
        """The recipe of the run that is here, if any."""
        return recipes.load(self.recipe_file) if self.recipe_file.exists() else None

    def files(self) -> list[Written]:
        """What a run writes here; those of one that was begun before are its own, and its recipe stays as it is."""
        if self._is_begun():
            return [Written(self.model_file, Kind("model", is_model))]
        panels = {self.panels / "step-00000000.png", *self.panels.glob("step-*.png")}
        others = [self.model_file, self.metrics_file, *self._states(), *sorted(panels), self.recipe_file]
        # The recipe is written last, so a kill at the start can leave the other two without it.
        first = [Written(self.statistics_file, _STATISTICS), Written(self.inputs_file, _INPUTS)]
        return [*first, *(Written(file, Kind("file of a run", lambda _: False)) for file in others)]

    def _is_begun(self) -> bool:
        """Whether a recipe is here with its statistics, or with empty folders, as a kill left it in version 0.1."""
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
        """Keep other trainings out of the folder; one that is made for that and gets no content is removed."""
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
        """Lay out the folder of a new run. There is one once its recipe is there, so that is written last."""
        self._make(self.path, self.checkpoints, self.panels)
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
        """The logged lines; one cut off by a kill is left out."""
        if self.metrics_file.exists():
            for line in self.metrics_file.read_text(encoding="utf-8").splitlines():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:
                    return

    def rewind(self, step: int) -> None:
        """Forget what was logged after a step, so that no step is logged twice when the run goes on from it."""
        kept = [values for values in self.metrics() if values["step"] <= step]
        text = "".join(json.dumps(values) + "\n" for values in kept)
        replace_text(self.metrics_file, text, untouched="The metrics are as they were")

    def settle(self) -> None:
        """Make what was logged durable, before a checkpoint that presumes it."""
        if self.metrics_file.exists():
            with self.metrics_file.open("r+b") as file:  # Windows flushes only what may be written to
                os.fsync(file.fileno())
