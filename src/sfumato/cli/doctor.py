"""`sfumato doctor`."""

import typer

__all__ = ["doctor"]


def doctor() -> None:
    """Print versions, devices, speed and the missing libraries of each extra."""
    from sfumato.cli.doctor_report import examine

    for line in examine().lines():
        typer.echo(line)
