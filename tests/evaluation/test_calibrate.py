"""Calibration from held-out pairs to restored intervals: command line, model file and both ways to restore."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import sfumato
from sfumato.cli import app
from sfumato.data.images.io import open_image, write_image
from sfumato.evaluation.calibrate import HeldOutImage, calibrate, cross_validate, restore_held_out
from sfumato.evaluation.calibration_page import draw_calibration, reliability_curve
from sfumato.evaluation.compared_methods import model_method
from sfumato.evaluation.inspection import describe
from sfumato.models.intervals import Correction, Sampled
from sfumato.models.model_file import load
from sfumato.models.model_updates import set_calibration
from sfumato.models.recipe import parse
from sfumato.restoration.intervals import sampled_by, why_uncalibrated
from sfumato.restoration.planning import Settings
from sfumato.restoration.run import restore_file
from sfumato.system.errors import CalibrationError, ModelFileError
from sfumato.training.preparation import open_held_out
from untrained_models import write_model

SAMPLED = Sampled(4, 3, "2m", 0.0)


def write_pairs(folder: Path, number: int, *, first: int = 0) -> Path:
    """Noisy and clean images in the units of the test model."""
    for index in range(first, first + number):
        rng = np.random.default_rng(index)
        clean = (10 + 3 * rng.standard_normal((24, 20))).astype(np.float32)
        noisy = clean + rng.standard_normal(clean.shape).astype(np.float32)
        for name, image in (("inputs", noisy), ("targets", clean)):
            (folder / name).mkdir(parents=True, exist_ok=True)
            write_image(folder / name / f"field{index // 2:02}_{'ab'[index % 2]}.tif", image, axes="YX")
    return folder


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def gaussian(number: int, *, narrow: float = 1.0, seed: int = 0, side: int = 16) -> list[HeldOutImage]:
    """Images whose errors are Gaussian with a spread that varies over pixels, predicted too narrow by a factor."""
    rng = np.random.default_rng(seed)
    images = []
    for index in range(number):
        std = rng.uniform(0.2, 2, (1, side, side)).astype(np.float32)
        error = (std * rng.standard_normal(std.shape)).astype(np.float32)
        inside = float((np.abs(error) < 1.645 * narrow * std).mean())
        images.append(HeldOutImage(f"field{index // 2:02}_{'ab'[index % 2]}", error, narrow * std, inside))
    return images


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A calibrated model, and the pairs that it was calibrated on."""
    folder = tmp_path_factory.mktemp("calibrated")
    model, pairs = write_model(folder / "model.safetensors"), write_pairs(folder / "held_out", 24)
    done = run(
        "calibrate",
        model,
        pairs,
        "--samples",
        4,
        "--steps",
        3,
        "--page",
        folder / "page.png",
        "--report",
        folder / "report.png",
    )
    assert done.exit_code == 0, done.output
    assert (folder / "page.png").stat().st_size > 10_000
    assert (folder / "report.png").stat().st_size > 10_000
    assert "CRPS (fair)" in done.output
    assert "24 independent units of 24 images" in done.output
    return model, pairs


def test_a_picture_that_cannot_be_drawn_takes_no_calibration_with_it(tmp_path: Path) -> None:
    model, pairs = write_model(tmp_path / "model.safetensors"), write_pairs(tmp_path / "held_out", 9)
    command = ("calibrate", model, pairs, "--samples", 4, "--steps", 3, "--page")
    assert run(*command, tmp_path / "page.unknown").exit_code == 2  # before any sampling
    assert load(model).info.calibration is None
    assert run(*command, tmp_path / f"{'x' * 300}.png").exit_code == 2  # which no file system takes, after it
    found = load(model).info.calibration
    assert found is not None
    assert found.sampled.num_steps == 3
    assert "mean of 4 samples, 3 steps" in model_method("ours", load(model), num_samples=4).about  # not the recipe's


def test_the_factor_of_a_known_problem_is_that_of_its_quantile() -> None:
    for narrow in (1.0, 0.5):
        found = calibrate(gaussian(400, narrow=narrow), sampled=SAMPLED)
        assert found.factor == pytest.approx(1.645 / narrow, rel=0.03)
        assert "guaranteed for images like the 400" in found.label
    sure = calibrate(gaussian(400), sampled=SAMPLED, method="rcps", delta=0.1)
    assert sure.factor > 1.7
    assert "confidence 0.9" in sure.label


def test_recalibration_finds_the_true_spread_and_says_that_it_promises_nothing() -> None:
    images = gaussian(6, narrow=0.4)
    found = calibrate(images, sampled=SAMPLED, method="recalibrated")
    assert found.scale == pytest.approx(2.5, rel=0.1)
    assert found.factor == pytest.approx(1.645, rel=0.05)
    assert found.label.endswith("no guarantee: too few units, 9 are needed")
    assert calibrate(gaussian(9), sampled=SAMPLED, method="recalibrated").label.endswith("no guarantee")
    before, after = (np.log(np.divide(*reliability_curve(images, c))) for c in (None, found))
    assert np.abs(before).min() > 0.5
    assert np.abs(after).max() < 0.2


