"""What methods make of three test images, and the schedules that were learned; drawn from trained cells.

Nothing is trained here: a row shows the cell with the most minutes, and a method without one is left out.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.patches import Circle
from numpy.typing import NDArray

from evidence.found import NEW
from evidence.tables import TITLES
from sfumato.audit import audit
from sfumato.diffusion.schedule import CosineSchedule
from sfumato.figures.plotting import new_figure, save_figure
from sfumato.models.model_file import LoadedModel, load
from sfumato.training.run_folder import RunFolder
from yardstick.cells import Cell
from yardstick.problems import Held, Places, held_out
from yardstick.training import trained

__all__ = ["ROWS", "draw_first", "draw_restored", "draw_schedules", "longest_trained", "middle", "with_a_planted_spot"]

ROWS = {"phase": ("noise-free", 3), "microscopy": ("test", 60), "w2s": ("test", 4)}
"""Test set and number of the image that is shown of each problem; that of microscopy is a field of F-actin."""
SIDE = 96
"""Pixels of the middle of each image that are shown."""
SHOWN_SIDE = 200
"""The same of the README's picture."""

Array = NDArray[Any]


class Row(NamedTuple):
    """One problem: images of the middle, each (H, W), by the titles of their columns."""

    title: str
    images: dict[str, Array]
    minutes: float


def longest_trained(problem: str, contender: str, places: Places) -> Cell | None:
    """The cell of a contender with the most minutes whose model is there."""
    folders = (places.work / problem / contender).glob("*/0/run")
    minutes = [float(folder.parents[1].name) for folder in folders if RunFolder(folder).is_finished()]
    return Cell(problem, contender, max(minutes), 0) if minutes else None


def draw_restored(path: Path, places: Places) -> None:
    """Write the picture: measured, regression, mean, one sample, error bar and error; a row per problem."""
    rows = [row for problem in ROWS if (row := _row(problem, places)) is not None]
    every = ("measured", "regression", "CVDM, mean", "one sample", "error bar", "error of the mean", "truth")
    columns = [column for column in every if any(column in row.images for row in rows)]
    figure = new_figure(11, 1.65 * len(rows) + 0.3)
    grid = figure.subplots(len(rows), len(columns), squeeze=False)
    for places_of_row, row in zip(grid, rows, strict=True):
        low, high = np.quantile(row.images["truth"], (0.01, 0.995))
        wide = float(np.quantile(row.images["error of the mean"], 0.995))
        for axes, column in zip(places_of_row, columns, strict=True):
            axes.set(xticks=[], yticks=[])
            for side in axes.spines.values():
                side.set_visible(False)
            if row is rows[0]:
                axes.set_title(column, fontsize=9)
            if column not in row.images:
                axes.text(0.5, 0.5, "not trained", ha="center", va="center", fontsize=8, transform=axes.transAxes)
                continue
            image = row.images[column]
            if column.startswith("error"):
                axes.imshow(image, cmap="inferno", vmin=0, vmax=wide, interpolation="nearest")
            elif column == "measured":
                axes.imshow(image, cmap="gray", vmin=np.quantile(image, 0.01), vmax=np.quantile(image, 0.995))
            else:
                axes.imshow(image, cmap="gray", vmin=low, vmax=high, interpolation="nearest")
        places_of_row[0].set_ylabel(f"{row.title}\n{row.minutes:g} min", fontsize=9)
    save_figure(figure, path, dpi=130)


def _row(problem: str, places: Places) -> Row | None:
    cell = longest_trained(problem, NEW, places)
    if cell is None:
        return None
    test_set, number = ROWS[problem]
    image = held_out(problem, test_set, places)[number]
    restored = trained(cell, places)(image, number)
    truth = torch.from_numpy(image.truth).double()
    assert restored.samples is not None
    offset = (truth - restored.mean).mean() if problem == "phase" else torch.zeros(())
    mean, samples = restored.mean + offset, restored.samples + offset
    shown = {
        "measured": torch.from_numpy(image.condition).double(),
        "CVDM, mean": mean,
        "one sample": samples[0],
        "error bar": samples.std(0),
        "error of the mean": (mean - truth).abs(),
        "truth": truth,
    }
    plain = Cell(problem, "regression", cell.minutes, 0)
    if RunFolder(places.work / plain.name / "run").is_finished():
        estimate = trained(plain, places)(image, number).mean
        shown["regression"] = estimate + ((truth - estimate).mean() if problem == "phase" else 0)
    return Row(TITLES[problem], {column: middle(value[0].numpy()) for column, value in shown.items()}, cell.minutes)


