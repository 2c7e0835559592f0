"""`sfumato distill`: where its pairs may come from, and what the other commands make of a student."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sfumato
from networks import seeded
from sfumato.cli import app
from sfumato.data.images.io import open_image
from sfumato.data.normalize import Normalization
from sfumato.models.build import build_model
from sfumato.models.model_file import ModelInfo, load, save_model
from sfumato.models.recipe import parse
from sfumato.system.errors import RecipeError
from sfumato.training.run_folder import RunFolder
from sfumato.training.taught_recipe import taught_recipe
from untrained_models import noise

TEXT = (
    "{preset: small, model: {base: 4, rate_base: 4, num_scales: 2, denoiser_base: 3, denoiser_scales: 1},"
    " data: {inputs: low, targets: high}}"
)


def write(path: Path, text: str = TEXT) -> Path:
    """A teacher that has learned nothing."""
    asked = parse(text)
    model = seeded(lambda: build_model(asked.model, 1, 1))
    side = Normalization((10.0,), (3.0,))
    save_model(path, model.state_dict(), ModelInfo(asked, 1, 1, side, side, {}, {}))
    return path


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("teacher") / "teacher.safetensors")


@pytest.fixture(scope="module")
def student(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student of two calls with its teacher's weights."""
    path, of = tmp_path_factory.mktemp("student") / "student.safetensors", load(teacher)
    info = replace(of.info, recipe=taught_recipe(of, calls=2, teacher_calls=8))
    save_model(path, of.model.state_dict(), info)
    return path


def refused(*words: str | Path) -> str:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 2, done.output
    return done.output


def test_places_in_a_bare_model_file_are_opened_only_on_request(teacher: Path, tmp_path: Path) -> None:
    said = refused("distill", teacher, "--out", tmp_path / "s.safetensors")
    assert "nothing says where the training pairs are" in said
    assert "give --from-recipe" in said
    remote = write(tmp_path / "m.safetensors", TEXT.replace("inputs: low, targets: high", "store: s3://bucket/pairs"))
    said = refused("distill", remote, "--out", tmp_path / "s.safetensors", "--from-recipe")
    assert "an address in a model file is never opened" in said
    assert not (tmp_path / "s_run").exists()


def test_the_places_of_a_run_are_its_own(tmp_path: Path) -> None:
    """In its run folder, the file of the same pairs needs no request: what is missing is only the folder of pairs."""
    run = RunFolder(tmp_path / "run")
    run.start(parse(TEXT))
    run.statistics_file.write_text("{}")
    write(run.model_file)
    for given in (run.path, run.model_file):
        assert "low" in refused("distill", given, "--out", tmp_path / "s.safetensors")
    write(run.model_file, TEXT.replace("low", "elsewhere"))
    assert "give --from-recipe" in refused("distill", run.path, "--out", tmp_path / "s.safetensors")


def test_only_the_training_can_be_set(teacher: Path, tmp_path: Path) -> None:
    words = ("distill", teacher, "--inputs", "low", "--targets", "high", "--out", tmp_path / "s.safetensors", "--set")
    assert "give fields of train" in refused(*words, "model.base=8")
    assert "did you mean 'steps'" in refused(*words, "train.stepps=8")


def test_restore_calibrate_and_inspect_refuse_other_calls(student: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "image.npy", noise(16, 16))
    image, out, words = (
        tmp_path / "image.npy",
        tmp_path / "out.npy",
        "was taught 2 calls of first_order_gaussian with eta 0",
    )
    assert words in refused("restore", student, image, out, "--steps", "4")
    for side in ("inputs", "targets"):
        (tmp_path / "held" / side).mkdir(parents=True)
        np.save(tmp_path / "held" / side / "a.npy", noise(16, 16))
    assert words in refused("calibrate", student, tmp_path / "held", "--steps", "4")
    pairs = ("--inputs", tmp_path / "held" / "inputs", "--targets", tmp_path / "held" / "targets")
    assert words in refused("inspect", student, "--steps", "1,2", *pairs, "--out", tmp_path / "inspection")
    with pytest.raises(RecipeError, match=words):
        sfumato.restore(noise(16, 16), load(student), num_steps=4)
    assert not out.exists()


def test_the_restored_image_is_the_teachers_and_its_samples_are_the_students(
    teacher: Path, student: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "image.npy", noise(16, 16))
    found = {}
    for name, model in (("teacher", teacher), ("student", student)):
        words = ["restore", str(model), str(tmp_path / "image.npy"), str(tmp_path / f"{name}.npy"), "--samples", "2"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        found[name] = np.asarray(open_image(tmp_path / f"{name}.npy").read({}))
        found[f"{name} std"] = np.asarray(open_image(tmp_path / f"{name}_std.npy").read({}))
    assert np.array_equal(found["teacher"], found["student"])
    assert not np.array_equal(found["teacher std"], found["student std"])
