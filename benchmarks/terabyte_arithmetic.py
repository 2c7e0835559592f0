"""What 10^12 pixels or voxels cost: calls, halos and seconds of today's default and of version 0.1, in one table.

    python benchmarks/terabyte_arithmetic.py [MODEL ...]           # print the table
    python benchmarks/terabyte_arithmetic.py [MODEL ...] --write   # and put it into docs/scale.md

Seconds per pixel are measured here, on one core, in turn, with the networks as they run at inference and with random
weights: of one read of the condition and of one call of the denoising network. Chunks and halos are those that
`restore` chooses; a MODEL (2-D or 3-D) gives the reach that was measured after its training, without which a halo is
that of one network call. Everything else is multiplication.
"""

import argparse
import math
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: one core

import torch

from bars import DOCS, write_table
from sfumato.data.normalize import Normalization
from sfumato.diffusion.inference import for_inference
from sfumato.diffusion.model import CVDM
from sfumato.models.build import build_model
from sfumato.models.model_file import LoadedModel, ModelInfo, load
from sfumato.models.reach import Reach
from sfumato.models.recipe import Recipe, parse
from sfumato.restoration.intervals import sampled_by
from sfumato.restoration.layout import Layout, choose_layout

SIDES = {2: 1_000_000, 3: 10_000}
MEASURED = {2: 512, 3: 64}
"""Side of the image on which seconds are measured."""
ROUNDS = 5
DAY = 86_400
OLD_CALLS = 32
"""Of a sample by version 0.1's default."""


@dataclass(frozen=True)
class Way:
    """One way to restore: a recipe, the samples of an image and the calls of each; none for one read alone."""

    name: str
    recipe: Recipe
    samples: int
    calls: int


def ways(ndim: int) -> list[Way]:
    """Version 0.1 and today's default, with samples and without."""
    old = parse(f"model: {{ndim: {ndim}, base: 16, rate_base: 8}}")
    new = parse(f"preset: default\nmodel: {{ndim: {ndim}}}")
    samples = sampled_by(_info(new)).num_samples  # the same in both
    return [
        Way("version 0.1", old, samples, OLD_CALLS),
        Way("today", new, samples, new.sample.steps),
        Way("today, `--fast`", new, 0, 0),
    ]


def layout_of(way: Way, model: CVDM, reach: Reach | None) -> Layout:
    """How `restore` would cut the image; version 0.1 knew no measured reach."""
    ndim = way.recipe.model.ndim
    info = _info(way.recipe, None if way.name == "version 0.1" else reach)
    return choose_layout(LoadedModel(model, info, ""), [SIDES[ndim]] * ndim, way.samples, way.calls)


def _info(recipe: Recipe, reach: Reach | None = None) -> ModelInfo:
    same = Normalization((0.0,), (1.0,))
    return ModelInfo(recipe, 1, 1, same, same, {}, {}, reach=reach)


@torch.no_grad()
def seconds_per_pixel(model: CVDM, ndim: int) -> tuple[float, float]:
    """Of one read of the condition and of one call of the denoising network, the medians of some rounds."""
    model = for_inference(model.eval())
    condition = torch.zeros(1, 1, *[MEASURED[ndim]] * ndim)
    level = torch.full([1] * condition.ndim, -1.0)
    known = model.read(condition)
    reads: list[float] = []
    calls: list[float] = []
    for _ in range(ROUNDS):
        for taken, run in (
            (reads, lambda: model.read(condition)),
            (calls, lambda: model.predict(condition, level, known.seen)),
        ):
            started = time.process_time()
            run()
            taken.append(time.process_time() - started)
    return statistics.median(reads) / condition.numel(), statistics.median(calls) / condition.numel()


def column(way: Way, reach: Reach | None) -> dict[str, str]:
    """What one way costs for a whole image of 10^12 pixels."""
    ndim = way.recipe.model.ndim
    model = build_model(way.recipe.model, 1, 1)
    cut = layout_of(way, model, reach)
    around = cut.halo if cut.sampling_halo is None else cut.sampling_halo
    over_read, over_call = (math.prod((side + 2 * halo) / side for side in cut.chunk) for halo in (cut.halo, around))
    read, call = seconds_per_pixel(model, ndim)
    calls = way.samples * way.calls
    total = SIDES[ndim] ** ndim * (over_read * read + over_call * calls * call)
    return {
        "chunk": " x ".join(map(str, cut.chunk)),
        "chunks": f"{math.prod(-(-SIDES[ndim] // side) for side in cut.chunk):,}",
        "halo of the read, of the calls": f"{cut.halo}, {around}",
        "pixels read over pixels restored": f"{over_read:.2f}",
        "pixels called over pixels restored": f"{over_call:.2f}" if calls else "",
        "samples x calls": f"{way.samples} x {way.calls}" if calls else "none",
        "microseconds per pixel of a read": f"{1e6 * read:.2f}",
        "microseconds per pixel of a call": f"{1e6 * call:.2f}" if calls else "",
        "days of one core": f"{total / DAY:,.0f}",
        "hours of a thousand cores": f"{total / 3600 / 1000:,.1f}",
    }


def table(reaches: dict[int, Reach]) -> list[str]:
    """Lines of the table, 2-D and 3-D."""
    lines = []
    for ndim, title in ((2, "10^6 x 10^6 pixels"), (3, "10^4 x 10^4 x 10^4 voxels")):
        chosen = ways(ndim)
        columns = [column(way, reaches.get(ndim)) for way in chosen]
        lines += [f"| {title} | " + " | ".join(way.name for way in chosen) + " |", "|---" * 4 + "|"]
        lines += [f"| {row} | " + " | ".join(each[row] for each in columns) + " |" for row in columns[0]]
        lines.append("")
    return lines[:-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="trained models, for their reach")
    parser.add_argument("--write", action="store_true", help="put the table into docs/scale.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    infos = [load(path).info for path in arguments.models]
    lines = table({info.recipe.model.ndim: info.reach for info in infos if info.reach is not None})
    print("\n".join(lines))
    if arguments.write:
        write_table(DOCS / "scale.md", lines, "arithmetic")


if __name__ == "__main__":
    main()
