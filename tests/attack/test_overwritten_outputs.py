"""Outputs that would destroy a file: an input of the same command, or one that sfumato did not write."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attack.attacking import FEW, image, pixels, refuses, run, write_model
from sfumato.data.images.io import write_image
from sfumato.data.normalize import Normalization
from sfumato.models.model_file import load, save_model

SMALL = ("train.steps=1", "train.batch_size=1", "data.patch=16", "sample.steps=1")
NETWORK = ("model.base=4", "model.rate_base=2", "model.num_scales=2")
TRAINED = [word for setting in (*SMALL, *NETWORK) for word in ("--set", setting)]
FOREIGN = b"somebody's work"


def foreign(path: Path) -> Path:
    """A file that is not ours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(FOREIGN)
    return path


def photograph(path: Path) -> Path:
    """A picture that is not ours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)).save(path)
    return path


def pairs(folder: Path, number: int = 3) -> Path:
    """A folder with `inputs` and `targets`."""
    for place in range(number):
        image(folder / "inputs" / f"{place}.tif", place)
        image(folder / "targets" / f"{place}.tif", 100 + place)
    return folder


def content(path: Path) -> dict[str, bytes]:
    """Of a file, or of all files of a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {str(file): file.read_bytes() for file in files}


def keeps(path: Path, *words: object, says: tuple[str, ...] = ()) -> None:
    """The command is refused, with the name of the file, and the file is as it was to the byte."""
    before = content(path)
    refuses(run(*words), path.name, *says)
    assert content(path) == before


@pytest.mark.parametrize("option", ["--picture", "--preview"])
def test_a_picture_does_not_replace_the_image_that_is_restored(model: Path, tmp_path: Path, option: str) -> None:
    measured = image(tmp_path / "a.tif")
    keeps(measured, "restore", model, measured, tmp_path / "b.tif", *FEW, option, measured)


@pytest.mark.parametrize("option", ["--picture", "--preview"])
def test_a_picture_does_not_replace_a_photograph(model: Path, tmp_path: Path, option: str) -> None:
    measured, there = image(tmp_path / "a.tif"), photograph(tmp_path / "there.png")
    words = ("restore", model, measured, tmp_path / "b.tif", *FEW, option, there)
    keeps(there, *words, says=("not recognised", "choose another name"))
    assert not (tmp_path / "b.tif").exists(), "it is said before the sampling"


def test_a_picture_does_not_replace_its_input_under_the_name_of_a_link(model: Path, tmp_path: Path) -> None:
    measured, link = photograph(tmp_path / "a.png"), tmp_path / "link.png"
    link.symlink_to(measured)
    keeps(measured, "restore", model, measured, tmp_path / "b.tif", *FEW, "--picture", link, says=("is an input",))
    assert link.is_symlink()


def test_a_picture_does_not_take_the_name_of_a_hard_link_to_its_input(model: Path, tmp_path: Path) -> None:
    measured, link = photograph(tmp_path / "a.png"), tmp_path / "link.png"
    os.link(measured, link)
    words = ("restore", model, measured, tmp_path / "b.tif", *FEW, "--picture", link)
    keeps(link, *words, says=("is an input", "a.png"))
    assert link.samefile(measured)


def test_a_picture_does_not_replace_the_restored_image(tmp_path: Path) -> None:
    made, measured, restored = tmp_path / "m.safetensors", photograph(tmp_path / "a.png"), tmp_path / "b.png"
    scaling = Normalization(offset=(100.0,), scale=(50.0,))  # whose values a PNG can hold
    held = load(write_model(made))
    save_model(made, held.model.state_dict(), dataclasses.replace(held.info, condition=scaling, target=scaling))
    refuses(run("restore", made, measured, restored, *FEW, "--picture", restored), "b.png", "two outputs")
    assert run("restore", made, measured, restored, *FEW, "--picture", tmp_path / "look.png").code == 0
    assert pixels(restored).shape == pixels(measured).shape


def test_a_picture_is_not_written_into_the_store_that_is_restored(model: Path, tmp_path: Path) -> None:
    store = tmp_path / "a.zarr"
    write_image(store, np.ones((32, 32), np.float32), axes="YX")
    words = ("restore", model, store, tmp_path / "b.tif", *FEW, "--picture", store / "look.png")
    before = content(store)
    refuses(run(*words), "is inside", "a.zarr")
    assert content(store) == before


