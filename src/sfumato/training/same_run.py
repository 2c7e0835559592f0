"""Check that a resumed run is the same run: its recipe, and the files that it trains on."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from sfumato.data.source_files import FileRecord, files_of
from sfumato.data.sources import PairSource
from sfumato.models.recipe import Recipe
from sfumato.system.atomic_files import replace_text
from sfumato.system.errors import RunError
from sfumato.training.measured_recipe import as_before, with_scale, with_steps
from sfumato.training.run_folder import RunFolder

__all__ = ["check_inputs", "is_of_run", "is_run_of", "same_recipe"]

_MOST_FILES = 100_000
"""Of a larger set, this many files are recorded, spread evenly: reading a part of every file would take hours."""


def same_recipe(folder: RunFolder, recipe: Recipe, minutes: float | None) -> Recipe:
    """The recipe to train with: the folder's own, if it holds a run of the same recipe.

    Args:
        folder: Folder of the run, which may not exist yet.
        recipe: The recipe that was given.
        minutes: The time that was given, if any: the steps that fit into it are the ones of the run.

    Raises:
        RunError: If the folder holds a run of another recipe.
    """
    held = folder.recipe()
    if held is None:
        return recipe
    if not is_run_of(folder, recipe, minutes):
        raise RunError(
            f"{folder.path} holds a run of another recipe (its recipe.yaml differs from the given one); "
            "choose another --out, or give that recipe to resume it"
        )
    return held


def is_run_of(folder: RunFolder, recipe: Recipe, minutes: float | None) -> bool:
    """Whether the folder holds a run of a recipe; arguments as of :func:`same_recipe`."""
    held = folder.recipe()
    if held is None:
        return False
    if recipe.model.scale is None:
        recipe = with_scale(recipe, held.model.scale)
    began = as_before(held)
    return recipe in (held, began) or (minutes is not None and with_steps(recipe, began.train.steps) == began)


def is_of_run(model: str | Path, recipe: Recipe) -> bool:
    """Whether a model file is in the folder of a run that has the same pairs as the model's recipe."""
    folder = RunFolder(Path(model).parent)
    held = folder.recipe() if folder.model_file == Path(model) and folder.statistics_file.exists() else None
    return held is not None and held.data == recipe.data


def check_inputs(folder: RunFolder, sources: Mapping[str, PairSource], *, is_resumed: bool) -> None:
    """Refuse to resume a run whose files have changed; record the files of a new run, or of a run without a record.

    Args:
        folder: Folder of the run.
        sources: Training data, by split.
        is_resumed: Whether the run exists already.

    Raises:
        RunError: If files were replaced, removed or added; it names them.
    """
    files = files_of(sources)
    if is_resumed and folder.inputs_file.exists():
        differences = _record(folder).differences(files)
        if differences:
            raise RunError(
                f"{folder.path} was started with other images ({differences}); expected the same ones; put them back "
                "to resume it, or start a new run with another --out"
            )
        return
    if is_resumed:
        _note(f"{folder.path} does not say which images it was started with; the current ones are recorded now")
    if len(files) > _MOST_FILES:
        _note(f"of {len(files):,} image files, {_MOST_FILES:,} are compared when the run is resumed")
    record = FileRecord.of(files, most=_MOST_FILES)
    text = json.dumps(record.to_json(), separators=(",", ":"), ensure_ascii=False)
    replace_text(folder.inputs_file, text, untouched="No record of the images was written")


def _record(folder: RunFolder) -> FileRecord:
    try:
        return FileRecord.from_json(json.loads(folder.inputs_file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise RunError(
            f"{folder.inputs_file} could not be read ({error}); expected the record that the run wrote; if you are "
            "sure that its images are the same, remove this file"
        ) from error


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)
