"""`sfumato train`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from sfumato.cli import arguments
from sfumato.cli.messages import say
from sfumato.cli.settings import places, recipe_of
from sfumato.models.presets import PRESETS, Preset, preset_for

if TYPE_CHECKING:
    from sfumato.models.recipe import Recipe

__all__ = ["train"]

_FIVE_SCALES = ("model.num_scales=5", "model.denoiser_scales=4")


def train(
    recipe: Annotated[
        Path | None, Argument(metavar="RECIPE", help="Recipe in YAML; by default, only the preset's fields are set.")
    ] = None,
    inputs: arguments.Inputs = None,
    targets: arguments.Targets = None,
    manifest: arguments.Manifest = None,
    folder: arguments.DataFolder = None,
    store: Annotated[str | None, Option(help="Instead of all these, a store written by `sfumato pack`.")] = None,
    out: Annotated[Path, Option(help="Run folder; a run of the same recipe in it is resumed.")] = Path("run"),
    minutes: Annotated[
        float | None, Option(help="Train as many steps as fit into this time; a finished run is extended by as many.")
    ] = None,
    preset: Annotated[
        Preset | None,
        Option(
            help="Size of the model: small for minutes, default for half an hour or more, large for a GPU. Without "
            "a recipe, small if --minutes is less than 10, and default otherwise."
        ),
    ] = None,
    device: arguments.Device = "auto",
    workers: arguments.BatchWorkers = None,
    start_from: Annotated[Path | None, Option("--from", help="Model file whose weights to start from.")] = None,
    settings: arguments.RecipeFields = None,
) -> None:
    """Train a model on image pairs. If interrupted, rerun the command to resume."""
    from sfumato.training.distributed import is_first_process
    from sfumato.training.train import train as run

    given = {"inputs": inputs, "targets": targets, "manifest": manifest, "folder": folder, "store": store}
    fields = [*places(given), *(settings or [])]
    usual = preset_for(minutes) if recipe is None else None
    chosen = _as_begun(recipe, fields, preset, preset or usual, out, minutes)
    trained = run(chosen, out, device=device, workers=workers, minutes=minutes, start_from=start_from)
    if is_first_process():
        say(f"trained: {trained.model_file}")


def _as_begun(
    path: Path | None, fields: list[str], given: Preset | None, preset: Preset | None, out: Path, minutes: float | None
) -> "Recipe":
    """The recipe with which the run in a folder was begun, if these options allow it; otherwise that of a new run."""
    from sfumato.training.run_folder import RunFolder
    from sfumato.training.same_run import is_run_of

    new = recipe_of(path, fields, preset=preset)
    others = []
    if given is None:
        others.append(recipe_of(path, fields))  # begun by version 0.1, which had no presets
    if path is None and given is None:  # begun with another preset, or another time
        others += [recipe_of(None, fields, preset=other) for other in PRESETS if other != preset]
    if path is None and new.model.ndim == 3:  # begun when volumes had as many scales as images
        others.append(recipe_of(None, [*_FIVE_SCALES, *fields], preset=preset))
    return next((recipe for recipe in others if is_run_of(RunFolder(out), recipe, minutes)), new)
