"""The recipe of a student: its teacher's, with the calls that it is taught and a training of its own."""

from collections.abc import Sequence
from pathlib import Path

import torch

from sfumato.diffusion.sampling_grid import grid_of
from sfumato.diffusion.solvers import TaughtSolver
from sfumato.models.model_file import LoadedModel, load
from sfumato.models.recipe import DataRecipe, Recipe, TrainRecipe
from sfumato.models.student_recipe import StudentRecipe
from sfumato.system.errors import RecipeError, RunError

__all__ = ["TEACHER_CALLS", "taught_recipe", "teacher_levels", "teacher_of", "with_levels"]

TEACHER_CALLS = 32
"""Network calls of a teacher: its second-order solver has then nearly no error."""


def taught_recipe(
    teacher: LoadedModel,
    *,
    calls: int,
    teacher_calls: int | None = None,
    data: DataRecipe | None = None,
    train: TrainRecipe | None = None,
) -> Recipe:
    """The recipe of a student.

    The teacher's own solver is taught, without added noise, or `2m` if it always adds some.

    Args:
        teacher: The model to learn from.
        calls: Network calls of the student.
        teacher_calls: Network calls of the teacher; by default 32, or those of a teacher that is a student itself.
        data: Where the pairs are; by default where the teacher's were.
        train: The training; by default like the teacher's, without its share for the mean.

    Raises:
        RecipeError: If there is no such student of this teacher.
    """
    recipe = teacher.info.recipe
    if not teacher.model.draws_samples:
        raise RecipeError("the teacher is a regression, whose one image takes one call; give a diffusion model")
    own = None if recipe.student is None else recipe.student.calls
    number = teacher_calls or own or TEACHER_CALLS
    if own is not None and number != own:
        raise RecipeError(f"the teacher is a student of {own} calls, and {number} were asked for; leave them out")
    halvings = number.bit_length() - calls.bit_length()
    if calls < 1 or halvings < 1 or calls << halvings != number:
        raise RecipeError(
            f"the student is to take {calls} calls and its teacher {number}; give the teacher's number halved once or "
            f"more, such as {number // 2}"
        )
    solver = recipe.sample.solver if recipe.sample.solver != "algorithm2" else "2m"
    own_solver: TaughtSolver = (
        "first_order_gaussian" if solver in ("gaussian", "first_order_gaussian") else "first_order"
    )
    sample = recipe.sample.model_copy(update={"steps": calls, "solver": own_solver, "eta": 0.0})
    student = StudentRecipe(
        teacher=teacher.sha256,
        teacher_calls=number,
        teacher_solver=solver,
        solver=own_solver,
        levels=teacher_levels(teacher, number)[:: 2**halvings],
    )
    train = train or recipe.train
    values = recipe.model_copy(
        update={
            "data": data or recipe.data,
            "train": train.model_copy(update={"mean_share": 0.0, "scale_share": 0.0, "extended_at": ()}),
            "sample": sample,
            "student": student,
        }
    )
    return Recipe.model_validate(values.model_dump())  # a copy is not validated


def teacher_levels(teacher: LoadedModel, calls: int) -> tuple[float, ...]:
    """Fractions of log gamma at t = 1 at which a teacher is called."""
    info = teacher.info
    if info.recipe.student is not None:
        return info.recipe.student.levels
    side = 2 ** (info.recipe.model.num_scales - 1)
    condition = torch.zeros(1, info.condition_channels, *[side] * info.recipe.model.ndim)
    device = next(teacher.model.parameters()).device
    with torch.no_grad():
        schedule = teacher.model.read(condition.to(device)).schedule
    sample = info.recipe.sample
    return tuple(grid_of(schedule, condition, calls, sample.grid, sample.last_noise))


def with_levels(recipe: Recipe, levels: Sequence[float]) -> Recipe:
    """A student's recipe with other levels, for a student on the way."""
    assert recipe.student is not None, "only a student has levels"
    student = recipe.student.model_copy(update={"levels": tuple(levels)})
    sample = recipe.sample.model_copy(update={"steps": len(levels)})
    return recipe.model_copy(update={"student": student, "sample": sample})


def teacher_of(recipe: Recipe, start_from: str | Path | None) -> LoadedModel:
    """Load the teacher of a student's recipe.

    Raises:
        RunError: If no model or another one is given.
    """
    assert recipe.student is not None, "only a student has a teacher"
    if start_from is None:
        raise RunError("the recipe is a student's, and no teacher is given; teach it with `sfumato distill TEACHER`")
    teacher = load(start_from, device="cpu")
    if teacher.sha256 != recipe.student.teacher:
        raise RunError(
            f"{start_from} has the SHA-256 {teacher.sha256:.12}, and the student's teacher {recipe.student.teacher:.12}"
            "; give the same file as when this run was started (calibrating a model changes its file)"
        )
    return teacher
