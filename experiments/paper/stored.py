"""The figures of measured cells: one small CSV per problem, one row per image and metric."""

import csv
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from paper.matrix import (
    CELLS,
    CVDM_0_1,
    OWN,
    PROBLEMS,
    SAMPLES,
    TRIAL_CROP,
    TRIAL_IMAGES,
    TRIAL_SAMPLES,
    Cell,
    Draw,
    trials,
)
from sfumato.system.atomic_files import replace_text
from sfumato.training.run_folder import RunFolder

__all__ = ["Figures", "Places", "Row", "chosen_settings", "chosen_trial", "expected", "merge", "read", "read_all"]

RESULTS = Path(__file__).parents[1] / "results" / "paper_small"
TUNING = "tuning"


class Row(NamedTuple):
    """One number."""

    problem: str
    method: str
    seed: int
    set: str
    image: str
    metric: str
    value: float


@dataclass(frozen=True)
class Places:
    """Where things are, and what a trial run changes.

    Attributes:
        work: Folder of runs.
        data: The shared image data, SFUMATO_DATA.
        results: Folder of the CSV files.
        settings: Of every recipe, as for `sfumato train --set`.
        samples: Draws whose mean is measured; 0 for ``SAMPLES``.
        images: At most so many per set.
        crop: Side of what is measured, if not the problem's.
    """

    work: Path
    data: Path
    results: Path = RESULTS
    settings: tuple[str, ...] = ()
    samples: int = 0
    images: int = 99
    crop: int = 0

    def num_samples(self, cell: Cell) -> int:
        """Draws per image of a cell."""
        fewer = {"trial": TRIAL_SAMPLES, "sizes": TRIAL_SAMPLES}
        return self.samples or fewer.get(cell.kind, SAMPLES)

    def model_file(self, cell: Cell) -> Path:
        """Of the run whose model is measured."""
        return RunFolder(self.work / cell.run).model_file

    def num_images(self, cell: Cell, test_set: str, draw: Draw) -> int:
        """Images of one set that a cell is measured on."""
        fewer = {"trial": TRIAL_IMAGES, "sizes": TRIAL_IMAGES, "levels": TRIAL_IMAGES}
        number = PROBLEMS[cell.problem].sets.get(test_set, TRIAL_IMAGES)
        return min(self.images, draw.most, fewer.get(cell.kind, number), number)

    def side(self, cell: Cell) -> int:
        """Of the central square that is measured."""
        return self.crop or (TRIAL_CROP if cell.kind == "trial" else PROBLEMS[cell.problem].crop)


def sets_of(cell: Cell, draw: Draw) -> tuple[str, ...]:
    """Test sets of a cell under a draw."""
    return draw.sets or cell.sets or tuple(PROBLEMS[cell.problem].sets)


def label(cell: Cell, draw: Draw) -> str:
    """Name of a method in the tables: ``cddpm_paper:ancestral``."""
    return f"{cell.method}:{draw.name}" if draw.name else cell.method


def file_of(cell: Cell) -> str:
    """Which CSV its rows go to."""
    return TUNING if cell.kind == "trial" else cell.problem


class Figures:
    """Stored rows, by what they are of."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        each: dict[tuple[str, str, int, str, str], dict[str, list[float]]] = {}
        for row in self.rows:
            key = (row.problem, row.method, row.seed, row.set, row.metric)
            each.setdefault(key, {}).setdefault(_unit(row), []).append(row.value)
        self._values = {
            key: {unit: sum(values) / len(values) for unit, values in units.items()} for key, units in each.items()
        }

    def images(self, problem: str, method: str, seed: int, test_set: str, metric: str) -> Mapping[str, float]:
        """Value by image; empty if not measured."""
        return self._values.get((problem, method, seed, test_set, metric), {})

    def seeds(self, problem: str, method: str, test_set: str, metric: str) -> list[int]:
        """For which there are values."""
        return sorted({key[2] for key in self._values if (*key[:2], *key[3:]) == (problem, method, test_set, metric)})

    def mean_over_seeds(
        self, problem: str, method: str, test_set: str, metric: str, *, only: Iterable[int] | None = None
    ) -> dict[str, float]:
        """Value by image, the mean over seeds, or over some of them."""
        seeds = self.seeds(problem, method, test_set, metric)
        seeds = seeds if only is None else [seed for seed in seeds if seed in {*only}]
        each = [self.images(problem, method, seed, test_set, metric) for seed in seeds]
        common = [image for image in each[0] if all(image in other for other in each)] if each else []
        return {image: float(np.mean([values[image] for values in each])) for image in common}


def _unit(row: Row) -> str:
    """Of replication: an image, or the field that several images show."""
    field = PROBLEMS[row.problem].field if row.set in PROBLEMS[row.problem].sets else ""
    found = re.search(field, row.image) if field else None
    return found[0] if found else row.image


def common_images(first: Mapping[str, float], *others: Mapping[str, float]) -> list[str]:
    """Images that all methods have a number for."""
    return [image for image in first if all(math.isfinite(each.get(image, math.nan)) for each in (first, *others))]


def values_on_common(
    one: Mapping[str, float], other: Mapping[str, float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both methods' values on the images that both have a number for."""
    names = common_images(one, other)
    return np.array([one[n] for n in names], float), np.array([other[n] for n in names], float)


