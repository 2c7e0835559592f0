"""Figures of version 0.1's models, whose trainings are not repeated: one CSV per problem, one line per test image."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from yardstick.comparison import compare, geometric_mean, mean_of, values_of
from yardstick.stored import Figure

__all__ = ["KEPT", "MINUTES", "archive_tables", "archived"]

KEPT = Path(__file__).parents[1] / "results" / "paper_small"
MINUTES = 0.0
"""They were trained for equal steps, 3,000 of 8 patches of 64 pixels: about twenty minutes of one core each."""
PROBLEMS = {
    "qpi": "Phase from two defocused images (rad)",
    "microscopy": "Widefield to SIM, simulated (of the range)",
    "w2s": "One exposure to the mean of 400, W2S (grey levels)",
    "natural_x4": "Photographs, four times finer (of white)",
    "tsim_er": "Endoplasmic reticulum, widefield to SIM, T-SIM (of the range)",
}
_TRIED = "attempt_"
COLUMNS = ("MAE", "MS-SSIM", "CRPS", "coverage 90")


def archived(file_name: str, results: Path = KEPT, *, of: str | None = None) -> list[Figure]:
    """All that is kept in a file, which has the name of its problem, or of one problem in it."""
    with (results / f"{file_name}.csv").open(newline="", encoding="utf-8") as file:
        return [
            Figure(line["method"], MINUTES, int(line["seed"]), line["set"], line["image"], line["metric"], value)
            for line in csv.DictReader(file)
            if of in (None, line["problem"]) and np.isfinite(value := float(line["value"] or "nan"))
        ]


def archive_tables() -> Iterator[str]:
    """Lines of one table per problem and test set, a row per method."""
    for problem, title in PROBLEMS.items():
        figures = [figure for figure in archived(problem) if figure.metric in COLUMNS]
        for group in sorted({figure.group for figure in figures} - {"training", "validation"}):
            yield f"## {title}, {group}"
            yield ""
            yield "| method | trainings | images | " + " | ".join(COLUMNS) + " |"
            yield "|---" * (3 + len(COLUMNS)) + "|"
            yield from _rows(figures, group)
            yield ""

    yield "## What was tried, a quarter of the steps, validation images"
    yield ""
    yield "| problem | attempt | images | MAE over that of the recipe, with 95% interval |"
    yield "|---|---|---|---|"
    yield from _attempts()
    yield ""


def _attempts() -> Iterator[str]:
    for problem in ("qpi", "microscopy"):
        tried = [figure for figure in archived("tuning", of=problem) if figure.seed == 0]
        for name in sorted({figure.contender for figure in tried}):
            found = compare(tried, (name, MINUTES), (f"{_TRIED}default", MINUTES), "MAE")
            if name.startswith(_TRIED) and found is not None:
                yield f"| {problem} | `{name}` | {found.images} | {found} |"


def _rows(figures: Sequence[Figure], group: str) -> Iterator[str]:
    for method in sorted({figure.contender for figure in figures if figure.group == group}):
        found = {column: values_of(figures, method, MINUTES, column, group) for column in COLUMNS}
        if not found["MAE"].size:
            continue
        error = geometric_mean(found["MAE"])
        others = [f"{mean_of(found[column]):.3g}" if found[column].size else "" for column in COLUMNS[1:]]
        seeds, images = found["MAE"].shape
        yield f"| `{method}` | {seeds} | {images} | " + " | ".join([f"{error:.3g}", *others]) + " |"