def middle(image: Array, side: int = SIDE) -> Array:
    """The square of so many pixels in the middle of an image."""
    corner = [(length - min(length, side)) // 2 for length in image.shape]
    return image[corner[0] : corner[0] + side, corner[1] : corner[1] + side]


def draw_first(path: Path, places: Places) -> None:
    """Write the README's picture: measured, restored, error bar, and a planted structure that the audit marks."""
    cell = longest_trained("w2s", NEW, places)
    assert cell is not None, "no model of W2S is trained"
    test_set, number = ROWS["w2s"]
    image = held_out("w2s", test_set, places)[number]
    restored = trained(cell, places)(image, number)
    assert restored.samples is not None
    mean, std = (middle(value[0].numpy(), SHOWN_SIDE) for value in (restored.mean, restored.samples.std(0)))
    planted, (row, column) = with_a_planted_spot(mean)
    measured = middle(image.condition[0], SHOWN_SIDE)
    found = audit(measured, load(places.work / cell.name / "run" / "model.safetensors"), restored=planted)
    assert found.consistency is not None, found.contradiction
    marks = [(mark.row, mark.column) for mark in found.consistency.unsupported]
    assert any(abs(r - row) < 6 and abs(c - column) < 6 for r, c in marks), f"the audit marks {marks}"
    low, high = np.quantile(mean, (0.005, 0.997))
    figure = new_figure(11, 3.05)
    shown = {"measured": measured, "restored": mean, "error bar": std, "a planted spot, marked by the audit": planted}
    for axes, (title, values) in zip(figure.subplots(1, 4), shown.items(), strict=True):
        ends = np.quantile(values, (0.005, 0.997)) if values is measured or values is std else (low, high)
        axes.imshow(values, cmap="magma" if values is std else "gray", vmin=ends[0], vmax=ends[1])
        axes.set(xticks=[], yticks=[])
        axes.set_title(title, fontsize=10)
    for r, c in marks:
        figure.axes[-1].add_patch(Circle((c, r), 8, fill=False, color="#E69F00", lw=1.6))
    save_figure(figure, path, dpi=110)


def with_a_planted_spot(image: Array) -> tuple[Array, tuple[int, int]]:
    """The image with a spot as bright as its brightest structures, where it is dark."""
    side = len(image)
    rows, columns = np.mgrid[:side, :side]
    spots = {}
    for row in range(12, side - 12, 4):
        for column in range(12, side - 12, 4):
            spots[float(image[row - 8 : row + 9, column - 8 : column + 9].max())] = (row, column)
    row, column = spots[min(spots)]
    height = float(np.quantile(image, 0.99) - np.quantile(image, 0.05))
    return image + height * np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / 8), (row, column)


def draw_schedules(path: Path, places: Places) -> None:
    """Write the share of signal over time: learned, as a band over the pixels of an image, and the cosine schedule."""
    t = torch.linspace(0, 1, 101)
    cosine = CosineSchedule()(torch.zeros(1, 1, 1, 1))
    cells = [cell for problem in ROWS if (cell := longest_trained(problem, NEW, places)) is not None]
    figure = new_figure(3.2 * len(cells), 2.8)
    for axes, cell in zip(np.ravel(figure.subplots(1, len(cells), sharey=True)), cells, strict=True):
        low, middle, high = _signal(
            load(places.work / cell.name / "run" / "model.safetensors"), _image(cell, places), t
        )
        axes.fill_between(t, low, high, color="#0072B2", alpha=0.3, lw=0, label="learned, 98% of the pixels")
        axes.plot(t, middle, color="#0072B2", label="learned, median")
        axes.plot(t, cosine.gamma(t).ravel(), color="#D55E00", ls="--", label="cosine")
        axes.set_title(TITLES[cell.problem], fontsize=9)
        axes.set_xlabel("time", fontsize=8)
    figure.axes[0].set_ylabel("share of signal, gamma", fontsize=8)
    figure.axes[0].legend(fontsize=7, frameon=False)
    save_figure(figure, path)


def _image(cell: Cell, places: Places) -> Held:
    test_set, number = ROWS[cell.problem]
    return held_out(cell.problem, test_set, places)[number]


def _signal(model: LoadedModel, image: Held, times: torch.Tensor) -> tuple[Array, Array, Array]:
    """Least and most of 98% of the pixels, and their median, at each time."""
    with torch.no_grad():
        schedule = model.model.read(model.info.condition.of_pixels(image.condition[None])).schedule
        values = np.stack([schedule.gamma(time).expand(1, 1, *schedule.rate.shape[2:]).ravel() for time in times])
    low, middle, high = np.quantile(values, (0.01, 0.5, 0.99), axis=1)
    return low, middle, high
