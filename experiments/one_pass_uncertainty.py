"""Does the schedule's integral of beta, one pass of a network, say where a restored image is uncertain?

    python experiments/one_pass_uncertainty.py --measure w2s/default/4/0 --work runs/per_minute
    python experiments/one_pass_uncertainty.py --write --work runs/per_minute   # table and figure of the docs
    python experiments/one_pass_uncertainty.py --check                          # do the docs say what is stored?

The models are those that experiments/per_minute.py trained (problem/default/minutes/seed); measuring one takes minutes.

Of every test image (its middle, 128 pixels a side) 16 samples are drawn as `restore` draws them. Spearman's rank
correlation over its pixels is taken of each hint with the standard deviation of the samples, and with the absolute
error of their mean (of phases without the mean of the image, which cannot be known); means over images have 95%
bootstrap intervals over images. The hints: the integral of beta; the standard deviation that the model reads from the
image at once, which `restore --fast` writes; local intensity and gradient magnitude of what was measured (Gaussian, 1.5
pixels, over all channels). The standard deviation of the samples itself is what a hint could at best hope for.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # where figures are held against bars

import numpy as np
import torch
from numpy.typing import NDArray

from bars import DOCS, Bars, write_table
from sfumato import load
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.uncertainty import integral_of_beta
from sfumato.models.model_file import LoadedModel
from sfumato.restoration.restorer import Restorer
from sfumato.statistics.calibration_report import Estimate
from sfumato.statistics.significance import interval, rank_correlation
from yardstick.problems import PROBLEMS, Held, Places, held_out
from yardstick.rows import read_rows, write_rows

RESULTS = Path(__file__).parent / "results" / "one_pass_uncertainty.csv"
DOCUMENT, FIGURE = DOCS / "one_pass_uncertainty.md", DOCS / "figures" / "one_pass_uncertainty.png"
SAMPLES, CROP, MOST, WIDTH = 16, 128, 24, 1.5
SCHEDULE, STD, ERROR = "schedule", "std of samples", "error"
LOW, HIGH = "lowest rate", "highest rate"
"""The 1% and 99% quantiles of the integral of beta over the pixels of an image."""
NAMES = {
    SCHEDULE: "integral of beta",
    "one read": "std of one read",
    "intensity": "local intensity",
    "gradient": "gradient magnitude",
    STD: f"std of {SAMPLES} samples",
}
HINTS = tuple(NAMES)[:-1]
UNITS = {"phase": "rad", "w2s": "grey levels", "microscopy": "half ranges of the image"}
SHOWN = {"phase": "phase", "w2s": "W2S", "microscopy": "microscopy, simulated"}

Map = NDArray[np.float64]


class Row(NamedTuple):
    """A figure of a test image."""

    cell: str
    image: str
    against: str
    hint: str
    value: float


def measured(cell: str, model: LoadedModel, images: Sequence[Held], maps: Path) -> list[Row]:
    """Figures of a model; the maps of one image are kept for the figure."""
    rows: list[Row] = []
    for number, image in enumerate(images):
        found = _maps(cell, model, image, number)
        for against, hints in ((STD, HINTS), (ERROR, (*HINTS, STD))):
            rows += [
                Row(cell, image.name, against, hint, rank_correlation(found[hint], found[against])) for hint in hints
            ]
        ends = np.quantile(found[SCHEDULE], [0.01, 0.99])
        rows += [
            Row(cell, image.name, end, SCHEDULE, float(value)) for end, value in zip((LOW, HIGH), ends, strict=True)
        ]
        if number == len(images) // 2:
            maps.mkdir(parents=True, exist_ok=True)
            everything: dict[str, Any] = {"seen": _middle(image.condition)[-1], **found}
            np.savez(maps / f"{cell.replace('/', '_')}.npz", **everything)
        print(f"{cell}: image {number + 1} of {len(images)}", file=sys.stderr, flush=True)
    return rows


def _maps(cell: str, model: LoadedModel, image: Held, number: int) -> dict[str, Map]:
    """Hints, standard deviation and error of the first channel (H, W), in the units of the targets."""
    seen, truth = _middle(image.condition), _middle(image.truth)[0]
    condition = model.info.condition.of_pixels(seen[None])
    restorer = Restorer.of(model, SAMPLES)
    kept = restorer.draw(condition, NoiseField(0, image=number), batch=SAMPLES, keep=(...,)).kept
    samples: Map = model.info.target.invert(torch.stack(kept).double(), axis=1)[:, 0].numpy()
    std = restorer.read(condition)[1]
    assert std is not None, "today's presets know the standard deviation of every pixel"
    if PROBLEMS[cell.split("/")[0]].remove_mean:
        samples, truth = (each - each.mean((-2, -1), keepdims=True) for each in (samples, truth))
    rate = integral_of_beta(restorer.know(condition).schedule)[0, 0].double().numpy()
    intensity, gradient = _looks(seen.astype(np.float64))
    return {
        SCHEDULE: np.array(np.broadcast_to(rate, truth.shape)),
        "one read": std[0, 0].double().numpy(),  # of ranks, so its unit does not matter
        "intensity": intensity,
        "gradient": gradient,
        STD: samples.std(0, ddof=1),
        ERROR: np.abs(samples.mean(0) - truth),
    }


def _middle(image: Map) -> Map:
    corner = [(side - min(side, CROP)) // 2 for side in image.shape[1:]]
    return image[:, corner[0] : corner[0] + CROP, corner[1] : corner[1] + CROP]


def _looks(seen: Map) -> tuple[Map, Map]:
    """Local intensity and gradient magnitude over the channels of (K, H, W)."""
    from scipy.ndimage import gaussian_filter, gaussian_gradient_magnitude

    intensity = np.mean([gaussian_filter(channel, WIDTH) for channel in seen], 0)
    gradient = np.sqrt(np.sum([gaussian_gradient_magnitude(channel, WIDTH) ** 2 for channel in seen], 0))
    return intensity, gradient


def keep(rows: Sequence[Row]) -> None:
    """Rows of a model take the place of those that were stored of it."""
    others = [row for row in read_rows(RESULTS, Row) if row.cell != rows[0].cell]
    write_rows(RESULTS, Row, [*others, *rows])


def stored() -> dict[tuple[str, str], dict[str, list[float]]]:
    """Values of images by (model, what is compared with), then by hint."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in read_rows(RESULTS, Row):
        values.setdefault((row.cell, row.against), {}).setdefault(row.hint, []).append(row.value)
    return values


