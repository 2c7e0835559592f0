"""Does the schedule's integral of beta, one pass of a network, say where a restored image is uncertain?

    python experiments/one_pass_uncertainty.py --measure "W2S" --model model.safetensors --inputs noisy --targets clean
    python experiments/one_pass_uncertainty.py --measure "phase" --model model.safetensors --folder photographs
    python experiments/one_pass_uncertainty.py --write     # table and figure of the docs
    python experiments/one_pass_uncertainty.py --check     # do the docs say what is stored?

The first two take some ten minutes each on one core, for the draws and for the rival's training, which is kept.

Of every test image (its middle, 96 pixels a side) 16 draws of 8 steps are made. Spearman's rank correlation over its
pixels is taken of each hint with the standard deviation of the draws, and with the absolute error of their mean; means
over images have 95% bootstrap intervals over images. The hints: the integral of beta; local intensity and gradient
magnitude of what was measured (Gaussian, 1.5 pixels, over all channels); the width of the 5% to 95% interval of a
quantile regression (a U-Net of 8 filters at 4 scales, trained on the run's own pairs, 8 patches a step). The standard
deviation of the draws itself, against the error, is what a hint could at best hope for.
"""

import argparse
import csv
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quantile_head import quantile_head
from sfumato import load
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.uncertainty import integral_of_beta
from sfumato.evaluation.inspection import crops
from sfumato.models.model_file import LoadedModel
from sfumato.restoration.restorer import Restorer
from sfumato.statistics.calibration_report import Estimate
from sfumato.statistics.significance import interval, rank_correlation
from sfumato.training.preparation import open_test_set

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # where figures are held against bars
from bars import DOCS, Bars, write_table

RESULTS = Path(__file__).parent / "results" / "one_pass_uncertainty.csv"
DOCUMENT, FIGURE = DOCS / "one_pass_uncertainty.md", DOCS / "figures" / "one_pass_uncertainty.png"
SAMPLES, STEPS, CROP, MOST, WIDTH = 16, 8, 96, 15, 1.5
SCHEDULE, STD, ERROR = "schedule", "std of draws", "error"
LOW, HIGH = "lowest rate", "highest rate"
"""The 1% and 99% quantiles of the integral of beta over the pixels of an image."""
HINTS = (SCHEDULE, "intensity", "gradient", "quantile head")
NAMES = {
    SCHEDULE: "integral of beta",
    "intensity": "local intensity",
    "gradient": "gradient magnitude",
    "quantile head": "quantile regression",
    STD: "std of 16 draws",
}

Map = NDArray[np.float64]


def measured(
    name: str, path: Path, work: Path, places: dict[str, str | None], *, most: int, head: str | None, head_steps: int
) -> list[dict[str, str]]:
    """One row per image, hint and what it is compared with; the maps of one image are kept for the figure."""
    model = load(path)
    recipe = model.info.recipe
    told = {"folder": places["folder"]} if places["folder"] else {}
    trained_on = recipe.model_copy(update={"data": recipe.data.model_copy(update=told)})
    tested: dict[str, str | None] = {key: value for key, value in places.items() if value}
    if places["inputs"]:
        tested |= {"manifest": None, "store": None}
    test_data = recipe.data.model_copy(update=tested)
    test = open_test_set(recipe.model_copy(update={"data": test_data}))
    rival = quantile_head(trained_on, work / f"head_{head or recipe.name}.safetensors", steps=head_steps)
    rows: list[dict[str, str]] = []
    pairs = crops(model, test, most=most, crop=CROP)
    for number, (condition, truth) in enumerate(pairs):
        draws = _draws(model, condition, number)
        with torch.no_grad():
            low, high = rival(condition)
            rate = integral_of_beta(model.model.schedule(condition))[0, 0].double().numpy()
        intensity, gradient = _looks(condition[0].double().numpy())
        maps: dict[str, Map] = {
            SCHEDULE: np.broadcast_to(rate, truth.shape[1:]),
            "intensity": intensity,
            "gradient": gradient,
            "quantile head": (high - low)[0, 0].double().numpy(),
            STD: draws.std(0, ddof=1),
            ERROR: np.abs(draws.mean(0) - truth[0].double().numpy()),
        }
        for against, hints in ((STD, HINTS), (ERROR, (*HINTS, STD))):
            for hint in hints:
                value = rank_correlation(maps[hint], maps[against])
                rows.append(
                    {"run": name, "image": str(number), "against": against, "hint": hint, "value": f"{value:.4f}"}
                )
        for end, value in zip((LOW, HIGH), np.quantile(rate, [0.01, 0.99]), strict=True):
            rows.append({"run": name, "image": str(number), "against": end, "hint": SCHEDULE, "value": f"{value:.7g}"})
        if number == len(pairs) // 2:
            (work / "maps").mkdir(parents=True, exist_ok=True)
            seen = condition[0, -1].double().numpy()
            everything: dict[str, Any] = {"seen": seen, **maps}
            np.savez(work / "maps" / f"{_stem(name)}.npz", **everything)
        print(f"{name}: image {number + 1} of {len(pairs)}", file=sys.stderr, flush=True)
    return rows