def test_a_folder_of_somebody_is_no_journal_that_is_removed_at_the_end(model: Path, tmp_path: Path) -> None:
    measured, mine = image(tmp_path / "data" / "a.tif"), foreign(tmp_path / "mine" / "thesis.tex").parent
    keeps(mine, "restore", model, measured, tmp_path / "b.tif", *FEW, "--journal", mine)
    holding = measured.parent
    keeps(holding, "restore", model, measured, tmp_path / "b.tif", *FEW, "--journal", holding)


def test_calibrate_does_not_replace_a_held_out_image(tmp_path: Path) -> None:
    made, held_out = write_model(tmp_path / "model.safetensors"), pairs(tmp_path / "held_out", 9)
    there = held_out / "inputs" / "0.tif"
    keeps(there, "calibrate", made, held_out, *FEW, "--out", there)
    keeps(there, "calibrate", made, held_out, *FEW, "--page", there)


def test_calibrate_does_not_replace_another_model(tmp_path: Path) -> None:
    made, held_out = write_model(tmp_path / "model.safetensors"), pairs(tmp_path / "held_out", 9)
    other = write_model(tmp_path / "other.safetensors", seed=1)
    keeps(other, "calibrate", made, held_out, *FEW, "--out", other)
    keeps(foreign(tmp_path / "notes"), "calibrate", made, held_out, *FEW, "--out", tmp_path / "notes")


@pytest.mark.parametrize("option", ["--page", "--report"])
def test_calibrate_does_not_replace_its_model_or_a_photograph_by_a_picture(tmp_path: Path, option: str) -> None:
    made, held_out = write_model(tmp_path / "model.png"), pairs(tmp_path / "held_out", 9)
    there = photograph(tmp_path / "there.png")
    keeps(there, "calibrate", made, held_out, *FEW, option, there)
    keeps(made, "calibrate", made, held_out, *FEW, option, made, says=("is an input",))


def test_two_outputs_of_one_name_are_refused(tmp_path: Path) -> None:
    made, held_out = write_model(tmp_path / "model.safetensors"), pairs(tmp_path / "held_out", 9)
    page, before = tmp_path / "x.png", made.read_bytes()
    refuses(run("calibrate", made, held_out, *FEW, "--page", page, "--report", page), "x.png", "two outputs")
    assert made.read_bytes() == before
    assert not page.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "statistics.json", "metrics.jsonl", "panels/step-00000001.png"])
def test_train_does_not_begin_a_run_over_the_files_of_somebody(tmp_path: Path, name: str) -> None:
    data, folder = pairs(tmp_path / "data"), tmp_path / "run"
    there = foreign(folder / name)
    keeps(there, "train", "--inputs", data / "inputs", "--targets", data / "targets", "--out", folder, *TRAINED)


def test_train_does_not_take_a_recipe_beside_a_model_for_a_run(tmp_path: Path) -> None:
    data, there = pairs(tmp_path / "data"), foreign(tmp_path / "mine" / "model.safetensors")
    recipe = there.with_name("recipe.yaml")
    places = f"inputs: {data / 'inputs'}, targets: {data / 'targets'}, patch: 16"
    recipe.write_text(f"data: {{{places}}}\nmodel: {{base: 4}}\ntrain: {{steps: 1, batch_size: 1}}\n")
    keeps(there, "train", recipe, "--out", there.parent)
    there.unlink()
    keeps(recipe, "train", recipe, "--out", recipe.parent)


def test_train_does_not_begin_a_run_over_the_model_that_it_starts_from(tmp_path: Path) -> None:
    data, start = pairs(tmp_path / "data"), write_model(tmp_path / "run" / "model.safetensors")
    words = ("--inputs", data / "inputs", "--targets", data / "targets", "--out", tmp_path / "run", *TRAINED)
    keeps(start, "train", *words, "--from", start, says=("is an input",))


def test_train_puts_no_run_among_the_images_that_it_reads(tmp_path: Path) -> None:
    data = pairs(tmp_path / "data")
    words = ("--inputs", data / "inputs", "--targets", data / "targets", "--out", data / "inputs", *TRAINED)
    refuses(run("train", *words), "among the images")
    assert sorted(path.name for path in (data / "inputs").iterdir()) == ["0.tif", "1.tif", "2.tif"]


