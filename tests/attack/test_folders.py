"""Folders of images: bad ones among them, replaced ones, outputs of other commands, a folder that is deleted."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from attack.attacking import FEW, Ran, image, pixels, refuses, run, write_model
from sfumato.restoration.folder import restore_folder
from sfumato.restoration.planning import Settings
from sfumato.system.errors import SfumatoError


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    for number, name in enumerate("abc"):
        image(tmp_path / "in" / f"{name}.tif", seed=number)
    return tmp_path / "in"


def restored(model: Path, inputs: Path, *options: object) -> Ran:
    return run("restore", model, inputs, inputs.with_name("out"), *FEW, *options)


def names(inputs: Path) -> list[str]:
    found = inputs.with_name("out")
    return sorted(path.name for path in found.iterdir()) if found.exists() else []


def test_a_bad_image_does_not_end_a_folder(model: Path, inputs: Path) -> None:
    content = (inputs / "b.tif").read_bytes()
    (inputs / "b.tif").write_bytes(content[:100])
    ran = restored(model, inputs)
    assert ran.code == 1, ran.text
    assert "b.tif" in ran.text
    assert "1 of 3 images could not be restored" in ran.text
    assert names(inputs) == ["a.tif", "a_std.tif", "c.tif", "c_std.tif"]


def test_an_image_with_nan_does_not_end_a_folder(model: Path, inputs: Path) -> None:
    np.save(inputs / "aa.npy", np.full((32, 32), np.nan, np.float32))
    ran = restored(model, inputs)
    assert ran.code == 1, ran.text
    assert "aa.npy" in ran.text
    assert "NaN" in ran.text
    assert "c.tif" in names(inputs)


def test_a_bad_image_that_was_fixed_is_restored_by_the_same_command(model: Path, inputs: Path, tmp_path: Path) -> None:
    shutil.copytree(inputs, tmp_path / "clean" / "in")
    assert restored(model, tmp_path / "clean" / "in").code == 0
    (inputs / "b.tif").write_bytes(b"")
    assert restored(model, inputs).code == 1
    shutil.copy(tmp_path / "clean" / "in" / "b.tif", inputs)
    ran = restored(model, inputs)
    assert ran.code == 0, ran.text
    for name in names(inputs):
        np.testing.assert_array_equal(pixels(tmp_path / "out" / name), pixels(tmp_path / "clean" / "out" / name))


@pytest.mark.parametrize(("content", "told"), [(b"", "is empty (0 bytes)"), (b"no image", "starts with")])
def test_a_file_that_should_be_an_image_is_named(content: bytes, told: str, model: Path, inputs: Path) -> None:
    (inputs / "b.tif").write_bytes(content)
    ran = restored(model, inputs)
    assert ran.code == 1, ran.text
    assert "b.tif" in ran.text
    assert told in ran.text


def test_files_of_unknown_formats_are_named_and_stop_nothing(model: Path, inputs: Path) -> None:
    (inputs / "notes.txt").write_text("no image")
    (inputs / "scan.vsi").write_bytes(b"some maker's format")
    (inputs / ".hidden").write_text("no image")
    ran = restored(model, inputs)
    assert ran.code == 0, ran.text
    assert "note: left out, as sfumato knows no such format: notes.txt, scan.vsi 1 of 3" in ran.text
    shutil.rmtree(inputs)
    inputs.mkdir()
    (inputs / "scan.vsi").write_bytes(b"some maker's format")
    refuses(restored(model, inputs), "holds no image, but scan.vsi")


def below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_subfolders_are_restored_into_folders_of_the_same_names(model: Path, inputs: Path, tmp_path: Path) -> None:
    """The noise of the images beside them stays what it was without them."""
    assert restored(model, inputs).code == 0
    before = {name: pixels(tmp_path / "out" / name) for name in names(inputs)}
    image(inputs / "B" / "day 1" / "a.tif", seed=5)
    image(inputs / "B" / "b.tif", seed=6)
    image(inputs / "c.tif.journal" / "parts.tif", seed=7)
    (inputs / "B" / "bad.tif").write_bytes(b"no image")
    ran = restored(model, inputs)
    assert ran.code == 1, ran.text
    assert "1 of 6 images could not be restored" in ran.text
    assert "B/bad.tif: " in ran.text
    added = ["B/b.tif", "B/b_std.tif", "B/day 1/a.tif", "B/day 1/a_std.tif"]
    assert below(tmp_path / "out") == sorted([*before, *added])
    for name, found in before.items():
        np.testing.assert_array_equal(pixels(tmp_path / "out" / name), found)


def test_outputs_below_the_inputs_are_no_inputs(model: Path, inputs: Path) -> None:
    for _ in range(2):
        ran = run("restore", model, inputs, inputs / "out", *FEW)
        assert ran.code == 0, ran.text
        assert len(below(inputs / "out")) == 6


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_link_to_a_folder_above_does_not_go_round_for_ever(model: Path, inputs: Path) -> None:
    (inputs / "again").symlink_to(inputs, target_is_directory=True)
    refuses(restored(model, inputs), "are the same folder, by a link")


def test_a_dry_run_of_a_folder_tells_what_is_left_and_writes_nothing(model: Path, inputs: Path) -> None:
    ran = restored(model, inputs, "--dry-run")
    assert ran.code == 0, ran.text
    assert "images: 3 to restore, 0 already restored chunks: 3 tiles" in ran.text
    assert " on 1, " in ran.text
    assert not inputs.with_name("out").exists()
    assert restored(model, inputs).code == 0
    image(inputs / "d.tif", seed=9)
    (inputs / "e.tif").write_bytes(b"no image")
    ran = restored(model, inputs, "--dry-run")
    assert ran.code == 1, ran.text
    assert "images: 1 to restore, 3 already restored chunks: 1 tiles" in ran.text
    assert "1 of 5 images cannot be restored: e.tif: " in ran.text
    assert "d.tif" not in names(inputs)


def test_a_replaced_image_is_not_taken_for_done(model: Path, inputs: Path, tmp_path: Path) -> None:
    assert restored(model, inputs).code == 0
    before = (tmp_path / "out" / "b.tif").read_bytes()
    image(inputs / "b.tif", seed=7)
    refuses(restored(model, inputs), "b.tif was restored differently", "another input")
    assert (tmp_path / "out" / "b.tif").read_bytes() == before


@pytest.mark.parametrize("suffix", [".npy", ".mrc"])
@pytest.mark.parametrize("change", ["seed", "steps", "model", "input"])
def test_formats_without_metadata_know_their_origin(suffix: str, change: str, inputs: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model.safetensors")
    assert restored(model, inputs, "--format", suffix).code == 0
    options: tuple[str, ...] = ()
    if change in ("seed", "steps"):
        options = (f"--{change}", "3")
    elif change == "model":
        write_model(model, seed=1)
    else:
        image(inputs / "a.tif", seed=7)
    refuses(restored(model, inputs, "--format", suffix, *options), f"a{suffix} was restored")


@pytest.mark.parametrize("option", ["chunk", "halo", "batch", "tile"])
def test_another_layout_is_not_taken_for_done(option: str, model: Path, inputs: Path) -> None:
    assert restored(model, inputs).code == 0
    refuses(restored(model, inputs, f"--{option}", {"batch": "1"}.get(option, "16")), option)


def test_another_reading_of_the_axes_is_not_taken_for_done(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "a.npy", np.random.default_rng(0).normal(10, 3, (2, 16, 16)).astype(np.float32))
    assert restored(model, tmp_path / "in", "--format", ".tif").code == 0
    refuses(restored(model, tmp_path / "in", "--format", ".tif", "--axes", "TYX"), "axes None, now TYX")


def test_an_image_that_changes_its_place_among_the_others(model: Path, inputs: Path) -> None:
    """Its noise is that of its place; two images shall not share one."""
    assert restored(model, inputs).code == 0
    image(inputs / "aa.tif", seed=7)
    refuses(restored(model, inputs), "b.tif was restored differently: first_image 1, now 2 (images before it")
    assert "aa.tif" not in names(inputs)


@pytest.mark.parametrize("name", ["a.npy", "a_std.npy"])
def test_an_output_of_unknown_origin_is_not_done(name: str, model: Path, inputs: Path, tmp_path: Path) -> None:
    assert restored(model, inputs, "--format", ".npy").code == 0
    np.save(tmp_path / "out" / name, np.zeros((32, 32), np.float32))
    refuses(restored(model, inputs, "--format", ".npy"), name, "does not say how it was made")
    assert not np.load(tmp_path / "out" / name).any()


def test_an_uncertainty_of_another_command_is_not_taken_for_done(model: Path, inputs: Path, tmp_path: Path) -> None:
    assert restored(model, inputs).code == 0
    assert run("restore", model, inputs, tmp_path / "other", *FEW, "--seed", "1").code == 0
    shutil.copy(tmp_path / "other" / "b_std.tif", tmp_path / "out" / "b_std.tif")
    refuses(restored(model, inputs), "b_std.tif was restored differently: seed 1, now 0")


def test_two_commands_never_mix_in_one_folder(model: Path, inputs: Path, tmp_path: Path) -> None:
    """As a kill leaves it, or files that were removed: the last image is there, the first are not."""
    assert restored(model, inputs).code == 0
    for name in ("a.tif", "a_std.tif"):
        (tmp_path / "out" / name).unlink()
    refuses(restored(model, inputs, "--seed", "1"), "b.tif was restored differently: seed 0, now 1")
    assert "a.tif" not in names(inputs)


def test_the_same_command_again_says_that_all_is_there(model: Path, inputs: Path, tmp_path: Path) -> None:
    assert restored(model, inputs, "--format", ".mrc").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    ran = restored(model, inputs, "--format", ".mrc")
    assert ran.code == 0, ran.text
    assert "already restored: 3 images" in ran.text
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_a_deleted_output_folder_ends_the_work_and_stays_deleted(model: Path, inputs: Path, tmp_path: Path) -> None:
    begun: list[str] = []

    def delete(name: str, done: int, total: int) -> None:
        begun.append(name)
        if name == "b.tif":
            shutil.rmtree(tmp_path / "out")

    with pytest.raises(SfumatoError, match="is gone"):
        restore_folder(model, inputs, tmp_path / "out", Settings(2, 2), progress=delete)
    assert begun == ["a.tif", "b.tif"]
    assert not (tmp_path / "out").exists()


def test_a_folder_deleted_within_an_image_ends_the_work(model: Path, inputs: Path, tmp_path: Path) -> None:
    begun: list[str] = []

    def delete(name: str, done: float, total: int) -> None:
        begun.append(name)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)

    with pytest.raises(SfumatoError, match="is gone"):
        restore_folder(model, inputs, tmp_path / "out", Settings(2, 2), within=delete)
    assert set(begun) == {"a.tif"}
    assert not (tmp_path / "out").exists()
