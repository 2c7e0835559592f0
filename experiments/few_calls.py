"""What few network calls cost in quality: each solver with 1 to 32 calls, one read without samples, and students.

    python experiments/few_calls.py --run --work runs/per_minute          # measure what solvers make of trained cells
    python experiments/few_calls.py --teach w2s/default/30/0 --work runs/per_minute --out runs/students  # and students
    python experiments/few_calls.py                                       # print what is stored
    python experiments/few_calls.py --write                               # put it into docs/speed.md, with its figure
    python experiments/few_calls.py --check                               # hold students against their bars

The models are those that experiments/per_minute.py trained (problem/default/minutes/seed). All draw 16 samples of the
same test images from the same initial noise. A student is distilled from 16 calls to four; that one to two, and that
one to one. Distances are between samples of the same noise and those of 32 calls of `gaussian`, as shares of the
posterior's standard deviation; CRPS and coverage are against the truth. Figures per test image are stored in
experiments/results/few_calls.csv.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: one core each
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import numpy as np
import torch
from torch import Tensor

from bars import DOCS, Bars, write_table
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.solvers import Solver
from sfumato.models.intervals import sampled_as
from sfumato.models.model_file import LoadedModel, load
from sfumato.restoration.restorer import Restorer
from sfumato.statistics.scores import crps
from sfumato.system.device import without_subnormals
from sfumato.training.distill import distill
from yardstick.comparison import ratio
from yardstick.problems import PROBLEMS, Held, Places, held_out
from yardstick.rows import read_rows, write_rows
from yardstick.training import NUM_SAMPLES

RESULTS = Path(__file__).parent / "results" / "few_calls.csv"
SOLVERS: tuple[Solver, ...] = ("gaussian", "2m", "first_order")
FULL, TAUGHT = 32, 16
"""Calls that everything is compared with, and those that are halved for students."""
ALL_CALLS = (FULL, TAUGHT, 8, 4, 2, 1)
ONE_READ = "one read"
"""Mean and standard deviation without samples, as `restore --fast` gives them."""
STUDENTS = (4, 2, 1)
"""Calls of the students, each taught by the one before."""
CROP = 128
"""Side of the middle of each test image that is sampled."""
METRICS = ("RMSE", "ratio", "CRPS", "within", "MAE")
_WITHIN = (NUM_SAMPLES - 1) / (NUM_SAMPLES + 1)


class Row(NamedTuple):
    """A figure of a test image."""

    problem: str
    minutes: str
    steps: int
    """Training steps of the student, of each halving; 0 of a solver."""
    model: str
    """A solver, `one read` or `student`."""
    calls: int
    image: str
    metric: str
    value: float


def measure(cell: str, places: Places, *, most: int) -> None:
    """Measure and store what each solver makes of a trained cell, on at most so many test images of each set."""
    problem, _, minutes, _ = cell.split("/")
    model, images = _trained(cell, places), _images(problem, places, most)
    full = [_draw(model, image, number, FULL, "gaussian") for number, image in enumerate(images)]
    for solver in SOLVERS:
        for calls in ALL_CALLS:
            key = (problem, minutes, 0, solver, calls)
            drawn = (_draw(model, image, number, calls, solver) for number, image in enumerate(images))
            same = (solver, calls) == ("gaussian", FULL)
            found = [compared(*each) for each in zip(full if same else drawn, full, _truths(images), strict=True)]
            _store(key, images, found)
    restorer = Restorer.of(model, fast=True)
    read = []
    for image, wanted, truth in zip(images, full, _truths(images), strict=True):
        seen = model.info.condition.of_pixels(_middle(image.condition)[None])
        mean, std = restorer.read(seen)
        assert std is not None
        width = model.info.target.invert(torch.stack([mean[0], mean[0] + std[0]]).double(), axis=1).diff(dim=0)[0]
        read.append(compared_read(model.info.target.invert(mean[0].double(), axis=0), width, wanted, truth))
    _store((problem, minutes, 0, ONE_READ, 1), images, read)


def teach(cell: str, places: Places, out: Path, *, steps: int, most: int) -> None:
    """Teach the students of one cell; measure and store each."""
    problem, _, minutes, seed = cell.split("/")
    path, before = places.work / cell / "run" / "model.safetensors", TAUGHT
    teacher, images = load(path), _images(problem, places, most)
    full = [_draw(teacher, image, number, FULL, "gaussian") for number, image in enumerate(images)]
    itself = [compared(each, each, truth) for each, truth in zip(full, _truths(images), strict=True)]
    _store((problem, minutes, 0, "gaussian", FULL), images, itself)
    for calls in STUDENTS:
        wanted = out / f"{problem}_{minutes}_{seed}" / f"calls_{calls}.safetensors"
        wanted.parent.mkdir(parents=True, exist_ok=True)
        paced = {"steps": steps * (before // calls).bit_length() - steps, "mean_share": 0.0, "scale_share": 0.0}
        train = teacher.info.recipe.train.model_copy(update=paced)
        path = distill(path, wanted, calls=calls, teacher_calls=before, train=train, quiet=True)
        student = load(path)
        drawn = (_draw(student, image, number, calls) for number, image in enumerate(images))
        found = [compared(*each) for each in zip(drawn, full, _truths(images), strict=True)]
        _store((problem, minutes, steps, "student", calls), images, found)
        before = calls


def _trained(cell: str, places: Places) -> LoadedModel:
    return load(places.work / cell / "run" / "model.safetensors")


def _images(problem: str, places: Places, most: int) -> list[Held]:
    return [
        image for test_set in PROBLEMS[problem].test_sets for image in held_out(problem, test_set, places, most=most)
    ]


def _truths(images: Sequence[Held]) -> list[Tensor]:
    return [torch.from_numpy(_middle(image.truth)).double() for image in images]


def _store(key: tuple[str, str, int, str, int], images: Sequence[Held], found: Sequence[Mapping[str, float]]) -> None:
    """Store the figures of a model with so many calls, one of each metric per image."""
    problem, minutes, _, kind, calls = key
    rows = [
        Row(*key, f"{image.group}/{image.name}", metric, value)
        for image, values in zip(images, found, strict=True)
        for metric, value in values.items()
    ]
    others = [
        row for row in stored() if (row.problem, row.minutes, row.model, row.calls) != (problem, minutes, kind, calls)
    ]
    store([*others, *rows])
    print(f"{problem}, {minutes} minutes, {kind}, {calls} calls: measured", flush=True)


def _middle(image: np.ndarray) -> np.ndarray:
    corner = [(side - min(side, CROP)) // 2 for side in image.shape[1:]]
    return image[:, corner[0] : corner[0] + CROP, corner[1] : corner[1] + CROP]


def _draw(model: LoadedModel, image: Held, number: int, calls: int, solver: Solver | None = None) -> Tensor:
    """Samples (N, C, H, W) of the middle of an image, in the units of the truth; by its own solver without one."""
    changed = {"steps": calls} | ({} if solver is None else {"solver": solver})
    sample = model.info.recipe.sample.model_copy(update=changed)
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
        "MAE": float((samples.mean(0) - truth).abs().mean()),
    }


def compared_read(mean: Tensor, std: Tensor, wanted: Tensor, truth: Tensor) -> dict[str, float]:
    r"""The same for a normal distribution at every pixel, shapes (C, H, W), with the interval that holds as much.

    .. math:: CRPS = \sigma\,[z\,(2\Phi(z) - 1) + 2\varphi(z) - 1/\sqrt\pi], \qquad z = (y - \mu) / \sigma

    It has no samples, so there is no ``RMSE``.
    """
    unit = torch.distributions.Normal(torch.zeros((), dtype=mean.dtype), 1.0)
    z = (truth - mean) / std
    score = std * (z * (2 * unit.cdf(z) - 1) + 2 * unit.log_prob(z).exp() - torch.pi**-0.5)
    inside = z.abs() <= unit.icdf(torch.tensor((1 + _WITHIN) / 2, dtype=mean.dtype))
    return {
        "ratio": float((std / wanted.std(0)).log().mean().exp()),
        "CRPS": float(score.mean()),
        "within": float(inside.double().mean()),
        "MAE": float(z.mul(std).abs().mean()),
    }


def stored() -> list[Row]:
    """All figures that are stored."""
    return read_rows(RESULTS, Row)


def store(rows: Sequence[Row]) -> None:
    """Write all figures."""
    write_rows(RESULTS, Row, sorted(rows))


def print_table(*, check: bool) -> None:
    """One line per model and number of calls; errors over those of 32 calls, with the interval over images."""
    rows, bars = stored(), Bars()
    for line in table(rows):
        print(line)
    for problem, minutes in sorted({row[:2] for row in rows if row.model == "student"}):
        own = [row for row in rows if row[:2] == (problem, minutes)]
        found, full = _with_full(own, "student", STUDENTS[0])
        crps_ratio = ratio(found["CRPS"][None], full["CRPS"][None])
        assert crps_ratio is not None
        name = f"{problem}, {minutes} minutes, student of {STUDENTS[0]} calls"
        bars.report(f"{name}: CRPS over 32 calls'", crps_ratio.value, high=1.03)
        bars.report(f"{name}: ratio of standard deviations", float(found["ratio"].mean()), low=0.97, high=1.03)
        away = abs(float(found["within"].mean() - full["within"].mean()))
        bars.report(f"{name}: coverage less that of 32 calls", away, high=0.02)
    bars.finish(check=check)


def table(rows: Sequence[Row]) -> list[str]:
    """Lines of the table of all that is stored."""
    lines = [
        "| problem | minutes | model | calls | distance | std | CRPS | error of the mean | within |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for problem, minutes in sorted({row[:2] for row in rows}):
        own = [row for row in rows if row[:2] == (problem, minutes)]
        order = [*SOLVERS, "student", ONE_READ]
        for model, calls in sorted({row[3:5] for row in own}, key=lambda key: (order.index(key[0]), -key[1])):
            found, full = _with_full(own, model, calls)
            errors = [ratio(found[metric][None], full[metric][None]) for metric in ("CRPS", "MAE")]
            distance = f"{found['RMSE'].mean():.3f}" if found["RMSE"].size else ""
            cells = (distance, f"{found['ratio'].mean():.3f}", *errors, f"{found['within'].mean():.3f}")
            lines.append(f"| {problem} | {minutes} | {model} | {calls} | " + " | ".join(map(str, cells)) + " |")
    return lines


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw CRPS, coverage and the error of the mean against calls, one column per problem."""
    from matplotlib.figure import Figure

    problems = sorted({row[:2] for row in rows})
    figure = Figure(figsize=(3.4 * len(problems), 7), layout="constrained")
    axes = figure.subplots(3, len(problems), squeeze=False, sharex=True, sharey="row")
    labels = ("CRPS / that of 32 calls", "pixels within 16 samples", "error of the samples' mean\n/ that of 32 calls")
    for column, (problem, minutes) in enumerate(problems):
        own = [row for row in rows if row[:2] == (problem, minutes)]
        for panel, metric in zip(axes[:, column], ("CRPS", "within", "MAE"), strict=True):
            for model, style in zip((*SOLVERS, "student"), ("C0o-", "C1s--", "C2^:", "C3D-"), strict=True):
                calls = sorted({row.calls for row in own if row.model == model})
                if calls:
                    panel.plot(calls, [_shown(*_with_full(own, model, n), metric) for n in calls], style, label=model)
            read = _with_full(own, ONE_READ, 1)
            if read[0][metric].size:
                panel.plot([1], [_shown(*read, metric)], "k*", markersize=11, label=ONE_READ)
            panel.set_xscale("log", base=2)
            panel.set_xticks(sorted(ALL_CALLS), [str(n) for n in sorted(ALL_CALLS)])
            panel.grid(alpha=0.3)
        axes[0, column].set_title(f"{problem}, {minutes} min")
        axes[1, column].axhline(_WITHIN, color="0.5", linewidth=1)
        axes[2, column].set_xlabel("network calls of a sample")
    for panel, label in zip(axes[:, 0], labels, strict=True):
        panel.set_ylabel(label)
    for row, ends in ((0, (0.9, 1.5)), (2, (0.9, 1.3))):
        axes[row, 0].set_ylim(*ends)
    axes[0, -1].legend(fontsize=8)
    figure.savefig(path)


