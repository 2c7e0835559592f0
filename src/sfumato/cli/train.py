"""`sfumato train`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from sfumato.cli import arguments
from sfumato.cli.messages import say
from sfumato.cli.settings import places, recipe_of
from sfumato.models.presets import Preset, preset_for

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
    minutes: Annotated[float | None, Option(help="Train as many steps as fit into this time.")] = None,
    preset: Annotated[
        Preset | None,
        Option(
            help="Size of the model: small for minutes, default for half an hour or more, large for a GPU. Without "
            "a recipe, small if --minutes is less than 10, and default otherwise."
        ),
    ] = None,
    device: arguments.Device = "cpu",
    workers: arguments.BatchWorkers = None,
    start_from: Annotated[Path | None, Option("--from", help="Model file whose weights to start from.")] = None,
    settings: arguments.RecipeFields = None,
) -> None:
    """Train a model on image pairs. If interrupted, rerun the command to resume."""
    from sfumato.training.distributed import is_first_process
    from sfumato.training.run_folder import RunFolder
    from sfumato.training.same_run import is_run_of
    from sfumato.training.train import train as run

    given = {"inputs": inputs, "targets": targets, "manifest": manifest, "folder": folder, "store": store}
    fields = [*places(given), *(settings or [])]
    usual = preset_for(minutes) if recipe is None else None
    chosen = recipe_of(recipe, fields, preset=preset or usual)
    if preset is None and is_run_of(RunFolder(out), before := recipe_of(recipe, fields), minutes):
        chosen = before  # begun by version 0.1, which had no presets
    elif recipe is None and chosen.model.ndim == 3:
        deeper = recipe_of(None, [*_FIVE_SCALES, *fields], preset=preset or usual)
        if is_run_of(RunFolder(out), deeper, minutes):
            chosen = deeper  # begun when volumes had as many scales as images
    trained = run(chosen, out, device=device, workers=workers, minutes=minutes, start_from=start_from)
    if is_first_process():
        say(f"trained: {trained.model_file}")
