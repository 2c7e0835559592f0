"""Calibration of what is restored without samples: its own kind, stored beside that of samples."""

import dataclasses
import json
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import sfumato
from sfumato.cli import app
from sfumato.data.images.io import open_image, write_image
from sfumato.evaluation.calibrate import restore_held_out
from sfumato.evaluation.inspection import describe
from sfumato.export.card import Credits, model_card
from sfumato.models.intervals import FLOOR, NO_SAMPLES, Correction, Sampled
from sfumato.models.model_file import load
from sfumato.models.model_updates import set_calibration, set_sampling
from sfumato.restoration.intervals import why_uncalibrated
from sfumato.restoration.planning import Settings
from sfumato.restoration.restorer import Restorer
from sfumato.restoration.run import restore_file
from sfumato.system.errors import ModelFileError, RecipeError
from sfumato.training.preparation import open_held_out
from untrained_models import write_model, write_reading_model

STD = 0.6
OF_SAMPLES = Correction("risk_control", 0.9, 2.0, 30, 30, 0.5, Sampled(4, 3, "2m", 0.0))
WITHOUT = Correction("risk_control", 0.9, 3.0, 25, 25, 0.7, NO_SAMPLES)


def write_pairs(folder: Path, number: int, *, std: float = STD) -> Path:
    """Images and the same with noise of a known standard deviation."""
    for index in range(number):
        rng = np.random.default_rng(index)
        measured = (10 + 3 * rng.standard_normal((32, 30))).astype(np.float32)
        truth = (measured + std * rng.standard_normal(measured.shape)).astype(np.float32)
        for name, image in (("inputs", measured), ("targets", truth)):
            (folder / name).mkdir(parents=True, exist_ok=True)
            write_image(folder / name / f"{chr(ord('a') + index)}.tif", image, axes="YX")
    return folder


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A model whose posterior is Gaussian and known, calibrated without samples; its pairs; what was said."""
    folder = tmp_path_factory.mktemp("calibrated")
    model, pairs = write_reading_model(folder / "model.safetensors", std=STD), write_pairs(folder / "held_out", 20)
    done = run("calibrate", model, pairs, "--fast", "--page", folder / "page.png")
    assert done.exit_code == 0, done.output
    assert (folder / "page.png").stat().st_size > 10_000
    return model, pairs, done.output


def test_a_gaussian_posterior_that_is_known_has_the_gaussian_factor(calibrated: tuple[Path, Path, str]) -> None:
    model, _, told = calibrated
    info = load(model).info
    found = info.fast_calibration
    assert info.calibration is None
    assert found is not None
    assert found.sampled == NO_SAMPLES
    error = np.sqrt(0.9 * 0.1 / (20 * 32 * 30))
    assert found.raw_coverage == pytest.approx(0.9, abs=4 * error)
    # Risk control aims at a risk of (0.1 * 21 - 1) / 20; the interval has a floor.
    tail = (1 - (0.1 * 21 - 1) / 20) / 2 + 0.5
    assert found.factor == pytest.approx(NormalDist().inv_cdf(tail) / (1 + 3 * FLOOR / STD), rel=0.02)
    assert "the networks' own interval: 0.9" in told
    assert found.label in told.replace("\n", " ")


def test_restored_intervals_cover_the_truth_as_promised_in_arrays_and_files(
    calibrated: tuple[Path, Path, str], tmp_path: Path
) -> None:
    model, pairs, _ = calibrated
    loaded, missed = load(model), []
    assert loaded.info.fast_calibration is not None
    for path in sorted((pairs / "inputs").iterdir()):
        restored = sfumato.restore(open_image(path).read(), loaded, fast=True)
        truth = open_image(pairs / "targets" / path.name).read()
        assert restored.low is not None
        assert restored.high is not None
        assert restored.label == loaded.info.fast_calibration.label
        missed.append(np.mean((truth < restored.low) | (truth > restored.high)))
    assert (20 * np.mean(missed) + 1) / 21 == pytest.approx(0.1, abs=0.001)
    files = restore_file(model, pairs / "inputs" / "a.tif", tmp_path / "out.zarr", Settings(fast=True))
    assert [Path(file).name for file in files] == ["out.zarr", "out_std.zarr", "out_low.zarr", "out_high.zarr"]
    alone = sfumato.restore(open_image(pairs / "inputs" / "a.tif").read(), loaded, fast=True)
    for file, expected in zip(files, alone[:4], strict=True):
        assert expected is not None
        np.testing.assert_allclose(open_image(file).read(), expected, rtol=1e-5)
    told = json.loads((tmp_path / "out_low.zarr" / "zarr.json").read_text())["attributes"]["sfumato"]
    assert (told["intervals"], told["calibration"], told["samples"]) == (alone.label, "risk_control", 0)
    done = run("restore", model, pairs / "inputs" / "a.tif", tmp_path / "out.tif", "--fast")
    assert "guaranteed" in done.output
    assert "no samples were drawn" in done.output.replace("\n", " ")


def test_each_calibration_is_used_for_its_own_kind_only(calibrated: tuple[Path, Path, str], tmp_path: Path) -> None:
    model, pairs, _ = calibrated
    pixels = open_image(pairs / "inputs" / "a.tif").read()
    assert sfumato.restore(pixels, load(model), num_samples=4, num_steps=3).low is None
    both = set_calibration(model, OF_SAMPLES, tmp_path / "both.safetensors")
    loaded = load(both)
    assert loaded.info.calibration == OF_SAMPLES
    assert loaded.info.fast_calibration == load(model).info.fast_calibration
    usual = sfumato.restore(pixels, loaded)
    assert usual.std is not None
    assert usual.high is not None
    # Three is the unit of the target.
    np.testing.assert_allclose(usual.high - usual.mean, 2.0 * (usual.std + 3 * FLOOR), rtol=1e-3)
    fast = sfumato.restore(pixels, loaded, fast=True)
    assert fast.std is not None
    assert fast.high is not None
    assert loaded.info.fast_calibration is not None
    half = loaded.info.fast_calibration.factor * (fast.std + 3 * FLOOR)
    np.testing.assert_allclose(fast.high - fast.mean, half, rtol=1e-3)
    told = "\n".join(describe(loaded))
    card = model_card(loaded, Credits("CC-BY-4.0", ("A",)), usage="")
    for text in (told, card):
        assert "20 held out" in text
        assert "30 held out" in text
    removed = load(set_calibration(both, None)).info
    assert (removed.calibration, removed.fast_calibration) == (None, None)


def test_what_is_not_calibrated_says_which_kind_is(calibrated: tuple[Path, Path, str], tmp_path: Path) -> None:
    fast = load(calibrated[0])
    usual = set_calibration(calibrated[0], None, tmp_path / "usual.safetensors")
    uncalibrated = load(usual)
    of_samples = load(set_calibration(usual, OF_SAMPLES))
    reasons = {
        (model, is_fast): why_uncalibrated(model_of, Restorer.of(model_of, fast=is_fast).sampled)
        for model, model_of in (("fast", fast), ("none", uncalibrated), ("samples", of_samples))
        for is_fast in (False, True)
    }
    assert [key for key, reason in reasons.items() if reason is not None] == [("fast", False), ("samples", True)]
    assert "run `sfumato calibrate` too" in str(reasons["fast", False])
    assert "run `sfumato calibrate --fast` too" in str(reasons["samples", True])


def test_other_sampling_settings_leave_the_calibration_without_samples(tmp_path: Path) -> None:
    path = write_reading_model(tmp_path / "model.safetensors")
    for found in (OF_SAMPLES, WITHOUT):
        set_calibration(path, found)
    now = set_sampling(path, load(path).info.recipe.sample.model_copy(update={"steps": 5}))
    assert (now.calibration, now.fast_calibration) == (None, WITHOUT)
    assert load(path).info.fast_calibration == WITHOUT


def test_files_without_it_keep_their_bytes_and_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    path = write_reading_model(tmp_path / "model.safetensors")
    before = path.read_bytes()
    assert b"fast_calibration" not in before
    set_calibration(path, WITHOUT)
    assert path.read_bytes() != before
    set_calibration(path, None)
    assert path.read_bytes() == before
    info = load(path).info
    with pytest.raises(ValueError, match="each kind of interval has its own calibration"):
        dataclasses.replace(info, calibration=WITHOUT)
    with pytest.raises(ValueError, match="each kind of interval has its own calibration"):
        dataclasses.replace(info, fast_calibration=OF_SAMPLES)
    set_calibration(path, OF_SAMPLES)
    with safe_open(path, "pt") as file:
        metadata = dict(file.metadata())
    name = next(name for name, text in metadata.items() if "calibration" in text)
    damaged = metadata[name].replace('"calibration"', '"fast_calibration"')
    assert damaged != metadata[name]
    save_file(load_file(path), path, {**metadata, name: damaged})
    with pytest.raises(ModelFileError, match="each kind of interval"):
        load(path)


def test_a_tenth_outside_a_spread_that_is_twice_too_small(tmp_path: Path) -> None:
    model, pairs = write_reading_model(tmp_path / "model.safetensors", std=STD / 2), write_pairs(tmp_path / "pairs", 12)
    loaded = load(model)
    data = loaded.info.recipe.data.model_copy(
        update={"inputs": str(pairs / "inputs"), "targets": str(pairs / "targets")}
    )
    source = open_held_out(loaded.info.recipe.model_copy(update={"data": data}), "test")
    images = restore_held_out(loaded, source, sampled=NO_SAMPLES, level=0.9)
    covered = float(np.mean([image.covered for image in images]))
    assert covered == pytest.approx(0.5892, abs=0.02)  # P(|N| < 1.645 / 2)
    assert float(np.mean([image.std.mean() for image in images])) == pytest.approx(STD / 2 / 3, rel=1e-5)
    with pytest.raises(RecipeError, match="given with keep_side"):
        restore_held_out(loaded, source, sampled=NO_SAMPLES, level=0.9, keep_side=8)


@pytest.mark.parametrize("option", [["--samples", 4], ["--steps", 2], ["--report", "report.png"]])
def test_what_needs_samples_is_refused(option: list[Any], calibrated: tuple[Path, Path, str]) -> None:
    refused = run("calibrate", calibrated[0], calibrated[1], "--fast", *option)
    assert refused.exit_code == 2
    assert f"given with {option[0].removeprefix('--')}" in refused.output.replace("\n", " ")


def test_a_model_without_mean_and_scale_networks_is_refused(calibrated: tuple[Path, Path, str], tmp_path: Path) -> None:
    refused = run("calibrate", write_model(tmp_path / "plain.safetensors"), calibrated[1], "--fast")
    assert refused.exit_code == 2
    assert "without mean and scale networks" in refused.output.replace("\n", " ")
