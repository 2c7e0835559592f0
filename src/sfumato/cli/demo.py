"""`sfumato demo`."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from sfumato.cli.messages import say

__all__ = ["demo"]


def demo(
    out: Annotated[Path, Option(help="Folder to create.")] = Path("sfumato-demo"),
) -> None:
    """Restore simulated specimens with the model that comes with sfumato, draw a picture, and score the result."""
    from sfumato.cli.demo_run import run_demo

    done = run_demo(out, progress=say)
    for line in done.lines():
        typer.echo(line)
