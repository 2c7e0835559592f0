"""What version 0.1 has stored of restorations resumes and counts as done; what it did not write down is said once."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sfumato.cli import app
from sfumato.data.images.io import open_image, write_image
from sfumato.restoration.planning import Restoration, Settings, plan_restoration
from sfumato.restoration.run import run_restoration, verify
from sfumato.system.errors import RunError

OLD = Path(__file__).parent / "old_files" / "restoration"
SETTINGS = Settings(num_samples=2, num_steps=2, chunk=16, halo=8, threads=1)
OPTIONS = ["--samples", "2", "--steps", "2", "--chunk", "16", "--halo", "8"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the old files, whose job names its new place."""
    place = tmp_path.resolve() / "data"
    shutil.copytree(OLD, place)
    job = place / "half.zarr.journal" / "job.json"
    job.write_text(job.read_text().replace('"/data/', f'"{place}/'))
    return place


def plan(folder: Path, name: str) -> Restoration:
    return plan_restoration(folder / "model.safetensors", folder / "in.tif", folder / name, SETTINGS)


def test_a_half_done_restoration_resumes_and_says_once_what_was_not_checked(folder: Path) -> None:
    notes: list[str] = []
    assert verify(plan(folder, "half.zarr"), notes.append) == []
    run_restoration(plan(folder, "half.zarr"), note=notes.append)
    assert [note.count("could not be checked") for note in notes] == [1, 1]
    found, expected = (open_image(folder / name).read() for name in ("half.zarr", "done.tif"))
    np.testing.assert_allclose(found, expected, rtol=1e-6)  # another number of threads rounds otherwise
    assert "input_digest" not in open_image(folder / "half.zarr").metadata  # nobody knows
    run_restoration(plan(folder, "half.zarr"), note=notes.append)
    assert len(notes) == 2
    write_image(folder / "in.tif", np.zeros((32, 32), np.float32), axes="YX", overwrite=True)
    with pytest.raises(RunError, match="is not the input"):  # from now on it is known
        run_restoration(plan(folder, "half.zarr"))


def test_other_settings_of_an_old_journal_are_refused(folder: Path) -> None:
    job = folder / "half.zarr.journal" / "job.json"
    job.write_text(json.dumps(json.loads(job.read_text()) | {"seed": 3}))
    with pytest.raises(RunError, match="seed is 0, was 3"):
        run_restoration(plan(folder, "half.zarr"))


def test_old_results_count_as_done_with_one_note(folder: Path) -> None:
    before = (folder / "done.tif").read_bytes()
    command = ["restore", str(folder / "model.safetensors"), str(folder / "in.tif"), str(folder / "done.tif")]
    done = CliRunner().invoke(app, [*command, *OPTIONS])
    assert done.exit_code == 0, done.output
    assert done.output.count("note: ") == 1
    assert "already restored" in done.output
    assert (folder / "done.tif").read_bytes() == before
    assert CliRunner().invoke(app, [*command, *OPTIONS, "--seed", "1"]).exit_code == 2


def test_old_results_of_a_folder_count_as_done_with_one_note(folder: Path) -> None:
    for name in ("in", "out"):
        (folder / name).mkdir()
    shutil.copy(folder / "in.tif", folder / "in" / "a.tif")
    for part in ("", "_std"):
        shutil.copy(folder / f"done{part}.tif", folder / "out" / f"a{part}.tif")
    command = ["restore", str(folder / "model.safetensors"), str(folder / "in"), str(folder / "out"), *OPTIONS]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert done.output.count("note: ") == 1
    (folder / "out" / "a.tif").unlink()
    np.save(folder / "out" / "a.npy", np.zeros((32, 32), np.float32))  # says nothing of its origin
    refused = CliRunner().invoke(app, [*command, "--format", ".npy"])
    assert refused.exit_code == 2
    assert "a.npy.sfumato.json" in refused.output.replace("\n", "")
