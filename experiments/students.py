"""What few calls cost: students of one, two and four calls beside their teacher's 32, from the same initial noise.

    python experiments/students.py --run --work runs/per_minute --out runs/students  # teach and measure; resumes
    python experiments/students.py                                                   # print what is stored
    python experiments/students.py --check                                           # hold it against the bars

The teachers are the models that experiments/per_minute.py trained (problem/default/minutes/seed). Each is distilled
from 16 calls, which differ little from 32 with its solver, to four; that student to two, and that one to one. The
teacher is also measured with as few calls of its own solver. Distances are between samples of the same noise, as shares
of the posterior's standard deviation; CRPS and coverage are against the truth. Figures per test image are stored in
experiments/results/students.csv.
"""

import argparse
import csv
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: one core each
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import numpy as np
import torch
from torch import Tensor

from bars import Bars
from sfumato.diffusion.noise import NoiseField
from sfumato.models.intervals import sampled_as
from sfumato.models.model_file import LoadedModel, load
from sfumato.restoration.restorer import Restorer
from sfumato.statistics.scores import crps
from sfumato.system.device import without_subnormals
from sfumato.training.distill import distill
from yardstick.comparison import ratio
from yardstick.problems import PROBLEMS, Held, Places, held_out
from yardstick.training import NUM_SAMPLES

RESULTS = Path(__file__).parent / "results" / "students.csv"
FULL, TAUGHT = 32, 16
"""Calls of the teacher that everything is compared with, and that are halved."""
STUDENTS = (4, 2, 1)
"""Calls of the students, each taught by the one before."""
FEW = (8, *STUDENTS)
"""Calls of the teacher that students are compared with."""
CROP = 128
"""Side of the middle of each test image that is sampled."""
METRICS = ("RMSE", "ratio", "CRPS", "within")


class Row(NamedTuple):
    """A figure of a test image."""

    problem: str
    minutes: str
    steps: int
    """Training steps of the student, of each halving; 0 for the teacher."""
    model: str
    calls: int
    image: str
    metric: str
    value: float


