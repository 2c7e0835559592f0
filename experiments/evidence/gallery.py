"""Ten pictures for the gallery, drawn from trained cells: what a microscopist would look at.

Nothing is trained here. Each picture is a row of panels with one question; docs/gallery.md has the words.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.patches import Circle
from numpy.typing import NDArray

from evidence.found import NEW
from evidence.pictures import longest_trained, middle, with_a_planted_spot
from sfumato.audit import audit
from sfumato.figures.panels import draw_panel
from sfumato.figures.plotting import new_figure, save_figure
from sfumato.models.model_file import LoadedModel, load
from sfumato.restoration.restorer import Restorer
from yardstick.problems import Held, Places, held_out
from yardstick.training import trained

__all__ = ["GALLERY", "draw_gallery", "draw_real"]

STRUCTURES = {"coated_pits": 7, "endoplasmic_reticulum": 31, "f_actin": 60, "microtubules": 80}
"""Numbers of the test fields that are shown."""
REAL, REAL_SIDE = (0, 7, 14), 192
"""Numbers of the real images that are shown, of three fields and labels, and pixels of the middle of each."""
SIDE, TILE = 96, 48
GALLERY = (*STRUCTURES, "w2s", "phase", "samples", "interval", "audit", "tiles")
"""Names of the pictures, in the order of the page."""

Array = NDArray[Any]


class Panel(NamedTuple):
    """An image (H, W) below its title; ``like`` names the panel whose grey levels it shares."""

    title: str
    image: Array
    colours: str = "gray"
    like: str = ""


class Drawn(NamedTuple):
    """A test image, and what a model makes of it, each (H, W) but the samples (N, H, W), in units of the truth."""

    image: Held
    model: LoadedModel
    mean: Array
    samples: Array

    @property
    def std(self) -> Array:
        """Standard deviation of the samples."""
        return np.asarray(self.samples.std(0))

    @property
    def truth(self) -> Array:
        """What should be restored."""
        return np.asarray(self.image.truth[0])

    def panels(self, measured: str = "measured", truth: str = "truth") -> list[Panel]:
        """Measured, restored, one sample, the error bar, and the truth."""
        return [
            Panel(measured, self.image.condition[0]),
            Panel("restored", self.mean, like=truth),
            Panel("one sample", self.samples[0], like=truth),
            Panel("error bar", self.std, "magma"),
            Panel(truth, self.truth),
        ]


def draw_gallery(folder: Path, places: Places) -> None:
    """Write the ten pictures as PNG files into a folder."""
    actin = None
    for name, number in STRUCTURES.items():
        drawn = _drawn("microscopy", "test", number, places)
        actin = drawn if name == "f_actin" else actin
        _draw(folder / f"{name}.png", drawn.panels())
    assert actin is not None
    cells = _drawn("w2s", "test", 4, places)
    _draw(folder / "w2s.png", cells.panels("one exposure", "mean of 400 exposures"), side=2 * SIDE)
    draws = [Panel(f"sample {n + 1}", actin.samples[n], like="truth") for n in range(3)]
    _draw(folder / "samples.png", [*draws, Panel("where they differ", actin.std, "magma"), Panel("truth", actin.truth)])
    _draw_interval(folder / "interval.png", actin)
    _draw_audit(folder / "audit.png", cells)
    _draw_tiles(folder / "tiles.png", actin)
    phase = _drawn("phase", "noise-free", 3, places)
    offset = (phase.truth - phase.mean).mean()  # no intensity tells the mean of a phase
    phase = phase._replace(mean=phase.mean + offset, samples=phase.samples + offset)
    _draw(folder / "phase.png", phase.panels("one of two intensities"))


def draw_real(path: Path, places: Places) -> None:
    """Write measured, restored, error bar and truth of three real images."""
    every = [_drawn("w2s", "test", number, places) for number in REAL]
    sides = zip(*((each.image.condition[0], each.mean, each.std, each.truth) for each in every), strict=True)
    draw_panel(path, *(np.stack([middle(image, REAL_SIDE) for image in side]) for side in sides))


def _drawn(problem: str, test_set: str, number: int, places: Places) -> Drawn:
    cell = longest_trained(problem, NEW, places)
    assert cell is not None, f"no model of {problem} is trained"
    image = held_out(problem, test_set, places)[number]
    restored = trained(cell, places)(image, number)
    assert restored.samples is not None
    model = load(places.work / cell.name / "run" / "model.safetensors")
    return Drawn(image, model, restored.mean[0].numpy(), restored.samples[:, 0].numpy())


def _draw(path: Path, panels: Sequence[Panel], marks: Sequence[tuple[int, int]] = (), side: int = SIDE) -> None:
    """Write a row of panels; circles mark places of the last one."""
    figure = new_figure(2.2 * len(panels), 2.5)
    shown = {panel.title: middle(panel.image, side) for panel in panels}
    for axes, panel in zip(np.ravel(figure.subplots(1, len(panels))), panels, strict=True):
        low, high = np.quantile(shown[panel.like or panel.title], (0.005, 0.997))
        axes.imshow(shown[panel.title], cmap=panel.colours, vmin=low, vmax=high, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.set_title(panel.title, fontsize=11)
    for row, column in marks:
        figure.axes[-1].add_patch(Circle((column, row), 8, fill=False, color="#E69F00", lw=1.6))
    save_figure(figure, path, dpi=100)


def _draw_interval(path: Path, drawn: Drawn) -> None:
    """The restored line through the brightest pixel, between the least and the largest sample, and the truth."""
    truth, mean = middle(drawn.truth, SIDE), middle(drawn.mean, SIDE)
    samples = np.stack([middle(one, SIDE) for one in drawn.samples])
    row = int(np.unravel_index(truth.argmax(), truth.shape)[0])
    truth, mean, samples = ((image - truth.min()) / np.ptp(truth) for image in (truth, mean, samples))
    figure = new_figure(11, 2.7)
    picture, line = figure.subplots(1, 2, width_ratios=(1, 3.4))
    picture.imshow(mean, cmap="gray", interpolation="nearest")
    picture.axhline(row, color="#E69F00", lw=1.2)
    picture.set(xticks=[], yticks=[])
    picture.set_title("restored", fontsize=11)
    line.fill_between(
        range(SIDE), samples[:, row].min(0), samples[:, row].max(0), color="#0072B2", alpha=0.3, lw=0, label="samples"
    )
    line.plot(mean[row], color="#0072B2", label="restored")
    line.plot(truth[row], color="black", ls="--", lw=1, label="truth")
    line.set(xlim=(0, SIDE - 1), xlabel="pixel along the line", ylabel="share of the brightest")
    line.legend(frameon=False, fontsize=9)
    save_figure(figure, path, dpi=100)


def _draw_audit(path: Path, drawn: Drawn) -> None:
    """A spot is planted into the restored image, and the audit asks the measurement for it."""
    side = 2 * SIDE
    mean, measured = middle(drawn.mean, side), middle(drawn.image.condition[0], side)
    planted, _ = with_a_planted_spot(mean)
    found = audit(measured, drawn.model, restored=planted)
    assert found.consistency is not None, found.contradiction
    marks = [(mark.row, mark.column) for mark in found.consistency.unsupported]
    panels = [
        Panel("measured", measured),
        Panel("restored", mean),
        Panel("with a planted spot", planted, like="restored"),
    ]
    _draw(path, [*panels, Panel("marked by the audit", planted, like="restored")], marks, side)


def _draw_tiles(path: Path, drawn: Drawn) -> None:
    """Tiles restored each for itself have seams; with the pixels around them that the network sees, they have none."""
    seen = drawn.model.info.condition.of_pixels(drawn.image.condition[None])

    def read(part: torch.Tensor) -> Array:
        mean, _ = Restorer.of(drawn.model, fast=True).read(part)
        return np.asarray(drawn.model.info.target.invert(mean.double(), axis=1)[0, 0])

    alone = np.zeros_like(drawn.mean)
    for row in range(0, seen.shape[2], TILE):
        for column in range(0, seen.shape[3], TILE):
            inside = (slice(row, row + TILE), slice(column, column + TILE))
            alone[inside] = read(seen[..., inside[0], inside[1]])
    tiled = np.asarray(
        drawn.model.info.target.invert(Restorer.of(drawn.model, fast=True, tile=TILE).read(seen)[0].double(), axis=1)
    )[0, 0]
    panels = [
        Panel("whole", drawn.mean),
        Panel("tiles without surroundings", alone, like="whole"),
        Panel("their difference", np.abs(alone - drawn.mean), "magma"),
        Panel("sfumato's tiles", tiled, like="whole"),
        Panel("its difference", np.abs(tiled - drawn.mean), "magma", like="their difference"),
    ]
    _draw(path, panels)
