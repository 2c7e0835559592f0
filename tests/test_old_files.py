"""What earlier versions stored still opens and resumes; what it lacks is said once."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from attack.attacking import run
from sfumato.data.packed import PackedPairs

OLD = Path(__file__).parent / "old_files"
TINY = {
    "data.patch": 8,
    "data.input_axes": "YX",
    "data.target_axes": "YX",
    "model.base": 1,
    "model.rate_base": 1,
    "model.num_scales": 1,
    "train.batch_size": 2,
    "train.steps": 4,
    "train.save_every": 2,
    "train.validate_every": 4,
    "train.log_every": 1,
    "sample.steps": 2,
    "sample.samples": 2,
}
SETTINGS = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
TRAIN = ["train", "--inputs", "low", "--targets", "high", "--out", "run", *SETTINGS]
PACK = ["pack", "--inputs", "low", "--targets", "high", "--out", "store.zarr", *SETTINGS[2:6]]


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to work in, as those who have such files do."""
    shutil.copytree(OLD, tmp_path / "old")
    (tmp_path / "old/run/panels").mkdir()
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def test_a_run_is_resumed_and_knows_its_images_from_then_on(old: Path) -> None:
    ran = run(*TRAIN)
    assert ran.code == 0, ran.text
    assert ran.text.count("note: run does not say which images it was started with") == 1
    unhashed = "note: this run was started by an earlier version, which did not note its images"
    assert ran.text.count(unhashed) == 1
    assert ran.text.count("note: ") == 2
    steps = [json.loads(line)["step"] for line in (old / "run/metrics.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == [1, 2, 3, 4]
    assert (old / "run/checkpoints/step-00000004.safetensors").exists()
    again = run(*TRAIN)
    assert again.code == 0
    assert again.text.count("note: ") == again.text.count(unhashed) == 1
    np.save(old / "low/1.npy", np.zeros((8, 8), np.uint8))
    assert "replaced: train input 1" in run(*TRAIN).text


def test_a_store_is_read_and_trained_on(old: Path) -> None:
    packed = PackedPairs("store.zarr")
    seen, sought = packed.read(0, [0, 0], [8, 8])
    np.testing.assert_array_equal(seen[0], np.load(old / "low" / f"{packed.name(0)}.npy"))
    np.testing.assert_array_equal(sought[0], np.load(old / "high" / f"{packed.name(0)}.npy"))
    ran = run("train", "--store", "store.zarr", "--out", "new", *SETTINGS)
    assert ran.code == 0, ran.text


def test_a_complete_store_is_packed_already_but_was_not_compared(old: Path) -> None:
    ran = run(*PACK)
    assert ran.code == 0, ran.text
    assert ran.text.count("note: ") == 1
    assert "does not record the files it was made from" in ran.text
    assert "packed already" in ran.text


def test_a_stopped_store_is_packed_from_its_beginning(old: Path) -> None:
    """Its half may be of other files with the same names: here inputs and targets are exchanged."""
    document = json.loads((old / "store.zarr/zarr.json").read_text())
    document["attributes"]["sfumato_pairs"]["complete"] = False
    (old / "store.zarr/zarr.json").write_text(json.dumps(document))
    (old / "store.zarr/validation/target/c/0/0/0/0").unlink()
    ran = run(*("high" if word == "low" else "low" if word == "high" else word for word in PACK))
    assert ran.code == 0, ran.text
    assert ran.text.count("note: ") == 1
    assert "it was packed again from the start" in ran.text
    packed = PackedPairs("store.zarr")
    np.testing.assert_array_equal(packed.read(0, [0, 0], [8, 8])[0][0], np.load(old / "high" / f"{packed.name(0)}.npy"))
    assert "packed already" in run(*PACK[:1], "--inputs", "high", "--targets", "low", *PACK[5:]).text