def test_too_few_units_are_refused_with_the_number_needed() -> None:
    images = gaussian(10)
    with pytest.raises(CalibrationError, match=r"5 independent units.*needs at least 9.*recalibrated"):
        calibrate(images, sampled=SAMPLED, unit="(.*)_")
    with pytest.raises(CalibrationError, match=r"10 independent units.*at least 22"):
        calibrate(images, sampled=SAMPLED, method="rcps")
    assert calibrate(images, sampled=SAMPLED).num_units == 10
    with pytest.raises(CalibrationError, match="no held-out image"):
        calibrate([], sampled=SAMPLED)


def test_frames_of_one_file_are_one_unit() -> None:
    images = [dataclasses.replace(image, name=f"stack.tif[{k}]") for k, image in enumerate(gaussian(12))]
    with pytest.raises(CalibrationError, match=r"1 independent units.*give the unit '\.\*'"):
        calibrate(images, sampled=SAMPLED)
    assert calibrate(images, sampled=SAMPLED, unit=".*").num_units == 12


def test_units_that_had_no_say_are_covered() -> None:
    images = gaussian(60, narrow=0.5)
    found = calibrate(images, sampled=SAMPLED, unit="(.*)_")
    checked = cross_validate(images, found, unit="(.*)_")
    assert len(checked.units) == 30
    assert checked.raw.mean() == pytest.approx(0.589, abs=0.02)  # P(|N| < 1.645 / 2)
    assert checked.corrected.mean() == pytest.approx(1 - (0.1 * 28 - 1) / 27, abs=0.005)  # 27 of 30 units at a time
    nothing = cross_validate(images[:8], found)
    assert np.isnan(nothing.corrected).all()
    draw_calibration(images, calibrate(images, sampled=SAMPLED), checked)
    draw_calibration(images[:8], calibrate(images, sampled=SAMPLED), nothing)


def test_restored_intervals_cover_the_truth_as_promised(calibrated: tuple[Path, Path]) -> None:
    model, pairs = calibrated
    loaded = load(model)
    found = loaded.info.calibration
    assert found is not None
    assert found.sampled == SAMPLED
    missed = []
    for number, path in enumerate(sorted((pairs / "inputs").iterdir())):
        restored = sfumato.restore(open_image(path).read(), loaded, image=number)
        truth = open_image(pairs / "targets" / path.name).read()
        assert restored.low is not None
        assert restored.high is not None
        missed.append(np.mean((truth < restored.low) | (truth > restored.high)))
        assert restored.label == found.label
    # The least factor with (n R + 1)/(n + 1) <= 0.1; the random model by itself covers far less.
    assert (24 * np.mean(missed) + 1) / 25 == pytest.approx(0.1, abs=0.002)
    assert found.raw_coverage < 0.5


def test_files_hold_the_intervals_of_arrays_and_say_what_they_promise(
    calibrated: tuple[Path, Path], tmp_path: Path
) -> None:
    model, pairs = calibrated
    source = pairs / "inputs" / "field00_a.tif"
    files = restore_file(model, source, tmp_path / "out.zarr", Settings(chunk=16, halo=24))
    names = [Path(file).name for file in files]
    assert names == ["out.zarr", "out_std.zarr", "out_low.zarr", "out_high.zarr"]
    alone = sfumato.restore(open_image(source).read(), load(model))
    for file, expected in zip(files, alone[:4], strict=True):
        assert expected is not None
        np.testing.assert_allclose(open_image(file).read(), expected, rtol=1e-4, atol=1e-4)
    told = json.loads((tmp_path / "out_low.zarr" / "zarr.json").read_text())["attributes"]["sfumato"]
    assert told["content"] == "lower end of calibrated interval"
    assert told["intervals"] == alone.label
    done = run("restore", model, source, tmp_path / "out.tif")
    assert "out_low.tif to" in done.output
    assert "guaranteed" in done.output
    assert alone.label in "\n".join(describe(load(model)))
    png = run("restore", model, source, tmp_path / "out.png")
    assert (tmp_path / "out_low.tif").exists(), png.output


def test_other_draws_than_the_calibrated_ones_have_no_intervals(calibrated: tuple[Path, Path], tmp_path: Path) -> None:
    model, pairs = calibrated
    source = pairs / "inputs" / "field00_a.tif"
    done = run("restore", model, source, tmp_path / "out.tif", "--samples", 2)
    assert done.exit_code == 0
    assert "calibrated with 4 samples of 3 steps, and 2 of 3 were asked for" in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.tif", "out_std.tif"]
    loaded = load(model)
    assert sfumato.restore(open_image(source).read(), loaded, num_steps=2).low is None
    assert why_uncalibrated(loaded, sampled_by(loaded)) is None


