"""`sfumato distill`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from sfumato.cli import arguments
from sfumato.cli.messages import say
from sfumato.cli.settings import data_of_student, training_of_student

__all__ = ["distill"]


def distill(
    teacher: Annotated[
        Path, Argument(metavar="TEACHER", help="Model file to learn from, such as run/model.safetensors, or run.")
    ],
    out: Annotated[
        Path, Option(help="Model file to write; its run folder, from which it resumes, is beside it: student_run.")
    ] = Path("student.safetensors"),
    calls: Annotated[int, Option(help="Network calls of the student: the teacher's, halved once or more.")] = 4,
    teacher_calls: Annotated[
        int | None, Option(help="Network calls of the teacher, 32 by default; a student's own if it is one.")
    ] = None,
    inputs: arguments.Inputs = None,
    targets: arguments.Targets = None,
    manifest: arguments.Manifest = None,
    folder: arguments.DataFolder = None,
    store: Annotated[str | None, Option(help="Instead of all these, a store written by `sfumato pack`.")] = None,
    from_recipe: Annotated[
        bool,
        Option(
            "--from-recipe",
            help="Use the pairs that the teacher's own recipe names on this machine; needed only outside its run "
            "folder.",
        ),
    ] = False,
    minutes: Annotated[
        float | None, Option(help="Train as many steps as fit into this time; as many as the teacher by default.")
    ] = None,
    device: arguments.Device = "auto",
    workers: arguments.BatchWorkers = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", help="Any field of the recipe's section train, such as train.steps=4000; may be repeated."),
    ] = None,
) -> None:
    """Teach a student to draw a model's samples in a few network calls. If interrupted, rerun the command to resume.

    A sample without added noise is a function of its initial noise, and the calls of the teacher are halved until few
    are left. The student learns on the pairs that the teacher was trained on. It is restored, calibrated, audited and
    exported like any other model, but always takes the calls it was taught; it starts without a calibration. If it is
    taught for too few steps, its samples are too narrow: compare it with its teacher (`sfumato evaluate`).
    """
    from sfumato.models.model_file import inspect_model
    from sfumato.training.distill import distill as teach
    from sfumato.training.distributed import is_first_process
    from sfumato.training.run_folder import RunFolder
    from sfumato.training.same_run import is_of_run

    model = RunFolder(teacher).model_file if teacher.is_dir() else teacher
    recipe = inspect_model(model).recipe
    given = {"inputs": inputs, "targets": targets, "manifest": manifest, "store": store, "folder": folder}
    written = teach(
        model,
        out,
        calls=calls,
        teacher_calls=teacher_calls,
        data=data_of_student(recipe, given, is_trusted=from_recipe or is_of_run(model, recipe)),
        train=training_of_student(recipe, settings or []),
        device=device,
        workers=workers,
        minutes=minutes,
    )
    if is_first_process():
        say(f"taught: {written}, of {calls} calls")
