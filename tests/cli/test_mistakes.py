"""Mistakes of newcomers: each is said in one message, with what was got, what was expected and what to do."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from pair_folders import make_pairs
from sfumato.audit.structures import smooth
from sfumato.cli import app
from sfumato.data.images.io import write_image
from small_runs import command
from untrained_models import write_model

SHORT = ("train.steps=2", "model.linear_start=false", "model.linear_finish=false", "model.coloured_noise=false")


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def refused(result: Result, *texts: str) -> None:
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    for text in texts:
        assert text in result.stderr


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    return make_pairs(tmp_path)


def test_folders_that_are_exchanged(tmp_path: Path) -> None:
    for number in range(4):
        rng = np.random.default_rng(number)
        clean = smooth(rng.standard_normal((48, 48)), 2.0)
        noisy = clean + clean.std() * rng.standard_normal(clean.shape)
        for name, image in (("low", noisy), ("high", clean)):
            (tmp_path / name).mkdir(exist_ok=True)
            write_image(tmp_path / name / f"{number}.tif", image.astype(np.float32), axes="YX")
    low, high = str(tmp_path / "low"), str(tmp_path / "high")
    right, wrong = (
        run(*command(places, tmp_path / f"run{number}", *SHORT))
        for number, places in enumerate([(low, high), (high, low)])
    )
    assert (right.exit_code, wrong.exit_code) == (0, 0), right.output + wrong.output
    assert "noisier than their inputs" not in right.stderr
    assert "warning: the targets of 3 of 3 checked pairs are noisier than their inputs" in wrong.stderr
    assert "give the measured images with --inputs and the clean ones with --targets" in wrong.stderr


@pytest.mark.parametrize("side", [0, 1])
def test_an_empty_folder(side: int, folders: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    places = [*folders]
    places[side] = str(tmp_path / "empty")
    said = f"the folder of {('inputs', 'targets')[side]}, {tmp_path / 'empty'}, holds no images; check the path"
    refused(run(*command((places[0], places[1]), tmp_path / "run")), said)


def test_names_that_differ(folders: tuple[str, str], tmp_path: Path) -> None:
    for path in sorted(Path(folders[1]).iterdir()):
        path.rename(path.with_name(f"x{path.name}"))
    wanted = ("of 6 inputs and 6 targets, 12 images have no partner", "'image0' looks like the target 'ximage0'")
    refused(run(*command(folders, tmp_path / "run")), *wanted, "give both files of a pair the same name")


def test_targets_of_another_size(tmp_path: Path) -> None:
    low, _ = make_pairs(tmp_path)
    _, high = make_pairs(tmp_path / "other", shape=(20, 30))
    sizes = "image0: the input has (24, 32) pixels and the target (20, 30); expected equal sizes, or whole multiples"
    refused(run(*command((low, high), tmp_path / "run")), sizes, "resample one of them")


def test_a_folder_in_place_of_a_model(folders: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    write_model(tmp_path / "run" / "model.safetensors")
    image = Path(folders[0]) / "image0.tif"
    is_folder = f"{tmp_path / 'run'} is a folder; expected a model file; give "
    known = f"{is_folder}{tmp_path / 'run' / 'model.safetensors'}"
    refused(run("restore", tmp_path / "run", image, tmp_path / "out.tif"), known)
    refused(run("audit", tmp_path / "run", image, "--out", tmp_path / "audit"), known)
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").mkdir()
    refused(
        run("restore", tmp_path / "run", image, tmp_path / "out.tif"), f"{is_folder}the path of a model.safetensors"
    )


def test_a_colour_picture_for_a_model_of_one_channel(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model.safetensors")
    Image.fromarray(np.zeros((24, 24, 3), np.uint8)).save(tmp_path / "colour.png")
    found = run("restore", model, tmp_path / "colour.png", tmp_path / "out.png")
    refused(found, "colour.png has 3 channels (axes YXC); this model takes 1; choose some with --channel: 0, 1, 2")
