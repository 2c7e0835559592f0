"""Draw the pictures of the pages beside this file, from simulated data.

python docs/problems/draw_problems.py [PHOTOGRAPHS]

PHOTOGRAPHS is a folder of pictures for the natural page; without it, simulated specimens in three colours stand for
them.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from sfumato.data.images.io import write_image
from sfumato.physics import structures
from sfumato.problems.clinical import two_shot_tie
from sfumato.problems.microscopy_simulation import image_field
from sfumato.problems.phase import PhasePairs
from sfumato.problems.registry import open_problem
from sfumato.problems.request import ForwardParameters, Request

__all__ = ["draw_microscopy", "draw_natural", "draw_phase"]

FIGURES = Path(__file__).parents[1] / "figures"
GAP, TITLE = 6, 24

Picture = NDArray[np.uint8]


def grey(image: NDArray[np.generic], low: float | None = None, high: float | None = None) -> Picture:
    """An image between two values, or its own quantiles, as grey."""
    ends = np.quantile(image, [0.005, 0.998])
    low, high = ends[0] if low is None else low, ends[1] if high is None else high
    return np.asarray(255 * np.clip((image - low) / (high - low), 0, 1), np.uint8)


def sheet(
    path: Path, rows: Sequence[Sequence[Picture]], titles: Sequence[str], names: Sequence[str], side: int
) -> None:
    """Pictures in a grid under titles, with names at the left."""
    font, left = ImageFont.load_default(size=15), 130
    page = Image.new("RGB", (left + len(titles) * (side + GAP), TITLE + len(rows) * (side + GAP)), "white")
    pen = ImageDraw.Draw(page)
    for column, title in enumerate(titles):
        pen.text((left + column * (side + GAP) + 2, 2), title, fill="black", font=font)
    for row, (pictures, name) in enumerate(zip(rows, names, strict=True)):
        top = TITLE + row * (side + GAP)
        pen.multiline_text((2, top + 4), name, fill="black", font=font)
        for column, picture in enumerate(pictures):
            tile = Image.fromarray(picture).convert("RGB").resize((side, side), Image.Resampling.NEAREST)
            page.paste(tile, (left + column * (side + GAP), top))
    page.save(path, optimize=True)


def draw_microscopy() -> None:
    """The four structures at low and at high light, and at the resolution of the target."""
    rows, names = [], []
    for name in structures.STRUCTURES:
        field = image_field(name, side=112, seed=11, cell=1, levels=[15, 600])
        rows.append([*(grey(raw.mean(0)) for raw in field.raw), grey(field.target)])
        names.append({"f_actin": "F-actin"}.get(name, name.replace("_", "\n")))
    titles = ("widefield, 15 photons", "widefield, 600 photons", "SIM resolution (target)")
    sheet(FIGURES / "problem_microscopy.png", rows, titles, names, 224)


def cells(folder: Path) -> Path:
    """A drawn picture of round cells with nuclei, as a photograph to make a phase of."""
    place = np.stack(np.meshgrid(*[np.linspace(0, 1, 256)] * 2, indexing="ij"), -1)
    generator, height = np.random.default_rng(5), np.zeros((256, 256))
    for centre in generator.uniform(0.1, 0.9, (9, 2)):
        radius = generator.uniform(0.06, 0.14)
        for size, weight in ((radius, 0.6), (radius / 2.5, 0.3)):
            distance = np.linalg.norm(place - centre, axis=-1) / size
            height = np.maximum(height, 0) + weight * np.clip(1 - distance**2, 0, None) ** 0.5
    write_image(folder / "cells.png", grey(height, 0, float(height.max())), axes="YX")
    return folder


def draw_phase() -> None:
    """Two shots without and with noise, what the transport equation makes of them, and the phase."""
    with tempfile.TemporaryDirectory() as name:
        folder, rows, names = cells(Path(name)), [], []
        for noise in (0.0, 0.2):
            forward: ForwardParameters = {"noise": noise, "draws": 20.0}
            source = open_problem("phase", Request(folder=folder, forward=forward, seed=1))["train"]
            assert isinstance(source, PhasePairs)
            sample = int(np.argmin([abs(source.noise_level(n) - 0.1) for n in range(len(source))]))
            names.append(f"noise xi\n= {source.noise_level(sample):.2f}")
            light, phase = source.read(sample, (0, 0), (256, 256))
            solved = two_shot_tie(torch.from_numpy(light), shot_um=2.0, wavelength_um=0.521, pixel_um=0.21).numpy()
            solved = solved - solved.mean() + phase.mean()
            rows.append([*(grey(shot, 0.2, 2.2) for shot in light), grey(solved, -0.5, 3.5), grey(phase[0], -0.5, 3.5)])
    titles = ("I(+2 um), 0.2 to 2.2", "I(-2 um), 0.2 to 2.2", "US-TIE, -0.5 to 3.5 rad", "phase (target)")
    sheet(FIGURES / "problem_phase.png", rows, titles, names, 256)


def colours(folder: Path) -> Path:
    """Three simulated specimens as red, green and blue."""
    names = ("microtubules", "f_actin", "coated_pits")
    channels = [grey(image_field(name, side=128, seed=3, levels=[100]).target) for name in names]
    write_image(folder / "colours.png", np.stack(channels, -1), axes="YXC")
    return folder


def draw_natural(photographs: Path | None) -> None:
    """A photograph on grids coarser by 4 and by 8."""
    with tempfile.TemporaryDirectory() as name:
        folder = photographs or colours(Path(name))
        pictures = []
        for factor in (8, 4):
            request = Request(folder=folder, forward={"factor": float(factor)}, validation_fraction=0)
            source = open_problem("natural", request)["train"]
            condition, target = (side.astype(np.float64) for side in source.read(0, (0, 0), (256, 256)))
            pictures.append(np.asarray(255 * np.clip(condition, 0, 1), np.uint8).transpose(1, 2, 0))
        pictures.append(np.asarray(255 * np.clip(target, 0, 1), np.uint8).transpose(1, 2, 0))
    titles = ("32 to 256 pixels", "64 to 256 pixels", "256 pixels (target)")
    sheet(FIGURES / "problem_natural.png", [pictures], titles, ["two\nconditions\nand their\ntarget"], 256)


if __name__ == "__main__":
    draw_microscopy()
    draw_phase()
    draw_natural(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
