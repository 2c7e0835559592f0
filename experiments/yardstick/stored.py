"""Figures of cells: one line per test image and metric, in a CSV per problem, and learning curves beside them."""

from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from yardstick.cells import Cell
from yardstick.rows import read_rows, write_rows

__all__ = ["RESULTS", "Figure", "Figures", "curves", "figures", "is_stored", "store", "store_curve"]

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


class Figures(list[Figure]):
    """All figures of a problem, with an index: tables look for some of them thousands of times."""

    @cached_property
    def by_contender(self) -> dict[tuple[str, float, str], list[Figure]]:
        """Those of each contender, minutes and metric."""
        found: dict[tuple[str, float, str], list[Figure]] = {}
        for figure in self:
            found.setdefault((figure.contender, figure.minutes, figure.metric), []).append(figure)
        return found


class Point(NamedTuple):
    """A point of a learning curve."""

    problem: str
    contender: str
    minutes: float
    seed: int
    cpu_seconds: float
    validation: float


def figures(problem: str, results: Path = RESULTS) -> Figures:
    """All that is stored of a problem; read once, not to be changed."""
    path = results / f"{problem}.csv"
    return _read(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=8)  # while cells are stored, each state is read
def _read(path: Path, changed_ns: int) -> Figures:
    return Figures(read_rows(path, Figure))


def curves(results: Path = RESULTS) -> list[Point]:
    """All learning curves."""
    return read_rows(results / "curves.csv", Point)


def is_stored(cell: Cell) -> bool:
    """Whether the figures of a cell are stored."""
    return any(figure[:3] == (cell.contender, cell.minutes, cell.seed) for figure in figures(cell.problem))


def store(cell: Cell, found: Iterable[Figure], results: Path = RESULTS) -> None:
    """Replace the figures of a cell."""
    own = (cell.contender, cell.minutes, cell.seed)
    kept = [figure for figure in figures(cell.problem, results) if figure[:3] != own]
    _write(results / f"{cell.problem}.csv", Figure, [*kept, *found])


def store_curve(cell: Cell, points: Iterable[tuple[float, float]], results: Path = RESULTS) -> None:
    """Replace the learning curve of a cell."""
    own = (cell.problem, cell.contender, cell.minutes, cell.seed)
    kept = [point for point in curves(results) if point[:4] != own]
    _write(results / "curves.csv", Point, [*kept, *(Point(*own, *point) for point in points)])


def _write(path: Path, kind: type[NamedTuple], rows: Iterable[tuple[object, ...]]) -> None:
    """In the order of their texts, which is that of every file stored so far."""
    write_rows(path, kind, sorted(rows, key=lambda row: [f"{x:.5g}" if isinstance(x, float) else str(x) for x in row]))
