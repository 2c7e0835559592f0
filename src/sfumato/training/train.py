"""Train a model from a recipe: check the folder, open the data, complete the recipe and run the training loop."""

import contextlib
import functools
import sys
from collections.abc import Callable
from pathlib import Path

from sfumato.models.ownership import check_outputs, data_places
from sfumato.models.recipe import Recipe
from sfumato.system.device import AUTO, named_device, told_device, without_subnormals
from sfumato.training.distributed import Ranks
from sfumato.training.loop import Trainer
from sfumato.training.measured_recipe import extended, measure_scale, steps_in, what_fits, with_scale, with_steps
from sfumato.training.preparation import prepare
from sfumato.training.run_folder import RunFolder
from sfumato.training.same_run import check_inputs, same_recipe
from sfumato.training.student_trainer import StudentTrainer
from sfumato.training.taught_recipe import teacher_of
from sfumato.training.verdict import told_verdict

__all__ = ["train"]

_TIMED_AS = 10**6
"""Steps of a run that is only timed: more than any stage takes that is timed."""


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    device: str = "auto",
    workers: int | None = None,
    minutes: float | None = None,
    start_from: str | Path | None = None,
    quiet: bool = False,
    tell: Callable[[str], None] | None = None,
    is_stopped: Callable[[], bool] | None = None,
) -> RunFolder:
    """Train a model from a recipe, or resume the run that is already in ``out``.

    Args:
        recipe: Everything that the run depends on.
        out: Run folder. A run with the same recipe and images is resumed; any other one is refused.
        device: ``cpu``, ``cuda`` or ``mps``; ``auto`` for the one that the run was begun on, and for a new one a GPU if
            torch can use one by CUDA.
        workers: Processes that make batches, which they do not change; by default none for a CPU.
        minutes: Time a few steps and set ``train.steps`` to the number that fits; a finished run gets as many further
            steps, except a student's.
        start_from: A model file with the initial weights; the teacher, for the recipe of a student.
        quiet: Show no progress on the terminal.
        tell: Called with each line instead, for a program that has no terminal; no progress bar is shown then.
        is_stopped: Asked after every step; when it says so, the state is saved, as after Ctrl-C. In a thread that is
            not the main one, this is the only way to stop.

    Returns:
        The run folder; its ``model_file`` is the trained model.

    Raises:
        OverwriteError: If the folder holds files with these names that do not belong to a run, or the images
            themselves.
        RunError: If the folder holds another run, is in use by another training or cannot be written; if the run was
            started with other images; if a student is given no teacher or another; or if the loss is not finite.
        KeyboardInterrupt: After Ctrl-C, SIGTERM or ``is_stopped``, once the state has been saved.
    """
    folder, say = RunFolder(out), tell or _print
    check_outputs(folder.files(), [*data_places(recipe.data), start_from])  # before ranks join, hence before any writes
    teacher = None if recipe.student is None else teacher_of(recipe, start_from).info
    make = Trainer if teacher is None else StudentTrainer
    recorded = folder.device()
    at = named_device(device, recorded, what=f"the run in {folder.path}")
    ranks = Ranks.join(at)
    with contextlib.closing(ranks), without_subnormals(), contextlib.ExitStack() as held:
        ranks.by_first(lambda: held.enter_context(folder.alone()))
        is_resumed, is_finished = folder.recipe_file.exists(), folder.is_finished()
        recipe = same_recipe(folder, recipe, minutes)
        ranks.wait()  # no process may see what another is about to write
        data = prepare(recipe, folder if is_resumed else None, teacher)
        ranks.by_first(lambda: check_inputs(folder, data.sources, is_resumed=is_resumed))
        if ranks.is_first:
            notes = [] if quiet else [f"note: {note}" for note in data.notes]
            if device == AUTO and not quiet:
                notes.append(told_device(at, is_recorded=recorded is not None))
            for line in (*(f"warning: {doubt}" for doubt in data.doubts), *notes):
                say(line)
        if recipe.model.scale is None and recipe.model.method == "cvdm":
            recipe = with_scale(recipe, measure_scale(recipe, data, start_from))
        trainer_of = functools.partial(make, folder=folder, data=data, ranks=ranks, start_from=start_from)
        is_grown = minutes is not None and (not is_resumed or (is_finished and teacher is None))
        if minutes is not None and is_grown:
            recipe = _filling(recipe, minutes, trainer_of, is_resumed=is_resumed)
            if ranks.is_first and not quiet:
                say(what_fits(recipe, minutes))
        if ranks.is_first and not is_resumed:
            data.write(folder)
        if ranks.is_first and (is_grown or not is_resumed):
            folder.start(recipe)
        if ranks.is_first:
            folder.keep_device(at)
        ranks.wait()
        trainer = trainer_of(recipe)
        held.callback(trainer.close)
        trainer.run(workers=workers, quiet=quiet or tell is not None, is_stopped=is_stopped)
        is_told = is_grown or not is_finished
        if is_told and not quiet and trainer.validation is not None and folder.model_file.exists():
            found = told_verdict(folder.model_file, trainer.validation, folder.metrics(), ranks.device)
            if found is not None:
                say(found)
    return folder


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _filling(recipe: Recipe, minutes: float, trainer_of: Callable[[Recipe], Trainer], *, is_resumed: bool) -> Recipe:
    """The recipe with as many steps, or for a resumed run as many further steps, as fit into the time."""
    with_more = extended if is_resumed else with_steps
    least = 1 if recipe.student is None else recipe.student.halvings
    return with_more(recipe, max(least, steps_in(minutes * 60, trainer_of(with_more(recipe, _TIMED_AS)))))
