"""What the models of the zoo are trained, calibrated and tested on: all of it simulated, or in the public domain.

Training data lies in the layout of the recipe's problem, held-out data in folders `inputs` and `targets`, as
`sfumato calibrate` takes it. Seeds differ, so that no specimen is in two of them, nor in the demo.
"""

import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.data.images.image import arrange
from sfumato.data.images.io import open_image, write_image
from sfumato.models.recipe import Recipe
from sfumato.physics.optics import cutoff_frequency
from sfumato.physics.rendering import render
from sfumato.physics.structures import STRUCTURES
from sfumato.problems.microscopy_simulation import PHOTON_LEVELS, Microscope, image_field, simulate
from sfumato.problems.phase import PhasePairs
from sfumato.problems.phase_settings import PhaseSettings
from sfumato.problems.photographs import Photographs
from sfumato.problems.request import parameters

__all__ = ["KINDS", "Amounts", "Kind", "make_data"]

TRAINING_SEED, CALIBRATION_SEED, TEST_SEED = 101, 102, 103
HELD_OUT_SIDE = 64
"""Camera pixels of held-out fields: as many as those of the demo."""

Picture = NDArray[np.float32]


@dataclass(frozen=True)
class Amounts:
    """How many specimens of each structure, and how many parts of each photograph.

    Attributes:
        train: For training.
        validation: To choose the weights by.
        calibration: To calibrate on.
        test: To measure on; also of each photograph.
        crops: Of each photograph, for training and to choose the weights by.
    """

    train: int = 30
    validation: int = 5
    calibration: int = 12
    test: int = 9
    crops: int = 40


@dataclass(frozen=True)
class Kind:
    """What is particular to one model.

    Attributes:
        make: Writes training data to a folder and held-out data to two others, for a recipe.
        images: Where they come from, for the card.
        limits: What it cannot do, for the card.
    """

    make: Callable[[Recipe, Path, Path, Path, Amounts], None]
    images: str
    limits: str


