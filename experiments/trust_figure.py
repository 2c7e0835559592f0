"""The picture of docs/trust.md: a simulated specimen, its restoration, and what calibrated intervals say of it.

    python experiments/trust_figure.py zoo/microscopy.safetensors

The model is one of simulated microscopy that scales every image by itself, from -1 to 1, and is calibrated by `sfumato
calibrate`. What is drawn goes from 0, the dark, to 1, the brightest structures.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato import load, restore
from sfumato.data.intensity import image_range, scale_to
from sfumato.figures.plotting import new_figure
from sfumato.problems.microscopy_simulation import image_field

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # where figures are held against bars
from bars import DOCS

PIXEL_UM = 0.0313
SIDE, PHOTONS, SEED = 48, 40, 3


def draw(model_file: Path, structure: str) -> None:
    model = load(model_file)
    field = image_field(structure, side=SIDE, seed=SEED, levels=[PHOTONS])
    widefield = field.raw[0].mean(0)
    truth = scale_to(field.target[None], image_range(field.target[None], model.info.recipe.data.quantiles))[0]
    restored = restore(widefield, model, seed=1)
    assert restored.std is not None
    assert restored.low is not None
    assert restored.high is not None
    truth, mean, low, high = ((image + 1) / 2 for image in (truth, restored.mean, restored.low, restored.high))
    std = restored.std / 2
    row = int(truth.max(1).argmax())
    outside = (truth < low) | (truth > high)
    print(f"{structure}: {1 - outside.mean():.3f} of the pixels inside; {restored.label}")

    figure = new_figure(11, 6.4)
    grid = figure.add_gridspec(2, 4, height_ratios=[1, 1])
    extent = (0.0, 2 * SIDE * PIXEL_UM, 2 * SIDE * PIXEL_UM, 0.0)
    shown: list[tuple[str, NDArray[Any], str, str]] = [
        ("measured", widefield, "gray", "grey levels"),
        ("restored", mean, "gray", "relative brightness"),
        ("uncertainty (std of the samples)", std, "viridis", "relative brightness"),
        ("truth; orange: outside the interval", truth, "gray", "relative brightness"),
    ]
    for place, (title, image, colours, unit) in enumerate(shown):
        axes = figure.add_subplot(grid[0, place])
        drawn = axes.imshow(image, cmap=colours, extent=extent, interpolation="nearest")
        axes.axhline((row + 0.5) * PIXEL_UM, color="#E69F00", lw=0.8)
        axes.set_title(title, fontsize=8.5)
        axes.set(xticks=[0, 1, 2], yticks=[0, 1, 2] if place == 0 else [])
        axes.set_xlabel("um", fontsize=8)
        axes.tick_params(labelsize=7)
        bar = figure.colorbar(drawn, ax=axes, orientation="horizontal", shrink=0.9, pad=0.02)
        bar.ax.tick_params(labelsize=7)
        bar.set_label(unit, fontsize=7.5)
        if place == 3:
            rows, columns = np.nonzero(outside)
            axes.scatter((columns + 0.5) * PIXEL_UM, (rows + 0.5) * PIXEL_UM, s=3, color="#E69F00", marker="s", lw=0)
    profile = figure.add_subplot(grid[1, :])
    x = (np.arange(2 * SIDE) + 0.5) * PIXEL_UM
    profile.fill_between(x, low[row], high[row], color="#56B4E9", alpha=0.45, lw=0, label="90% interval")
    profile.plot(x, mean[row], color="#0072B2", lw=1.5, label="restored")
    profile.plot(x, truth[row], color="black", lw=1.3, ls="--", label="truth")
    profile.set(xlabel="along the orange line (um)", ylabel="relative brightness", xlim=(0, x[-1]))
    profile.legend(fontsize=8, ncols=3, loc="upper right")
    profile.set_title(restored.label, fontsize=9)
    figure.savefig(DOCS / "figures" / "trust.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--structure", default="microtubules")
    arguments = parser.parse_args()
    draw(arguments.model, arguments.structure)


if __name__ == "__main__":
    main()
