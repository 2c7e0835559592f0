"""What a restored image costs and what its error bar is worth without samples.

    python benchmarks/restore_speed.py [--model MODEL] --check   # one read: its time, and the coverage of its interval
    python benchmarks/restore_speed.py --w2s MODEL               # the interval on real images, one field left out
    python benchmarks/restore_speed.py --image --check           # one image with samples, today and in version 0.1

MODEL has mean and scale networks. The first takes one of simulated microscopy (`problem: photons`), and without one
trains a small one for a few minutes. Time is that of the process, which has one thread, without reading and writing
files. A bare pass is the networks alone, run on the regions that the tasks of the restoration see. The interval is
calibrated on half of 400 fields that no model has seen and counted on the other half, for 500 random halves. W2S has
too few fields for a guarantee: its interval is recalibrated on all fields but one and counted on that one. Its images
are found through SFUMATO_DATA.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bars import Bars
from sfumato.data.images.io import write_image
from sfumato.data.normalize import Normalization
from sfumato.diffusion.noise import NoiseField
from sfumato.evaluation.calibrate import HeldOutImage, calibrate, cross_validate, restore_held_out
from sfumato.models.build import build_model
from sfumato.models.intervals import FLOOR, NO_SAMPLES
from sfumato.models.model_file import LoadedModel, ModelInfo, load, save_model
from sfumato.models.recipe import Recipe, parse
from sfumato.models.recipe import load as load_recipe
from sfumato.problems.photons import simulate_light
from sfumato.restoration.conditions import condition_of
from sfumato.restoration.planning import Restoration, Settings, plan_restoration
from sfumato.restoration.regions import Regions
from sfumato.restoration.restorer import Restorer
from sfumato.restoration.run import run_restoration
from sfumato.restoration.tiles import tiled
from sfumato.statistics.conformal import Scores, risk_control
from sfumato.system.device import keep_freed_memory
from sfumato.training.preparation import open_held_out
from sfumato.training.train import train

SIDE, REPEATS = 2048, 3
IMAGE, OLD_CALLS = (512, 512), 32
OLD = Path(__file__).parents[1] / "experiments" / "recipes" / "default_0_1.yaml"
LEVEL, SPLITS = 0.9, 500
SEED = 28_000
"""Of the held-out fields; those of experiments/yardstick, which models are trained on, have another."""
TRAINED = {"train": 60, "validation": 4}
HELD_OUT = {"test": 100}
"""Fields of each of the four structures."""
RECIPE = "preset: small\nproblem: photons\ndata: {folder: FOLDER, normalize: image}\ntrain: {steps: 1200}\n"
FIELD = r"^(\d+)_"


def say(done: int, total: int) -> None:
    if done % 50 == 0 or done == total:
        print(f"{done} of {total}", file=sys.stderr, flush=True)


def small_model(folder: Path) -> Path:
    simulate_light(folder / "light", seed=SEED + 1, cells=TRAINED, progress=say)
    recipe = parse(RECIPE.replace("FOLDER", str(folder / "light")), source="benchmark")
    return train(recipe, folder / "run").model_file


def at(recipe: Recipe, folder: Path) -> Recipe:
    """The same recipe with its pairs in another folder."""
    named = dict.fromkeys(("inputs", "targets", "manifest", "store")) | {"folder": str(folder)}
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=named)})


def seconds(do: Callable[[], object]) -> float:
    started = time.process_time()
    do()
    return time.process_time() - started


def one_read(model: Path, folder: Path, bars: Bars) -> None:
    """The same regions by the engine's own code and by the networks alone, in turn."""
    image = np.random.default_rng(0).poisson(100, (SIDE, SIDE)).astype(np.float32)
    write_image(folder / "in.npy", image, axes="YX")
    settings = Settings(fast=True, on_target_grid=True, threads=1)

    def planned(name: str = "out") -> Restoration:
        return plan_restoration(model, folder / "in.npy", folder / f"{name}.zarr", settings, loaded=loaded)

    loaded = load(model)
    one, frames = planned(), condition_of(image, loaded, on_target_grid=True)
    tasks = [one.job.plan.task(number) for number in one.job.plan.stages[0]]
    conditions = [frames.condition(0, task.seen_corner, task.seen_size) for task in tasks]

    networks = loaded.model if one.job.tile is None else tiled(loaded.model, one.job.tile)

    def bare() -> None:
        with torch.no_grad():
            for condition in conditions:
                networks.mean_and_std(condition)

    def restore() -> None:
        measured = condition_of(image, loaded, on_target_grid=True)
        regions = Regions(one.restorer, measured, 0, chunk=one.job.plan.chunk, halo=one.job.plan.halo)
        for task in tasks:
            regions.restore(0, task, one.job.outputs, one.job.batch)

    bare()
    numbers = iter(range(REPEATS))

    def command() -> None:
        run_restoration(planned(f"out{next(numbers)}"))

    found = [(seconds(bare), seconds(restore), seconds(command)) for _ in range(REPEATS)]
    bars.report("seconds of one bare tiled pass", min(alone for alone, _, _ in found))
    bars.report("pixels seen over pixels of the image", sum(c.numel() for c in conditions) / SIDE**2)
    ratio = statistics.median(inside / alone for alone, inside, _ in found)
    bars.report("restore --fast over a bare tiled pass", ratio, high=1.15)
    bars.report("the same with files", statistics.median(whole / alone for alone, _, whole in found))


