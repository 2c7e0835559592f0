"""Pairs that are not what they seem: wrong partners, images that are there twice, targets of another place."""

import os
from pathlib import Path

import numpy as np
import pytest

from attack.attacking import FEW, Ran, image, refuses, run
from pair_folders import TINY
from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import write_image

ONE_STEP = [word for setting in (*TINY, "train.steps=1") for word in ("--set", setting)]


def pair(folder: Path, name: str, target: str | None = None, seed: int = 0) -> None:
    """An input and a target, of other noise."""
    image(folder / "low" / name, 2 * seed)
    image(folder / "high" / (target or name), 2 * seed + 1)


def pack(folder: Path, *words: object) -> Ran:
    return run("pack", "--inputs", folder / "low", "--targets", folder / "high", "--out", folder / "out.zarr", *words)


def listed(folder: Path, *lines: str) -> Ran:
    """Four pairs, a to d, of which a manifest lists some."""
    for seed, name in enumerate("abcd"):
        pair(folder, f"{name}.tif", seed=seed)
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return run("pack", "--manifest", folder / "pairs.csv", "--out", folder / "out.zarr")


def test_names_that_differ_after_a_dot_are_no_pair(tmp_path: Path) -> None:
    pair(tmp_path, "cell_0.5um.tif", "cell_0.7um.tif")
    refuses(pack(tmp_path), "no partner", "the input 'cell_0.5um' looks like the target 'cell_0.7um'")


def test_names_with_dots_find_their_partners_whatever_the_suffix(tmp_path: Path) -> None:
    for seed, size in enumerate(("0.5um", "0.7um")):
        pair(tmp_path, f"cell_{size}.tif", f"cell_{size}.OME.tif", seed=seed)
    assert pack(tmp_path).code == 0


def test_a_partner_is_proposed_from_the_other_folder(tmp_path: Path) -> None:
    pair(tmp_path, "a_01.tif")
    pair(tmp_path, "a_02.tif", "im_a_02.tif")
    refuses(pack(tmp_path), "the input 'a_02' looks like the target 'im_a_02'")


def test_one_pair_in_two_splits(tmp_path: Path) -> None:
    lines = ("low/a.tif,high/a.tif,train", "low/b.tif,high/b.tif,train", "low/a.tif,high/a.tif,validation")
    refuses(listed(tmp_path, "input,target,split", *lines), "line 4", "a.tif", "line 2", "'train'", "'validation'")


def test_one_target_in_two_splits(tmp_path: Path) -> None:
    lines = ("low/a.tif,high/a.tif,train", "low/b.tif,high/a.tif,validation")
    refuses(listed(tmp_path, "input,target,split", *lines), "line 3", "a.tif", "'validation'")


def test_one_image_under_two_names_in_two_splits(tmp_path: Path) -> None:
    (tmp_path / "low").mkdir()
    (tmp_path / "low/other.tif").symlink_to("a.tif")
    lines = ("low/a.tif,high/a.tif,train", "low/other.tif,high/b.tif,validation")
    refuses(listed(tmp_path, "input,target,split", *lines), "line 3", "other.tif (also a.tif)")


@pytest.mark.parametrize("column", ["splt", "Split", "split "])
def test_a_misspelt_column(tmp_path: Path, column: str) -> None:
    lines = ("low/a.tif,high/a.tif,train", "low/b.tif,high/b.tif,validation")
    refuses(listed(tmp_path, f"input,target,{column}", *lines), "line 1", f"'{column.strip()}", "looks like 'split'")


def test_splits_in_a_column_of_another_name(tmp_path: Path) -> None:
    lines = ("low/a.tif,high/a.tif,train", "low/b.tif,high/b.tif,validation")
    refuses(listed(tmp_path, "input,target,fold", *lines), "line 1", "'fold'", "train, validation")


def test_rows_without_a_split_beside_others(tmp_path: Path) -> None:
    lines = ("low/a.tif,high/a.tif,train", "low/b.tif,high/b.tif,validation", "low/c.tif,high/c.tif")
    refuses(listed(tmp_path, "input,target,split", *lines), "line 4", "no split", "line 2")


def test_a_row_that_is_there_twice(tmp_path: Path) -> None:
    lines = ("low/a.tif,high/a.tif", "", "low/b.tif,high/b.tif", "low/a.tif,high/a.tif")
    refuses(listed(tmp_path, "input,target", *lines), "line 5", "low/a.tif", "line 2")


