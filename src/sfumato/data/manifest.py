"""Read a manifest, a CSV file of image pairs with optional splits; errors name the line of a bad entry."""

import csv
import difflib
import sys
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

from sfumato.data.images.links import file_key
from sfumato.system.errors import PairingError

__all__ = ["SPLITS", "Row", "read_rows"]

SPLITS = ("train", "validation", "test")
_COLUMNS = ("input", "target", "split")
_SPELT_LIKE = 0.8
"""A column name at least this similar to a known one counts as misspelt."""


class Row(NamedTuple):
    """A pair as listed in the manifest."""

    line: int
    name: str
    """Path of the input, as written."""
    input: Path
    target: Path
    split: str


def read_rows(path: Path) -> list[Row]:
    """Read a CSV with the columns ``input``, ``target`` and optionally ``split``.

    Paths are relative to the manifest's folder and must stay inside it. Other columns are skipped with a note.

    Raises:
        PairingError: If the manifest cannot be read, a column looks misspelt, a row is incomplete, a file is in two
            splits or is both input and target, a pair is listed twice, or only some rows have a split.
    """
    (_, header), *lines = _read(path) or [(1, [])]
    columns = _columns(path, header, [cells for _, cells in lines])
    if not lines or not {"input", "target"} <= columns.keys():
        raise PairingError(
            f"the manifest {path} has {', '.join(header) or 'nothing'}; expected rows under the columns "
            "input,target[,split]"
        )
    rows = [_row(path, line, cells, len(header), columns) for line, cells in lines]
    _check_marks(path, rows)
    _check_repeats(path, rows)
    if others := [name for name in header if name.strip() and name not in columns]:
        print(f"note: {path}: the columns {', '.join(others)} are not used", file=sys.stderr)
    return rows


def _read(path: Path) -> list[tuple[int, list[str]]]:
    """Return the lines that are not empty, each with its number."""
    if path.exists() and not path.is_file():  # opening a pipe would block forever
        raise PairingError(f"the manifest {path} is not a file; give the path of a CSV text file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write a byte-order mark
            reader = csv.reader(file)
            return [(reader.line_num, cells) for cells in reader if any(map(str.strip, cells))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PairingError(f"cannot read the manifest {path}: {error}; give the path of a CSV text file") from error


def _columns(path: Path, header: Sequence[str], lines: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return the positions of the known columns; refuse other columns that look like misspelt ones."""
    columns: dict[str, int] = {}
    for place, name in enumerate(header):
        if name in columns:
            raise PairingError(f"{path}, line 1: the column {name!r} appears twice; keep one of them")
        if name in _COLUMNS:
            columns[name] = place
            continue
        near = difflib.get_close_matches(name.strip().casefold(), _COLUMNS, n=1, cutoff=_SPELT_LIKE)
        values = {cells[place].strip() for cells in lines if place < len(cells)} - {""}
        if near or (values and values <= {*SPLITS}):
            why = f"looks like {near[0]!r}" if near else f"has {', '.join(sorted(values))}, which are splits"
            raise PairingError(
                f"{path}, line 1: the column {name!r} {why}; expected the columns input,target[,split]; rename it, or "
                "remove it"
            )
    return columns


def _row(path: Path, line: int, cells: Sequence[str], width: int, columns: dict[str, int]) -> Row:
    if any(map(str.strip, cells[width:])):
        raise PairingError(
            f"{path}, line {line}: there are {len(cells)} values under {width} columns; expected as many; put names "
            "with commas in quotes"
        )
    told = {name: cells[place] if place < len(cells) else "" for name, place in columns.items()}
    split = told.get("split", "").strip()
    if split and split not in SPLITS:
        raise PairingError(f"{path}, line {line}: split is {split!r}; choose one of {', '.join(SPLITS)}, or none")
    condition, target = (_inside(path, told[side], line) for side in ("input", "target"))
    return Row(line, told["input"], condition, target, split)


def _inside(manifest: Path, name: str, line: int) -> Path:
    if not name:
        raise PairingError(f"{manifest}, line {line}: a path is empty; give input and target on every line")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise PairingError(
            f"{manifest}, line {line}: {name!r} leaves the manifest's folder; give paths inside it, relative to it"
        )
    if not (found := manifest.parent / name).exists():
        raise PairingError(f"{manifest}, line {line}: {name!r} does not exist beside the manifest; check the name")
    return found


def _check_marks(path: Path, rows: Sequence[Row]) -> None:
    """Refuse manifests in which only some rows have a split: the other rows would never be used."""
    marked, unmarked = ([row.line for row in rows if bool(row.split) is has_one] for has_one in (True, False))
    if marked and unmarked:
        raise PairingError(
            f"{path}, line {unmarked[0]}: there is no split, and line {marked[0]} has one; expected a split on all "
            f"lines or on none; fill in the {len(unmarked)} that lack it"
        )


def _check_repeats(path: Path, rows: Sequence[Row]) -> None:
    """Refuse files that are in several splits, under whatever names, and pairs that are listed twice."""
    files: dict[Hashable, tuple[Row, Path]] = {}
    pairs: dict[Hashable, Row] = {}
    for row in rows:
        keys = file_key(row.input), file_key(row.target)
        if keys[0] == keys[1]:
            raise PairingError(
                f"{path}, line {row.line}: {row.input.name} and {row.target.name} are the same file, as input and "
                "target; expected two images of one field; correct the line"
            )
        for key, file in zip(keys, (row.input, row.target), strict=True):
            earlier, name = files.setdefault(key, (row, file))
            if earlier.split != row.split:
                raise PairingError(
                    f"{path}, line {row.line}: {_also(file, name)} is in {row.split!r}, and on line {earlier.line} in "
                    f"{earlier.split!r}; expected every image in one split; keep one of the lines"
                )
        if (first := pairs.setdefault(keys, row)) is not row:
            raise PairingError(
                f"{path}, line {row.line}: the pair {row.name!r} is on line {first.line} already; remove one of them"
            )


def _also(file: Path, other: Path) -> str:
    return str(file.name) if file == other else f"{file.name} (also {other.name})"
