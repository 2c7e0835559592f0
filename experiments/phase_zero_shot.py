"""Phases of real specimens by a model that has seen none: trained on simulated pairs, measured against physics.

    python experiments/phase_zero_shot.py --train runs/phase               # on one thread, 15 minutes; resumes
    python experiments/phase_zero_shot.py --measure runs/phase --write     # figures; picture and table of the docs
    python experiments/phase_zero_shot.py --check                          # the stored figures against their bars

The images are found through the environment variable SFUMATO_DATA. The recipe is recipes/small/qpi_in_focus.yaml,
whose model learns from photographs of `natural_imagenet100` that stand for phases, in uniform light, of one geometry.
Every specimen is resampled to the grid where its distance times wavelength over the pixel's area is that of the recipe.
The model gets a flat image in focus, and the defocused one over the one in focus, which takes what the specimen absorbs
out to first order. A negative distance shows the phase of a positive one with the other sign.

Two figures, since there is no truth. Agreement: correlation with the best TIE solution, and the root mean square of the
difference over the deviation of that solution (NRMSE), after the filter f^4 / (f^4 + f_c^4) took the constant and
the slow part from both; f_c is one period per training patch, 64 pixels. The best TIE solution is the candidate that
explains the measured defocused image best. Forward error: the phase and the measured intensity in focus are propagated
to a measured plane and compared with it, root mean square over deviation; 32 pixels of border do not count.
"""

import argparse
import csv
import os
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from real_phases import Field, candidates, cheek, data, forward_error, hela, high_pass, microlenses
from sfumato import load, restore
from sfumato.data.images.io import open_image, write_image
from sfumato.models import recipe as recipes
from sfumato.physics.phase_retrieval import DARKEST
from sfumato.training.train import train

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # where figures are held against bars
from bars import DOCS, Bars, write_table

RECIPE = Path(__file__).parents[1] / "recipes" / "small" / "qpi_in_focus.yaml"
RESULTS = Path(__file__).parent / "results" / "phase_zero_shot.csv"
SAMPLES, STEPS, PERIOD_PX = 32, 8, 64
WITHIN_RANGE = ("HeLa cells", "cheek cell")
"""Specimens whose phases are of the size that the model was trained on; microlenses are some thirty times higher."""
FLAT, MODEL, TIE = "flat phase", "model", "best TIE"


def fields() -> list[Field]:
    """The three specimens on the grid of the model's geometry."""
    forward = recipes.load(RECIPE).forward
    defocus, wavelength, pixel = (
        float(np.asarray(forward[f"{name}_um"])) for name in ("defocus", "wavelength", "pixel")
    )
    cells = hela(slice(540, 860), slice(500, 820))
    rim = microlenses(slice(490, 706), slice(510, 726))
    return [field.resampled(defocus * wavelength / pixel**2) for field in (cells, rim, cheek())]


def train_model(folder: Path, minutes: float) -> None:
    recipe = recipes.load(RECIPE)
    place = recipe.data.model_copy(update={"folder": str(data("natural_imagenet100"))})
    train(recipe.model_copy(update={"data": place}), folder, minutes=minutes)


def estimated(folder: Path, field: Field) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the model's samples, in radians, kept in the run folder."""
    file = folder / "zero_shot" / f"{field.name.replace(' ', '_')}.tif"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        ratio = field.defocused / field.in_focus.clamp_min(DARKEST)
        condition = torch.stack([torch.ones_like(ratio), ratio / ratio.mean()]).float().numpy()
        found = restore(condition, load(folder / "model.safetensors"), num_samples=SAMPLES, num_steps=STEPS)
        assert found.std is not None
        sign = float(np.sign(field.defocus_um))
        both = np.stack([sign * found.mean.reshape(ratio.shape), found.std.reshape(ratio.shape)])
        write_image(file, both, axes="CYX")
        print(f"restored: {field.name}, {both.shape[1]} x {both.shape[2]}", file=sys.stderr, flush=True)
    mean, std = torch.from_numpy(np.asarray(open_image(file).read({}), np.float64))
    return mean - mean.mean(), std


def best_tie(field: Field) -> tuple[str, Tensor]:
    found = candidates(field)
    return min(found.items(), key=lambda item: forward_error(field, item[1], field.defocus_um, field.defocused))


def agreement(estimate: Tensor, reference: Tensor) -> tuple[float, float]:
    """Correlation and NRMSE of what the filter leaves of both."""
    one, other = (high_pass(phase, PERIOD_PX) for phase in (estimate, reference))
    correlation = float(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1])
    return correlation, float((one - other).square().mean().sqrt() / other.std(correction=0))


