"""Pass the relevant part of a recipe to a problem, and check its `forward` parameters."""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sfumato.data.pairs import SPLITS, Pair
from sfumato.data.sources import FilePairs, PairSource
from sfumato.system.errors import PairingError, RecipeError

__all__ = ["Forward", "Request", "check_folder", "parameters", "sources"]

Forward = Mapping[str, float | Sequence[float]]
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
    forward: Forward = field(default_factory=dict)
    seed: int = 0
    validation_fraction: float = 0.1
    upsample: bool = False
    cache_bytes: int = 2**31


def parameters(kind: type[Settings], forward: Forward) -> Settings:
    """Make the settings of a problem, a dataclass with defaults, from the parameters in a recipe.

    A parameter must be a whole number if its default is one, and a list if its default is a tuple.

    Raises:
        RecipeError: If a name is unknown or a value has the wrong type.
    """
    fields = {f.name: f.default for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in forward.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(fields) or 'none'}"
            raise RecipeError(f"forward has no parameter {name!r}; {hint}")
        values[name] = _like(fields[name], name, value)
    try:
        return kind(**values)
    except ValueError as error:
        raise RecipeError(f"forward: {error}") from error


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


def sources(pairs: Sequence[Pair], request: Request) -> dict[str, PairSource]:
    """Open the pairs of each split; pairs without a split are left out."""
    parts = {split: [pair for pair in pairs if pair.split == split] for split in SPLITS}
    return {
        split: FilePairs(part, upsample=request.upsample, cache_bytes=request.cache_bytes)
        for split, part in parts.items()
        if part
    }