def estimate(values: Sequence[float]) -> Estimate:
    array = np.array(values)
    return Estimate(float(array.mean()), *interval(array))


def table() -> list[str]:
    """As Markdown; in every row the highest of the hints that need no samples is bold."""
    heads = [NAMES[hint] for hint in (*HINTS, STD)]
    lines = [f"| model | images | rank correlation with | {' | '.join(heads)} |", "|---" * (3 + len(heads)) + "|"]
    for (cell, against), by_hint in stored().items():
        if against in (LOW, HIGH):
            continue
        means = {hint: estimate(values) for hint, values in by_hint.items()}
        best = max(HINTS, key=lambda hint: means[hint].value)
        cells = []
        for hint in (*HINTS, STD):
            text = ""
            if hint in means:
                value, low, high = means[hint]
                text = f"{f'**{value:.2f}**' if hint == best else f'{value:.2f}'} [{low:.2f}, {high:.2f}]"
            cells.append(text)
        what = NAMES[STD] if against == STD else "error of their mean"
        lines.append(f"| {named(cell)} | {len(by_hint[SCHEDULE])} | {what} | {' | '.join(cells)} |")
    return lines


def rate_table() -> list[str]:
    """How much the integral of beta varies at all: its lowest and highest value in the images."""
    lines = [
        "| model | 1% quantile, lowest image | 99% quantile, highest image | their distance in an image, median |",
        "|---|---|---|---|",
    ]
    found = stored()
    for cell in dict.fromkeys(cell for cell, _ in found):
        low, high = (np.array(found[cell, end][SCHEDULE]) for end in (LOW, HIGH))
        lines.append(f"| {named(cell)} | {low.min():.2f} | {high.max():.2f} | {np.median(high - low):.2g} |")
    return lines


