"""What commands print on stderr: notes, results in one line, and progress."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sfumato.models.model_file import ModelInfo

__all__ = ["counting", "say", "say_device", "say_what_is_unknown"]


def say_device(asked: str) -> str:
    """Return the device to use; if it was not asked for, say which it is."""
    from sfumato.system.device import AUTO, named_device, told_device

    name = named_device(asked)
    if asked == AUTO:
        say(told_device(name))
    return name


def say(text: object) -> None:
    """Print a line on stderr; stdout is for results that other programs may read."""
    typer.echo(text, err=True)


@contextlib.contextmanager
def counting(title: str, things: str) -> Iterator[Callable[[int, int], None]]:
    """Show progress, and yield a function to call with the number of things done and their total."""
    from sfumato.system.progress import Bar

    with Bar(title, 0) as bar:
        yield lambda done, total: bar.show(done, things, total=total)


def say_what_is_unknown(models: "Iterable[tuple[object, ModelInfo]]") -> None:
    """Print a note for each model that does not record all of its training images.

    Args:
        models: Pairs of a model's name and its info.
    """
    for name, info in models:
        if info.seen is None:
            say(
                f"note: {name} does not say what it was trained on (earlier versions did not record it), so we cannot "
                "check whether it has seen these images"
            )
        elif info.seen.num_hashed < info.seen.num_pairs:
            say(
                f"note: {name} records {info.seen.num_hashed} of the {info.seen.num_pairs} pairs that it was trained "
                "and validated on, so some of these images may be among the others"
            )
