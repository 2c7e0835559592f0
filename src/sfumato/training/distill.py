"""Distill a model: teach a student to draw its samples in a few network calls."""

from pathlib import Path

from sfumato.models.model_file import load
from sfumato.models.model_updates import has_weights_of
from sfumato.models.ownership import Written, check_outputs
from sfumato.models.recipe import DataRecipe, TrainRecipe
from sfumato.system.atomic_files import replace_bytes
from sfumato.system.marks import Kind
from sfumato.training.distributed import is_first_process
from sfumato.training.run_folder import RunFolder
from sfumato.training.taught_recipe import taught_recipe
from sfumato.training.train import train as run

__all__ = ["distill", "run_folder_of"]


def distill(
    teacher: str | Path,
    out: str | Path,
    *,
    calls: int = 4,
    teacher_calls: int | None = None,
    data: DataRecipe | None = None,
    train: TrainRecipe | None = None,
    device: str = "auto",
    workers: int | None = None,
    minutes: float | None = None,
    quiet: bool = False,
) -> Path:
    """Teach a student, or resume the teaching that was begun, and write its model file.

    Args:
        teacher: Model file to learn from.
        out: Model file to write; the run folder is beside it (see :func:`run_folder_of`).
        calls: Network calls of the student.
        teacher_calls: As of :func:`~sfumato.training.taught_recipe.taught_recipe`.
        data: Where the pairs are; by default as in the teacher's recipe.
        train: The training; by default as in the teacher's recipe.
        device: As of :func:`~sfumato.training.train.train`.
        workers: Processes that make batches, which they do not change; by default none for a CPU.
        minutes: Time a few steps and set ``train.steps`` to the number that fits.
        quiet: Show no progress on the terminal.

    Returns:
        The path of the student.

    Raises:
        RecipeError: If there is no such student of this teacher.
        OverwriteError: If ``out`` exists and is not this student.
        RunError: As of :func:`~sfumato.training.train.train`.
        KeyboardInterrupt: After Ctrl-C or SIGTERM, once the state has been saved.
    """
    written, folder = Path(out), run_folder_of(out)
    is_student = Kind("copy of this student", lambda path: has_weights_of(path, folder.model_file), ".safetensors")
    check_outputs([Written(written, is_student)], [teacher])
    recipe = taught_recipe(
        load(teacher, device="cpu"), calls=calls, teacher_calls=teacher_calls, data=data, train=train
    )
    taught = run(recipe, folder.path, device=device, workers=workers, minutes=minutes, start_from=teacher, quiet=quiet)
    if is_first_process() and not written.exists():  # what is there may have been calibrated
        replace_bytes(written, taught.model_file.read_bytes(), untouched=f"The student is {taught.model_file}")
    return written


def run_folder_of(out: str | Path) -> RunFolder:
    """The run folder of a student, `student_run` for `student.safetensors`."""
    written = Path(out)
    return RunFolder(written.with_name(f"{written.stem}_run"))
