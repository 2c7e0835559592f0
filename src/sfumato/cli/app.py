"""The application that commands join, and how their errors are told."""

import contextlib
from collections.abc import Iterator
from typing import Annotated

import typer

from sfumato.system.errors import SfumatoError
from sfumato.system.version import __version__

__all__ = ["app", "plain_errors"]

app = typer.Typer(
    name="sfumato",
    help="Restore scientific images with conditional variational diffusion models.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
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


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Errors that a user can mend are printed as one text, without a traceback."""
    try:
        yield
    except SfumatoError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except ImportError as error:
        if "sfumato[" not in str(error):  # only those that name the extra to install are for users
            raise
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as interrupt:
        typer.echo(str(interrupt) or "interrupted", err=True)
        raise typer.Exit(130) from None
