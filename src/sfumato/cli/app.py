"""The Typer application that the commands register with, and how errors are printed."""

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
    """Print errors that a user can fix as one message, without a traceback."""
    try:
        yield
    except SfumatoError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except ImportError as error:
        if "sfumato[" not in str(error):  # only errors that name the extra to install are meant for users
            raise
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as interrupt:
        typer.echo(str(interrupt) or "interrupted", err=True)
        raise typer.Exit(130) from None
