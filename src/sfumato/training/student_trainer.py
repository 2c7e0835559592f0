"""Train a student: halve its teacher's calls, stage by stage, in the loop of every other training.

At the first step of a stage, the student of the stage before becomes the teacher. It is also written to the run folder,
from where a resumed run takes it.
"""

import dataclasses
from pathlib import Path

from sfumato.diffusion.student import Student, Teacher
from sfumato.models.model_file import ModelInfo, load, save_model
from sfumato.models.recipe import Recipe
from sfumato.training.distributed import Ranks
from sfumato.training.loop import Trainer
from sfumato.training.preparation import Prepared
from sfumato.training.run_folder import RunFolder
from sfumato.training.stages import Stage, stage_at
from sfumato.training.taught_recipe import teacher_levels, teacher_of, with_levels

__all__ = ["StudentTrainer"]


class StudentTrainer(Trainer):
    """A run that teaches a student.

    Args:
        recipe: Recipe of the run, with the section `student`.
        folder: Where the run is saved.
        data: Samples, with the teacher's statistics.
        ranks: This process among the others.
        start_from: The teacher's model file.
    """

    def __init__(
        self, recipe: Recipe, folder: RunFolder, data: Prepared, ranks: Ranks, *, start_from: str | Path | None = None
    ) -> None:
        assert recipe.student is not None, "only a student has this loop"
        self.student = recipe.student
        self.given = teacher_of(recipe, start_from)
        super().__init__(recipe, folder, data, ranks, start_from=start_from)
        self.levels = teacher_levels(self.given, self.student.teacher_calls)
        self._calls: int | None = None

    def _enter_stage(self) -> Stage:
        stage = stage_at(self.recipe.train, self.step, self.student)
        if stage.calls != self._calls:
            assert stage.calls is not None, "every stage of a student has its calls"
            if self.step == stage.first > 0:
                self._promote(2 * stage.calls)
            self._take_up(stage.calls)
        return stage

    def _promote(self, calls: int) -> None:
        """Write the student that has just been taught, and start the next one from it."""
        self.model.load_state_dict(self.average.state_dict())
        self.optimizer.state.clear()
        self.best = None  # of another student, which cannot be compared with the next
        if self.ranks.is_first:
            info = dataclasses.replace(self.info(None), recipe=with_levels(self.recipe, self._levels(calls)))
            save_model(self.folder.student_file(calls), self.average.state_dict(), info)
        self.ranks.wait()

    def _take_up(self, calls: int) -> None:
        """Give the student its levels and its teacher, which has twice as many calls."""
        is_first = 2 * calls == self.student.teacher_calls
        model = self.given.model if is_first else load(self.folder.student_file(2 * calls), device="cpu").model
        solver = self.student.teacher_solver if is_first else self.student.solver
        teacher = Teacher(model.to(self.ranks.device), self._levels(2 * calls), solver)
        for student in (self.model, self.average):
            assert isinstance(student, Student)
            student.teacher, student.levels = teacher, self._levels(calls)
        self.sampling = with_levels(self.recipe, self._levels(calls)).sample
        self._calls = calls

    def _levels(self, calls: int) -> tuple[float, ...]:
        return self.levels[:: self.student.teacher_calls // calls]

    def _save_model(self, value: float | None) -> None:
        """Write the model of the last stage only; the others have more calls."""
        if self._calls == self.student.calls:
            super()._save_model(value)

    def info(self, value: float | None) -> ModelInfo:
        """What the model file holds beside the weights: the provenance names the teacher."""
        info = super().info(value)
        return dataclasses.replace(info, provenance={**info.provenance, "teacher": self.student.teacher})
