"""Settings are what they look like, in range or refused before any work; and the same command gives the same bytes."""

import csv
from pathlib import Path

import numpy as np
import pytest

from attack.attacking import FEW, image, pixels, refuses, run
from sfumato.data.images.io import write_image

UNCLEAR = {
    "train: {steps: 010}": "010",
    "train: {steps: 1:30}": "1:30",
    "train: {learning_rate: .inf}": ".inf",
    "train: {learning_rate: inf}": "inf",
    "forward: {pixel_um: .nan}": ".nan",
    "train: {steps: true}": "true and false are not numbers",
    "train: {steps: yes}": "yes",
    "train: {seed: -1}": "train.seed is -1",
    "train: {seed: 18446744073709551616}": "18446744073709551616",
}


@pytest.mark.parametrize("text", UNCLEAR)
def test_a_number_that_is_not_clear_does_not_train(tmp_path: Path, text: str) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"name: mine\n{text}\n", encoding="utf-8")
    refuses(run("train", recipe, "--out", tmp_path / "run"), "recipe.yaml, line 2", UNCLEAR[text])
    assert not (tmp_path / "run").exists()


def test_a_key_given_twice_does_not_train(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("train:\n  steps: 10\n  seed: 1\n  steps: 20000\n", encoding="utf-8")
    refuses(run("train", recipe, "--out", tmp_path / "run"), "line 4", "'steps' is on line 2 too")


@pytest.mark.parametrize("setting", ["train.steps=010", "train.steps=1:30", "train.clip_norm=.inf", "train.steps=true"])
def test_settings_of_the_command_line_are_as_strict(tmp_path: Path, setting: str) -> None:
    refuses(run("train", "--set", setting, "--out", tmp_path / "run"), setting.partition("=")[0])


@pytest.mark.guard
def test_powers_of_ten_are_numbers(tmp_path: Path) -> None:
    from sfumato.models.recipe import parse

    read = parse("train: {learning_rate: 1e-3, steps: 1_000}\ndata: {augment: no}")
    assert (read.train.learning_rate, read.train.steps, read.data.augment) == (1e-3, 1000, False)


@pytest.mark.parametrize(
    "given",
    [
        "--steps 0",
        pytest.param("--samples 0", marks=pytest.mark.guard),
        "--samples -1 --uncertainty schedule",
        "--steps -1",
        "--threads 0",
        "--threads -1",
        "--seed -1",
        "--seed 18446744073709551616",
        pytest.param("--chunk 0", marks=pytest.mark.guard),
        pytest.param("--halo -1", marks=pytest.mark.guard),
        pytest.param("--tile 0", marks=pytest.mark.guard),
        pytest.param("--batch 0", marks=pytest.mark.guard),
        pytest.param("--workers 0", marks=pytest.mark.guard),
        pytest.param("--quantile 2", marks=pytest.mark.guard),
    ],
)
def test_numbers_out_of_range_restore_nothing(tmp_path: Path, model: Path, given: str) -> None:
    source = image(tmp_path / "in.tif")
    option, value = given.split()[:2]
    refuses(run("restore", model, source, tmp_path / "out.tif", *given.split()), value if option != "--workers" else "")
    assert [path.name for path in tmp_path.iterdir()] == ["in.tif"]


@pytest.mark.guard
def test_ranges_are_told_before_the_model_is_read(tmp_path: Path) -> None:
    refuses(
        run("restore", tmp_path / "no.safetensors", tmp_path / "no.tif", tmp_path / "out.tif", "--seed", "-1"), "-1"
    )


@pytest.mark.parametrize("given", ["--steps 0", "--seed -1", "--most 0"])
def test_numbers_out_of_range_evaluate_nothing(tmp_path: Path, model: Path, given: str) -> None:
    _pairs(tmp_path, 2)
    places = ("--inputs", tmp_path / "low", "--targets", tmp_path / "high", "--out", tmp_path / "scores")
    refuses(run("evaluate", model, *places, *given.split()), given.split()[1])
    assert not (tmp_path / "scores").exists()


def test_an_evaluation_keeps_the_scores_it_has(tmp_path: Path, model: Path) -> None:
    _pairs(tmp_path, 3)
    places = (model, "--inputs", tmp_path / "low", "--targets", tmp_path / "high", *FEW)
    assert run("evaluate", *places, "--out", tmp_path / "whole").code == 0
    write_image(tmp_path / "low" / "2.tif", np.full((32, 32), np.nan, np.float32), axes="YX", overwrite=True)
    assert run("evaluate", *places, "--out", tmp_path / "cut").code == 2
    whole, cut = (_lines(tmp_path / folder / "scores.csv") for folder in ("whole", "cut"))
    assert [line[0] for line in whole] == ["image", "0", "1", "2"]
    assert cut == whole[:3]


def test_an_image_restored_twice_is_the_same_file(tmp_path: Path, model: Path) -> None:
    source = image(tmp_path / "in.tif")
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        assert run("restore", model, source, tmp_path / folder / "out.ome.tif", *FEW).code == 0
    for name in ("out.ome.tif", "out_std.ome.tif"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_an_identity_tells_images_apart(tmp_path: Path) -> None:
    def identity(path: Path) -> str:
        return path.read_bytes().partition(b'UUID="')[2][:45].decode()

    for name, value in (("a", 1), ("b", 1), ("c", 2)):
        write_image(tmp_path / f"{name}.tif", np.full((32, 32), value, np.uint8), axes="YX")
    first, same, other = (identity(tmp_path / f"{name}.tif") for name in "abc")
    assert first == same != other
    assert len(first) == 45
    assert (pixels(tmp_path / "c.tif") == 2).all()


def _pairs(folder: Path, number: int) -> None:
    for side, seed in (("low", 0), ("high", 100)):
        for place in range(number):
            image(folder / side / f"{place}.tif", seed + place)


def _lines(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))