def read(path: Path) -> list[Row]:
    """The rows of a file; none if there is no such file."""
    if not path.exists():
        return []
    now = path.stat()
    return [*_parsed(path, (now.st_ino, now.st_mtime_ns, now.st_size))]


@lru_cache(maxsize=16)
def _parsed(path: Path, state: tuple[int, int, int]) -> tuple[Row, ...]:
    """The rows of a file in a state; the same file is asked for by cell after cell."""
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(
            Row(problem, method, int(seed), test_set, image, metric, float(value or "nan"))
            for problem, method, seed, test_set, image, metric, value in list(csv.reader(file))[1:]
        )


def read_all(results: Path) -> Figures:
    """Everything that is stored."""
    return Figures(row for name in (*PROBLEMS, TUNING) for row in read(results / f"{name}.csv"))


def merge(path: Path, rows: Iterable[Row]) -> None:
    """Put rows into a file in the place of those of the same problem, method, seed, set and image, in a fixed order."""
    new = list(rows)
    replaced = {row[:5] for row in new}
    kept = [row for row in read(path) if row[:5] not in replaced]
    order = {name: place for place, name in enumerate(dict.fromkeys(cell.method for cell in CELLS))}
    everything = sorted(kept + new, key=lambda r: (r.problem, order.get(r.method.partition(":")[0], 99), *r[1:4]))
    lines = [",".join(Row._fields)]
    for row in everything:
        value = "" if math.isnan(row.value) else f"{row.value:.5g}"
        lines.append(",".join([*map(_quoted, row[:2]), str(row.seed), *map(_quoted, row[3:6]), value]))
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, "\n".join(lines) + "\n", untouched="The stored figures are as they were")


def _quoted(text: object) -> str:
    return f'"{text}"' if "," in str(text) else str(text)


def expected(cell: Cell, places: Places) -> dict[tuple[str, str], int]:
    """How many images a cell has when it is measured, by label and set."""
    if cell.kind == "timing":
        return {(CVDM_0_1, "timing"): 2}
    if cell.kind in ("sizes", "levels"):
        return {(cell.method, cell.kind): places.num_images(cell, sets_of(cell, OWN)[0], OWN)}
    return {
        (label(cell, draw), test_set): places.num_images(cell, test_set, draw)
        for draw in cell.draws
        for test_set in sets_of(cell, draw)
    }


def is_measured(cell: Cell, places: Places, rows: Iterable[Row]) -> bool:
    """Whether all images of a cell are stored."""
    found: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if (row.problem, row.seed) == (cell.problem, cell.seed):
            found.setdefault((row.method, row.set), set()).add(row.image)
    return all(len(found.get(key, ())) >= number for key, number in expected(cell, places).items())


def chosen_trial(problem: str, figures: Figures) -> Cell | None:
    """The trial of the least MAE on validation images, if all trials are measured."""
    means = {}
    for trial in trials(problem):
        values = figures.images(problem, trial.method, trial.seed, "validation", "MAE")
        if not values:
            return None
        means[trial] = float(np.mean(list(values.values())))
    return min(means, key=means.__getitem__) if means else None


def chosen_settings(problem: str, places: Places) -> list[str]:
    """Settings of the tuned fixed schedule of a problem."""
    chosen = chosen_trial(problem, Figures(read(places.results / f"{TUNING}.csv")))
    if chosen is None:
        raise SystemExit(f"the trials of {problem} are not all measured: run those first ({problem}/trial_...)")
    return [setting for setting in chosen.settings if setting.startswith("model.")]


def data_folder() -> Path:
    """SFUMATO_DATA."""
    if "SFUMATO_DATA" not in os.environ:
        raise SystemExit("set SFUMATO_DATA to the folder that holds natural_imagenet100, natural_coco and so on")
    return Path(os.environ["SFUMATO_DATA"]).resolve()
