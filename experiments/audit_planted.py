"""Planted hallucinations: structures that the measurement does not support, are they marked, and nothing else?

    python experiments/audit_planted.py --check                   # perfect restorations; stored figures of a model
    python experiments/audit_planted.py --model MODEL --write         # restore with a model and store its figures

Fields of the four simulated structures at 100 and 600 photons per pixel and raw frame. Into the restored image, which
is the true SIM image or what the microscopy model of `per_minute.py` gives, eight structures of another field
of the same kind are added: pieces of one to three areas of the point-spread function, as bright as the median of the
image's structures, anywhere in the field, on structures and background alike. One counts as found if a mark overlaps
it; a mark is right if it overlaps one. `contrast 0.5` plants structures half as bright, for information. All
was chosen beforehand but the least contrast of marks: a half at first, lowered to a quarter when no mark was wrong, on
these fields as a model of version 0.1 had restored them. With `--model` and `--picture` the audit of one image with
three planted structures is drawn as docs/figures/audit.png.
"""

import argparse
import csv
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato import load, restore
from sfumato.audit import Optics, audit
from sfumato.audit.consistency import Consistency, check_consistency
from sfumato.audit.forward import imaging
from sfumato.audit.report import draw_audit
from sfumato.audit.run import draw_samples
from sfumato.audit.structures import ndimage, typical_contrast
from sfumato.models.model_file import LoadedModel
from sfumato.physics.structures import STRUCTURES
from sfumato.problems.microscopy_simulation import Microscope, image_field

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # where figures are held against bars
from bars import DOCS, Bars

SIDE, SEED, CELLS, LEVELS = 128, 7, (46, 47), (100, 600)
DONOR_CELL, NUMBER, RADIUS_PX, APART_PX = 50, 8, 5, 20
CONTRASTS = (1.0, 0.5)
SHOWN = ("microtubules", 100)
SAMPLES, STEPS = 4, 8
MICROSCOPE = Microscope()
PSF_PX = (
    math.pi / 4 * (0.51 * MICROSCOPE.wavelength_um / MICROSCOPE.numerical_aperture / (MICROSCOPE.pixel_um / 2)) ** 2
)
"""Area within the half maximum of the measurement's point-spread function, in pixels of the restored image."""
FORWARD = imaging(
    2,
    pixel_um=MICROSCOPE.pixel_um,
    numerical_aperture=MICROSCOPE.numerical_aperture,
    wavelength_um=MICROSCOPE.wavelength_um,
    extension=2.0,
)
RESULTS = Path(__file__).parent / "results" / "audit_planted.csv"

Floats = NDArray[np.float64]


class Scene(NamedTuple):
    """One measurement."""

    structure: str
    cell: int
    photons: int
    measured: Floats
    truth: Floats


class Count(NamedTuple):
    """What was planted in one image and what was marked."""

    restored: str
    structure: str
    cell: int
    photons: int
    contrast: float
    planted: int
    found: int
    marks: int
    right: int


def scenes() -> Iterator[Scene]:
    for structure in STRUCTURES:
        for cell in CELLS:
            field = image_field(structure, side=SIDE, seed=SEED, cell=cell, levels=LEVELS)
            for photons, raw in zip(LEVELS, field.raw, strict=True):
                yield Scene(structure, cell, photons, raw.mean(0, dtype=np.float64), field.target.astype(np.float64))


def plant(
    image: Floats, donor: Floats, *, contrast: float, seed: int, most: int = NUMBER
) -> tuple[Floats, NDArray[np.int32]]:
    """The image with structures of a donor added, and the number of the structure at each of their pixels."""
    rng = np.random.default_rng(seed)
    reach = np.arange(-RADIUS_PX, RADIUS_PX + 1)
    disc = np.clip(RADIUS_PX - np.hypot(reach[:, None], reach), 0, 1)
    planted, numbers = image.copy(), np.zeros(image.shape, np.int32)
    light, number = contrast * typical_contrast(image), 0
    dark = float(np.median(donor))
    while number < most:
        a, b = rng.integers(RADIUS_PX, donor.shape[0] - RADIUS_PX, 2)
        piece = np.clip(donor[a + reach[:, None], b + reach] - dark, 0, None) * disc
        regions, _ = ndimage().label(piece > 0.5 * piece.max())
        name = int(regions[RADIUS_PX, RADIUS_PX])
        inside = regions == name
        row, column = rng.integers(APART_PX, image.shape[0] - APART_PX, 2)
        near = numbers[row - APART_PX : row + APART_PX, column - APART_PX : column + APART_PX]
        if name and PSF_PX <= inside.sum() <= 3 * PSF_PX and not near.any():
            number += 1
            place = row + reach[:, None], column + reach
            planted[place] += piece * light / np.median(piece[inside])
            numbers[place] = np.where(inside, number, numbers[place])
    return planted, numbers


