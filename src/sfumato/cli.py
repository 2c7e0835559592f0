"""The command line: parses, calls, prints; no science.

Nothing here imports torch at the top, so ``--help`` and ``--version`` answer at once.
"""

from typing import Annotated

import typer

from sfumato import __version__

__all__ = ["app", "main"]

app = typer.Typer(
    name="sfumato",
    help="Restore scientific images with conditional variational diffusion models.",
    add_completion=False,
    no_args_is_help=True,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sfumato {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    app()
