"""Images that a model has seen: no guarantee is made from them, and no score without a word."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sfumato
from attack.attacking import FEW, Ran, image, pixels, refuses, run, write_model
from pair_folders import TINY
from sfumato.data.images.io import write_image
from sfumato.data.pairs import find_pairs, split_pairs
from sfumato.models.intervals import Correction, Sampled
from sfumato.models.model_updates import set_calibration
from sfumato.models.recipe import parse
from sfumato.system.errors import ModelFileError, PairingError
from sfumato.training.train import train

SETTINGS = [word for setting in [*TINY, "train.steps=1"] for word in ("--set", setting)]


def pairs(folder: Path, names: list[str], *, first: int = 0) -> Path:
    """Inputs and targets of noise, no two alike."""
    for number, name in enumerate(names, start=first):
        image(folder / "inputs" / f"{name}.tif", 2 * number)
        image(folder / "targets" / f"{name}.tif", 2 * number + 1)
    return folder


def letters(number: int) -> list[str]:
    """Names that nothing can be read from."""
    return [f"cell {chr(ord('a') + place)}" for place in range(number)]


def places(folder: Path) -> list[object]:
    return ["--inputs", folder / "inputs", "--targets", folder / "targets"]


def trained(folder: Path, out: Path) -> Ran:
    return run("train", *places(folder), "--out", out, *SETTINGS)


class Trained:
    """A model, the pairs it was trained and validated on, and others."""

    def __init__(self, folder: Path) -> None:
        self.data, self.other = pairs(folder / "data", letters(12)), pairs(folder / "other", letters(10), first=50)
        ran = trained(self.data, folder / "run")
        assert ran.code == 0, ran.text
        self.model = folder / "run" / "model.safetensors"
        found = find_pairs(self.data / "inputs", self.data / "targets")
        self.train, self.validation = ([p.name for p in part] for part in split_pairs(found, 0.1, seed=0))

    def part(self, folder: Path, names: list[str], *, extra: int = 0) -> Path:
        """Some of the pairs, as files of their own under other names, beside some that are new."""
        for number, name in enumerate(names):
            for side in ("inputs", "targets"):
                copied = pixels(self.data / side / f"{name}.tif")
                (folder / side).mkdir(parents=True, exist_ok=True)
                write_image(folder / side / f"renamed {number}.tif", copied, axes="YX")
        return pairs(folder, letters(extra), first=80)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("leaks"))


def calibrated(known: Trained, folder: Path, *words: object) -> Ran:
    out = folder.parent / f"{folder.name}.safetensors"
    return run("calibrate", known.model, folder, *FEW, "--out", out, *words)


def test_calibrating_on_training_images_is_refused(known: Trained) -> None:
    refuses(calibrated(known, known.data), "trained on 11 of these 12 images", known.train[0], "--allow-seen")


def test_a_few_training_images_among_new_ones_are_named(known: Trained, tmp_path: Path) -> None:
    mixed = known.part(tmp_path / "mixed", known.train[:2], extra=9)
    refuses(calibrated(known, mixed), "trained on 2 of these 11 images", "renamed 0, renamed 1;")


def test_at_most_five_names_are_printed(known: Trained, tmp_path: Path) -> None:
    mixed = known.part(tmp_path / "mixed", known.train[:7], extra=3)
    refuses(calibrated(known, mixed), "renamed 4 and 2 more")


def test_only_images_that_are_used_count(known: Trained, tmp_path: Path) -> None:
    """The last of the folder is used, the others between are not."""
    mixed = known.part(tmp_path / "mixed", known.train[:3], extra=9)
    refuses(calibrated(known, mixed, "--most", "2", "--method", "recalibrated"), "1 of these 2 images", "renamed 2;")


def test_validation_images_are_refused_for_a_calibration(known: Trained, tmp_path: Path) -> None:
    mixed = known.part(tmp_path / "mixed", known.validation, extra=9)
    refuses(calibrated(known, mixed), "validated on 1 of these 10 images", "renamed 0")


def test_allowed_training_images_give_no_guarantee(known: Trained, tmp_path: Path) -> None:
    mixed = known.part(tmp_path / "mixed", known.train[:3], extra=9)
    ran = calibrated(known, mixed, "--allow-seen")
    assert ran.code == 0, ran.text
    assert "guaranteed" not in ran.text
    assert "no guarantee: the model was trained or validated on 3 of their 12 images" in ran.text
    source, made = image(tmp_path / "new.tif", 999), tmp_path / "mixed.safetensors"
    restored = run("restore", made, source, tmp_path / "out.tif", *FEW)
    assert restored.code == 0, restored.text
    assert "no guarantee" in restored.text
    assert "guaranteed" not in restored.text


@pytest.mark.guard
def test_new_images_give_a_guarantee(known: Trained) -> None:
    ran = calibrated(known, known.other)
    assert ran.code == 0, ran.text
    assert "guaranteed" in ran.text


@pytest.mark.parametrize("name", ["npy", "float32", "float64", "stack"])
def test_another_format_or_type_hides_nothing(known: Trained, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "same"
    for number, old in enumerate(known.train[:9]):
        for side in ("inputs", "targets"):
            held = pixels(known.data / side / f"{old}.tif")
            (folder / side).mkdir(parents=True, exist_ok=True)
            place, dtype = folder / side / f"x{number}z", np.float64 if name == "float64" else np.float32
            if name == "npy":
                np.save(place.with_suffix(".npy"), held)
            elif name == "stack":
                write_image(place.with_suffix(".tif"), np.stack([held, held[::-1]]), axes="TYX")
            else:
                write_image(place.with_suffix(".zarr"), held.astype(dtype), axes="YX")
    refuses(calibrated(known, folder, "--unit", ".*"), "trained on 9 of these")


def test_inputs_simulated_afresh_hide_nothing(known: Trained, tmp_path: Path) -> None:
    """The truths are those of the training, whatever noise was put on them."""
    mixed = known.part(tmp_path / "mixed", known.train[:9])
    for number in range(9):
        image(mixed / "inputs" / f"renamed {number}.tif", 500 + number)
    refuses(calibrated(known, mixed), "trained on 9 of these 9 images")


def test_a_packed_store_hides_nothing(known: Trained, tmp_path: Path) -> None:
    mixed, rows = known.part(tmp_path / "mixed", known.train[:10]), ["input,target,split"]
    rows += [f"inputs/renamed {n}.tif,targets/renamed {n}.tif,{('test', 'train')[n > 8]}" for n in range(10)]
    (mixed / "list.csv").write_text("\n".join(rows))
    packed = run("pack", "--manifest", mixed / "list.csv", "--out", tmp_path / "store.zarr")
    assert packed.code == 0, packed.text
    refuses(calibrated(known, tmp_path / "store.zarr", "--split", "test"), "trained on 9 of these 9 images")


def test_marked_validation_pairs_are_not_what_is_calibrated_on(known: Trained, tmp_path: Path) -> None:
    """Nobody asked for a split: those for validation have chosen the weights."""
    mixed, rows = known.part(tmp_path / "mixed", known.validation, extra=9), ["input,target,split"]
    names = sorted(path.name for path in (mixed / "inputs").iterdir())
    rows += [f"inputs/{n},targets/{n},{'validation' if n.startswith('renamed') else 'test'}" for n in names]
    (mixed / "list.csv").write_text("\n".join(rows))
    ran = run("calibrate", known.model, mixed / "list.csv", *FEW, "--out", tmp_path / "made.safetensors")
    assert ran.code == 0, ran.text
    assert "guaranteed for images like the 9" in ran.text


def test_evaluating_on_training_images_is_refused(known: Trained, tmp_path: Path) -> None:
    words = ["evaluate", known.model, *places(known.data), *FEW, "--out", tmp_path / "scores"]
    refuses(run(*words), "trained on 11 of these 12 images")
    allowed = run(*words, "--allow-seen")
    assert allowed.code == 0, allowed.text
    assert "promise nothing" in (tmp_path / "scores" / "table.md").read_text(encoding="utf-8")


def test_evaluating_on_validation_images_names_them(known: Trained, tmp_path: Path) -> None:
    mixed = known.part(tmp_path / "mixed", known.validation, extra=4)
    ran = run("evaluate", known.model, *places(mixed), *FEW, "--out", tmp_path / "scores")
    assert ran.code == 0, ran.text
    assert "validated on 1 of the 5 images (renamed 0)" in ran.text


def test_steps_are_not_chosen_on_training_images(known: Trained, tmp_path: Path) -> None:
    words = ["inspect", known.model, "--steps", "1,2", "--samples", "2", "--out", tmp_path / "out"]
    refuses(run(*words, *places(known.data)), "trained on")
    mixed = known.part(tmp_path / "mixed", known.validation, extra=2)
    assert run(*words, *places(mixed)).code == 0


def test_a_training_image_is_not_looked_into(known: Trained, tmp_path: Path) -> None:
    source = known.data / "inputs" / f"{known.train[0]}.tif"
    words = ["inspect", known.model, source, "--samples", "2", "--steps", "1", "--out", tmp_path / "out"]
    refuses(run(*words), "trained on 1 of these 1 images")
    assert run(*words, "--allow-seen").code == 0


@pytest.mark.guard
def test_blank_images_are_not_taken_for_seen(known: Trained, tmp_path: Path) -> None:
    """Each of two trainings and a calibration has an empty field; that they are alike says nothing."""
    data, other = pairs(tmp_path / "data", letters(6)), pairs(tmp_path / "other", letters(10), first=30)
    for folder in (data, other):
        for side in ("inputs", "targets"):
            write_image(folder / side / "cell a.tif", np.zeros((32, 32), np.float32), axes="YX", overwrite=True)
            write_image(folder / side / "cell b.tif", np.zeros((32, 32), np.float32), axes="YX", overwrite=True)
    assert trained(data, tmp_path / "run").code == 0
    model = tmp_path / "run" / "model.safetensors"
    ran = run("calibrate", model, other, *FEW, "--out", tmp_path / "made.safetensors")
    assert ran.code == 0, ran.text


def test_an_image_in_training_and_validation_is_refused(tmp_path: Path) -> None:
    data = pairs(tmp_path / "data", letters(5))
    image(data / "targets" / "cell d.tif", 1)  # that of `cell a`
    rows = [f"inputs/{n}.tif,targets/{n}.tif,{'validation' if n == 'cell d' else 'train'}" for n in letters(5)]
    (data / "list.csv").write_text("\n".join(["input,target,split", *rows]))
    ran = run("train", "--manifest", data / "list.csv", "--out", tmp_path / "run", *SETTINGS)
    refuses(ran, "inputs/cell d.tif of validation is inputs/cell a.tif of training", "same split")
    assert not (tmp_path / "run").exists()


def test_a_split_by_chance_does_not_part_copies(tmp_path: Path) -> None:
    data = pairs(tmp_path / "data", letters(6))
    found = find_pairs(data / "inputs", data / "targets")
    (kept, *_), (held_out, *_) = split_pairs(found, 0.1, seed=0)
    for side in ("inputs", "targets"):
        shutil.copy(data / side / f"{kept.name}.tif", data / side / f"{held_out.name}.tif")
    where = {side: str(data / side) for side in ("inputs", "targets")}
    recipe = parse(json.dumps({"data": where | {"patch": 16}, "model": {"base": 4}, "train": {"steps": 1}}))
    with pytest.raises(PairingError, match=f"{held_out.name} of validation is {kept.name} of training"):
        train(recipe, tmp_path / "run", quiet=True)


def test_copies_within_training_are_noted(tmp_path: Path) -> None:
    data = pairs(tmp_path / "data", letters(6))
    (kept, copy, *_), _ = split_pairs(find_pairs(data / "inputs", data / "targets"), 0.1, seed=0)
    for side in ("inputs", "targets"):
        shutil.copy(data / side / f"{kept.name}.tif", data / side / f"{copy.name}.tif")
    ran = trained(data, tmp_path / "run")
    assert ran.code == 0, ran.text
    assert (
        f"note: 1 training inputs are copies of others, by their pixels, such as {copy.name} of {kept.name}" in ran.text
    )


FIELDS = [f"{field:03}_{number}" for field in (85, 86, 91, 92, 99) for number in range(3)]


def test_images_of_a_field_are_one_unit(known: Trained, tmp_path: Path) -> None:
    """Fifteen images of five fields carry no guarantee that needs nine."""
    folder = pairs(tmp_path / "fields", FIELDS, first=200)
    refuses(calibrated(known, folder), "5 independent units of 15 images: files whose names differ only in _0, _1, _2")
    refuses(calibrated(known, folder, "--most", "8"), "held out: 5 independent units of 8 images")
    ran = calibrated(known, folder, "--unit", ".*")
    assert ran.code == 0, ran.text
    assert "15 independent units" in ran.text


def test_scores_are_of_fields(known: Trained, tmp_path: Path) -> None:
    folder = pairs(tmp_path / "fields", FIELDS, first=200)
    ran = run("evaluate", "--baseline", "bicubic", *places(folder), "--out", tmp_path / "scores")
    assert ran.code == 0, ran.text
    assert "15 images were averaged to 5 independent units" in ran.text


@pytest.mark.guard
@pytest.mark.parametrize("names", [[f"img_{n}" for n in range(9)], [*FIELDS[:8], "100_0"]])
def test_a_count_makes_no_groups(known: Trained, tmp_path: Path, names: list[str]) -> None:
    ran = calibrated(known, pairs(tmp_path / "count", names, first=300))
    assert ran.code == 0, ran.text
    assert "9 independent units" in ran.text


def test_an_old_model_says_that_it_cannot_tell(model: Path, tmp_path: Path) -> None:
    folder = pairs(tmp_path / "other", letters(9))
    said = "does not say what it was trained on"
    for words in (
        ["calibrate", model, folder, "--out", tmp_path / "made.safetensors"],
        ["evaluate", model, *places(folder), "--out", tmp_path / "scores"],
    ):
        ran = run(*words, *FEW)
        assert ran.code == 0, ran.text
        assert ran.text.count(said) == 1


def test_a_resumed_run_keeps_what_it_saw(known: Trained, tmp_path: Path) -> None:
    """The same run gives the same bytes; one that is resumed has noted its images when it was started."""
    assert trained(known.data, tmp_path / "run").code == 0
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert before == known.model.read_bytes()
    (tmp_path / "run" / "model.safetensors").unlink()
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()
    assert trained(known.data, tmp_path / "run").code == 0
    refuses(run("calibrate", tmp_path / "run" / "model.safetensors", known.data, *FEW), "trained on 11")


def test_a_run_of_an_earlier_version_is_resumed_and_says_what_it_lacks(known: Trained, tmp_path: Path) -> None:
    assert trained(known.data, tmp_path / "run").code == 0
    statistics = tmp_path / "run" / "statistics.json"
    kept = json.loads(statistics.read_text())
    statistics.write_text(json.dumps({name: kept[name] for name in ("condition", "target", "audit")}))
    again = trained(known.data, tmp_path / "run")
    assert again.code == 0, again.text
    assert again.text.count("note: this run was started by an earlier version") == 1


SAMPLED = Sampled(4, 3, "2m", 0.0)


@pytest.mark.parametrize(
    "values",
    [
        {"num_units": 0, "num_images": 0},
        {"num_units": 9, "num_images": 3},
        {"raw_coverage": 1.5},
        {"sampled": Sampled(0, 3, "2m", 0.0)},
    ],
)
def test_a_calibration_of_nothing_does_not_load(tmp_path: Path, values: dict[str, Any]) -> None:
    path = write_model(tmp_path / "model.safetensors")
    set_calibration(path, Correction("risk_control", 0.9, 2.0, 20, 20, 0.5, SAMPLED))
    text = dict(zip(("num_units", "num_images", "raw_coverage"), (20, 20, 0.5), strict=True))
    rewrite(path, {**text, **values})
    with pytest.raises(ModelFileError, match="calibration"):
        sfumato.load(path)


def rewrite(path: Path, values: dict[str, Any]) -> None:
    """Another calibration in the metadata of a model file, whose checksum is right."""
    from sfumato.models.safetensors_file import open_tensors, write_tensors

    with open_tensors(path, "model") as file:
        tensors, metadata = file.read()[0], dict(file.metadata)
    drawn = values.pop("sampled", None)
    metadata["calibration"] = {**metadata["calibration"], **values}
    if drawn is not None:
        metadata["calibration"]["sampled"] = vars(drawn)
    write_tensors(path, tensors, metadata, kind="model", untouched="")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_do_not_load(tmp_path: Path, value: float) -> None:
    from sfumato.models.safetensors_file import open_tensors, write_tensors

    path = write_model(tmp_path / "model.safetensors")
    with open_tensors(path, "model") as file:
        tensors, metadata = file.read()[0], file.metadata
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel() > 1)
    tensors[name].view(-1)[1] = torch.tensor(value)
    write_tensors(path, tensors, metadata, kind="model", untouched="")
    refuses(run("restore", path, image(tmp_path / "new.tif"), tmp_path / "out.tif", *FEW), "NaN or infinite")


@pytest.mark.guard
@pytest.mark.parametrize("side", ["condition", "target"])
def test_scales_that_are_not_positive_do_not_load(tmp_path: Path, side: str) -> None:
    from sfumato.models.safetensors_file import open_tensors, write_tensors

    path = write_model(tmp_path / "model.safetensors")
    with open_tensors(path, "model") as file:
        tensors, metadata = file.read()[0], dict(file.metadata)
    metadata[side] = {"offset": [0.0], "scale": [0.0]}
    write_tensors(path, tensors, metadata, kind="model", untouched="")
    with pytest.raises(ModelFileError, match="scales"):
        sfumato.load(path)
