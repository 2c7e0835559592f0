"""What a learned schedule adds where pixels truly differ: part of a target is measured almost exactly, part is missing.

    python experiments/differing_pixels.py --run --work runs --jobs 2   # train and measure what is missing; resumes
    python experiments/differing_pixels.py                              # print the table of what is stored
    python experiments/differing_pixels.py --check                      # exit non-zero if a training is missing

Simulated fields are shown with noise of 1% of their range in squares of 16 pixels chosen at random, half of the image,
and not at all in the others; a second channel says which. Posteriors of the two kinds of pixels differ in width by an
order of magnitude, so if rates of their own help anywhere, they help here. Schedules are compared at equal processor
seconds of one core, with one scale for all pixels and with a scale for each (section "what is known before any noise"
of docs/how_it_works.md). Figures per test field are stored in experiments/results/differing_pixels.csv.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: one core each
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import numpy as np
import torch

from bars import Bars
from sfumato.cli.settings import recipe_of
from sfumato.data.images.io import open_image, write_image
from sfumato.diffusion.noise import NoiseField
from sfumato.models.model_file import load
from sfumato.models.recipe import Recipe
from sfumato.problems.photons import simulate_light
from sfumato.restoration.restorer import Restorer
from sfumato.statistics.scores import crps
from sfumato.system.device import without_subnormals
from sfumato.training.run_folder import RunFolder
from sfumato.training.train import train
from yardstick.comparison import compare, mean_of, values_of
from yardstick.costs import before_of, timed_in_turn
from yardstick.rows import read_rows, write_rows
from yardstick.stored import Figure
from yardstick.training import NUM_SAMPLES, with_steps

RESULTS = Path(__file__).parent / "results" / "differing_pixels.csv"
SECONDS, SEEDS = 120.0, 2
FIELDS, FIELDS_SEED, SQUARE, NOISE = {"train": 50, "validation": 4, "test": 12}, 2701, 16, 0.01
SCHEDULES = {
    "cosine": ("model.schedule=cosine",),
    "one learned rate": ("model.schedule=global",),
    "learned rates": (),
    "learned log-rates, 4 to 60": ("model.log_rates=true", "model.rate_ends=[4, 60]"),
}
KINDS = ("measured", "missing")
_ONE = ("model.scale_network=false", "model.coloured_noise=false", "train.scale_share=0", "sample.solver=2m")
SCALES = {"one": _ONE, "of each pixel": ()}


class Row(NamedTuple):
    """A figure of a test field."""

    scale: str
    schedule: str
    seed: int
    pixels: str
    image: str
    metric: str
    value: float


Training = tuple[str, str, int]
TRAININGS: list[Training] = list(itertools.product(SCALES, SCHEDULES, range(SEEDS)))


def make_data(work: Path) -> None:
    """Write the pairs: a channel that is noisy where pixels are measured and 0 elsewhere, and one that says where."""
    if (work / "pairs.csv").exists():
        return
    light = work / "light"
    if not light.exists():
        simulate_light(light, seed=FIELDS_SEED, cells=FIELDS)
    lines = ["input,target,split"]
    for number, path in enumerate(sorted(light.glob("*/*/sim.tif"))):
        rng = np.random.default_rng([FIELDS_SEED, number])
        image = np.asarray(open_image(path).read({}), np.float32)
        image = image / np.quantile(image, 0.999)
        squares = rng.random([-(-side // SQUARE) for side in image.shape]) < 0.5
        is_known = np.kron(squares, np.ones((SQUARE, SQUARE)))[: image.shape[0], : image.shape[1]]
        seen = np.stack([is_known * (image + NOISE * rng.standard_normal(image.shape)), is_known]).astype(np.float32)
        folder, name = work / path.parts[-3], f"{path.parts[-2]}.tif"
        for kind, pixels, axes in (("input", seen, "CYX"), ("target", image, "YX")):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            write_image(folder / kind / name, pixels, axes=axes)
        lines.append(f"{folder.name}/input/{name},{folder.name}/target/{name},{folder.name}")
    (work / "pairs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def recipe_for(training: Training, work: Path) -> Recipe:
    """The small preset with a schedule and a kind of scale, without its number of steps."""
    scale, schedule, seed = training
    own = (*SCALES[scale], *SCHEDULES[schedule], f"train.seed={seed}", f"data.manifest={work / 'pairs.csv'}")
    return recipe_of(None, [*own, "data.input_axes=CYX"], preset="small")


def run_one(training: Training, work: Path) -> None:
    """Train one model and measure it on the test fields, in this process."""
    torch.set_num_threads(1)
    folder = RunFolder(work / "-".join(map(str, training)))
    costs = json.loads((work / "costs.json").read_text(encoding="utf-8"))
    step = (*training[:2], "step")
    seconds = SECONDS - costs["/".join(before_of(step))]
    with without_subnormals():
        wanted = with_steps(recipe_for(training, work), seconds, costs["/".join(step)])
        train(folder.recipe() or wanted, folder.path, quiet=True)
        rows = list(_measured(training, folder, work))
    (folder.path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")


def _measured(training: Training, folder: RunFolder, work: Path) -> Iterator[Row]:
    model = load(folder.model_file)
    restorer = Restorer.of(model, NUM_SAMPLES, model.info.recipe.sample.steps)
    for number, path in enumerate(sorted((work / "test" / "target").glob("*.tif"))):
        seen = np.asarray(open_image(work / "test" / "input" / path.name).read({}), np.float32)
        truth = torch.from_numpy(np.asarray(open_image(path).read({}), np.float64))
        condition = model.info.condition.of_pixels(seen[None])
        drawn = restorer.draw(condition, NoiseField(0, image=number), keep=(...,))
        samples = model.info.target.invert(torch.stack(drawn.kept).double(), axis=1)[:, 0]
        mean = model.info.target.invert(drawn.mean.double(), axis=0)[0]
        with torch.no_grad():
            rate = model.model.read(condition).schedule.rate.expand(1, 1, *truth.shape)[0, 0]
        for kind, chosen in zip(KINDS, (seen[1] > 0, seen[1] == 0), strict=True):
            inside = (truth >= samples.amin(0)) & (truth <= samples.amax(0))
            values = {
                "CRPS": crps(samples[:, None, None, chosen], truth[None, None, chosen]),
                "MAE": (mean - truth)[chosen].abs().mean(),
                "within": inside[chosen].double().mean(),
                "rate": rate[chosen].mean(),
            }
            yield from (Row(*training, kind, path.stem, metric, float(value)) for metric, value in values.items())


def run(work: Path, jobs: int) -> None:
    """Time steps, then train what is not stored, so many at a time."""
    make_data(work)
    if not (work / "costs.json").exists():
        recipes: dict[tuple[str, ...], Recipe] = {
            (*training[:2], "step"): recipe_for(training, work) for training in TRAININGS if training[2] == 0
        }
        found = {"/".join(key): cost for key, cost in timed_in_turn(recipes).items()}
        (work / "costs.json").write_text(json.dumps(found), encoding="utf-8")
    known = {row[:3] for row in stored()}
    waiting = [number for number, training in enumerate(TRAININGS) if training not in known]
    running: dict[int, subprocess.Popen[bytes]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            number = waiting.pop(0)
            command = [sys.executable, __file__, "--one", str(number), "--work", str(work)]
            running[number] = subprocess.Popen(command)
            print(f"{', '.join(map(str, TRAININGS[number]))}: started", flush=True)
        number = next(iter(running))
        if running.pop(number).wait():
            sys.exit(f"training {number} failed")
        text = (work / "-".join(map(str, TRAININGS[number])) / "rows.json").read_text(encoding="utf-8")
        _store([*stored(), *(Row(*row) for row in json.loads(text))])


def stored() -> list[Row]:
    """All figures that are stored."""
    return read_rows(RESULTS, Row)


def _store(rows: Sequence[Row]) -> None:
    write_rows(RESULTS, Row, sorted(rows))


def print_table(*, check: bool) -> None:
    """CRPS over the fixed schedule's with the same kind of scale; intervals over fields and seeds."""
    rows, bars = stored(), Bars()
    figures = [Figure(f"{row.scale}/{row.schedule}", SECONDS / 60, row.seed, *row[3:]) for row in rows]
    print("| scale | schedule | " + " | ".join(f"{kind}: CRPS / cosine, within, rate" for kind in KINDS) + " |")
    print("|---|---|---|---|")
    for scale in SCALES:
        for schedule in SCHEDULES:
            own, cosine = ((f"{scale}/{name}", SECONDS / 60) for name in (schedule, "cosine"))
            cells = []
            for kind in KINDS:
                found = compare(figures, own, cosine, "CRPS", kind, by_seed=True)
                within, rate = (mean_of(values_of(figures, *own, metric, kind)) for metric in ("within", "rate"))
                cells.append("" if found is None else f"{found}, {within:.3f}, {rate:.1f}")
            print(f"| {scale} | {schedule} | " + " | ".join(cells) + " |")
    missing = len(set(TRAININGS) - {row[:3] for row in rows})
    bars.report("trainings that are not measured yet", missing, high=0)
    bars.finish(check=check)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", action="store_true", help="train and measure what is not stored")
    parser.add_argument("--work", type=Path, default=Path("runs/differing_pixels"), help="folder of the runs")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time, one core each")
    parser.add_argument("--check", action="store_true", help="exit non-zero if a training is missing")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    if arguments.one is not None:
        run_one(TRAININGS[arguments.one], work)
    elif arguments.run:
        run(work, arguments.jobs)
    else:
        print_table(check=arguments.check)


if __name__ == "__main__":
    main()
