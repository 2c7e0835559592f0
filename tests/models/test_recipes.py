"""The recipes of the repository: all are valid, and the small ones train."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import sfumato
from data_sets import make_data_set
from pair_folders import TINY
from sfumato.cli import app
from sfumato.data.normalize import Normalization
from sfumato.models.build import build_model
from sfumato.models.model_file import ModelInfo, save_model
from sfumato.models.recipe import ModelRecipe, Recipe, SampleRecipe, load
from sfumato.problems.microscopy_simulation import simulate
from sfumato.problems.registry import PROBLEMS
from sfumato.restoration.conditions import condition_of
from sfumato.system import strict_yaml
from sfumato.training.preparation import prepare

RECIPES = Path(__file__).parents[2] / "recipes"
FULL = sorted(path for path in RECIPES.glob("*/*.yaml") if path.parent.name not in ("small", "zoo"))
SMALL = sorted((RECIPES / "small").glob("*.yaml"))
BIOSR = RECIPES / "microscopy" / "biosr.yaml"
OF_THE_PAPER = ("as_printed", "cddpm", "simple", "without_smoothness")
"""Ends of the names of recipes that describe the paper's models, whatever ours are."""
PINNED = sorted(path for kind in OF_THE_PAPER for path in RECIPES.glob(f"*/*_{kind}.yaml"))
OURS = sorted({path for path in (*FULL, *SMALL) if "imagenet" not in path.stem} - {*PINNED})
"""Without those for natural images, which have the SR3 network."""


def fields_of(path: Path) -> dict[str, Any]:
    """What a recipe says itself."""
    found: dict[str, Any] = strict_yaml.read(path.read_text(encoding="utf-8"), source=str(path)).values
    return found


def train(*options: str) -> None:
    result = CliRunner().invoke(app, ["train", *options])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("path", FULL, ids=lambda path: path.stem)
def test_full_size_recipes_are_valid_and_have_a_small_twin(path: Path) -> None:
    recipe = load(path)
    assert recipe.problem in PROBLEMS
    assert recipe.train.steps in (200_000, 400_000)
    assert (recipe.model.base, recipe.model.rate_base) == (64, 32)
    twin = load(RECIPES / "small" / path.name)
    assert (twin.problem, twin.forward, twin.name) == (recipe.problem, recipe.forward, recipe.name)
    alike = ("schedule", "norm", "predicts", "network", "residual", "smoothness_weight")
    assert all(getattr(twin.model, name) == getattr(recipe.model, name) for name in alike)


