"""What a user may give to `train` by mistake: each gives a typed error that says what was got and what to do."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pair_folders import make_pairs
from sfumato.data.images.io import write_image
from sfumato.models.recipe import parse
from sfumato.system.errors import SfumatoError
from sfumato.training.train import train
from small_runs import recipe

Damage = Callable[[Path], object]


def replaced(name: str, pixels: Any, axes: str = "YX") -> Damage:
    def damage(folder: Path) -> None:
        write_image(folder / name, pixels, axes=axes, overwrite=True)

    return damage


def both(pixels: Any) -> Damage:
    def damage(folder: Path) -> None:
        for side in ("low", "high"):
            replaced(f"{side}/image0.tif", pixels)(folder)

    return damage


def all_of(side: str, pixels: Any) -> Damage:
    def damage(folder: Path) -> None:
        for number in range(6):
            replaced(f"{side}/image{number}.tif", pixels)(folder)

    return damage


def written(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content)


def renamed(name: str, other: str) -> Damage:
    return lambda folder: (folder / name).rename(folder / other)


def emptied(name: str) -> Damage:
    def damage(folder: Path) -> None:
        shutil.rmtree(folder / name)
        (folder / name).mkdir()

    return damage


def cut_off(name: str, length: int) -> Damage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:length])


FLOATS = np.random.default_rng(0).random((24, 32), dtype=np.float32)
WITH_NAN = np.where(np.arange(32) == 5, np.nan, FLOATS).astype(np.float32)

TWO_CHANNELS = np.stack([FLOATS] * 2)
BRIGHT, FLAT = np.full((24, 32), 65_535, np.uint16), np.full((24, 32), 7, np.uint16)

DATA: dict[str, tuple[Damage, str, str]] = {
    "unpaired name": (renamed("low/image0.tif", "low/other.tif"), "no partner: 'image0'", "same name"),
    "two of one name": (replaced("low/image0.npy", FLOATS), "two images called 'image0'", "keep one"),
    "no images": (emptied("low"), "holds no images", "check the path"),
    "no folder": (renamed("low", "moved"), "does not exist", "give the path"),
    "sizes differ": (replaced("low/image0.tif", FLOATS[:20]), r"\(20, 32\) pixels and the target", "resample"),
    "half the size": (replaced("low/image0.tif", FLOATS[::2, ::2]), r"\(12, 16\) pixels", "set data.upsample"),
    "frames differ": (replaced("low/image0.tif", TWO_CHANNELS, "TYX"), "2 frames and the target 1", "as many"),
    "channels differ": (replaced("low/image0.tif", TWO_CHANNELS, "CYX"), "different channels", "equal channels"),
    "smaller than the patch": (both(FLOATS[:10]), "less than the patch of 16", "set data.patch to 10"),
    "one pixel": (both(FLOATS[:1, :1]), "less than the patch of 16", "set data.patch to 1 or less"),
    "NaN in inputs": (all_of("low", WITH_NAN), "the input of image. has NaN", "replace them"),
    "NaN in targets": (all_of("high", WITH_NAN), "the target of image. has NaN", "replace them"),
    "infinite": (all_of("high", np.where(FLOATS > 0.9, np.inf, FLOATS)), "infinite pixels", "replace them"),
    "constant targets": (all_of("high", FLAT), "channel 0 of the training set is 7", "leave the channel out"),
    "saturated uint16": (all_of("low", BRIGHT), "100% of its pixels are 65535", "without clipping"),
    "complex": (all_of("low", FLOATS.astype(np.complex64)), "complex", "convert|give"),
    "truncated TIFF": (cut_off("low/image0.tif", 300), "could not be read", "copy it again"),
    "text called TIFF": (written("low/image0.tif", b"no image"), "no known format", "convert it"),
    "empty file": (written("low/image0.tif", b""), "image0.tif is empty", "save it again"),
}


@pytest.mark.parametrize("case", DATA)
def test_bad_images(case: str, tmp_path: Path) -> None:
    damage, got, advice = DATA[case]
    folders = make_pairs(tmp_path)
    damage(tmp_path)
    with pytest.raises(SfumatoError, match=got) as raised:
        train(recipe(folders, train_steps=1, data_validation_fraction=0), tmp_path / "run", quiet=True)
    assert re.search(advice, str(raised.value)), str(raised.value)


def test_negative_counts_are_images_like_others(tmp_path: Path) -> None:
    """An offset that was subtracted leaves them, and so do Hounsfield units."""
    folders = make_pairs(tmp_path)
    for number in range(6):
        counts = np.random.default_rng(number).integers(-1000, 500, (24, 32), dtype=np.int16)
        replaced(f"low/image{number}.tif", counts)(tmp_path)
    run = train(recipe(folders, train_steps=1), tmp_path / "run", quiet=True)
    assert run.model_file.is_file()


SETTINGS = {
    "misspelt key": ("train: {stepps: 3}", "did you mean 'steps'"),
    "misspelt value": ("model: {norm: chanel}", "'population', 'channel' or 'instance'"),
    "no number": ("train: {steps: many}", "train.steps is 'many'"),
    "negative": ("train: {learning_rate: -1}", "greater than 0"),
    "two sources": ("data: {store: a, manifest: b}", "images come from one place"),
    "one folder": ("data: {inputs: a}", "give both folders"),
    "swapped quantiles": ("data: {quantiles: [0.9, 0.1]}", "0 <= low < high <= 1"),
    "a list": ("[1, 2]", "expected keys"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_bad_recipes(case: str) -> None:
    text, message = SETTINGS[case]
    with pytest.raises(SfumatoError, match=message):
        parse(text)


def foreign(path: Path) -> None:
    save_file({"weight": np.zeros(3, np.float32)}, path)


MODELS: dict[str, tuple[Damage, str]] = {
    "not there": (lambda path: None, "does not exist"),
    "a foreign safetensors file": (foreign, "not written by sfumato|no model|sfumato"),
    "text": (lambda path: path.write_text("weights"), "safetensors|model"),
    "empty": (lambda path: path.write_bytes(b""), "bytes"),
}


@pytest.mark.parametrize("case", MODELS)
def test_bad_models_to_start_from(case: str, tmp_path: Path) -> None:
    make, message = MODELS[case]
    make(tmp_path / "model.safetensors")
    with pytest.raises(SfumatoError, match=message):
        train(
            recipe(make_pairs(tmp_path), train_steps=1),
            tmp_path / "run",
            start_from=tmp_path / "model.safetensors",
            quiet=True,
        )


@pytest.mark.parametrize(
    ("other", "said"), [({"model_base": 6}, "base is 4"), ({"model_norm": "instance"}, "norm is pop")]
)
def test_a_model_of_other_networks_to_start_from(other: dict[str, Any], said: str, tmp_path: Path) -> None:
    folders = make_pairs(tmp_path)
    first = train(recipe(folders, train_steps=1), tmp_path / "first", quiet=True)
    with pytest.raises(SfumatoError, match="use the file's own") as caught:
        train(recipe(folders, train_steps=1, **other), tmp_path / "run", start_from=first.model_file, quiet=True)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_run_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SfumatoError, match="choose a folder that you may write to"):
        train(recipe(make_pairs(tmp_path), train_steps=1), tmp_path / "file" / "run", quiet=True)