def counted(found: Consistency, numbers: NDArray[np.int32]) -> tuple[int, int, int, int]:
    """Structures planted, found among them, marks, right among these."""
    small = numbers.reshape(SIDE, 2, SIDE, 2).max((1, 3))
    marks = np.maximum(found.marks, 0)
    hit = {int(number) for number in small[(small > 0) & (marks > 0)]}
    right = {int(mark) for mark in marks[(small > 0) & (marks > 0)]}
    return len(set(small[small > 0].tolist())), len(hit), len(found.unsupported), len(right)


def count(name: str, scene: Scene, restored: Floats, donor: Floats) -> Iterator[Count]:
    for contrast in CONTRASTS:
        planted, numbers = plant(restored, donor, contrast=contrast, seed=scene.cell)
        found = check_consistency(scene.measured[None], planted[None], FORWARD)
        yield Count(name, scene.structure, scene.cell, scene.photons, contrast, *counted(found, numbers))
    untouched = check_consistency(scene.measured[None], restored[None], FORWARD)
    yield Count(name, scene.structure, scene.cell, scene.photons, 0.0, 0, 0, len(untouched.unsupported), 0)


def draw(model: LoadedModel, donors: dict[str, Floats]) -> None:
    """One image with planted structures, audited with its samples."""
    scene = next(scene for scene in scenes() if (scene.structure, scene.photons) == SHOWN)
    measured = scene.measured.astype(np.float32)[None]
    draws = draw_samples(measured, model, num_samples=8, num_steps=STEPS, seed=1).astype(np.float64)
    planted, _ = plant(draws.mean(0)[0], donors[scene.structure], contrast=1.0, seed=scene.cell, most=3)
    draws += planted - draws.mean(0)
    optics = Optics(
        pixel_um=MICROSCOPE.pixel_um,
        numerical_aperture=MICROSCOPE.numerical_aperture,
        wavelength_um=MICROSCOPE.wavelength_um,
        finer=2.0,
    )
    found = audit(measured, model, restored=planted, draws=draws, optics=optics)
    print(*found.warnings, *found.verdicts, *found.unchecked, sep="\n")
    draw_audit(found).savefig(DOCS / "figures" / "audit.png", dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="of microscopy/default in the runs of per_minute.py")
    parser.add_argument("--write", action="store_true", help="store the model's figures")
    parser.add_argument("--picture", action="store_true", help="draw docs/figures/audit.png; nothing else")
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed")
    options = parser.parse_args()
    donors = {
        name: image_field(name, side=SIDE, seed=SEED, cell=DONOR_CELL, levels=[100]).target.astype(np.float64)
        for name in STRUCTURES
    }
    model = None if options.model is None else load(options.model)
    if model is not None and options.picture:
        draw(model, donors)
        return
    counts: list[Count] = []
    of_model: list[Count] = []
    for scene in scenes():
        counts += count("truth", scene, scene.truth, donors[scene.structure])
        if model is not None:
            made: Any = restore(scene.measured, model, num_samples=SAMPLES, num_steps=STEPS, seed=1).mean
            of_model += count("model", scene, made.astype(np.float64), donors[scene.structure])
            print(*of_model[-3:], sep="\n", flush=True)
    if model is not None and options.write:
        with RESULTS.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([Count._fields, *of_model])
    bars = Bars()
    report(bars, [*counts, *(of_model or stored())])
    bars.finish(check=options.check)


def stored() -> list[Count]:
    with RESULTS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        Count(row["restored"], row["structure"], int(row["cell"]), int(row["photons"]), float(row["contrast"]),
              *(int(row[name]) for name in ("planted", "found", "marks", "right")))
        for row in rows
    ]  # fmt: skip


def report(bars: Bars, counts: list[Count]) -> None:
    for name in ("truth", "model"):
        for photons in LEVELS:
            for contrast in (*CONTRASTS, 0.0):
                some = [c for c in counts if (c.restored, c.photons, c.contrast) == (name, photons, contrast)]
                planted, found = sum(c.planted for c in some), sum(c.found for c in some)
                marks, right = sum(c.marks for c in some), sum(c.right for c in some)
                words = f"restored: {name}, {photons} photons"
                if contrast == 0:
                    bars.report(f"{words}, nothing planted, marks in {len(some)} images", marks)
                    continue
                low = 0.8 if contrast == 1 else -math.inf
                bars.report(f"{words}, contrast {contrast:g}, recall of {planted}", found / planted, low=low)
                bars.report(f"{words}, contrast {contrast:g}, precision of {marks}", right / max(marks, 1), low=low)


if __name__ == "__main__":
    main()