def make_data(kind: Kind, recipe: Recipe, place: Path, amounts: Amounts) -> None:
    """Write `train`, `calibration` and `test` below a folder, all or none of them."""
    if place.exists():
        return
    unfinished = place.with_name(f"{place.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    kind.make(recipe, unfinished / "train", unfinished / "calibration", unfinished / "test", amounts)
    unfinished.rename(place)


def _microscopy(recipe: Recipe, train: Path, calibration: Path, test: Path, amounts: Amounts) -> None:
    cells = {"train": amounts.train, "validation": amounts.validation}
    simulate(train, seed=TRAINING_SEED, cells=cells, layout="biosr", progress=_say)
    for folder, seed, number in (
        (calibration, CALIBRATION_SEED, amounts.calibration),
        (test, TEST_SEED, amounts.test),
    ):
        for structure in STRUCTURES:
            for cell in range(number):  # every level of light as often as any other
                level = PHOTON_LEVELS[cell % len(PHOTON_LEVELS)]
                field = image_field(structure, side=HELD_OUT_SIDE, seed=seed, cell=cell, levels=[level])
                _write_pair(folder, f"{structure}_{cell:02}", field.raw[0].mean(0)[None], field.target[None])
            _say(len(list((folder / "inputs").iterdir())), len(STRUCTURES) * number)


_HELD_OUT_PHOTOGRAPHS = {"val": ("coins",), "test": ("camera", "chelsea")}
_SMALLEST_CROP, _PICTURE_SIDE = 160, 256


def _phase(recipe: Recipe, train: Path, calibration: Path, test: Path, amounts: Amounts) -> None:
    for part, seed, specimens in (("train", TRAINING_SEED, amounts.train), ("val", 2**20, amounts.validation)):
        _write_pictures(train / part, _specimens(seed, specimens))
        chosen = [path for path in _photographs() if _split(path) == part]
        _write_pictures(train / part, (crop for path in chosen for crop in _crops(path, seed, amounts.crops)))
    settings = parameters(PhaseSettings, {**recipe.forward, "draws": 1, "side_px": 2 * HELD_OUT_SIDE})
    for folder, seed, specimens in (
        (calibration, CALIBRATION_SEED, amounts.calibration),
        (test, TEST_SEED, amounts.test),
    ):
        pictures = folder / "pictures"
        _write_pictures(pictures, _specimens(seed, specimens))
        if folder is test:
            chosen = [path for path in _photographs() if _split(path) == "test"]
            _write_pictures(pictures, (crop for path in chosen for crop in _crops(path, seed, specimens)))
        paths = sorted(map(str, pictures.iterdir()))
        pairs = PhasePairs(Photographs(paths, side_px=settings.side_px), settings, seed=seed)
        for sample, path in enumerate(paths):
            measured, target = pairs.read(sample, [0, 0], pairs.spatial(sample))
            _write_pair(folder, Path(path).stem, measured, target)
        shutil.rmtree(pictures)


def _photographs() -> list[Path]:
    if "SFUMATO_DATA" not in os.environ:
        sys.exit("set SFUMATO_DATA to the folder that holds natural_skimage")
    folder = Path(os.environ["SFUMATO_DATA"]) / "natural_skimage"
    return sorted(path for path in folder.iterdir() if path.suffix in (".png", ".jpg"))


def _split(photograph: Path) -> str:
    return next((part for part, names in _HELD_OUT_PHOTOGRAPHS.items() if photograph.stem in names), "train")


def _crops(path: Path, seed: int, number: int) -> Iterator[tuple[str, Picture]]:
    """Squares of a photograph, of sizes from ``_SMALLEST_CROP`` pixels to all of it, evenly in their logarithm."""
    image = open_image(path)
    pixels: Picture = np.asarray(image.read() / np.iinfo(image.dtype.name).max, np.float32)
    if "C" in image.axes:
        pixels = np.asarray(arrange(pixels, image.axes, "YXC")[..., :3].mean(-1), np.float32)
    rng = np.random.default_rng([seed, *path.stem.encode()])
    for place in range(number):
        side = int(math.exp(rng.uniform(math.log(_SMALLEST_CROP), math.log(min(pixels.shape)))))
        top, left = (int(rng.integers(0, length - side + 1)) for length in pixels.shape)
        yield f"{path.stem}_{place:02}", pixels[top : top + side, left : left + side]


def _specimens(seed: int, number: int) -> Iterator[tuple[str, Picture]]:
    """Thickness from 0 to 1 of cells, and of the four structures of the simulated microscope."""
    cutoff, pixel_um = cutoff_frequency(1.35, 0.525), Microscope().pixel_um
    for cell in range(number):
        yield f"cells_{cell:02}", _cells(np.random.default_rng([seed, cell]))
        for place, (name, draw) in enumerate(STRUCTURES.items()):
            emitters = draw((_PICTURE_SIDE * pixel_um,) * 2, seed=(seed * 1000 + cell) * len(STRUCTURES) + place)
            light = render(emitters, (_PICTURE_SIDE,) * 2, pixel_um=pixel_um, cutoff=cutoff).clamp_min(0)
            yield f"{name}_{cell:02}", (light / torch.quantile(light, 0.999)).clamp(0, 1).float().numpy()


def _cells(rng: np.random.Generator) -> Picture:
    """Some rounded cells, each with a nucleus and granules, on a flat ground."""
    y, x = np.mgrid[:_PICTURE_SIDE, :_PICTURE_SIDE] / _PICTURE_SIDE
    thickness: NDArray[np.float64] = np.zeros(x.shape)

    def cap(middle: Sequence[float], radius: float) -> NDArray[np.float64]:
        row, column = middle
        stretch, angle = rng.uniform(0.7, 1.0), rng.uniform(0, math.pi)
        along = (y - row) * math.sin(angle) + (x - column) * math.cos(angle)
        across = (y - row) * math.cos(angle) - (x - column) * math.sin(angle)
        distance = (along**2 + (across / stretch) ** 2) / radius**2
        return np.asarray(np.sqrt(np.clip(1 - distance, 0, None)), np.float64)

    for _ in range(rng.integers(1, 5)):
        middle, radius = rng.uniform(0, 1, 2), rng.uniform(0.12, 0.4)
        thickness += rng.uniform(0.3, 1) * cap(middle.tolist(), radius)
        nucleus = rng.normal(middle, radius / 6)
        thickness += rng.uniform(0.1, 0.4) * cap(nucleus.tolist(), radius * rng.uniform(0.3, 0.5))
        for _ in range(rng.integers(0, 25)):
            granule = rng.normal(middle, radius / 2.5)
            thickness += rng.uniform(0.05, 0.3) * cap(granule.tolist(), rng.uniform(0.006, 0.02))
    return np.asarray(thickness / thickness.max() * rng.uniform(0.5, 1), np.float32)


def _write_pictures(folder: Path, pictures: Iterator[tuple[str, Picture]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures:
        write_image(folder / f"{name}.tif", (65535 * picture.clip(0, 1)).astype(np.uint16), axes="YX")


def _write_pair(folder: Path, name: str, measured: NDArray[np.generic], truth: NDArray[np.generic]) -> None:
    """Channels first; one channel is written without its axis, as OME-TIFF would."""
    for part, pixels in (("inputs", measured), ("targets", truth)):
        (folder / part).mkdir(parents=True, exist_ok=True)
        whole = np.asarray(pixels, np.float32)
        single = len(whole) == 1
        write_image(folder / part / f"{name}.tif", whole[0] if single else whole, axes="YX" if single else "CYX")


def _say(done: int, total: int) -> None:
    print(f"simulated {done} of {total}", file=sys.stderr, flush=True)


KINDS = {
    "microscopy": Kind(
        _microscopy,
        "Simulated by sfumato (`sfumato simulate microscopy`): coated pits, endoplasmic reticulum, microtubules and "
        "F-actin as a widefield microscope of NA 1.35 sees them at 525 nm with pixels of 62.6 nm and 15 to 600 photons "
        "per pixel and frame; targets have the resolution of structured illumination and pixels of 31.3 nm. No image "
        "of a real specimen was used.",
        "Made to show what the package does: a simulation is not a microscope. Train on images of your own before you "
        "conclude anything from a restored one.",
    ),
    "phase": Kind(
        _phase,
        "Simulated by sfumato: intensities 2 um before and behind the focus, with noise, of phases up to 3.5 rad. The "
        "phases are drawn cells, the four structures of the simulated microscope, and photographs in the public domain "
        "from scikit-image (`astronaut`, `brick`, `coffee`, `grass`, `gravel`, `hubble_deep_field`, `retina`, "
        "`rocket`; `coins` to choose the weights by, `camera` and `chelsea` in the test). No measured phase was used.",
        "It knows one geometry: two shots at +2 and -2 um, 521 nm in the medium, pixels of 0.21 um, unit intensity in "
        "focus. A constant phase leaves no trace in the intensities, so the mean of an image is a guess.",
    ),
}
