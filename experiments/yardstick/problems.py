"""Three problems, each with pairs to learn from and images that no contender has seen."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.cli.settings import recipe_of
from sfumato.data.intensity import ScaledPairs
from sfumato.data.sources import PairSource, evenly_spread
from sfumato.models.presets import Preset
from sfumato.models.recipe import Recipe
from sfumato.problems.phase import PhasePairs
from sfumato.problems.phase_settings import PhaseSettings
from sfumato.problems.photographs import Photographs, find_photographs
from sfumato.problems.photons import simulate_light
from sfumato.problems.request import parameters
from sfumato.system.atomic_files import replace_text
from sfumato.training.preparation import open_held_out, open_sources

__all__ = ["PROBLEMS", "W2S_VALIDATION", "Held", "Places", "Problem", "held_out", "make_data", "recipe_for"]

RECIPE = Path(__file__).parents[1] / "recipes" / "default_0_1.yaml"
FIELDS = {"train": 150, "validation": 6, "test": 24}
"""Simulated fields of each of the four structures, with 64 camera pixels a side; 96 test fields in all."""
FIELDS_SEED, NOISE_SEED = 270, 1000
NUM_PHOTOGRAPHS, CROP = 60, 128
"""Test photographs, and the side of the central square of each that is restored."""
W2S_VALIDATION = "069"

Array = NDArray[Any]


@dataclass(frozen=True)
class Places:
    """Where things are: runs and simulated fields, and the real images."""

    work: Path
    data: Path

    @classmethod
    def below(cls, work: Path) -> "Places":
        """With the images that SFUMATO_DATA names."""
        if "SFUMATO_DATA" not in os.environ:
            sys.exit("set SFUMATO_DATA to the folder with the images")
        return cls(work.resolve(), Path(os.environ["SFUMATO_DATA"]).resolve())


@dataclass(frozen=True)
class Problem:
    """What is restored.

    Attributes:
        settings: Where its pairs are and how they are normalised; `{work}` and `{data}` are replaced.
        of_0_1: How version 0.1 trained on them.
        test_sets: Names of its sets of test images.
        affine: Whether brightness and offset are fitted to the truth before errors of means are measured.
        remove_mean: Whether the mean of each image is removed, as no method can know it.
        unit: Size of the data's range in model units, so that errors are shares of the range (or radians).
        bands: Highest frequency of the eight bands of power, as a share of the Nyquist frequency.
        quick: Further settings at budgets that are too short for its usual patches.
    """

    settings: tuple[str, ...]
    of_0_1: tuple[str, ...] = ()
    test_sets: tuple[str, ...] = ("test",)
    affine: bool = False
    remove_mean: bool = False
    unit: float = 1.0
    bands: float = 1.0
    quick: tuple[str, ...] = ()


PROBLEMS: Mapping[str, Problem] = {
    "microscopy": Problem(
        ("problem=photons", "data.folder={work}/light", "data.normalize=image"),
        of_0_1=("model.residual=true",),
        affine=True,
        unit=2.0,
        bands=0.6,
    ),
    "phase": Problem(
        (
            "problem=phase",
            "data.folder={data}/natural_imagenet100",
            "forward.draws=1000000",
            "data.patch=128",  # slow structures are seen from afar
        ),
        test_sets=("noise-free", "noisy"),
        remove_mean=True,
        quick=("data.patch=64",),
    ),
    "w2s": Problem(
        (
            "data.manifest={work}/w2s/pairs.csv",
            "data.match_intensity=true",
            "data.normalize=mean_std",
        ),
        of_0_1=(
            "model.base=8",
            "model.rate_base=4",
            "model.num_scales=4",
            "model.mean_network=true",
            "model.scale=0.3",
            "train.learning_rate=0.002",
        ),
        affine=True,
    ),
}


@dataclass(frozen=True)
class Held:
    """A held-out image as its source gives it; arrays are (channels, H, W).

    Attributes:
        name: Of the image.
        group: The structure, or the set of test images, over which ratios are averaged.
        condition: What was measured, on the target's grid.
        truth: Same grid.
    """

    name: str
    group: str
    condition: Array
    truth: Array


def recipe_for(problem: str, places: Places, settings: tuple[str, ...] = (), *, preset: Preset | None = None) -> Recipe:
    """Version 0.1's recipe of a problem, or that of a preset, with some settings of a contender."""
    own = [text.format(work=places.work, data=places.data) for text in PROBLEMS[problem].settings]
    if preset is not None:
        return recipe_of(None, [*own, *settings], preset=preset)
    return recipe_of(RECIPE, [*own, *PROBLEMS[problem].of_0_1, *settings])


