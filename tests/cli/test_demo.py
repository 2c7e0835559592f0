"""The demo: runs with nothing but the package, says what it did, and refuses what it cannot do."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from demo_model import write_demo_model
from sfumato.cli import app
from sfumato.cli.demo_run import Demo, Panel, draw_row, run_demo, score
from sfumato.data.images.io import open_image
from sfumato.models.bundled import bundled_models, demo_model
from sfumato.models.intervals import Sampled
from sfumato.models.model_file import inspect_model, load
from sfumato.physics.structures import STRUCTURES
from sfumato.problems.demo_specimens import FIELDS, SEED, Specimen, simulate_specimens
from sfumato.restoration.conditions import as_restored
from sfumato.restoration.in_memory import Restored
from sfumato.system.errors import ModelFileError, RunError
from zoo_data import CALIBRATION_SEED, TEST_SEED, TRAINING_SEED


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    place = tmp_path_factory.mktemp("demo")
    return run_demo(place / "out", model=write_demo_model(place / "tiny.safetensors"))


def test_every_structure_is_restored_into_files_with_pixel_sizes(done: Demo) -> None:
    for name in STRUCTURES:
        mean, std, low, high = (
            open_image(done.folder / "restored" / f"{name}{part}.tif") for part in ("", "_std", "_low", "_high")
        )
        assert mean.shape == std.shape == (128, 128)
        assert mean.pixel_size["X"].to("nanometer") == pytest.approx(31.3)
        assert open_image(done.folder / "measured" / f"{name}.tif").pixel_size["X"].to("nanometer") == pytest.approx(
            62.6
        )
        assert (low.read() < mean.read()).all()
        assert (mean.read() < high.read()).all()


def test_figures_are_those_of_the_files(done: Demo) -> None:
    """Coverage, from the files alone."""
    model = load(done.model)
    for found in done.scores:
        truth = as_restored(open_image(done.folder / "truth" / f"{found.name}.tif").read()[None], model)[0]
        low, high = (
            open_image(done.folder / "restored" / f"{found.name}_{part}.tif").read() for part in ("low", "high")
        )
        assert found.coverage == pytest.approx(((truth >= low) & (truth <= high)).mean())
    assert done.coverage == pytest.approx(np.mean([found.coverage for found in done.scores]))


def test_it_says_how_good_it_was_and_what_to_try(done: Demo) -> None:
    text = "\n".join(done.lines())
    assert re.search(rf"^mean +\({done.gain:+.1f}\) +{done.coverage:.0%}$", text, re.MULTILINE)
    commands = re.findall(r"^  sfumato (\w+)", text, re.MULTILINE)
    assert commands == ["restore", "train", "restore"]
    paths = [Path(word) for word in text.split() if str(done.folder) in word]
    assert all(Path(str(path).rstrip(":")).exists() for path in paths)


def test_the_command_it_advises_runs(done: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = next(line for line in done.lines() if "--keep-samples" in line)
    result = CliRunner().invoke(app, line.split()[1:])
    assert result.exit_code == 0, result.output
    draws = sorted(tmp_path.glob("restored_sample*.tif"))
    assert len(draws) == done.num_samples
    assert f"samples: {draws[0]} to {draws[-1]}" in result.output


def test_scores_of_a_perfect_restoration_and_of_a_known_error(tmp_path: Path) -> None:
    model = load(write_demo_model(tmp_path / "model.safetensors"))
    truth = np.tile(np.arange(64, dtype=np.uint16), (64, 1))
    specimen = Specimen("steps", truth.reshape(32, 2, 32, 2).mean((1, 3)).astype(np.float32), truth, 0.0313)
    scaled = as_restored(truth[None], model)[0]
    reach = float(scaled.max() - scaled.min())
    waves = np.where(np.arange(64) % 2 == np.arange(64)[:, None] % 2, 0.01, -0.01)  # nothing that a fit could take away
    off = (scaled + waves * reach).astype(np.float32)
    ends = (scaled + np.where(truth < 16, 0.1, -1) * reach, scaled + reach)  # a quarter of the pixels lies below it
    found = score(specimen, Restored(off, np.ones_like(off), *(end.astype(np.float32) for end in ends)), model)
    variance = (64**2 - 1) / 12 / 63**2  # of 64 steps from 0 to 1; the fit trades a little of it for noise
    assert found.psnr_restored == pytest.approx(40 + 10 * np.log10(1 + 0.01**2 / variance), abs=1e-4)
    assert found.coverage == pytest.approx(0.75)
    # Brightness and offset of the measured image do not count.
    brighter = Specimen("steps", 7 * specimen.measured + 100, truth, 0.0313)
    again = score(brighter, Restored(off, np.ones_like(off), *(end.astype(np.float32) for end in ends)), model)
    assert again.psnr_measured == pytest.approx(found.psnr_measured, abs=1e-3)


def test_the_picture_has_every_panel_at_its_scale(tmp_path: Path) -> None:
    ramp = np.tile(np.linspace(0, 1, 64), (64, 1))
    panels = [Panel(str(place), "note", ramp, 0, 1, "unit", is_spread=place == 2) for place in range(3)]
    draw_row(tmp_path / "row.png", "title", panels, width_um=2)
    drawn = np.asarray(Image.open(tmp_path / "row.png").convert("RGB"), int)
    row = drawn[drawn.shape[0] // 2]  # through the images
    side = 288
    for place in range(2):
        left = 16 + place * (side + 14)
        assert row[left, 0] < 8
        assert row[left + side - 1, 0] > 247
        assert (np.diff(row[left : left + side, 0]) >= 0).all()
    last = row[16 + 2 * (side + 14) :][:side].sum(-1)
    assert (np.diff(last) >= -3).all(), "brighter where more, also without colour vision"


def test_specimens_are_the_same_at_every_call_and_in_no_data_of_the_model() -> None:
    first, second = simulate_specimens(), simulate_specimens()
    assert all(
        (a.measured == b.measured).all() and (a.truth == b.truth).all() for a, b in zip(first, second, strict=True)
    )
    assert SEED not in (TRAINING_SEED, CALIBRATION_SEED, TEST_SEED)
    assert set(FIELDS) == set(STRUCTURES)


def test_the_bundled_model() -> None:
    assert demo_model() in bundled_models()
    info = inspect_model(demo_model())
    assert info.factor == (2, 2)
    assert info.calibration is not None
    assert info.calibration.method == "risk_control", "an interval with a guarantee"
    assert info.calibration.sampled == Sampled(16, info.recipe.sample.steps, "gaussian", 0.0)
    assert demo_model().stat().st_size <= 5_000_000


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "exists and is not an empty folder" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(RunError, match="not an empty folder"):
        run_demo(tmp_path / "mine.txt")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="choose a folder that you may write to"):
        run_demo(tmp_path / "out")
    tmp_path.chmod(0o700)


def test_a_folder_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write to .*choose a folder"):
        run_demo(tmp_path / "file" / "out")


def test_a_model_without_calibration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="sfumato calibrate"):
        run_demo(tmp_path / "out", model=write_demo_model(tmp_path / "model.safetensors", is_calibrated=False))


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_says_what_is_left(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = subprocess.Popen(
        # Not by -m, where CPython 3.11 may end by the signal itself though it was caught (in exec of a string).
        [str(Path(sys.executable).with_name("sfumato")), "demo", "--out", str(out)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    for _ in range(600):
        if (out / "measured").exists():
            break
        time.sleep(0.1)
    program.send_signal(signal.SIGINT)
    _, said = program.communicate(timeout=120)
    assert program.returncode == 130
    assert f"stopped; {out} is not complete" in said
    assert "Traceback" not in said
