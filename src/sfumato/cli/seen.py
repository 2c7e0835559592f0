"""Notes for models that do not record all of their training images."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sfumato.models.model_file import ModelInfo

__all__ = ["say_what_is_unknown"]


def say_what_is_unknown(models: "Iterable[tuple[object, ModelInfo]]") -> None:
    """Print a note for each model that does not record all of its training images.

    Args:
        models: Pairs of a model's name and its info.
    """
    for name, info in models:
        if info.seen is None:
            typer.echo(
                f"note: {name} does not say what it was trained on (earlier versions did not record it), so we cannot "
                "check whether it has seen these images",
                err=True,
            )
        elif info.seen.num_hashed < info.seen.num_pairs:
            typer.echo(
                f"note: {name} records {info.seen.num_hashed} of the {info.seen.num_pairs} pairs that it was trained "
                "and validated on, so some of these images may be among the others",
                err=True,
            )