def test_an_input_that_is_its_own_target(tmp_path: Path) -> None:
    lines = ("low/a.tif,high/a.tif", "low/b.tif,low/b.tif")
    refuses(listed(tmp_path, "input,target", *lines), "line 3", "b.tif", "the same file")


def test_a_row_with_a_value_too_many(tmp_path: Path) -> None:
    lines = ("low/a.tif,high/a.tif,train", "low/b.tif,high/b.tif,train,validation")
    refuses(listed(tmp_path, "input,target,split", *lines), "line 3", "4 values under 3 columns")


def test_a_linked_folder_repeats_images(tmp_path: Path) -> None:
    for seed, name in enumerate(("day1/a.tif", "day1/b.tif")):
        pair(tmp_path, name, seed=seed)
    for side in ("low", "high"):
        (tmp_path / side / "latest").symlink_to("day1")
    refuses(pack(tmp_path), "low/day1", "low/latest", "the same")


def test_a_linked_folder_leads_back_to_itself(tmp_path: Path) -> None:
    pair(tmp_path, "a.tif")
    for side in ("low", "high"):
        (tmp_path / side / "again").symlink_to(tmp_path / side)
    refuses(pack(tmp_path), "low/again", "the same")


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_one_image_under_two_names(tmp_path: Path, link: object) -> None:
    assert callable(link)
    pair(tmp_path, "a.tif")
    for side in ("low", "high"):
        link(tmp_path / side / "a.tif", tmp_path / side / "b.tif")
    refuses(pack(tmp_path), "low/a.tif", "low/b.tif", "the same")


def test_targets_that_are_the_inputs(tmp_path: Path) -> None:
    pair(tmp_path, "a.tif")
    ran = run("pack", "--inputs", tmp_path / "low", "--targets", tmp_path / "low", "--out", tmp_path / "out.zarr")
    refuses(ran, "low/a.tif", "are the same file")


def test_a_folder_to_restore_with_one_image_under_two_names(model: Path, tmp_path: Path) -> None:
    image(tmp_path / "in/a.tif")
    (tmp_path / "in/b.tif").symlink_to("a.tif")
    refuses(run("restore", model, tmp_path / "in", tmp_path / "out", *FEW), "a.tif and b.tif are the same file")


def test_pixels_of_another_size(tmp_path: Path) -> None:
    for side, um in (("low", 0.5), ("high", 0.7)):
        (tmp_path / side).mkdir()
        sizes = {axis: PixelSize(um, "micrometer") for axis in "YX"}
        noise = np.random.default_rng(len(side)).random((32, 32), np.float32)
        write_image(tmp_path / side / "a.tif", noise, axes="YX", pixel_size=sizes)
    words = ["--inputs", tmp_path / "low", "--targets", tmp_path / "high"]
    for ran in (run("train", *words, "--out", tmp_path / "run", *ONE_STEP), pack(tmp_path)):
        refuses(ran, "a: ", "0.5 micrometer", "target 0.7")
    assert not (tmp_path / "run").exists()


def squares(folder: Path) -> None:
    """Three inputs with transposed targets."""
    for number in range(3):
        truth = np.random.default_rng(number).random((24, 24), np.float32)
        for side, shown in (("low", truth), ("high", truth.T + 0.01)):
            (folder / side).mkdir(exist_ok=True)
            write_image(folder / side / f"field{number}.npy", np.ascontiguousarray(shown), axes="YX")


def test_transposed_targets_are_said_before_training(tmp_path: Path) -> None:
    squares(tmp_path)
    words = ["--inputs", tmp_path / "low", "--targets", tmp_path / "high", *ONE_STEP]
    ran = run("train", *words, "--out", tmp_path / "run")
    assert "warning: the targets of" in ran.text
    assert "better if transposed: field" in ran.text
    corrected = run("train", *words, "--out", tmp_path / "corrected", "--set", "data.target_axes=XY")
    assert corrected.code == 0
    assert "warning" not in corrected.text


def test_a_transposed_target_is_no_finer_along_one_axis(tmp_path: Path) -> None:
    image(tmp_path / "low/a.tif", shape=(16, 32))
    image(tmp_path / "high/a.tif", seed=1, shape=(64, 32))
    refuses(pack(tmp_path, "--set", "data.upsample=true"), "a: ", "transposed", "data.target_axes")
