"""A run knows its files: two processes agree on that, and a damaged record is told."""

from pathlib import Path

import numpy as np
import pytest

from pair_folders import make_pairs
from sfumato.data.images.io import write_image
from sfumato.system.errors import RunError
from sfumato.training import same_run
from sfumato.training.preparation import prepare
from sfumato.training.run_folder import RunFolder
from sfumato.training.same_run import check_inputs
from sfumato.training.train import train
from small_runs import command, recipe
from warm_processes import run_ranks


def test_two_processes_stop_together(tmp_path: Path) -> None:
    """The first one alone compares, and both end with its message; put back, both resume."""
    folders = make_pairs(tmp_path)
    settings = ("train.steps=2", "train.validate_every=1000", "train.save_every=1")
    words, errors = command(folders, tmp_path / "run", *settings), tmp_path / "errors.txt"
    train(recipe(folders, train_steps=2, train_validate_every=1000, train_save_every=1), tmp_path / "run", quiet=True)
    place = tmp_path / "high/image2.tif"
    before = place.read_bytes()
    write_image(place, np.zeros((24, 32), np.float32), axes="YX", overwrite=True)
    assert run_ranks(words, errors=errors) == [2, 2]
    said = errors.read_text()
    assert said.count("error: ") == 2
    assert said.count("replaced: ") == 2
    assert "target image2" in said
    place.write_bytes(before)
    assert run_ranks(words) == [0, 0]


def test_a_damaged_record_is_told(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path)
    data, folder = prepare(recipe(folders)), RunFolder(tmp_path / "run")
    folder.path.mkdir()
    check_inputs(folder, data.sources, is_resumed=False)
    check_inputs(folder, data.sources, is_resumed=True)
    folder.inputs_file.write_text("{")
    with pytest.raises(RunError, match=r"inputs.json could not be read .* remove this file"):
        check_inputs(folder, data.sources, is_resumed=True)


def test_of_a_large_set_a_part_is_compared_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(same_run, "_MOST_FILES", 5)
    data, folder = prepare(recipe(make_pairs(tmp_path))), RunFolder(tmp_path / "run")
    folder.path.mkdir()
    check_inputs(folder, data.sources, is_resumed=False)
    assert capsys.readouterr().err == "note: of 12 image files, 5 are compared when the run is resumed\n"
    check_inputs(folder, data.sources, is_resumed=True)
    assert capsys.readouterr().err == ""