def measure(folder: Path) -> list[dict[str, str]]:
    """One row per specimen, figure and method."""
    rows: list[dict[str, str]] = []
    for field in fields():

        def add(figure: str, method: str, value: float, name: str = field.name) -> None:
            rows.append({"specimen": name, "figure": figure, "method": method, "value": f"{value:.4f}"})

        mean, _ = estimated(folder, field)
        solver, reference = best_tie(field)
        print(f"{field.name}: the best TIE solution is {solver}", file=sys.stderr, flush=True)
        correlation, error = agreement(mean, reference)
        add("correlation with the best TIE", MODEL, correlation)
        add("NRMSE against the best TIE", MODEL, error)
        phases = {FLAT: torch.zeros_like(mean), TIE: reference, MODEL: mean}
        for distance, measured in ((field.defocus_um, field.defocused), *field.unseen):
            seen = "" if distance == field.defocus_um else ", unseen"
            for method, phase in phases.items():
                value = forward_error(field, phase, distance, measured)
                add(f"forward error at {distance:+g} um{seen}", method, value)
    return rows


def stored() -> dict[tuple[str, str], dict[str, float]]:
    """Values by specimen and figure, then by method."""
    values: dict[tuple[str, str], dict[str, float]] = {}
    with RESULTS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            values.setdefault((row["specimen"], row["figure"]), {})[row["method"]] = float(row["value"])
    return values


def table() -> list[str]:
    lines = [f"| specimen | figure | {FLAT} | {TIE} | {MODEL} |", "|---|---|---|---|---|"]
    for (specimen, figure), values in stored().items():
        cells = (f"{values[method]:.3f}" if method in values else "" for method in (FLAT, TIE, MODEL))
        lines.append(f"| {specimen} | {figure} | {' | '.join(cells)} |")
    return lines


def draw(folder: Path) -> None:
    """What was measured, the model's mean and spread, and the best TIE solution."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(3, 4, figsize=(14, 9.6), layout="constrained")
    for row, field in zip(axes, fields(), strict=True):
        mean, std = estimated(folder, field)
        slow = f"\nperiods up to {PERIOD_PX * field.pixel_um:.0f} um"
        model, solution = (high_pass(phase, PERIOD_PX) for phase in (mean, best_tie(field)[1]))
        high = float(np.quantile(torch.stack([model, solution]).abs(), 0.99))
        span = {"extent": (0, mean.shape[1] * field.pixel_um, mean.shape[0] * field.pixel_um, 0)}
        spread: dict[str, float] = {"vmin": 0.0, "vmax": float(np.quantile(std, 0.995))}
        light = np.quantile(field.defocused, [0.002, 0.998])
        shown: list[tuple[str, Tensor | NDArray[np.float64], str, dict[str, float], str]] = [
            (
                f"measured at {field.defocus_um:+g} um",
                field.defocused,
                "gray",
                {"vmin": light[0], "vmax": light[1]},
                "",
            ),
            (f"model: mean{slow}", model, "RdBu_r", {"vmin": -high, "vmax": high}, "rad"),
            ("model: std of samples\nall periods", std, "magma", spread, "rad"),
            (f"best TIE{slow}", solution, "RdBu_r", {"vmin": -high, "vmax": high}, "rad"),
        ]
        for axis, (title, image, colours, ends, unit) in zip(row, shown, strict=True):
            picture = axis.imshow(image, cmap=colours, **ends, **span)
            axis.set_title(title, fontsize=11)
            figure.colorbar(picture, ax=axis, label=unit or "intensity / mean", shrink=0.85)
        row[0].set_ylabel(f"{field.name}\num")
    for axis in axes[-1]:
        axis.set_xlabel("um")
    figure.savefig(DOCS / "figures" / "phase_zero_shot.png", dpi=75)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train", type=Path, help="folder of the run")
    parser.add_argument("--minutes", type=float, default=15, help="with --train: how long")
    parser.add_argument("--measure", type=Path, help="the same folder: measure and store the figures")
    parser.add_argument("--write", action="store_true", help="with --measure: write the docs' picture and table")
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    if arguments.train:
        train_model(arguments.train, arguments.minutes)
    if arguments.measure:
        rows = measure(arguments.measure)
        RESULTS.parent.mkdir(exist_ok=True)
        with RESULTS.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        if arguments.write:
            draw(arguments.measure)
            write_table(DOCS / "problems" / "phase.md", table())
    if not RESULTS.exists():
        sys.exit("no figures are stored yet: use --train and --measure first" if arguments.check else 0)
    report().finish(check=arguments.check)


def report() -> Bars:
    bars = Bars()
    for (specimen, figure), values in stored().items():
        for method, value in values.items():
            bar = {}
            if method == MODEL and figure.startswith("correlation"):
                bar = {"low": 0.5}
            elif (
                method == MODEL and figure.startswith("forward") and "unseen" not in figure and specimen in WITHIN_RANGE
            ):
                bar = {"high": values[FLAT]}
            bars.report(f"{specimen}: {figure}, {method}", value, **bar)
    return bars


if __name__ == "__main__":
    main()
