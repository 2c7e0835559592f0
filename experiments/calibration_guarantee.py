"""Whether calibrated intervals hold what they promise.

    python experiments/calibration_guarantee.py --gaussian               # exact posteriors, 500 splits
    python experiments/calibration_guarantee.py --microscopy MODEL POOL  # simulated specimens; POOL.npz is made once
    python experiments/calibration_guarantee.py --w2s MODEL POOL         # real images, one field left out at a time
    python experiments/calibration_guarantee.py --check                  # the stored figures against their bars

The first has a Gaussian posterior with correlated pixels, whose risk is known in closed form: a truth minus the mean of
N draws, over their standard deviation, is Student's t with N - 1 degrees of freedom, times the root of 1 + 1/N. MODEL
is zoo/microscopy.safetensors for the second, and for the third one that experiments/per_minute.py trained on W2S, whose
images are found through SFUMATO_DATA. With --write figures go into experiments/results and docs/figures.
"""

import argparse
import csv
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.array_pairs import ArrayPairs
from sfumato.data.frames import upsample
from sfumato.data.sources import PairSource
from sfumato.evaluation.calibrate import HeldOutImage, calibrate, cross_validate, measure_middles, restore_held_out
from sfumato.evaluation.calibration_page import draw_calibration, draw_report
from sfumato.models.intervals import FLOOR, Sampled
from sfumato.models.model_file import LoadedModel, load
from sfumato.physics.structures import STRUCTURES
from sfumato.problems.microscopy_simulation import PHOTON_LEVELS, image_field
from sfumato.restoration.intervals import sampled_by
from sfumato.statistics.conformal import Scores, rcps, risk_control
from sfumato.training.preparation import open_held_out

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # where figures are held against bars
from bars import DOCS, Bars, write_table

LEVEL, DELTA, SPLITS = 0.9, 0.1, 500
SIDE, SAMPLES, STEPS = 24, 16, 8
NUM_SPECIMENS, NUM_CALIBRATION = 400, 200
FIELD = r"^(\d+)_"
RESULTS = Path(__file__).parent / "results" / "calibration_guarantee.csv"
BARS: dict[str, dict[str, float]] = {
    "gaussian: RCPS, 1000 images: splits whose risk exceeds 0.1": {"high": DELTA + 2 * math.sqrt(0.09 / SPLITS)},
    "gaussian: RCPS, 1000 images: length over the shortest": {"high": 1.1},
    "gaussian: risk control, 200 images: mean risk less 2 standard errors": {"high": 0.1},
    "gaussian: risk control, 200 images: length over the shortest": {"high": 1.05},
    "microscopy: RCPS, 200 images: splits whose risk exceeds 0.1": {"high": DELTA + 2 * math.sqrt(0.09 / SPLITS)},
    "microscopy: risk control, 200 images: mean risk less 2 standard errors": {"high": 0.1},
    "w2s: coverage after recalibration on other fields": {"low": 0.87, "high": 0.93},
}

Floats = NDArray[np.float64]


class Figures:
    """Prints figures with their bars and keeps them."""

    def __init__(self, problem: str, bars: Bars) -> None:
        self.problem, self.bars, self.rows = problem, bars, list[tuple[str, float]]()

    def add(self, name: str, value: float) -> None:
        """Print one figure."""
        full = f"{self.problem}: {name}"
        self.rows.append((full, value))
        self.bars.report(full, value, **BARS.get(full, {}))

    def write(self) -> None:
        """Replace the stored figures of this problem."""
        kept = [row for row in stored() if not row[0].startswith(f"{self.problem}: ")]
        with RESULTS.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["figure", "value"])
            writer.writerows((name, f"{value:.4g}") for name, value in sorted([*kept, *self.rows]))
        write_tables()


def stored() -> list[tuple[str, float]]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(encoding="utf-8") as file:
        return [(row["figure"], float(row["value"])) for row in csv.DictReader(file)]


def write_tables() -> None:
    """Those of docs/calibration.md, from what is stored."""
    for table, problems in (("guarantee", ("gaussian", "microscopy")), ("w2s", ("w2s",))):
        bars = Bars()
        for name, value in stored():
            if name.startswith(problems):
                bars.report(name, value, **BARS.get(name, {}))
        write_table(DOCS / "calibration.md", bars.table(), table)


