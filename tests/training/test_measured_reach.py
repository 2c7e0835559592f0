"""The reach at the end of a training: measured on images that no network learned from, stored, and used."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pair_folders import make_pairs
from sfumato.cli import app
from sfumato.data.images.io import write_image
from sfumato.models.model_file import inspect_model
from sfumato.models.model_updates import set_reach
from sfumato.models.reach import Reach
from sfumato.training.train import train
from small_runs import recipe

FIELDS = {"data_normalize": "mean_std", "train_steps": "50", "train_learning_rate": "0.01", "model_num_scales": "1"}


def test_a_run_measures_its_reach_once_and_restore_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = make_pairs(tmp_path / "pairs", shape=(48, 48))
    asked = recipe(folders, **FIELDS)
    model = train(asked, tmp_path / "run").model_file
    found = inspect_model(model).reach
    # Two calls of networks that look 2 pixels far, after rates that look 2 pixels far, on a grid of 8.
    assert found == Reach(sample=8, denoiser=8)
    assert f"reach: {found} (measured in" in capsys.readouterr().err
    before = model.read_bytes()
    train(asked, tmp_path / "run")
    assert model.read_bytes() == before
    assert "reach:" not in capsys.readouterr().err

    write_image(tmp_path / "image.tif", np.zeros((100, 40), np.float32), axes="YX")
    command = ["restore", str(model), str(tmp_path / "image.tif"), str(tmp_path / "out.zarr"), "--samples", "2"]
    done = CliRunner().invoke(app, [*command, "--chunk", "32"])
    assert done.exit_code == 0, done.output
    assert "halo: 8 pixels, as far as this model was measured to look" in done.output
    assert json.loads((tmp_path / "out.zarr.journal" / "job.json").read_text())["plan"]["halo"] == [8, 8]


def test_a_run_whose_networks_see_the_whole_image_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = make_pairs(tmp_path / "pairs")
    model = train(recipe(folders, train_steps="50", model_norm="instance"), tmp_path / "run").model_file
    assert inspect_model(model).reach is None
    assert "a network normalises over the whole image, so halos stay as they are" in capsys.readouterr().err


def test_a_very_short_run_is_not_worth_measuring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = train(recipe(make_pairs(tmp_path / "pairs"), train_steps="49"), tmp_path / "run").model_file
    assert inspect_model(model).reach is None
    assert "reach:" not in capsys.readouterr().err


def test_inspect_measures_the_reach_of_an_existing_model(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path / "pairs", shape=(48, 48))
    model = train(recipe(folders, **FIELDS), tmp_path / "run", quiet=True).model_file
    trained = model.read_bytes()
    set_reach(model, None)
    unmeasured = model.read_bytes()
    command = ["inspect", str(model), "--from-recipe", "--reach"]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0, told.output
    assert "reach: a sample looks 8 pixels far" in told.output
    assert model.read_bytes() == unmeasured
    assert b"reach" not in unmeasured
    adopted = CliRunner().invoke(app, [*command, "--adopt"])
    assert adopted.exit_code == 0, adopted.output
    assert model.read_bytes() == trained  # the same images, and the same bytes as at the end of the training
    refused = CliRunner().invoke(app, [*command, "--steps", "4"])
    assert refused.exit_code == 2