def make_data(places: Places) -> None:
    """Write what is made once for all contenders: simulated fields, and the list of W2S pairs."""
    if not (places.work / "light").exists():
        places.work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=places.work) as part:
            made = simulate_light(Path(part) / "light", seed=FIELDS_SEED, cells=FIELDS, progress=_say)
            with contextlib.suppress(OSError):  # another process was faster; its fields are the same
                made.rename(places.work / "light")
    folder = places.work / "w2s"
    folder.mkdir(exist_ok=True)
    rows = ["input,target,split"]
    for part in ("train", "test"):
        with contextlib.suppress(FileExistsError):
            (folder / part).symlink_to(places.data / "fluor_denoise_w2s" / part)
        for noisy in sorted((folder / part / "noisy").glob("*.tif")):
            split = "validation" if noisy.name.startswith(W2S_VALIDATION) else part
            rows.append(f"{part}/noisy/{noisy.name},{part}/clean/{noisy.name},{split}")
    replace_text(folder / "pairs.csv", "\n".join(rows) + "\n", untouched="No list was written")


def _say(done: int, total: int) -> None:
    if done % 50 == 0 or done == total:
        print(f"simulated {done} of {total} fields", file=sys.stderr, flush=True)


def held_out(problem: str, split: str, places: Places, *, most: int | None = None) -> list[Held]:
    """Images of a set of :attr:`Problem.test_sets`, or of `validation`, at most so many, evenly spread."""
    recipe = recipe_for(problem, places)
    if split == "validation":
        source = open_sources(recipe, splits=["validation"], cache_bytes=0)["validation"]
        source = _as_trained(recipe, source)
        number = source.num_images
    elif problem == "phase":
        source = _phases(recipe, places, is_noisy=split == "noisy")
        number = NUM_PHOTOGRAPHS
    else:
        source = _as_trained(recipe, open_held_out(recipe, split))
        number = len(source)
    group = _structure if problem == "microscopy" else (lambda _: split)
    return [_held(source, place, group) for place in evenly_spread(number, most)]


def _as_trained(recipe: Recipe, source: PairSource) -> PairSource:
    return ScaledPairs(source, recipe.data.quantiles) if recipe.data.scales_each_image else source


def _phases(recipe: Recipe, places: Places, *, is_noisy: bool) -> PhasePairs:
    """Photographs of two sets that none is trained on, some of each."""
    found = [
        path
        for name in ("natural_coco", "natural_kodak")
        for path in find_photographs(places.data / name, validation_fraction=0)["train"]
    ]
    paths = [found[place] for place in evenly_spread(len(found), NUM_PHOTOGRAPHS)]
    settings = parameters(PhaseSettings, {**recipe.forward, "draws": 1})
    photographs = Photographs(paths, side_px=settings.side_px)
    return PhasePairs(photographs, settings, seed=NOISE_SEED, is_noisy=is_noisy, is_mirrored=False)


def _held(source: PairSource, place: int, group: Callable[[str], str]) -> Held:
    spatial, name = source.spatial(place), source.name(place)
    is_phase = source.condition_channels == 2
    size = [min(CROP, length) if is_phase else length for length in spatial]
    corner = [(length - part) // 2 for length, part in zip(spatial, size, strict=True)]
    condition, truth = source.read(place, corner, size)
    return Held(name, group(name), np.asarray(condition, np.float32), np.asarray(truth, np.float32))


def _structure(name: str) -> str:
    return name.partition("/")[0].rpartition("_")[0]