@pytest.mark.parametrize("name", ["scores.csv", "table.md", "report.html"])
def test_evaluate_does_not_replace_the_tables_of_somebody(tmp_path: Path, name: str) -> None:
    data, there = pairs(tmp_path / "data"), foreign(tmp_path / "out" / name)
    words = ("--baseline", "bicubic", "--inputs", data / "inputs", "--targets", data / "targets")
    keeps(there, "evaluate", *words, "--out", tmp_path / "out")


def test_evaluate_does_not_replace_its_manifest(tmp_path: Path) -> None:
    data = pairs(tmp_path / "data", 2)
    there = data / "scores.csv"
    there.write_text("input,target\ninputs/0.tif,targets/0.tif\ninputs/1.tif,targets/1.tif\n")
    words = ("--baseline", "bicubic", "--manifest", there, "--out", data)
    keeps(there, "evaluate", *words, says=("is an input",))


@pytest.mark.parametrize("name", ["network.png", "samples.png"])
def test_inspect_does_not_replace_a_photograph(model: Path, tmp_path: Path, name: str) -> None:
    measured, there = image(tmp_path / "a.tif"), photograph(tmp_path / "out" / name)
    keeps(there, "inspect", model, measured, "--samples", 2, "--steps", 2, "--out", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name], "nothing was drawn beside it"


@pytest.mark.parametrize("name", ["steps.csv", "steps.png"])
def test_comparing_steps_does_not_replace_the_files_of_somebody(model: Path, tmp_path: Path, name: str) -> None:
    data, there = pairs(tmp_path / "data", 2), foreign(tmp_path / "out" / name)
    words = ("--steps", "1,2", "--solver", "2m", "--samples", 2, "--inputs", data / "inputs")
    keeps(there, "inspect", model, *words, "--targets", data / "targets", "--out", tmp_path / "out")


@pytest.mark.parametrize("name", ["maps.tif", "audit.png", "report.html"])
def test_audit_does_not_replace_the_files_of_somebody(model: Path, tmp_path: Path, name: str) -> None:
    measured, there = image(tmp_path / "a.tif"), tmp_path / "out" / name
    if name == "maps.tif":
        image(there, 5)
    else:
        foreign(there)
    keeps(there, "audit", model, measured, *FEW, "--out", tmp_path / "out")


def test_audit_does_not_replace_the_restored_image_that_it_looks_at(model: Path, tmp_path: Path) -> None:
    measured, restored = image(tmp_path / "a.tif"), image(tmp_path / "out" / "maps.tif", 3)
    keeps(restored, "audit", model, measured, restored, "--out", tmp_path / "out", says=("is an input",))


def test_export_does_not_replace_the_page_or_the_model_of_somebody(model: Path, tmp_path: Path) -> None:
    words = ("--licence", "CC-BY-4.0", "--author", "A. Person")
    there = foreign(tmp_path / "hub" / "README.md")
    keeps(there, "export", model, "--hub", tmp_path / "hub", *words)
    trained = write_model(tmp_path / "run" / "model.safetensors", seed=3)
    keeps(trained, "export", model, "--hub", tmp_path / "run", *words)


@pytest.mark.parametrize("option", ["--onnx", "--bioimageio"])
def test_export_does_not_replace_a_file_of_somebody(model: Path, tmp_path: Path, option: str) -> None:
    words = ("--licence", "CC-BY-4.0", "--author", "A. Person", "--samples", 2, "--steps", 1)
    there = foreign(tmp_path / "out" / ("noise.onnx" if option == "--onnx" else "package.zip"))
    keeps(there, "export", model, option, there.parent if option == "--onnx" else there, *words)


def test_pack_writes_no_store_among_the_images_that_it_reads(tmp_path: Path) -> None:
    data = pairs(tmp_path / "data")
    store = data / "inputs" / "pairs.zarr"
    refuses(run("pack", "--inputs", data / "inputs", "--targets", data / "targets", "--out", store), "pairs.zarr")
    assert not store.exists()


def test_sweep_does_not_replace_the_recipe_that_it_reads(tmp_path: Path) -> None:
    data, recipe = pairs(tmp_path / "data"), tmp_path / "out" / "best.yaml"
    recipe.parent.mkdir()
    places = f"inputs: {data / 'inputs'}, targets: {data / 'targets'}, patch: 16"
    network = "base: 4, schedule: cosine, num_scales: 2"
    recipe.write_text(f"data: {{{places}}}\nmodel: {{{network}}}\ntrain: {{steps: 1, batch_size: 1}}\n")
    words = ("--out", recipe.parent, "--gamma-end", 1e-2, "--samples", 2, "--most", 1)
    keeps(recipe, "sweep", recipe, *words, says=("is an input",))