def untrained(recipe: Recipe, path: Path) -> LoadedModel:
    """A model file of initial weights: what they are changes no time."""
    same = Normalization((0.0,), (1.0,))
    info = ModelInfo(recipe, 1, 1, same, same, {}, {}, factor=(1, 1))
    save_model(path, build_model(recipe.model, 1, 1).state_dict(), info)
    return load(path)


def one_image(folder: Path, bars: Bars) -> None:
    """What `restore` draws of one image by default: 16 samples, as the recipe says; of version 0.1, 32 calls each."""
    condition = torch.randn(1, 1, *IMAGE, generator=torch.Generator().manual_seed(0))
    today = Restorer.of(untrained(parse("preset: default"), folder / "today.safetensors"))
    old = untrained(load_recipe(OLD), folder / "old.safetensors")
    now = seconds(lambda: today.draw(condition, NoiseField(0)))
    # The samples of version 0.1 cost the same each, and it read its condition once for all of them.
    one = seconds(lambda: [*Restorer.of(old, 1, OLD_CALLS).draws(condition, NoiseField(0), batch=1)])
    before = one * today.sampled.num_samples
    bars.report(f"seconds of one image of {IMAGE[0]} x {IMAGE[1]} pixels", now)
    bars.report(f"seconds of version 0.1, {OLD_CALLS} calls a sample", before)
    bars.report("one image over version 0.1's", now / before, high=0.1)


def fast_coverage(model: LoadedModel, folder: Path, bars: Bars) -> None:
    """Over random halves of fields: the interval of one half, counted on the other."""
    simulate_light(folder / "fields", seed=SEED, cells=HELD_OUT, progress=say)
    source = open_held_out(at(model.info.recipe, folder / "fields"), "test", shares=False)
    images = restore_held_out(model, source, sampled=NO_SAMPLES, level=LEVEL, progress=say)
    bars.report("coverage of the uncalibrated 90% interval", float(np.mean([image.covered for image in images])))
    scores = Scores([[np.abs(image.error) / (image.std + FLOOR)] for image in images])
    rng, half, covered = np.random.default_rng(0), len(images) // 2, []
    for _ in range(SPLITS):
        order = rng.permutation(len(images)).tolist()
        factor = risk_control(scores.only(order[:half]), LEVEL)
        covered.append(1 - scores.only(order[half:]).risk(factor))
    low, high = np.quantile(covered, [0.05, 0.95])
    mean = float(np.mean(covered))
    bars.report(f"coverage of the guaranteed interval, mean of {SPLITS} splits", mean, low=0.88, high=0.92)
    bars.report("in 1 of 20 splits it is below", low)
    bars.report("in 1 of 20 splits it is above", high)


def w2s(model: LoadedModel, bars: Bars) -> None:
    from scipy import stats

    if "SFUMATO_DATA" not in os.environ:
        sys.exit("set SFUMATO_DATA to the folder that holds fluor_denoise_w2s")
    folder = Path(os.environ["SFUMATO_DATA"]).resolve() / "fluor_denoise_w2s" / "test"
    where = {"inputs": str(folder / "noisy"), "targets": str(folder / "clean"), "manifest": None}
    recipe = model.info.recipe.model_copy(update={"data": model.info.recipe.data.model_copy(update=where)})
    source = open_held_out(recipe, "test")
    images: list[HeldOutImage] = restore_held_out(model, source, sampled=NO_SAMPLES, level=LEVEL, progress=say)
    found = calibrate(images, sampled=NO_SAMPLES, method="recalibrated", level=LEVEL, unit=FIELD)
    checked = cross_validate(images, found, unit=FIELD)
    number = len(checked.units)
    bars.report("w2s: fields", number)
    bars.report("w2s: coverage of the uncalibrated 90% interval", float(checked.raw.mean()))
    bars.report("w2s: coverage of a field, recalibrated on the others", float(checked.corrected.mean()))
    half = stats.t.ppf(0.975, number - 1) * float(checked.corrected.std(ddof=1)) / number**0.5
    bars.report("w2s: lower end of its 95% interval over fields", float(checked.corrected.mean()) - half)
    bars.report("w2s: upper end", float(checked.corrected.mean()) + half)
    bars.report("w2s: least of the fields", float(checked.corrected.min()))
    bars.report("w2s: largest of the fields", float(checked.corrected.max()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="of simulated microscopy; by default a small one is trained")
    parser.add_argument("--w2s", type=Path, metavar="MODEL", help="measure this one on W2S, and nothing else")
    parser.add_argument("--image", action="store_true", help="time one image with samples, and nothing else")
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    arguments, bars = parser.parse_args(), Bars()
    torch.set_num_threads(1)
    keep_freed_memory()  # as the commands do
    with tempfile.TemporaryDirectory() as folder:
        if arguments.w2s is not None:
            w2s(load(arguments.w2s), bars)
        elif arguments.image:
            one_image(Path(folder), bars)
        else:
            model = arguments.model or small_model(Path(folder))
            fast_coverage(load(model), Path(folder), bars)
            one_read(model, Path(folder), bars)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