def named(cell: str) -> str:
    problem, _, minutes, _ = cell.split("/")
    return f"{SHOWN[problem]}, {minutes} min"


def draw(maps: Path) -> None:
    """What was seen, the two maps of one read, the standard deviation of samples and the error, a row per model."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    cells = list(dict.fromkeys(cell for cell, _ in stored()))
    layout = ConstrainedLayoutEngine(wspace=0.06)  # bars keep their labels off the next picture
    figure = Figure(figsize=(14, 2.75 * len(cells)), layout=layout)
    places = figure.subplots(len(cells), 5, squeeze=False)
    for row, cell in zip(places, cells, strict=True):
        found = np.load(maps / f"{cell.replace('/', '_')}.npz")
        top = float(np.quantile(found[ERROR], 0.99))
        unit = UNITS[cell.split("/")[0]]

        def against_error(hint: str, found: Any = found) -> str:
            return f"against the error: {rank_correlation(found[hint], found[ERROR]):.2f}"

        shown = (
            ("measured", found["seen"], "gray", np.quantile(found["seen"], [0.002, 0.998]), "as measured"),
            (
                f"integral of $\\beta$\n{against_error(SCHEDULE)}",
                found[SCHEDULE],
                "viridis",
                np.quantile(found[SCHEDULE], [0.005, 0.995]),
                "no unit",
            ),
            (
                f"std of one read\n{against_error('one read')}",
                found["one read"],
                "magma",
                (0, np.quantile(found["one read"], 0.99)),
                "normalised",
            ),
            (f"std of {SAMPLES} samples\n{against_error(STD)}", found[STD], "magma", (0, top), unit),
            ("error of their mean", found[ERROR], "magma", (0, top), unit),
        )
        for place, (title, image, colours, (low, high), label) in zip(row, shown, strict=True):
            picture = place.imshow(image, cmap=colours, vmin=low, vmax=high)
            place.set_title(title, fontsize=10)
            place.set(xticks=[], yticks=[])
            figure.colorbar(picture, ax=place, label=label, shrink=0.9)
        row[0].set_ylabel(named(cell), fontsize=11)
    figure.savefig(FIGURE, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--measure", metavar="CELL", help="measure a trained cell and store its figures")
    parser.add_argument(
        "--work", type=Path, default=Path("runs/per_minute"), help="folder of the cells and of the maps"
    )
    parser.add_argument("--most", type=int, default=MOST, help="images of each test set at most, spread over it")
    parser.add_argument("--write", action="store_true", help="write the docs' table and figure")
    parser.add_argument("--check", action="store_true", help="exit non-zero if the docs say what is not stored")
    arguments = parser.parse_args()
    maps = arguments.work / "one_pass_maps"
    if arguments.measure:
        problem = arguments.measure.split("/")[0]
        places = Places.below(arguments.work)
        model = load(arguments.work / arguments.measure / "run" / "model.safetensors")
        images = [
            image
            for test_set in PROBLEMS[problem].test_sets
            for image in held_out(problem, test_set, places, most=arguments.most)
        ]
        keep(measured(arguments.measure, model, images, maps))
    if not RESULTS.exists():
        sys.exit("no figures are stored yet: use --measure first")
    if arguments.write:
        write_table(DOCUMENT, [*table(), "", *rate_table()])
        draw(maps)
    bars = Bars()
    for (cell, against), by_hint in stored().items():
        for hint, values in by_hint.items():
            if against in (LOW, HIGH):
                bars.report(f"{cell}: {against}, mean over images", estimate(values).value)
            else:
                bars.report(f"{cell}: rank correlation of {NAMES[hint]} with {against}", estimate(values).value)
    said = set(DOCUMENT.read_text(encoding="utf-8").splitlines())
    bars.report(
        "lines of the table that the docs do not have", sum(line not in said for line in table() + rate_table()), high=0
    )
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