@pytest.mark.parametrize("path", PINNED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recipes_of_the_paper_depend_on_no_default(path: Path) -> None:
    """They leave out only fields that are None, which has one meaning in all stored recipes."""
    own, recipe = fields_of(path), load(path)
    assert "preset" not in own
    sections: dict[str, ModelRecipe | SampleRecipe] = {"model": recipe.model, "sample": recipe.sample}
    for name, section in sections.items():
        given = {field for field, value in section.model_dump().items() if value is not None}
        assert own[name].keys() == given


def test_recipes_of_the_paper_are_all_there() -> None:
    assert len(PINNED) == 12


@pytest.mark.parametrize("path", OURS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_our_own_recipes_leave_model_and_samples_to_a_preset(path: Path) -> None:
    own, recipe = fields_of(path), load(path)
    assert own["preset"] == ("small" if path.parent.name == "small" else "large")
    assert not {"model", "sample"} & own.keys()
    assert (recipe.model.scale_network, recipe.sample.mean) == (True, "network")


@pytest.mark.parametrize("steps", [3, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_small_recipes_train(path: Path, steps: int, tmp_path: Path) -> None:
    """On tiny data of the same layout; only paths, the number of steps and the size of the last panel are changed."""
    recipe = load(path)
    places = make_data_set(tmp_path / "data", recipe.problem)
    quick = [
        part
        for setting in (f"train.steps={steps}", "sample.steps=2", "sample.samples=2")
        for part in ("--set", setting)
    ]
    train(str(path), *places, "--out", str(tmp_path / "run"), *quick)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[-1])["step"] == steps


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*/*_as_printed.yaml")), ids=lambda path: f"{path.parent.name}")
def test_recipes_as_printed_sample_as_printed(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Algorithm 2: for i = T, ..., 1 the network is asked at gamma(i / T)."""
    recipe = load(path)
    assert (recipe.sample.solver, recipe.sample.grid) == ("algorithm2", "uniform")
    values = recipe.model_dump()
    values["model"] |= {"base": 4, "rate_base": 4, "num_scales": 2}
    values["sample"] |= {"steps": 10}
    small = Recipe.model_validate(values)
    channels, unit = 2 if small.problem == "phase" else 1, Normalization((0.0,), (1.0,))
    network, seen = build_model(small.model, channels, 1), list[Tensor]()
    sides = Normalization((0.0,) * channels, (1.0,) * channels)
    info = ModelInfo(small, channels, 1, sides, unit, {}, {}, factor=(1, 1))
    save_model(tmp_path / "model.safetensors", network.state_dict(), info)
    model = sfumato.load(tmp_path / "model.safetensors")
    predict = type(model.model).predict

    def watched(self: Any, noisy: Tensor, log_gamma: Tensor, *rest: Any) -> Any:
        seen.append(log_gamma)
        return predict(self, noisy, log_gamma, *rest)

    monkeypatch.setattr(type(model.model), "predict", watched)
    image = np.random.default_rng(0).random((channels, 16, 16), dtype=np.float32)
    sfumato.restore(image, model, num_samples=2)
    normalised_image = condition_of(image, model).condition()
    schedule = model.model.schedule(normalised_image)
    assert len(seen) == 10
    for i, log_gamma in zip(range(10, 0, -1), seen, strict=True):
        expected = schedule.log_gamma(torch.tensor(i / 10)).detach()
        torch.testing.assert_close(log_gamma, expected.expand_as(log_gamma), rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def biosr_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cells per split, of a structure with one target per cell and of the one with a target per level."""
    cells, names = {"train": 2, "validation": 2, "test": 2}, ["microtubules", "endoplasmic_reticulum"]
    folder = tmp_path_factory.mktemp("biosr") / "tree"
    return simulate(folder, seed=0, cells=cells, side=64, layout="biosr", names=names)


def test_a_simulated_biosr_tree_is_what_the_full_recipe_reads(biosr_tree: Path) -> None:
    """With only the path changed: 2 structures, 2 cells, 9 levels; patches fit; images are scaled by themselves."""
    recipe = load(BIOSR)
    values = recipe.model_dump()
    values["data"]["folder"] = str(biosr_tree)
    data = prepare(Recipe.model_validate(values))
    assert data.validation is not None
    assert (len(data.train), len(data.validation)) == (36, 36)
    condition, target = data.train.read(5, (0, 0), (128, 128))
    assert condition.shape == target.shape == (1, 128, 128)
    assert recipe.data.patch <= 128
    assert condition.min() == pytest.approx(-1, abs=0.2)
    assert condition.max() == pytest.approx(1, abs=0.5)


def test_a_simulated_biosr_tree_trains(biosr_tree: Path, tmp_path: Path) -> None:
    """With smaller networks, for speed; the slow test changes the path alone."""
    small = [option for setting in TINY for option in ("--set", setting)]
    options = ["--folder", str(biosr_tree), "--out", str(tmp_path / "run"), "--set", "train.steps=3"]
    train(str(BIOSR), *options, *small)
    assert (tmp_path / "run" / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_simulated_biosr_tree_trains_at_full_size(biosr_tree: Path, tmp_path: Path) -> None:
    train(str(BIOSR), "--folder", str(biosr_tree), "--out", str(tmp_path / "run"), "--set", "train.steps=2")
    assert (tmp_path / "run" / "model.safetensors").is_file()