def _draws(model: LoadedModel, condition: torch.Tensor, image: int) -> Map:
    """Draws of the first channel, shape (N, H, W), in the units of the targets."""
    restorer = Restorer.of(model, SAMPLES, STEPS)
    kept = restorer.draw(condition, NoiseField(0, image=image), batch=SAMPLES, keep=(...,)).kept
    draws: Map = model.info.target.invert(torch.stack(kept))[:, 0].double().numpy()
    return draws


def _looks(seen: Map) -> tuple[Map, Map]:
    """Local intensity and gradient magnitude over the channels of (K, H, W)."""
    from scipy.ndimage import gaussian_filter, gaussian_gradient_magnitude

    intensity = np.mean([gaussian_filter(channel, WIDTH) for channel in seen], 0)
    gradient = np.sqrt(np.sum([gaussian_gradient_magnitude(channel, WIDTH) ** 2 for channel in seen], 0))
    return intensity, gradient


def keep(rows: list[dict[str, str]]) -> None:
    """Rows of a run take the place of those that were stored of it."""
    held = []
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            held = [row for row in csv.DictReader(file) if row["run"] != rows[0]["run"]]
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows([*held, *rows])


def stored() -> dict[tuple[str, str], dict[str, list[float]]]:
    """Values of images by (run, what is compared with), then by hint."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    with RESULTS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            by_hint = values.setdefault((row["run"], row["against"]), {})
            by_hint.setdefault(row["hint"], []).append(float(row["value"]))
    return values


def estimate(values: Sequence[float]) -> Estimate:
    array = np.array(values)
    return Estimate(float(array.mean()), *interval(array))


def table() -> list[str]:
    """As Markdown; in every row the highest of the hints that need no samples is bold."""
    heads = [NAMES[hint] for hint in (*HINTS, STD)]
    lines = [f"| run | images | rank correlation with | {' | '.join(heads)} |", "|---" * (3 + len(heads)) + "|"]
    for (run, against), by_hint in stored().items():
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
        what = STD if against == STD else "error of their mean"
        lines.append(f"| {run} | {len(by_hint[SCHEDULE])} | {what} | {' | '.join(cells)} |")
    return lines


def rate_table() -> list[str]:
    """How much the integral of beta varies at all: its lowest and highest value in the images."""
    lines = [
        "| run | 1% quantile, lowest image | 99% quantile, highest image | their distance in an image, median |",
        "|---|---|---|---|",
    ]
    found = stored()
    for run in dict.fromkeys(run for run, _ in found):
        low, high = (np.array(found[run, end][SCHEDULE]) for end in (LOW, HIGH))
        lines.append(f"| {run} | {low.min():.4f} | {high.max():.4f} | {np.median(high - low):.2g} |")
    return lines


def draw(work: Path) -> None:
    """What was seen, the integral of beta, the standard deviation and the error, a row per run."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    files = {run: work / "maps" / f"{_stem(run)}.npz" for run in dict.fromkeys(run for run, _ in stored())}
    layout = ConstrainedLayoutEngine(wspace=0.06)  # bars keep their labels off the next picture
    figure = Figure(figsize=(12, 2.75 * len(files)), layout=layout)
    places = figure.subplots(len(files), 4, squeeze=False)
    for row, (run, file) in zip(places, files.items(), strict=True):
        maps = np.load(file)
        top = float(np.quantile(maps[ERROR], 0.99))
        correlations = {key: rank_correlation(maps[SCHEDULE], maps[key]) for key in (STD, ERROR)}
        unit = _unit(run)
        shown = (
            ("what was measured", maps["seen"], "gray", np.quantile(maps["seen"], [0.002, 0.998]), "normalised"),
            (r"integral of $\beta$", maps[SCHEDULE], "viridis", np.quantile(maps[SCHEDULE], [0.005, 0.995]), "no unit"),
            (f"std of {SAMPLES} draws\nrank correlation {correlations[STD]:.2f}", maps[STD], "magma", (0, top), unit),
            (f"error of their mean\nrank correlation {correlations[ERROR]:.2f}", maps[ERROR], "magma", (0, top), unit),
        )
        for place, (title, image, colours, (low, high), label) in zip(row, shown, strict=True):
            picture = place.imshow(image, cmap=colours, vmin=low, vmax=high)
            place.set_title(title, fontsize=10)
            place.set(xticks=[], yticks=[])
            bar = figure.colorbar(picture, ax=place, label=label, shrink=0.9)
            if colours == "viridis":  # values that hardly differ: the upper end by how far it lies above the lower
                bar.set_ticks([low, high], labels=[f"{low:.4f}", f"+ {high - low:.1g}"])
        row[0].set_ylabel(run, fontsize=11)
    figure.savefig(FIGURE, dpi=80)


