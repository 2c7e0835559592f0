"""Figures of cells: one line per test image and metric, in a CSV per problem, and learning curves beside them."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from yardstick.cells import Cell

__all__ = ["RESULTS", "Figure", "curves", "figures", "is_stored", "store", "store_curve"]

RESULTS = Path(__file__).parents[1] / "results" / "per_minute"


class Figure(NamedTuple):
    """One value of one test image."""

    contender: str
    minutes: float
    seed: int
    group: str
    image: str
    metric: str
    value: float


class Point(NamedTuple):
    """A point of a learning curve."""

    problem: str
    contender: str
    minutes: float
    seed: int
    cpu_seconds: float
    validation: float


def figures(problem: str, results: Path = RESULTS) -> list[Figure]:
    """All that is stored of a problem."""
    return [
        Figure(row[0], float(row[1]), int(row[2]), row[3], row[4], row[5], float(row[6]))
        for row in _rows(results / f"{problem}.csv")
    ]


def curves(results: Path = RESULTS) -> list[Point]:
    """All learning curves."""
    return [
        Point(row[0], row[1], float(row[2]), int(row[3]), float(row[4]), float(row[5]))
        for row in _rows(results / "curves.csv")
    ]


def is_stored(cell: Cell) -> bool:
    """Whether the figures of a cell are stored."""
    return any(figure[:3] == (cell.contender, cell.minutes, cell.seed) for figure in figures(cell.problem))


def store(cell: Cell, found: Iterable[Figure], results: Path = RESULTS) -> None:
    """Replace the figures of a cell."""
    own = (cell.contender, cell.minutes, cell.seed)
    kept = [figure for figure in figures(cell.problem, results) if figure[:3] != own]
    _write(results / f"{cell.problem}.csv", Figure._fields, [*kept, *found])


def store_curve(cell: Cell, points: Iterable[tuple[float, float]], results: Path = RESULTS) -> None:
    """Replace the learning curve of a cell."""
    own = (cell.problem, cell.contender, cell.minutes, cell.seed)
    kept = [point for point in curves(results) if point[:4] != own]
    _write(results / "curves.csv", Point._fields, [*kept, *(Point(*own, *point) for point in points)])


def _rows(path: Path) -> list[list[str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def _write(path: Path, names: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(
            sorted([f"{part:.5g}" if isinstance(part, float) else str(part) for part in row] for row in rows)
        )
