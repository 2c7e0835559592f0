"""What commands say where they cannot tell whether a model has seen the images that it is judged by."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sfumato.models.model_file import ModelInfo

__all__ = ["say_what_is_unknown"]


def say_what_is_unknown(models: "Iterable[tuple[object, ModelInfo]]") -> None:
    """A line for each model, given with its name, that does not know all images of its training."""
    for name, info in models:
        if info.seen is None:
            typer.echo(
                f"note: {name} does not say what it was trained on (earlier versions did not note it), so whether it "
                "has seen these images cannot be checked",
                err=True,
            )
        elif info.seen.num_hashed < info.seen.num_pairs:
            typer.echo(
                f"note: {name} knows {info.seen.num_hashed} of the {info.seen.num_pairs} pairs that it was trained and "
                "validated on, so some of these images may be among the others",
                err=True,
            )
