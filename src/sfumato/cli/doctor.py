"""`sfumato doctor`."""

from typing import Annotated

import typer
from typer import Argument

__all__ = ["doctor"]


def doctor(
    model: Annotated[
        str, Argument(metavar="[MODEL]", help="Model file; profiles its networks instead.", show_default=False)
    ] = "",
) -> None:
    """Print versions, devices, speed and the missing libraries of each extra.

    With a model, print how long one call of its networks takes on this machine's CPU and where the time goes.
    """
    if model:
        from sfumato.cli.doctor_profile import profiles
        from sfumato.models.model_file import load

        for profile in profiles(load(model, device="cpu")):
            for line in profile.lines():
                typer.echo(line)
        return
    from sfumato.cli.doctor_report import examine

    for line in examine().lines():
        typer.echo(line)
