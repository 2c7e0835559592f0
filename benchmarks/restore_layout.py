"""Whether the way an image is cut shows in what is restored.

    python benchmarks/restore_layout.py NAME=model.safetensors:image.tif ... [--write] [--check]

For each model the image is restored whole and in chunks of two sizes, each chunk by itself, with the same seed; without
an image, the first test or validation image of its recipe. Told are the largest difference of a sample from that of the
whole image, over the data range (between the 0.1 and 99.9 percentiles of the sample), and the mean step between pixels
on both sides of chunk borders over that of pixels close by, itself over the same ratio in the whole image, which has no
borders. A model with mean and scale networks has the same told of its mean without samples, as `NAME, fast`. A name
that ends in `-instance` has no bar on the first and a wider one on the second: its network depends on the chunk. Then
the standard deviation where tiles overlap is compared with that elsewhere, on a problem whose posterior is known.
"""

import argparse
import csv
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bars import Bars
from sfumato import CVDM, load, sample
from sfumato.data.images.io import open_image, write_image
from sfumato.diffusion.schedule import CosineSchedule
from sfumato.restoration.planning import Settings, plan_restoration
from sfumato.restoration.run import run_restoration
from sfumato.restoration.tiles import TiledNetwork, spans, tiled
from sfumato.training.preparation import open_sources

CHUNKS = (128, 192)
STEPS, SAMPLES = 8, 2
OWN = "own_test_image.tif"
RESULTS = Path(__file__).parent / "results" / "restore_layout.csv"

Pixels = NDArray[np.float64]


def restored(model: Path, source: Path, chunk: int | None, folder: Path, *, fast: bool = False) -> Pixels:
    """One sample, or the mean without samples, whole or by chunks."""
    chosen = Settings(on_target_grid=source.name == OWN, chunk=8192 if chunk is None else chunk, threads=1)
    chosen = replace(chosen, fast=True) if fast else replace(chosen, num_samples=SAMPLES, num_steps=STEPS)
    planned = plan_restoration(model, source, folder / f"{chunk}.zarr", replace(chosen, keep_samples=not fast))
    files = run_restoration(planned)
    return np.asarray(open_image(files[0 if fast else 2]).read({}), np.float64)


def own_test_image(model: Path, folder: Path) -> Path:
    """The first of the model's own recipe, as it would be given to `restore` on the grid of the targets."""
    sources = open_sources(load(model).info.recipe, cache_bytes=0)
    source = sources.get("test") or sources["validation"]
    condition, _ = source.read(0, [0, 0], source.spatial(0))
    write_image(folder / OWN, np.asarray(condition, np.float32), axes="CYX")
    return folder / OWN


def border_steps(image: Pixels, chunk: int) -> float:
    """Mean, over borders, of the absolute step across one over that between pixels up to 8 away."""
    ratios = []
    for axis in (0, 1):
        steps = np.abs(np.diff(image, axis=axis)).mean(1 - axis)
        for border in range(chunk - 1, len(steps) - 8, chunk):
            beside = np.concatenate([steps[border - 8 : border], steps[border + 1 : border + 9]])
            ratios.append(float(steps[border] / beside.mean()))
    return float(np.mean(ratios))


def measure(name: str, model: Path, source: Path | None, *, fast: bool = False) -> list[dict[str, str]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        image = source or own_test_image(model, Path(folder))
        whole = restored(model, image, None, Path(folder), fast=fast)
        low, high = np.quantile(whole, [0.001, 0.999])
        for chunk in CHUNKS:
            cut = restored(model, image, chunk, Path(folder), fast=fast)
            difference = float(np.abs(cut - whole).max() / (high - low))
            seam = border_steps(cut, chunk) / border_steps(whole, chunk)
            rows.append({"model": name, "chunk": str(chunk), "difference": f"{difference:.3g}", "seam": f"{seam:.4f}"})
            print(f"{name}, chunks of {chunk}: done", file=sys.stderr, flush=True)
    return rows


class Exact(torch.nn.Module):
    """The velocity of white noise of standard deviation 1/2 under noise, in closed form."""

    in_channels, stride, reach = 3, 1, 16

    def forward(self, images: Tensor) -> Tensor:
        """From condition, gamma and noisy image."""
        _, gamma, noisy = images.split(1, dim=1)
        clean = gamma.sqrt() * 0.25 / (0.25 * gamma + 1 - gamma) * noisy
        noise = (noisy - gamma.sqrt() * clean) / (1 - gamma).sqrt()
        velocity: Tensor = gamma.sqrt() * noise - (1 - gamma).sqrt() * clean
        return velocity


def overlap_spread(num_samples: int = 1000) -> tuple[float, float]:
    """Standard deviation in overlaps over that elsewhere, and over the exact one, by the sampler with tiles.

    Samples drawn per tile and averaged would have less where weights mix: down to the square root of 1/2 of it.
    """
    model = tiled(CVDM(CosineSchedule(), Exact()), 32)
    assert isinstance(model.network, TiledNetwork)
    std = sample(model, torch.zeros(1, 1, 96, 96), num_samples=num_samples, num_steps=64, seed=0).std(0)[0, 0]
    mixed = torch.zeros(96, dtype=torch.bool)
    for span in spans(96, model.network.tile, model.network.halo, model.network.blend):
        mixed[span.start : span.stop] |= (span.weights > 0) & (span.weights < 1)
    overlap = mixed[:, None] | mixed[None]
    return float(std[overlap].mean() / std[~overlap].mean()), float(std[overlap].mean() / 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", help="NAME=MODEL:IMAGE")
    parser.add_argument("--write", action="store_true", help="store the figures")
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for text in arguments.models:
        name, _, places = text.partition("=")
        model, _, source = places.partition(":")
        image = Path(source) if source else None
        rows += measure(name, Path(model), image)
        if load(model).model.knows_std:
            rows += measure(f"{name}, fast", Path(model), image, fast=True)
    if arguments.write and rows:
        RESULTS.parent.mkdir(exist_ok=True)
        with RESULTS.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if not rows and RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    bars = Bars()
    for row in rows:
        place, depends = (
            f"{row['model']}, chunks of {row['chunk']}",
            row["model"].removesuffix(", fast").endswith("-instance"),
        )
        limits = {} if depends else {"high": 1e-3}
        bars.report(f"{place}: largest difference of a sample, of the range", float(row["difference"]), **limits)
        low, high = (0.95, 1.05) if depends else (0.98, 1.02)
        bars.report(f"{place}: step across borders over elsewhere", float(row["seam"]), low=low, high=high)
    elsewhere, exact = overlap_spread()
    bars.report("standard deviation in overlaps over elsewhere", elsewhere, low=0.98, high=1.02)
    bars.report("standard deviation in overlaps over the exact one", exact, low=0.98, high=1.02)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