def gaussian(figures: Figures, *, num_images: int = 4000, num_draws: int = 64) -> None:
    """Stationary posteriors: every pixel has the standard deviation 1, and pixels near each other err alike."""
    from scipy import stats

    rng, side = np.random.default_rng(0), 32
    y, x = np.meshgrid(np.fft.fftfreq(side), np.fft.fftfreq(side), indexing="ij")
    amplitude = np.exp(-0.5 * (np.hypot(y, x) / 0.15) ** 2)
    amplitude /= math.sqrt(float((amplitude**2).mean()))

    def fields(number: int) -> Floats:
        white = np.fft.fft2(rng.standard_normal((number, side, side)))
        return np.asarray(np.fft.ifft2(white * amplitude).real)

    images, widths = [], []
    for _ in range(num_images):
        truth, *_ = draws = fields(num_draws + 1)
        mean, std = draws[1:].mean(0), draws[1:].std(0, ddof=1) + FLOOR
        images.append([np.abs(truth - mean) / std])
        widths.append(float(std.mean()))
    scores, width = Scores(images), float(np.mean(widths))
    shortest = stats.norm.ppf((1 + LEVEL) / 2)

    def risk(factor: float) -> float:
        return float(2 * stats.t.sf(factor / math.sqrt(1 + 1 / num_draws), num_draws - 1))

    for name, number in (("RCPS", 1000), ("risk control", 200)):
        factors = []
        for _ in range(SPLITS):
            part = scores.only(rng.choice(num_images, number, replace=False).tolist())
            factors.append(rcps(part, LEVEL, DELTA) if name == "RCPS" else risk_control(part, LEVEL))
        _report(figures, f"{name}, {number} images", np.array([risk(factor) for factor in factors]))
        figures.add(f"{name}, {number} images: length over the shortest", float(np.mean(factors)) * width / shortest)


def _report(figures: Figures, name: str, risks: Floats) -> None:
    figures.add(f"{name}: mean risk", float(risks.mean()))
    if name.startswith("RCPS"):
        figures.add(f"{name}: splits whose risk exceeds 0.1", float((risks > 1 - LEVEL).mean()))
    else:
        error = float(risks.std(ddof=1)) / math.sqrt(len(risks))
        figures.add(f"{name}: mean risk less 2 standard errors", float(risks.mean()) - 2 * error)


