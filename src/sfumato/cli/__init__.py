"""The command line, one file per command; it parses arguments, calls the library and prints the results.

No module here imports torch at the top, so ``--help`` and ``--version`` answer at once.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from typer import Option

from sfumato.cli.audit import audit
from sfumato.cli.calibrate import calibrate
from sfumato.cli.clinical import clinical
from sfumato.cli.demo import demo
from sfumato.cli.distill import distill
from sfumato.cli.doctor import doctor
from sfumato.cli.evaluate import evaluate
from sfumato.cli.export import export
from sfumato.cli.inspect import inspect
from sfumato.cli.pack import pack
from sfumato.cli.restore import restore
from sfumato.cli.simulate import microscopy
from sfumato.cli.sweep import sweep
from sfumato.cli.train import train
from sfumato.system.device import keep_freed_memory
from sfumato.system.errors import SfumatoError
from sfumato.system.version import __version__

__all__ = ["app", "main"]

app = typer.Typer(
    name="sfumato",
    help="Restore scientific images with conditional variational diffusion models.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_simulate = typer.Typer(help="Write simulated image pairs with known truth.", no_args_is_help=True)
_simulate.callback()(lambda: None)  # makes it a group, although it has only one command so far


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sfumato {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Print errors that a user can fix as one message, without a traceback."""
    try:
        yield
    except (SfumatoError, ImportError) as error:
        if isinstance(error, ImportError) and "sfumato[" not in str(error):
            raise  # only import errors that name the extra to install are meant for users
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as interrupt:
        typer.echo(str(interrupt) or "interrupted", err=True)
        raise typer.Exit(130) from None


# In the order of --help.
_COMMANDS = (demo, train, restore, calibrate, evaluate, audit, inspect, distill, export, pack, sweep, clinical, doctor)
for _command in _COMMANDS:
    app.command()(_plain_errors()(_command))
_simulate.command()(_plain_errors()(microscopy))
app.add_typer(_simulate, name="simulate")


def main() -> None:
    """Run the command line."""
    keep_freed_memory()  # only here: as a library, sfumato must not change settings of somebody else's process
    app(prog_name="sfumato", args=sys.argv[1:])
