"""`sfumato restore`."""

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.app import plain_errors

__all__ = ["restore"]


def restore(
    model: Annotated[Path, typer.Argument(help="Model file, such as run/model.safetensors.")],
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="Image to restore.")],
    output: Annotated[Path, typer.Argument(help="Where the restored image goes; its suffix is the format.")],
    samples: Annotated[int, typer.Option(help="Draws; their mean is the result, their spread the uncertainty.")] = 16,
    steps: Annotated[int | None, typer.Option(help="Network calls per draw; the recipe's by default.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.")] = 0,
    axes: Annotated[str | None, typer.Option(help="Axes of the input out of STCZYX, if it does not say.")] = None,
    picture: Annotated[Path | None, typer.Option(help="PNG to draw: measured, restored, uncertainty.")] = None,
    on_target_grid: Annotated[bool, typer.Option(help="The input was enlarged to the targets' grid already.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
) -> None:
    """Restore an image; writes its mean and, beside it, its standard deviation."""
    with plain_errors():
        from sfumato.model_file import load
        from sfumato.progress import Bar
        from sfumato.restoration.file import restore_file

        with Bar("restoring", 0) as bar:
            mean, std = restore_file(
                load(model, device=device),
                source,
                output,
                axes=axes,
                num_samples=samples,
                num_steps=steps,
                seed=seed,
                picture=picture,
                on_target_grid=on_target_grid,
                progress=lambda done, total: bar.show(done, "draws", total=total),
            )
        typer.echo(f"restored: {mean}, uncertainty: {std or 'none, since this model is a regression'}", err=True)