def specimens() -> ArrayPairs:
    """Independent simulated specimens, each of one structure at one level of light, on the target's grid."""
    names = sorted(STRUCTURES)

    def pair(number: int) -> tuple[NDArray[Any], NDArray[Any]]:
        level = PHOTON_LEVELS[number // len(names) % len(PHOTON_LEVELS)]
        field = image_field(names[number % len(names)], side=SIDE, seed=12345, cell=number, levels=[level])
        widefield = field.raw[0].mean(0, dtype=np.float64).astype(np.float32)
        return upsample(widefield[None], (2, 2)), field.target[None]

    return ArrayPairs([pair(number) for number in range(NUM_SPECIMENS)], ndim=2)


def pool_of(path: Path, model: LoadedModel, source: PairSource, sampled: Sampled, keep_side: int) -> list[HeldOutImage]:
    """Restored images, made once."""
    file = path.with_suffix(".npz")
    if not file.exists():
        images = restore_held_out(
            model, source, sampled=sampled, level=LEVEL, keep_side=keep_side,
            progress=lambda done, total: print(f"restored {done} of {total}", file=sys.stderr, flush=True),
        )  # fmt: skip
        names = ("error", "std", "covered", "truth", "draws")
        arrays = {n: np.stack([getattr(i, n) for i in images]) for n in names}
        np.savez(file, allow_pickle=False, name=[i.name for i in images], **arrays)
    held = np.load(file)
    parts = zip(*(held[name] for name in ("name", "error", "std", "covered", "truth", "draws")), strict=True)
    return [HeldOutImage(str(name), e, s, float(c), t, d) for name, e, s, c, t, d in parts]


def microscopy(figures: Figures, path: Path, pool: Path) -> list[HeldOutImage]:
    model = load(path)
    sampled = sampled_by(model, SAMPLES, STEPS)
    images = pool_of(pool, model, specimens(), sampled, 2 * SIDE)
    figures.add("coverage of the samples' own 90% interval", float(np.mean([image.covered for image in images])))
    scores = Scores([[np.abs(image.error) / (image.std + FLOOR)] for image in images])
    rng = np.random.default_rng(0)
    for name in ("RCPS", "risk control"):
        risks, factors = [], []
        for _ in range(SPLITS):
            order = rng.permutation(len(images)).tolist()
            part = scores.only(order[:NUM_CALIBRATION])
            factors.append(rcps(part, LEVEL, DELTA) if name == "RCPS" else risk_control(part, LEVEL))
            risks.append(scores.only(order[NUM_CALIBRATION:]).risk(factors[-1]))
        _report(figures, f"{name}, {NUM_CALIBRATION} images", np.array(risks))
        figures.add(f"{name}, {NUM_CALIBRATION} images: mean factor", float(np.mean(factors)))
    return images


def w2s(figures: Figures, path: Path, pool: Path) -> list[HeldOutImage]:
    if "SFUMATO_DATA" not in os.environ:
        sys.exit("set SFUMATO_DATA to the folder that holds fluor_denoise_w2s")
    model = load(path)
    folder = Path(os.environ["SFUMATO_DATA"]).resolve() / "fluor_denoise_w2s" / "test"
    where = {"inputs": str(folder / "noisy"), "targets": str(folder / "clean"), "manifest": None}
    recipe = model.info.recipe.model_copy(update={"data": model.info.recipe.data.model_copy(update=where)})
    sampled = sampled_by(model, SAMPLES, STEPS)
    images = pool_of(pool, model, open_held_out(recipe, "test"), sampled, 128)
    found = calibrate(images, sampled=sampled, method="recalibrated", level=LEVEL, unit=FIELD)
    checked = cross_validate(images, found, unit=FIELD)
    figures.add("fields", len(checked.units))
    figures.add("coverage of the samples' own 90% interval (expected 0.882)", float(checked.raw.mean()))
    figures.add("coverage after recalibration on other fields", float(checked.corrected.mean()))
    figures.add("least coverage of a field after recalibration on others", float(checked.corrected.min()))
    figures.add("largest coverage of a field after recalibration on others", float(checked.corrected.max()))
    return images


def draw(images: list[HeldOutImage], path: Path) -> None:
    """The pages of docs/figures, of real images."""
    found = calibrate(
        images, sampled=sampled_by(load(path), SAMPLES, STEPS), method="recalibrated", level=LEVEL, unit=FIELD
    )
    checked = cross_validate(images, found, unit=FIELD)
    draw_calibration(images, found, checked, DOCS / "figures" / "calibration_w2s.png")
    report = measure_middles(images, level=LEVEL)
    print("\n".join(report.lines()))
    draw_report(report, DOCS / "figures" / "calibration_report_w2s.png", unit="normalised units")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gaussian", action="store_true")
    parser.add_argument("--microscopy", nargs=2, type=Path, metavar=("MODEL", "POOL"))
    parser.add_argument("--w2s", nargs=2, type=Path, metavar=("MODEL", "POOL"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    options, bars = parser.parse_args(), Bars()
    if options.gaussian:
        figures = Figures("gaussian", bars)
        gaussian(figures)
        if options.write:
            figures.write()
    for problem, measure in (("microscopy", microscopy), ("w2s", w2s)):
        if given := getattr(options, problem):
            figures = Figures(problem, bars)
            images = measure(figures, *given)
            if options.write:
                figures.write()
                if problem == "w2s":
                    draw(images, given[0])
    if options.check and not (options.gaussian or options.microscopy or options.w2s):
        found = dict(stored())
        for name, bounds in BARS.items():
            bars.report(name, found.get(name, math.nan), **bounds)
    bars.finish(check=options.check)


if __name__ == "__main__":
    main()
