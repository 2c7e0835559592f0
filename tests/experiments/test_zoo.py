"""The models to take away: small, calibrated, with the card of what they are; and the script that makes them."""

import csv
import functools
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import zoo_data
from make_zoo import MOST_BYTES, MOST_WEIGHTS, Making, card_of, scores
from sfumato.models import recipe as recipes
from sfumato.models.bundled import bundled_models
from sfumato.models.model_file import load
from sfumato.models.safetensors_file import open_tensors
from sfumato.problems.microscopy_simulation import simulate
from sfumato.problems.registry import PROBLEMS
from zoo_data import KINDS, Amounts

ROOT = Path(__file__).parents[2]
MODELS = sorted((ROOT / "zoo").glob("*.safetensors"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_models_are_small_and_say_what_they_are(path: Path) -> None:
    """If the card differs: python experiments/make_zoo.py NAME --work ... --stages write"""
    model = load(path)
    assert path.stat().st_size <= MOST_BYTES
    assert sum(parameter.numel() for parameter in model.model.parameters()) <= MOST_WEIGHTS
    with open_tensors(path, "model") as file:
        assert {spec.dtype for spec in file.specs.values()} == {torch.float16}
    assert model.info.calibration is not None
    assert path.with_suffix(".md").read_text(encoding="utf-8") == card_of(path)
    assert model.info.recipe.data.folder == recipes.load(ROOT / "recipes" / "zoo" / f"{path.stem}.yaml").data.folder


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_scores_of_the_card_are_the_means_of_the_stored_ones(path: Path) -> None:
    model, table = load(path), ROOT / "experiments" / "results" / f"zoo_{path.stem}.csv"
    found = scores(table, model.info.recipe)
    assert found.items() <= model.info.provenance.items()
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert found["test images"] == len(rows)
    assert found["PSNR of the restored mean, dB"] == pytest.approx(
        np.mean([float(row["psnr_mean"]) for row in rows]), abs=1e-4
    )


def test_the_package_brings_the_model_of_the_zoo() -> None:
    for path in bundled_models():
        assert path.read_bytes() == (ROOT / "zoo" / path.name).read_bytes()


@pytest.mark.parametrize("name", KINDS)
def test_recipes_fit_the_limits(name: str) -> None:
    recipe = recipes.load(ROOT / "recipes" / "zoo" / f"{name}.yaml")
    assert recipe.name == name
    assert recipe.problem in PROBLEMS


needs_data = pytest.mark.skipif("SFUMATO_DATA" not in os.environ, reason="needs SFUMATO_DATA")


@pytest.mark.parametrize("name", ["microscopy", pytest.param("phase", marks=[needs_data, pytest.mark.slow])])
def test_a_model_is_made_and_every_stage_is_skipped_the_second_time(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All stages, with networks of a few weights and one level of light."""
    recipe = recipes.load(ROOT / "recipes" / "zoo" / f"{name}.yaml")
    tiny = recipe.model_copy(
        update={
            "model": recipe.model.model_copy(update={"base": 2, "rate_base": 2, "num_scales": 1}),
            "train": recipe.train.model_copy(update={"steps": 2, "batch_size": 2, "precision": "float32"}),
            "sample": recipe.sample.model_copy(update={"steps": 1, "samples": 2}),
        }
    )
    making = Making(name, tmp_path / "work", recipe=tiny, root=tmp_path)
    monkeypatch.setattr(zoo_data, "simulate", functools.partial(simulate, side=64, levels=[30.0]))

    def make() -> None:
        making.make_data(Amounts(train=1, validation=1, calibration=3, test=1, crops=1))
        making.train(None)
        making.calibrate()
        making.measure()

    make()
    made = [making.run.model_file, making.calibrated, making.measured]
    times = [path.stat().st_mtime_ns for path in made]
    make()
    assert [path.stat().st_mtime_ns for path in made] == times
    making.write(note="Only a test.")
    card = (tmp_path / "zoo" / f"{name}.md").read_text(encoding="utf-8")
    assert "Only a test. " in card
    assert KINDS[name].images in card
    assert "BSD-3-Clause" in card
    assert str(tmp_path) not in (tmp_path / "zoo" / f"{name}.safetensors").read_bytes().decode("latin-1")
    assert (tmp_path / "src" / "sfumato" / "models" / f"{name}.safetensors").exists() == (name == "microscopy")


def test_networks_that_are_too_large_are_refused(tmp_path: Path) -> None:
    """Before any time goes into calibrating them."""
    from sfumato.data.normalize import Normalization
    from sfumato.models.build import build_model
    from sfumato.models.model_file import ModelInfo, save_model

    recipe = recipes.load(ROOT / "recipes" / "zoo" / "microscopy.yaml")
    large = recipe.model_copy(update={"model": recipe.model.model_copy(update={"base": 36})})
    making = Making("microscopy", tmp_path, recipe=large, root=tmp_path)
    making.run.path.mkdir(parents=True)
    same = Normalization((0.0,), (1.0,))
    info = ModelInfo(large, 1, 1, same, same, {}, {}, factor=(2, 2))
    save_model(making.run.model_file, build_model(large.model, 1, 1).state_dict(), info)
    with pytest.raises(SystemExit, match="at most 2500000"):
        making.calibrate()
