"""Presets: sizes of new recipes; what is stored without one keeps the meaning of version 0.1."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pair_folders import TINY, make_pairs
from sfumato.cli import app
from sfumato.models.build import build_model
from sfumato.models.presets import PRESETS, Preset
from sfumato.models.reach import reach_of_call
from sfumato.models.recipe import Recipe, dump, parse
from sfumato.system.errors import RecipeError
from sfumato.training.run_folder import RunFolder
from sfumato.training.train import train
from small_runs import recipe


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_written_out_and_its_denoiser_is_the_light_one(name: Preset) -> None:
    chosen = parse(f"preset: {name}")
    assert chosen != Recipe()
    assert "preset" not in dump(chosen)
    assert parse(dump(chosen)) == chosen
    assert chosen.model.denoiser_base is not None
    model = build_model(chosen.model.model_copy(update={"base": 8, "denoiser_base": 4}), 1, 1)
    assert model.reader is not None
    assert model.scale_network is not None


def test_own_fields_win_and_no_preset_means_version_0_1() -> None:
    own = parse("{preset: large, model: {base: 4}, sample: {steps: 3}}")
    assert (own.model.base, own.sample.steps, own.sample.mean) == (4, 3, "network")
    plain = parse("train: {steps: 10}")
    assert (plain.model.mean_network, plain.model.activation, plain.sample.solver) == (False, "softplus", "2m")
    with pytest.raises(RecipeError, match=r"r.yaml, line 2: preset is 'huge'; choose one of small, default, large"):
        parse("name: x\npreset: huge", source="r.yaml")


@pytest.mark.parametrize(
    "fields",
    ["{method: regression, network: dfcan}", "{method: regression}", "{residual: true}", "{mean_network: false}"],
)
def test_a_model_whose_mean_cannot_be_first_takes_the_size_alone(fields: str) -> None:
    chosen = parse(f"preset: small\nmodel: {fields}")
    assert (chosen.model.base, chosen.train.learning_rate) == (8, 2e-3)
    assert (chosen.model.read_once, chosen.train.mean_share, chosen.sample.solver) == (False, 0.0, "2m")
    build_model(chosen.model, 1, 1)


@pytest.mark.parametrize("name", PRESETS)
def test_volumes_have_three_scales_and_their_call_looks_less_far(name: Preset) -> None:
    images, volumes = parse(f"preset: {name}").model, parse(f"{{preset: {name}, model: {{ndim: 3}}}}").model
    assert (images.num_scales, images.denoiser_scales) == (5, 4)
    assert (volumes.num_scales, volumes.denoiser_scales) == (3, 3)
    assert volumes.model_copy(update={"ndim": 2, "num_scales": 5, "denoiser_scales": 4}) == images
    tiny = volumes.model_copy(update={"base": 2, "rate_base": 2, "denoiser_base": 2})
    # Filter, reader, filter, head, denoising network.
    assert reach_of_call(build_model(tiny, 1, 1)) == 2 + 26 + 4 + 2 + 26


def test_scales_of_volumes_that_a_recipe_gives_are_kept() -> None:
    own = parse("{preset: small, model: {ndim: 3, num_scales: 4, denoiser_scales: 2}}").model
    assert (own.num_scales, own.denoiser_scales) == (4, 2)
    plain = parse("{preset: small, model: {ndim: 3, method: regression}}").model
    assert (plain.num_scales, plain.denoiser_scales) == (3, None)
    assert parse("model: {ndim: 3}").model.num_scales == 5
    assert parse("{preset: small, model: {ndim: 3, network: sr3}}").model.num_scales == 5


def options(folders: tuple[str, str], out: Path, *more: str) -> list[str]:
    settings = [option for setting in (*TINY, "train.steps=4") for option in ("--set", setting)]
    return ["train", "--inputs", folders[0], "--targets", folders[1], "--out", str(out), *settings, *more]


def test_a_new_run_gets_a_preset_and_one_begun_without_goes_on(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path / "pairs")
    old = tmp_path / "old"
    before = recipe(folders, train_steps=4)
    train(before, old, quiet=True)
    done = CliRunner().invoke(app, options(folders, old))
    assert done.exit_code == 0, done.output
    assert RunFolder(old).recipe() == train(before, old, quiet=True).recipe()
    refused = CliRunner().invoke(app, options(folders, old, "--preset", "small"))
    assert refused.exit_code == 2
    new = tmp_path / "new"
    done = CliRunner().invoke(app, options(folders, new))
    assert done.exit_code == 0, done.output
    held = RunFolder(new).recipe()
    assert held is not None
    assert held.model.read_once
    assert held.train.mean_share == PRESETS["default"]["train"]["mean_share"]
