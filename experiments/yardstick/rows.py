"""Named tuples as lines of a CSV file: the figures that experiments store."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

__all__ = ["read_rows", "write_rows"]

AnyRow = TypeVar("AnyRow", bound=NamedTuple)


def read_rows(path: Path, kind: type[AnyRow]) -> list[AnyRow]:
    """The lines of a file, its cells converted to the types of the tuple's fields; none where there is no file."""
    if not path.exists():
        return []
    types: list[Any] = list(kind.__annotations__.values())
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))[1:]
    rows = []
    for number, line in enumerate(lines, 2):
        try:
            rows.append(kind(*(each(cell) for each, cell in zip(types, line, strict=True))))
        except ValueError as error:
            wanted = ", ".join(kind._fields)
            raise ValueError(
                f"line {number} of {path} is {','.join(line)!r}; expected {wanted}; the file is damaged, restore it"
            ) from error
    return rows


def write_rows(path: Path, kind: type[NamedTuple], rows: Iterable[tuple[object, ...]]) -> None:
    """Write a line per row below the names of the tuple's fields; numbers have five digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(kind._fields)
        writer.writerows([f"{cell:.5g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows)
