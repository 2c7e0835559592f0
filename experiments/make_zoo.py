"""Make a model of the zoo: data, training, calibration, measurement, and its file with its card.

    python experiments/make_zoo.py microscopy --work build/zoo --stages data train          # in the background; resumes
    python experiments/make_zoo.py microscopy --work build/zoo --stages calibrate measure write show

Every stage leaves files below `--work` and is skipped where they are newer than what they are made from. Stopped by
Ctrl-C, training goes on with the same command; the later stages take the best weights so far. The microscopy model
becomes the one that comes with the package, too; `show` then runs the demo with it, draws the picture of the README and
holds the demo against its bars.
"""

import argparse
import csv
import dataclasses
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato import load
from sfumato.cli.demo_run import run_demo
from sfumato.data.sources import PairSource
from sfumato.evaluation.calibrate import calibrate, cross_validate, restore_held_out
from sfumato.evaluation.compared_methods import Method, TwoShots, classical_method, phase_method
from sfumato.export.card import Credits, model_card
from sfumato.models import recipe as recipes
from sfumato.models.model_file import JSON, LoadedModel, ModelInfo, save_model
from sfumato.models.model_updates import set_calibration
from sfumato.models.recipe import Recipe
from sfumato.problems.phase_settings import PhaseSettings
from sfumato.problems.request import parameters
from sfumato.restoration.conditions import as_restored
from sfumato.restoration.in_memory import restore
from sfumato.restoration.intervals import sampled_by
from sfumato.statistics import metrics
from sfumato.training.preparation import open_held_out
from sfumato.training.run_folder import RunFolder
from sfumato.training.train import train
from yardstick.classical import EFFORTS
from zoo_data import KINDS, Amounts, make_data

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # where figures are held against bars
from bars import Bars

ROOT = Path(__file__).parents[1]
STAGES = ("data", "train", "calibrate", "measure", "write", "show")
MOST_WEIGHTS, MOST_BYTES = 2_500_000, 5_000_000
Array = NDArray[Any]
LEVEL, SAMPLES = 0.9, 16
UNIT = ".*"
"""Every simulated field is a specimen of its own, though fields of two structures share their numbers."""
CREDITS = Credits("BSD-3-Clause", ("The sfumato developers",))
IN_PACKAGE = "microscopy"