def run(cell: str, places: Places, out: Path, *, steps: int, most: int) -> None:
    """Teach the students of one cell; measure and store each on its test images, at most so many of each set."""
    problem, _, minutes, seed = cell.split("/")
    path = places.work / cell / "run" / "model.safetensors"
    teacher, before = load(path), TAUGHT
    images = [
        image for test_set in PROBLEMS[problem].test_sets for image in held_out(problem, test_set, places, most=most)
    ]
    full = [_draw(teacher, image, number, FULL) for number, image in enumerate(images)]
    for calls in (FULL, *FEW):
        _measure((problem, minutes, 0, "teacher", calls), teacher, images, full)
    for calls in STUDENTS:
        wanted = out / f"{problem}_{minutes}_{seed}" / f"calls_{calls}.safetensors"
        wanted.parent.mkdir(parents=True, exist_ok=True)
        paced = {"steps": steps * (before // calls).bit_length() - steps, "mean_share": 0.0}
        train = teacher.info.recipe.train.model_copy(update=paced)
        path = distill(path, wanted, calls=calls, teacher_calls=before, train=train, quiet=True)
        _measure((problem, minutes, steps, "student", calls), load(path), images, full)
        before = calls


def _measure(
    key: tuple[str, str, int, str, int], model: LoadedModel, images: Sequence[Held], full: list[Tensor]
) -> None:
    """Store what a model with so many calls scores on images, beside its teacher's samples."""
    problem, minutes, _, kind, calls = key
    rows = []
    for number, (image, wanted) in enumerate(zip(images, full, strict=True)):
        samples = wanted if (kind, calls) == ("teacher", FULL) else _draw(model, image, number, calls)
        found = compared(samples, wanted, torch.from_numpy(_middle(image.truth)).double())
        rows += [Row(*key, f"{image.group}/{image.name}", metric, value) for metric, value in found.items()]
    others = [
        row for row in stored() if (row.problem, row.minutes, row.model, row.calls) != (problem, minutes, kind, calls)
    ]
    store([*others, *rows])
    print(f"{problem}, {minutes} minutes, {kind} of {calls} calls: measured", flush=True)


def _middle(image: np.ndarray) -> np.ndarray:
    corner = [(side - min(side, CROP)) // 2 for side in image.shape[1:]]
    return image[:, corner[0] : corner[0] + CROP, corner[1] : corner[1] + CROP]


def _draw(model: LoadedModel, image: Held, number: int, calls: int) -> Tensor:
    """Samples (N, C, H, W) of the middle of an image, in the units of the truth."""
    sample = model.info.recipe.sample.model_copy(update={"steps": calls})
    restorer = Restorer(model, sampled_as(sample, NUM_SAMPLES))
    seen = model.info.condition.of_pixels(_middle(image.condition)[None])
    kept = restorer.draw(seen, NoiseField(0, image=number), keep=(...,)).kept
    return model.info.target.invert(torch.stack(kept).double(), axis=1)


def compared(samples: Tensor, wanted: Tensor, truth: Tensor) -> dict[str, float]:
    """Distance of samples (N, C, H, W) from others of the same noise, and what they are worth.

    ``ratio`` is the geometric mean over the pixels of the ratio of standard deviations; ``within`` the share of pixels
    between the least and the largest sample, of which (N - 1) / (N + 1) is right.
    """
    std, other = (draws.std(0) for draws in (samples, wanted))
    inside = (truth >= samples.amin(0)) & (truth <= samples.amax(0))
    return {
        "RMSE": float((samples - wanted).square().mean().sqrt() / other.square().mean().sqrt()),
        "ratio": float((std / other).log().mean().exp()),
        "CRPS": float(crps(samples[:, None], truth[None])),
        "within": float(inside.double().mean()),
    }


def stored() -> list[Row]:
    """All figures that are stored."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    return [Row(row[0], row[1], int(row[2]), row[3], int(row[4]), row[5], row[6], float(row[7])) for row in rows]


def store(rows: Sequence[Row]) -> None:
    """Write all figures."""
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows([*row[:7], f"{row.value:.5g}"] for row in sorted(rows))


def print_table(*, check: bool) -> None:
    """One line per model and number of calls; CRPS over the teacher's, with the interval over images."""
    rows, bars = stored(), Bars()
    print("| problem | minutes | model | calls | RMSE / std | std / teacher's | CRPS / teacher's | within |")
    print("|---|---|---|---|---|---|---|---|")
    for problem, minutes in sorted({row[:2] for row in rows}):
        own = [row for row in rows if row[:2] == (problem, minutes)]
        full = _values(own, "teacher", FULL)
        for model, calls in sorted({row[3:5] for row in own}, key=lambda key: (key[0] != "teacher", -key[1])):
            found = _values(own, model, calls)
            crps_ratio = ratio(found["CRPS"][None], full["CRPS"][None])
            rmse, std, within = (float(found[metric].mean()) for metric in ("RMSE", "ratio", "within"))
            cells = (f"{rmse:.3f}", f"{std:.3f}", crps_ratio, f"{within:.3f}")
            print(f"| {problem} | {minutes} | {model} | {calls} | " + " | ".join(map(str, cells)) + " |")
            if (model, calls) == ("student", STUDENTS[0]):
                assert crps_ratio is not None
                name = f"{problem}, {minutes} minutes, student of {calls} calls"
                bars.report(f"{name}: CRPS over the teacher's", crps_ratio.value, high=1.03)
                bars.report(f"{name}: ratio of standard deviations", std, low=0.97, high=1.03)
                away = abs(within - float(full["within"].mean()))
                bars.report(f"{name}: coverage less the teacher's", away, high=0.02)
    bars.finish(check=check)


def _values(rows: Sequence[Row], model: str, calls: int) -> dict[str, np.ndarray]:
    """Values of the images by metric, in the order of their names."""
    own = [row for row in rows if (row.model, row.calls) == (model, calls)]
    return {
        metric: np.array([row.value for row in sorted(own, key=lambda row: row.image) if row.metric == metric])
        for metric in METRICS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", nargs="*", metavar="CELL", help="cells to teach and measure; all that are trained")
    parser.add_argument("--work", type=Path, default=Path("runs/per_minute"), help="folder of the trained cells")
    parser.add_argument("--out", type=Path, default=Path("runs/students"), help="folder of the students")
    parser.add_argument("--steps", type=int, default=1000, help="training steps of each halving")
    parser.add_argument("--most", type=int, default=12, help="test images of each set")
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    arguments = parser.parse_args()
    if arguments.run is None:
        print_table(check=arguments.check)
        return
    torch.set_num_threads(1)
    places = Places.below(arguments.work)
    trained = sorted(places.work.glob("*/default/*/0/run/model.safetensors"))
    cells = arguments.run or [str(path.parents[1].relative_to(places.work)) for path in trained]
    for cell in cells:
        with without_subnormals():
            run(cell, places, arguments.out.resolve(), steps=arguments.steps, most=arguments.most)
    print_table(check=False)


if __name__ == "__main__":
    main()
