"""What was written before the modules moved into folders resumes without a word, and still knows its inputs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import sfumato
from attack.attacking import run
from sfumato.data.images.io import open_image, write_image
from test_old_files import PACK, TRAIN
from test_old_restorations import OPTIONS

OLD = Path(__file__).parent / "old_files" / "recorded"


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to work in, whose job names its new place."""
    place = tmp_path.resolve() / "data"
    shutil.copytree(OLD, place)
    (place / "run/panels").mkdir()
    job = place / "restoration/half.zarr.journal/job.json"
    job.write_text(job.read_text().replace('"/data/', f'"{place}/restoration/'))
    monkeypatch.chdir(place)
    return place


def restore(folder: Path, out: str) -> str:
    places = (str(folder / "restoration" / name) for name in ("model.safetensors", "in.tif", out))
    ran = run("restore", *places, *OPTIONS)
    return ran.text if ran.code == 0 else f"refused: {ran.text}"


def test_a_run_is_resumed(old: Path) -> None:
    ran = run(*TRAIN)
    assert ran.code == 0, ran.text
    assert "note: " not in ran.text
    steps = [json.loads(line)["step"] for line in (old / "run/metrics.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == [1, 2, 3, 4]
    assert sfumato.load(old / "run/model.safetensors").info.seen is not None


def test_a_run_knows_its_images(old: Path) -> None:
    np.save(old / "low/1.npy", np.zeros((8, 8), np.uint8))
    ran = run(*TRAIN)
    assert ran.code != 0
    assert "replaced: train input 1" in ran.text


def test_a_store_is_packed_already(old: Path) -> None:
    ran = run(*PACK)
    assert ran.code == 0, ran.text
    assert "packed already" in ran.text
    assert "note: " not in ran.text


def test_a_store_knows_its_files(old: Path) -> None:
    np.save(old / "high/2.npy", np.zeros((8, 8), np.uint8))
    ran = run(*PACK)
    assert ran.code != 0
    assert "replaced: train target 2" in ran.text


def test_a_half_done_restoration_is_completed(old: Path) -> None:
    before = (old / "restoration/half.zarr/0/c/0/0").read_bytes()
    said = restore(old, "half.zarr")
    assert "refused" not in said
    assert "note: " not in said
    assert (old / "restoration/half.zarr/0/c/0/0").read_bytes() == before
    found = open_image(old / "restoration/half.zarr").read()
    np.testing.assert_allclose(np.squeeze(found), np.load(old / "restoration/done.npy").squeeze(), rtol=1e-6)


def test_a_half_done_restoration_knows_its_input(old: Path) -> None:
    write_image(old / "restoration/in.tif", np.zeros((32, 32), np.float32), axes="YX", overwrite=True)
    assert "refused" in restore(old, "half.zarr")


def test_an_output_is_known_by_its_sidecar(old: Path) -> None:
    times = (old / "restoration/done.npy").stat().st_mtime_ns
    assert "refused" not in restore(old, "done.npy")
    assert (old / "restoration/done.npy").stat().st_mtime_ns == times
    write_image(old / "restoration/in.tif", np.zeros((32, 32), np.float32), axes="YX", overwrite=True)
    assert "refused" in restore(old, "done.npy")