def test_a_recalibrated_model_writes_its_corrected_standard_deviation(tmp_path: Path) -> None:
    model, pairs = write_model(tmp_path / "model.safetensors"), write_pairs(tmp_path / "held_out", 4)
    refused = run("calibrate", model, pairs, "--samples", 4, "--steps", 3)
    assert refused.exit_code == 2
    assert "needs at least 9" in refused.output
    assert load(model).info.calibration is None
    source = pairs / "inputs" / "field00_a.tif"
    before = sfumato.restore(open_image(source).read(), load(model), num_samples=4, num_steps=3)
    done = run("calibrate", model, pairs, "--samples", 4, "--steps", 3, "--method", "recalibrated")
    assert "no guarantee" in done.output
    loaded = load(model)
    found = loaded.info.calibration
    assert found is not None
    after = sfumato.restore(open_image(source).read(), loaded)
    assert before.std is not None
    assert after.std is not None
    np.testing.assert_allclose(after.std, found.scale * before.std + 3 * found.offset, rtol=1e-4)  # 3 is the unit
    files = restore_file(model, source, tmp_path / "out.zarr")
    np.testing.assert_allclose(open_image(files[1]).read(), after.std, rtol=1e-4)
    told = json.loads((tmp_path / "out_std.zarr" / "zarr.json").read_text())["attributes"]["sfumato"]
    assert told["content"] == "standard deviation, recalibrated"


def test_another_file_may_take_the_result_and_weights_stay_as_they_are(tmp_path: Path) -> None:
    model, pairs = write_model(tmp_path / "model.safetensors"), write_pairs(tmp_path / "held_out", 10)
    before = model.read_bytes()
    done = run("calibrate", model, pairs, "--samples", 2, "--steps", 2, "--out", tmp_path / "other.safetensors")
    assert done.exit_code == 0, done.output
    assert model.read_bytes() == before
    first, second = (load_file(tmp_path / name) for name in ("model.safetensors", "other.safetensors"))
    assert all(bool((first[name] == second[name]).all()) for name in first)
    set_calibration(tmp_path / "other.safetensors", None)
    assert load(tmp_path / "other.safetensors").info == load(model).info


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"factor": -1.0}, "factor of the calibration"),
        ({"factor": "wide"}, "calibration.factor"),
        ({"method": "trust me"}, "calibration.method"),
        ({"level": 1.5}, "level of the calibration"),
        ({"sampled": 3}, "calibration.sampled"),
        ({"wisdom": 3}, "calibration.wisdom"),
        ({"delta": 0.1}, "delta of the calibration"),
    ],
)
def test_a_damaged_calibration_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.safetensors")
    set_calibration(path, Correction("risk_control", 0.9, 2.0, 30, 30, 0.5, SAMPLED))
    assert load(path).info.calibration == Correction("risk_control", 0.9, 2.0, 30, 30, 0.5, SAMPLED)
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        metadata = dict(file.metadata())
    name = next(name for name, text in metadata.items() if "calibration" in text)
    values = json.loads(metadata[name])
    place = values if "calibration" in values else next(v for v in values.values() if "calibration" in v)
    place["calibration"] |= change
    save_file(load_file(path), path, {**metadata, name: json.dumps(values)})
    with pytest.raises(ModelFileError, match=message):
        load(path)


def test_held_out_data_in_the_wrong_place_is_explained(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model.safetensors")
    for place, message in ((tmp_path / "none", "does not exist"), (tmp_path, "has no pairs")):
        done = run("calibrate", model, place)
        assert done.exit_code == 2
        assert message in done.output
    assert "between 0 and 1" in run("calibrate", model, tmp_path, "--level", 90).output


def test_truths_are_held_against_samples_in_the_units_of_training(tmp_path: Path) -> None:
    """Images that are scaled each by itself: truths are scaled too, whatever units they come in."""
    pairs = write_pairs(tmp_path, 2)
    loaded = load(write_model(tmp_path / "model.safetensors"))
    recipe = parse("data: {normalize: image, quantiles: [0.0, 1.0]}", source="test")
    data = recipe.data.model_copy(update={"inputs": str(pairs / "inputs"), "targets": str(pairs / "targets")})
    recipe = loaded.info.recipe.model_copy(update={"data": data})
    scaled = dataclasses.replace(loaded, info=dataclasses.replace(loaded.info, recipe=recipe))
    source = open_held_out(recipe, "validation")
    first = restore_held_out(scaled, source, sampled=SAMPLED, level=0.8)

    class Brighter:
        def __getattr__(self, name: str) -> Any:
            return getattr(source, name)

        def __len__(self) -> int:
            return len(source)

        def read(self, *place: Any) -> tuple[NDArray[Any], NDArray[Any]]:
            condition, target = source.read(*place)
            return 5 + 2 * condition, 7 * target

    second = restore_held_out(scaled, Brighter(), sampled=SAMPLED, level=0.8)
    for one, two in zip(first, second, strict=True):
        np.testing.assert_allclose(one.error, two.error, atol=1e-3)
        assert not np.allclose(one.error, first[0].error) or one is first[0]
