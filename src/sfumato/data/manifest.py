"""A manifest: a CSV that lists pairs and, if wanted, their splits; what it says twice or half is refused by line."""

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
"""From this likeness on, a column's name is taken for a misspelt one."""


class Row(NamedTuple):
    """A pair as it is listed."""

    line: int
    name: str
    """Of the input, as written."""
    input: Path
    target: Path
    split: str


def read_rows(path: Path) -> list[Row]:
    """Read a CSV with the columns ``input``, ``target`` and, if wanted, ``split``.

    Paths are relative to the manifest's folder and cannot leave it. Other columns are skipped, and a note says so.

    Raises:
        PairingError: If it cannot be read, a column looks misspelt, a row is not whole, one file is in two splits or
            is input and target at once, a pair is listed twice, or some rows have a split and others have none.
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
    """Lines that hold something, each with its number."""
    if path.exists() and not path.is_file():  # a pipe would wait for ever to be opened
        raise PairingError(f"the manifest {path} is no file; give the path of a CSV text file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets put a byte-order mark
            reader = csv.reader(file)
            return [(reader.line_num, cells) for cells in reader if any(map(str.strip, cells))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PairingError(f"cannot read the manifest {path}: {error}; give the path of a CSV text file") from error


def _columns(path: Path, header: Sequence[str], lines: Sequence[Sequence[str]]) -> dict[str, int]:
    """Where the known columns are, once no other looks as if it were meant for one of them."""
    columns: dict[str, int] = {}
    for place, name in enumerate(header):
        if name in columns:
            raise PairingError(f"{path}, line 1: the column {name!r} is there twice; keep one of them")
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
    """Rows without a split beside others that have one would be left out of everything."""
    marked, unmarked = ([row.line for row in rows if bool(row.split) is has_one] for has_one in (True, False))
    if marked and unmarked:
        raise PairingError(
            f"{path}, line {unmarked[0]}: there is no split, and line {marked[0]} has one; expected a split on all "
            f"lines or on none; fill in the {len(unmarked)} that lack it"
        )


def _check_repeats(path: Path, rows: Sequence[Row]) -> None:
    """Whatever a file is called, it may be in one split only, and each pair once."""
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
