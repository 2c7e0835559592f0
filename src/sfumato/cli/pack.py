"""`sfumato pack`."""

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.app import plain_errors
from sfumato.cli.settings import places, recipe_of

__all__ = ["pack"]


def pack(
    recipe: Annotated[
        Path | None, typer.Argument(metavar="RECIPE", help="Recipe in YAML, whose `data` section is packed.")
    ] = None,
    inputs: Annotated[str | None, typer.Option(help="Folder of what was measured.")] = None,
    targets: Annotated[str | None, typer.Option(help="Folder of what is sought, with the same names.")] = None,
    manifest: Annotated[str | None, typer.Option(help="In their place, a CSV that lists pairs and splits.")] = None,
    folder: Annotated[str | None, typer.Option(help="Data set of the recipe's problem, such as BioSR.")] = None,
    out: Annotated[Path, typer.Option(help="Store to write.")] = Path("pairs.zarr"),
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any field of the recipe, such as data.upsample=true.")
    ] = None,
) -> None:
    """Write image pairs into one sharded Zarr store, for training from many nodes.

    If interrupted, run the same command again to resume.
    """
    with plain_errors():
        from sfumato.data.pack import pack as write
        from sfumato.preparation import open_sources
        from sfumato.progress import Bar

        given = {"inputs": inputs, "targets": targets, "manifest": manifest, "folder": folder}
        chosen = recipe_of(recipe, [*places(given), *(settings or [])])
        sources = open_sources(chosen, cache_bytes=0)
        with Bar("packing", 0) as bar:
            write(sources, out, progress=lambda done, total: bar.show(done, "shards", total=total))
        counts = ", ".join(f"{len(source)} {split}" for split, source in sources.items())
        typer.echo(f"packed: {out} ({counts} samples)", err=True)
