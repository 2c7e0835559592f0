"""Sweeps: a grid of end points, trained shortly, scored on validation images, resumed, and the best one written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pair_folders import TINY, make_pairs
from sfumato.cli import app
from sfumato.evaluation.evaluate import Evaluation, evaluate
from sfumato.evaluation.sweep import Trial, candidates, choose_metric, sweep, table
from sfumato.models import recipe as recipes
from sfumato.models.recipe import ModelRecipe
from sfumato.system.errors import RecipeError
from sfumato.training.preparation import open_sources
from small_runs import recipe

LINEAR = ModelRecipe(schedule="linear_qpi")


def test_the_grid_has_the_papers_end_points() -> None:
    ends = [model.beta_ends for model in candidates(LINEAR)]
    assert len(set(ends)) == 8
    assert (1e-4, 0.02) in ends
    cosine = candidates(ModelRecipe(schedule="cosine"), gamma_ends=[0.1, 0.2])
    assert [model.gamma_end for model in cosine] == [0.1, 0.2]


@pytest.mark.parametrize("model", [ModelRecipe(), ModelRecipe(method="regression", schedule="cosine")])
def test_only_fixed_schedules_are_tuned(model: ModelRecipe) -> None:
    with pytest.raises(RecipeError, match="fixed schedules"):
        candidates(model)


def test_the_best_is_the_best() -> None:
    models = candidates(LINEAR, starts=[1e-4], ends=[0.01, 0.02, 0.04])
    noise = np.random.default_rng(0).standard_normal((3, 20)) * 0.01
    trials = [Trial(model, value + noise[i]) for i, (model, value) in enumerate(zip(models, (2, 1, 3), strict=True))]
    lines = table(trials, choose_metric("mae")).splitlines()
    assert "**" in lines[3]
    assert "beta 0.0001 to 0.02 | 0.018 |" in lines[3]
    assert "**" in table(trials, choose_metric("PSNR")).splitlines()[4]
    with pytest.raises(RecipeError, match="ms-ssim"):
        choose_metric("beauty")


def test_a_sweep_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = recipe(make_pairs(tmp_path), model_schedule="cosine", train_steps=50)
    models = candidates(whole.model, gamma_ends=[0.01, 0.0001])
    settings: dict[str, Any] = {"metric": choose_metric("mae"), "steps": 3, "num_samples": 2, "quiet": True}
    first = sweep(whole, models[:1], tmp_path / "sweep", **settings)
    scored: list[str] = []

    def counted(*methods: Any, **options: Any) -> Evaluation:
        scored.append("again")
        return evaluate(*methods, **options)

    monkeypatch.setattr("sfumato.evaluation.sweep.evaluate", counted)
    trials = sweep(whole, models, tmp_path / "sweep", **settings)
    assert scored == ["again"]  # only the second
    np.testing.assert_array_equal(trials[0].values, first[0].values)
    best = recipes.load(tmp_path / "sweep" / "best.yaml")
    assert best.train.steps == 50
    assert best.model in models


def test_models_that_scale_each_image_by_itself_are_scored_at_their_best_scale(tmp_path: Path) -> None:
    """An affine fit is never worse than the truth's own mean, whose error a grey image has."""
    folders = make_pairs(tmp_path)
    whole = recipe(folders, model_schedule="cosine", train_steps=3, data_normalize="image")
    models = candidates(whole.model, gamma_ends=[0.01])
    (trial,) = sweep(whole, models, tmp_path / "sweep", metric=choose_metric("nrmse"), num_samples=2, quiet=True)
    source = open_sources(whole, splits=["validation"])["validation"]
    truths = [source.read(index, [0, 0], source.spatial(index))[1] for index in range(len(source))]
    grey = np.array([truth.std() / np.ptp(truth) for truth in truths])
    assert bool((trial.values <= grey * (1 + 1e-6)).all())


def test_the_command_prints_a_table_and_writes_a_recipe(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path)
    (tmp_path / "cddpm.yaml").write_text("model: {schedule: linear_biosr}\n")
    options = [option for setting in TINY for option in ("--set", setting)]
    places = ["--set", f"data.inputs={folders[0]}", "--set", f"data.targets={folders[1]}", "--out", str(tmp_path / "s")]
    grid = ["--start", "1e-4", "--end", "0.03", "--end", "0.06", "--steps", "2", "--samples", "2", "--metric", "ssim"]
    done = CliRunner().invoke(app, ["sweep", str(tmp_path / "cddpm.yaml"), *options, *places, *grid])
    assert done.exit_code == 0, done.output
    assert "linear_biosr, beta 0.0001 to 0.06" in done.output
    assert (tmp_path / "s" / "best.yaml").is_file()
    failed = CliRunner().invoke(app, ["sweep", str(tmp_path / "cddpm.yaml"), "--set", "model.schedule=learned"])
    assert failed.exit_code == 2
    assert "fixed schedules" in failed.output