class Making:
    """One model on its way.

    Args:
        name: Of the model, its recipe and its data.
        work: Folder of all that is not kept.
        recipe: In place of the one of that name.
        root: Of the repository, below which the model, its card and its figures are kept.
    """

    def __init__(self, name: str, work: Path, *, recipe: Recipe | None = None, root: Path = ROOT) -> None:
        self.name, self.kind, self.root = name, KINDS[name], root
        self.recipe = recipe or recipes.load(ROOT / "recipes" / "zoo" / f"{name}.yaml")
        self.data, self.run = work / name / "data", RunFolder(work / name / "run")
        self.half, self.calibrated = work / name / "half.safetensors", work / name / "calibrated.safetensors"
        self.measured = root / "experiments" / "results" / f"zoo_{name}.csv"

    def make_data(self, amounts: Amounts) -> None:
        """Simulate."""
        make_data(self.kind, self.recipe, self.data, amounts)

    def train(self, minutes: float | None) -> None:
        """Train, or go on: a run that was begun knows its number of steps."""
        begun = self.run.recipe()
        folder = self.recipe.data.model_copy(update={"folder": str(self.data / "train")})
        train(
            begun or self.recipe.model_copy(update={"data": folder}), self.run.path, minutes=None if begun else minutes
        )

    def calibrate(self) -> None:
        """Halve the weights, and find how wide the intervals of what is left must be."""
        if _is_newer(self.calibrated, self.run.model_file):
            return
        self._halve()
        model = load(self.half)
        sampled = sampled_by(model, SAMPLES)
        images = restore_held_out(
            model, self._held_out(model, "calibration"), sampled=sampled, level=LEVEL, progress=_Say("calibrated on")
        )
        found = calibrate(images, sampled=sampled, level=LEVEL, unit=UNIT)
        checked = cross_validate(images, found, unit=UNIT)
        print(f"coverage at {LEVEL}: raw {checked.raw.mean():.3f}, calibrated on others {checked.corrected.mean():.3f}")
        set_calibration(self.half, found, self.calibrated)

    def measure(self) -> None:
        """Restore the test images and write one row for each."""
        if _is_newer(self.measured, self.calibrated):
            return
        model = load(self.calibrated)
        source = self._held_out(model, "test")
        rival = _rival(model.info.recipe, self._held_out(model, "calibration"))
        print(f"compared with {rival.name}: {rival.about}")
        rows, say = [], _Say("measured on")
        for index in range(len(source)):
            rows.append(_measure(model, rival, source, index))
            say(index + 1, len(source))
        self.measured.parent.mkdir(parents=True, exist_ok=True)
        with self.measured.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def write(self, *, note: str) -> None:
        """Write the model file with all that is known of it, and its card."""
        model = load(self.calibrated)
        info = model.info
        provenance: dict[str, JSON] = {**info.provenance, **scores(self.measured, info.recipe)}
        provenance |= {"images": self.kind.images, "limits": f"{note} {self.kind.limits}".strip()}
        file = self.root / "zoo" / f"{self.name}.safetensors"
        file.parent.mkdir(exist_ok=True)
        _write_half(file, model, dataclasses.replace(info, provenance=provenance))
        if file.stat().st_size > MOST_BYTES:
            file.unlink()
            sys.exit(f"{file.name} would have more than {MOST_BYTES} bytes; make the networks smaller")
        file.with_suffix(".md").write_text(card_of(file), encoding="utf-8")
        if self.name == IN_PACKAGE:
            bundled = self.root / "src" / "sfumato" / "models" / file.name
            bundled.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, bundled)
        print(f"wrote {file}, {file.stat().st_size} bytes")

    def show(self) -> None:
        """Run the demo with the new model, keep its picture, and see whether it may be shown."""
        if self.name != IN_PACKAGE:
            return
        with tempfile.TemporaryDirectory() as place:
            done = run_demo(Path(place) / "demo", model=self.root / "zoo" / f"{self.name}.safetensors")
            shutil.copyfile(done.picture, self.root / "docs" / "figures" / "demo.png")
        print("\n".join(done.lines()[:9]))
        bars = Bars()
        bars.report("demo: gain of the mean over the input, dB", done.gain, low=2)
        bars.report("demo: coverage minus level", done.coverage - done.level, low=-0.05, high=0.05)
        bars.finish(check=True)

    def _halve(self) -> None:
        """Half precision, and a recipe without a path of this machine."""
        model = load(self.run.model_file)
        recipe = model.info.recipe.model_copy(update={"data": self.recipe.data})
        number = sum(parameter.numel() for parameter in model.model.parameters())
        if number > MOST_WEIGHTS:
            sys.exit(f"the networks have {number} weights; at most {MOST_WEIGHTS} are allowed: make them smaller")
        _write_half(self.half, model, dataclasses.replace(model.info, recipe=recipe))

    def _held_out(self, model: LoadedModel, part: str) -> PairSource:
        """A folder of pairs, read as the model's training images were."""
        places = {side: str(self.data / part / side) for side in ("inputs", "targets")}
        data = model.info.recipe.data.model_copy(update={"folder": None, **places})
        return open_held_out(model.info.recipe.model_copy(update={"data": data, "problem": "pairs"}), part)


def card_of(file: Path) -> str:
    """The card that stands beside a model of the zoo."""
    command = f"sfumato restore zoo/{file.name} measured.tif restored.tif --picture restored.png"
    return model_card(load(file), CREDITS, usage=f"```sh\n{command}\n```")


def _write_half(path: Path, model: LoadedModel, info: ModelInfo) -> None:
    save_model(path, {name: tensor.half() for name, tensor in model.model.state_dict().items()}, info)


