"""`sfumato inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.app import plain_errors

__all__ = ["inspect"]


def inspect(
    model: Annotated[Path, typer.Argument(help="Model file, such as run/model.safetensors.")],
    source: Annotated[
        Path | None, typer.Argument(metavar="[IMAGE]", help="Image to show schedule and samples of.")
    ] = None,
    target: Annotated[Path | None, typer.Option(help="Its truth, if known.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("inspection"),
    samples: Annotated[int, typer.Option(help="Draws; the paper has 20.")] = 20,
    steps: Annotated[int | None, typer.Option(help="Network calls per draw; the recipe's by default.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same draws.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
) -> None:
    """Look into a model: diagrams of its networks and, for an image, its schedule, samples and their spread."""
    with plain_errors():
        from sfumato.inspection import describe, draw_diagrams, draw_posterior, read_image
        from sfumato.model_file import load

        loaded = load(model, device=device)
        for line in describe(loaded):
            typer.echo(line)
        paths = draw_diagrams(loaded, out)
        if source is not None:
            measured, truth = read_image(loaded, source, target)
            paths += draw_posterior(
                loaded, measured, out, target=truth, num_samples=samples, num_steps=steps, seed=seed
            )
        typer.echo(f"drawn: {', '.join(map(str, paths))}", err=True)
