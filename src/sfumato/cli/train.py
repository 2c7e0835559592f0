"""`sfumato train`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.arguments import Device
from sfumato.cli.settings import places, recipe_of

__all__ = ["train"]


def train(
    recipe: Annotated[
        Path | None, typer.Argument(metavar="RECIPE", help="Recipe in YAML; by default, the default recipe.")
    ] = None,
    inputs: Annotated[str | None, typer.Option(help="Folder of inputs, the measured images.")] = None,
    targets: Annotated[str | None, typer.Option(help="Folder of targets, with the same file names.")] = None,
    manifest: Annotated[str | None, typer.Option(help="Instead of folders, a CSV that lists pairs and splits.")] = None,
    folder: Annotated[str | None, typer.Option(help="Data set of the recipe's problem, such as BioSR.")] = None,
    store: Annotated[str | None, typer.Option(help="Instead of all these, a store written by `sfumato pack`.")] = None,
    out: Annotated[Path, typer.Option(help="Run folder; a run of the same recipe in it is resumed.")] = Path("run"),
    minutes: Annotated[float | None, typer.Option(help="Train as many steps as fit into this time.")] = None,
    device: Device = "cpu",
    start_from: Annotated[Path | None, typer.Option("--from", help="Model file whose weights to start from.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any field of the recipe, such as train.steps=1000.")
    ] = None,
) -> None:
    """Train a model on image pairs. If interrupted, rerun the command to resume."""
    from sfumato.training.train import train as run

    given = {"inputs": inputs, "targets": targets, "manifest": manifest, "folder": folder, "store": store}
    chosen = recipe_of(recipe, [*places(given), *(settings or [])])
    trained = run(chosen, out, device=device, minutes=minutes, start_from=start_from)
    if os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0":
        typer.echo(f"trained: {trained.model_file}", err=True)