def stack(path: Path) -> Path:
    """A stack through focus of something smooth."""
    grid = np.hypot(*np.meshgrid(*[np.linspace(-1, 1, 176)] * 2))
    planes = [1 + 0.01 * z * np.exp(-8 * grid**2) for z in (-2, -1, 0, 1, 2)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_image(path, np.array(planes, np.float32), axes="ZYX")
    return path


CLINICAL = ("--step-um", 2, "--order", 2, "--solver", "tie_fft")


@pytest.mark.parametrize("name", ["cell_tie_fft.tif", "ms_ssim.csv"])
def test_clinical_does_not_replace_the_files_of_somebody(tmp_path: Path, name: str) -> None:
    specimen, there = stack(tmp_path / "cell.tif"), tmp_path / "out" / name
    if name.endswith(".tif"):
        image(there)
    else:
        foreign(there)
    keeps(there, "clinical", specimen, *CLINICAL, "--out", tmp_path / "out")


def test_clinical_does_not_lose_one_of_two_stacks_of_one_name(tmp_path: Path) -> None:
    stacks = (stack(tmp_path / "1" / "cell.tif"), stack(tmp_path / "2" / "cell.tif"))
    refuses(run("clinical", *stacks, *CLINICAL, "--out", tmp_path / "out"), "1/cell.tif", "2/cell.tif", "rename one")


def test_what_looks_like_a_leftover_of_another_file_stays(tmp_path: Path) -> None:
    made, data = write_model(tmp_path / "model.safetensors"), pairs(tmp_path / "data", 9)
    dead = "safetensors.tmp-999999999"
    leftover, there = foreign(tmp_path / f"model.{dead}"), foreign(tmp_path / f"other.{dead}")
    assert run("calibrate", made, data, *FEW).code == 0
    assert not leftover.exists()
    assert there.read_bytes() == FOREIGN


@pytest.mark.guard
def test_our_own_earlier_outputs_are_replaced_without_a_question(tmp_path: Path) -> None:
    made, data = write_model(tmp_path / "model.safetensors"), pairs(tmp_path / "data", 9)
    measured = data / "inputs" / "0.tif"
    sides = ("--inputs", data / "inputs", "--targets", data / "targets")
    credits = ("--licence", "CC-BY-4.0", "--author", "A. Person")
    commands = {
        "preview": ("restore", made, measured, tmp_path / "b.tif", *FEW, "--preview", tmp_path / "look.png"),
        "calibrate": ("calibrate", made, data, *FEW, "--out", tmp_path / "c.safetensors", "--page", tmp_path / "p.png"),
        "evaluate": ("evaluate", "--baseline", "bicubic", *sides, "--most", 2, "--out", tmp_path / "e"),
        "steps": ("inspect", made, "--steps", "1,2", "--solver", "2m", "--samples", 2, *sides, "--out", tmp_path / "i"),
        "audit": ("audit", made, measured, *FEW, "--out", tmp_path / "audit"),
        "hub": ("export", made, "--hub", tmp_path / "hub", *credits),
        "pack": ("pack", *sides, "--out", tmp_path / "pairs.zarr"),
        "in place": ("calibrate", made, data, *FEW),
    }
    for _ in range(2):
        for name, words in commands.items():
            ran = run(*words)
            assert ran.code == 0, f"{name}: {ran.text}"
    assert load(tmp_path / "c.safetensors").info.calibration is not None


@pytest.mark.guard
def test_a_run_goes_on_with_its_own_recipe_and_beside_its_images(tmp_path: Path) -> None:
    data, folder = pairs(tmp_path / "data"), tmp_path / "data" / "run"
    sides = ("--inputs", data / "inputs", "--targets", data / "targets")
    assert run("train", *sides, *TRAINED, "--out", folder).code == 0
    assert run("train", folder / "recipe.yaml", "--out", folder).code == 0


@pytest.mark.guard
def test_the_image_that_is_restored_is_never_an_output(model: Path, tmp_path: Path) -> None:
    measured = image(tmp_path / "a.tif")
    before = pixels(measured)
    refuses(run("restore", model, measured, measured, *FEW), "a.tif")
    beside = image(tmp_path / "b_std.tif")
    keeps(beside, "restore", model, beside, tmp_path / "b.tif", *FEW)
    np.testing.assert_array_equal(pixels(measured), before)
