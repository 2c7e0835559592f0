"""Pass the relevant part of a recipe to a problem, and check its `forward` parameters."""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sfumato.system.errors import PairingError, RecipeError

__all__ = ["ForwardParameters", "Request", "check_folder", "keywords", "parameters"]

ForwardParameters = Mapping[str, float | Sequence[float]]
"""Parameters by name with units, such as `pixel_um`; lists where a parameter has several values."""
Settings = TypeVar("Settings")


@dataclass(frozen=True, kw_only=True)
class Request:
    """The part of a recipe that is passed to a problem.

    Attributes:
        folder: Folder of the data set.
        forward: Parameters of the forward model.
        seed: Seed of everything random.
        validation_fraction: Share of the images kept for validation if the data set has no split of its own.
        upsample: Upsample conditions on a coarser grid to the targets' grid.
        cache_bytes: Largest amount of decoded data kept in memory, per split.
    """

    folder: Path
    forward: ForwardParameters = field(default_factory=dict)
    seed: int = 0
    validation_fraction: float = 0.1
    upsample: bool = False
    cache_bytes: int = 2**31


def parameters(kind: type[Settings], forward: ForwardParameters) -> Settings:
    """Make the settings of a problem, a dataclass with defaults, from the parameters in a recipe.

    Raises:
        RecipeError: If a name is unknown or a value is invalid.
    """
    values = keywords(kind, forward)
    try:
        return kind(**values)
    except ValueError as error:
        raise RecipeError(f"forward: {error}") from error


def keywords(function: Callable[..., object], forward: ForwardParameters) -> dict[str, Any]:
    """Return the parameters in a recipe as the keyword arguments of a function, in the types of its defaults.

    A parameter must be a whole number if its default is one, and a list if its default is a tuple.

    Raises:
        RecipeError: If a name is unknown or a value has the wrong type.
    """
    found = inspect.signature(function).parameters.values()
    defaults = {p.name: p.default for p in found if p.kind is p.KEYWORD_ONLY}
    for name in forward:
        if name not in defaults:
            near = difflib.get_close_matches(name, defaults, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(defaults) or 'none'}"
            raise RecipeError(f"forward has no parameter {name!r}; {hint}")
    return {name: _like(defaults[name], name, value) for name, value in forward.items()}


def _like(default: object, name: str, value: float | Sequence[float]) -> object:
    if isinstance(default, tuple) != isinstance(value, Sequence):
        wanted = "a list of numbers" if isinstance(default, tuple) else "one number"
        raise RecipeError(f"forward.{name} is {value!r}; expected {wanted}, such as {default}")
    if isinstance(value, Sequence):
        return tuple(float(item) for item in value)
    if isinstance(default, int) and not isinstance(default, bool):
        if value != int(value):
            raise RecipeError(f"forward.{name} is {value}; expected a whole number, such as {default}")
        return int(value)
    return float(value)


def check_folder(folder: Path, *, expected: str) -> None:
    """Check that a folder exists.

    Raises:
        PairingError: If it does not; the message says what was expected.
    """
    if not folder.is_dir():
        raise PairingError(f"the folder {folder} does not exist; expected {expected}; set data.folder to its path")