def _measure(model: LoadedModel, rival: Method, source: PairSource, index: int) -> dict[str, str]:
    """How close the mean and its rival come to one truth, and what share of it lies in the interval."""
    measured, pixels = source.read(index, [0] * source.ndim, source.spatial(index))
    truth = as_restored(pixels, model)
    restored = restore(measured, model, image=index, on_target_grid=True)
    assert restored.low is not None
    assert restored.high is not None
    inside = float(((truth >= restored.low) & (truth <= restored.high)).mean())
    row = {"image": source.name(index)}
    for name, estimate in (("rival", rival.run(measured, index)), ("mean", restored.mean)):
        compared = _comparable(estimate, truth, model.info.recipe)
        row[f"psnr_{name}"] = f"{float(metrics.psnr(*compared)):.3f}"
        row[f"mae_{name}"] = f"{float(metrics.mae(*compared)):.5f}"
    return {**row, "coverage": f"{inside:.4f}"}


def _comparable(estimate: Array, truth: Array, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """As (1, C, H, W), with what no method can know taken from the truth: a phase's mean, brightness and offset."""
    made, against = (torch.from_numpy(np.array(image, np.float64))[None] for image in (estimate, truth))
    if recipe.problem == "phase":
        return metrics.without_offset(made, against)
    return metrics.affine_fit(made, against), against


def _rival(recipe: Recipe, others: PairSource) -> Method:
    """What one has without a model: the upsampled input, or the transport equation's phase, damped as suits others."""
    if recipe.problem != "phase":
        return classical_method("bicubic")
    pairs = [
        others.read(index, [0, 0], others.spatial(index)) for index in range(0, len(others), -(-len(others) // 12))
    ]

    def error(method: Method) -> float:
        scored = (_comparable(method.run(measured, 0), truth, recipe) for measured, truth in pairs)
        return float(np.mean([float(metrics.mae(*both)) for both in scored]))

    settings = parameters(PhaseSettings, recipe.forward)
    shots = TwoShots(settings.pixel_um, settings.wavelength_um, settings.defocus_um, settings.planes)
    solvers = (phase_method("us_tie", dataclasses.replace(shots, reg=damping)) for damping in EFFORTS["us_tie"])
    return min(solvers, key=error)


def scores(table: Path, recipe: Recipe) -> dict[str, JSON]:
    """Means over the test images, by names for a card."""
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def mean(column: str) -> float:
        return round(float(np.mean([float(row[column]) for row in rows])), 4)

    is_phase = recipe.problem == "phase"
    rival = "US-TIE" if is_phase else "the enlarged input"
    unit = "rad, mean removed" if is_phase else "relative, each at its best brightness and offset"
    return {
        "test images": len(rows),
        "PSNR of the restored mean, dB": mean("psnr_mean"),
        f"PSNR of {rival}, dB": mean("psnr_rival"),
        f"MAE of the restored mean, {unit}": mean("mae_mean"),
        f"MAE of {rival}, {unit}": mean("mae_rival"),
        f"share of test pixels inside the {LEVEL:.0%} interval": mean("coverage"),
    }


def _is_newer(made: Path, source: Path) -> bool:
    return made.exists() and made.stat().st_mtime >= source.stat().st_mtime


class _Say:
    """A line every half a minute."""

    def __init__(self, doing: str) -> None:
        self.doing, self.last = doing, time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self.last > 30 or done == total:
            self.last = time.monotonic()
            print(f"{self.doing} {done} of {total}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=tuple(KINDS))
    parser.add_argument("--work", type=Path, required=True, help="folder of data, run and what is between them")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--minutes", type=float, help="train as many steps as fit; by default the recipe's")
    parser.add_argument("--note", default="", help="what the card must say first of its limits")
    for field in dataclasses.fields(Amounts):
        parser.add_argument(f"--{field.name}", type=int, default=field.default, help="see zoo_data.Amounts")
    arguments = parser.parse_args()
    making = Making(arguments.name, arguments.work)
    amounts = Amounts(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(Amounts)})
    work = {
        "data": lambda: making.make_data(amounts),
        "train": lambda: making.train(arguments.minutes),
        "calibrate": making.calibrate,
        "measure": making.measure,
        "write": lambda: making.write(note=arguments.note),
        "show": making.show,
    }
    for stage in STAGES:
        if stage in arguments.stages:
            print(f"{arguments.name}: {stage}", file=sys.stderr, flush=True)
            try:
                work[stage]()
            except KeyboardInterrupt as stopped:
                sys.exit(str(stopped) or "stopped; the same command goes on")


if __name__ == "__main__":
    main()
