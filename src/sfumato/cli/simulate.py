"""`sfumato simulate`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from sfumato.cli.app import plain_errors

__all__ = ["simulations"]


simulations = typer.Typer(help="Write simulated image pairs with known truth.", no_args_is_help=True)


@simulations.callback()
def _simulations() -> None:
    pass


@simulations.command()
def microscopy(
    out: Annotated[Path, typer.Option(help="Folder to make.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same images.")] = 0,
    layout: Annotated[Literal["pairs", "biosr"], typer.Option(help="TIFF pairs with a manifest, or BioSR's MRC.")] = (
        "pairs"
    ),
    side: Annotated[int, typer.Option(help="Pixels of the widefield images; the targets have twice as many.")] = 128,
    train: Annotated[int, typer.Option(help="Fields per structure for training, at most 30.")] = 6,
    validation: Annotated[int, typer.Option(help="For validation, at most 5.")] = 2,
    test: Annotated[int, typer.Option(help="For testing, at most 15.")] = 2,
) -> None:
    """Widefield and SIM images of coated pits, reticulum, microtubules and F-actin, at nine levels of light."""
    with plain_errors():
        from sfumato.problems.microscopy_simulation import simulate
        from sfumato.system.progress import Bar

        with Bar("simulating", 0) as bar:
            made = simulate(
                out,
                seed=seed,
                cells={"train": train, "validation": validation, "test": test},
                side=side,
                layout=layout,
                progress=lambda done, total: bar.show(done, "fields", total=total),
            )
        option = "--manifest" if layout == "pairs" else "--folder"
        typer.echo(f"simulated: {made}; train on it with {option} {made}", err=True)