def _unit(run: str) -> str:
    if run.startswith("phase"):
        return "rad"
    return "grey levels" if run.startswith("W2S") else "half ranges of the image"


def _stem(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--measure", help="name of a run: measure it and store its figures")
    parser.add_argument("--model", type=Path, help="its model file")
    for name in ("inputs", "targets", "folder"):
        parser.add_argument(f"--{name}", help="where its test images are, if not where its recipe says")
    parser.add_argument("--head", help="name of the quantile regression, which runs of the same pairs can share")
    parser.add_argument("--head-steps", type=int, default=600, help="of its training")
    parser.add_argument("--most", type=int, default=MOST, help="images at most, spread over the test set")
    parser.add_argument("--work", type=Path, default=Path("runs/one_pass"), help="folder of the rival and of the maps")
    parser.add_argument("--write", action="store_true", help="write the docs' table and figure")
    parser.add_argument("--check", action="store_true", help="exit non-zero if the docs say what is not stored")
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    if arguments.measure:
        places = {name: getattr(arguments, name) for name in ("inputs", "targets", "folder")}
        settings = {"most": arguments.most, "head": arguments.head, "head_steps": arguments.head_steps}
        keep(measured(arguments.measure, arguments.model, arguments.work, places, **settings))
    if not RESULTS.exists():
        sys.exit("no figures are stored yet: use --measure first")
    if arguments.write:
        write_table(DOCUMENT, [*table(), "", *rate_table()])
        draw(arguments.work)
    bars = Bars()
    for (run, against), by_hint in stored().items():
        for hint, values in by_hint.items():
            if against in (LOW, HIGH):
                bars.report(f"{run}: {against}, mean over images", estimate(values).value)
                continue
            bars.report(f"{run}: rank correlation of {NAMES[hint]} with {against}", estimate(values).value)
    said = set(DOCUMENT.read_text(encoding="utf-8").splitlines())
    bars.report(
        "lines of the table that the docs do not have", sum(line not in said for line in table() + rate_table()), high=0
    )
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