def _shown(found: Mapping[str, np.ndarray], full: Mapping[str, np.ndarray], metric: str) -> float:
    """Coverage as it is; errors over those of 32 calls."""
    if metric == "within":
        return float(found[metric].mean())
    compared_to_full = ratio(found[metric][None], full[metric][None])
    assert compared_to_full is not None
    return compared_to_full.value


def _with_full(rows: Sequence[Row], model: str, calls: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Values of a model and, of the same images, those of 32 calls."""
    images = {row.image for row in rows if (row.model, row.calls) == (model, calls)}
    return _values(rows, model, calls), _values([row for row in rows if row.image in images], "gaussian", FULL)


def _values(rows: Sequence[Row], model: str, calls: int) -> dict[str, np.ndarray]:
    """Values of the images by metric, in the order of their names."""
    own = [row for row in rows if (row.model, row.calls) == (model, calls)]
    return {
        metric: np.array([row.value for row in sorted(own, key=lambda row: row.image) if row.metric == metric])
        for metric in METRICS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", nargs="*", metavar="CELL", help="cells to measure; all that are trained")
    parser.add_argument("--teach", nargs="*", metavar="CELL", help="cells to teach students of; all that are trained")
    parser.add_argument("--work", type=Path, default=Path("runs/per_minute"), help="folder of the trained cells")
    parser.add_argument("--out", type=Path, default=Path("runs/students"), help="folder of the students")
    parser.add_argument("--steps", type=int, default=1000, help="training steps of each halving")
    parser.add_argument("--most", type=int, default=12, help="test images of each set")
    parser.add_argument("--write", action="store_true", help="put what is stored into docs/speed.md, with its figure")
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    arguments = parser.parse_args()
    if arguments.run is not None or arguments.teach is not None:
        torch.set_num_threads(1)
        places = Places.below(arguments.work)
        trained = sorted(places.work.glob("*/default/*/0/run/model.safetensors"))
        every = [str(path.parents[1].relative_to(places.work)) for path in trained]
        with without_subnormals():
            for cell in every if arguments.run == [] else arguments.run or []:
                measure(cell, places, most=arguments.most)
            for cell in every if arguments.teach == [] else arguments.teach or []:
                teach(cell, places, arguments.out.resolve(), steps=arguments.steps, most=arguments.most)
    print_table(check=arguments.check)
    if arguments.write:
        write_table(DOCS / "speed.md", table(stored()))
        draw(stored(), DOCS / "figures" / "few_calls.svg")


if __name__ == "__main__":
    main()
