"""Training in stages: the mean alone first, then the rest; killed before, at and after the switch it ends the same."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import sfumato
from pair_folders import make_pairs
from sfumato.diffusion.colour import Colour
from sfumato.diffusion.model import CVDM
from sfumato.models.recipe import Recipe, TrainRecipe
from sfumato.nn.linear_filter import LinearFilter
from sfumato.system.errors import RecipeError
from sfumato.training.distributed import Ranks
from sfumato.training.known_first import trusted_share
from sfumato.training.loop import Trainer
from sfumato.training.measured_recipe import steps_in
from sfumato.training.preparation import prepare
from sfumato.training.run_folder import RunFolder
from sfumato.training.stages import Stage, stage_at
from sfumato.training.train import train
from small_runs import STAGED, recipe


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_pairs(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module")
def staged(folders: tuple[str, str]) -> Recipe:
    return recipe(folders, **STAGED)


@pytest.fixture(scope="module")
def smooth(staged: Recipe, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return train(staged, tmp_path_factory.mktemp("smooth") / "run", quiet=True)


def state(run: RunFolder, step: int) -> dict[str, torch.Tensor]:
    return load_file(run.checkpoints / f"step-{step:08d}.safetensors")


def test_each_stage_has_a_learning_rate_of_its_own() -> None:
    settings = TrainRecipe(steps=100, mean_share=0.3, learning_rate=1.0, warmup=10)
    rates = [stage_at(settings, step).learning_rate(settings, step) for step in range(100)]
    assert rates[2] == rates[9 + 28] == 1.0  # a tenth of each stage rises
    assert rates[29] < 0.01
    assert rates[99] < 0.01
    whole = TrainRecipe(steps=100)
    assert stage_at(whole, 99).first == 0


@pytest.mark.parametrize("stop", [2, 4, 5, 6, 7])
def test_stopped_around_the_switch_it_ends_the_same(
    stop: int, staged: Recipe, smooth: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill: the checkpoint of a step is all that a new process has."""
    save = Trainer.save

    def save_and_die(trainer: Trainer) -> None:
        save(trainer)
        if trainer.step == stop:
            raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "save", save_and_die)
        with pytest.raises(SystemExit):
            train(staged, tmp_path / "run", quiet=True)
    resumed = train(staged, tmp_path / "run", quiet=True)
    expected, found = state(smooth, 8), state(resumed, 8)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    assert smooth.model_file.read_bytes() == resumed.model_file.read_bytes()


def test_the_mean_is_held_while_the_rest_learns(staged: Recipe, tmp_path: Path) -> None:
    run = train(staged, tmp_path / "run", quiet=True)
    last, previous = state(run, 8), state(run, 7)
    for name, tensor in last.items():
        if name.startswith(("model/mean_network", "ema/mean_network", "model/start", "ema/start")):
            assert torch.equal(tensor, previous[name]), name
    assert any(not torch.equal(last[name], previous[name]) for name in last if name.startswith("model/network."))


def test_statistics_of_the_mean_are_held_from_the_first_step_of_the_rest(staged: Recipe, tmp_path: Path) -> None:
    trainer = Trainer(staged, RunFolder(tmp_path / "run"), prepare(staged), Ranks.join("cpu"))
    held = []
    for step in range(6):  # four of the mean, two of the scale
        trainer.advance(trainer.batches(step, trainer.positions))
        held.append({name: tensor.clone() for name, tensor in trainer.model.state_dict().items()})
    names = [name for name in held[4] if name.startswith("mean_network.")]
    assert all(torch.equal(held[4][name], held[5][name]) for name in names)
    assert any(not torch.equal(held[2][name], held[3][name]) for name in names)


def test_no_model_is_written_before_it_can_be_sampled(staged: Recipe, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    data = prepare(staged)
    trainer = Trainer(staged, run, data, Ranks.join("cpu"))
    run.start(staged)
    for step in range(4):
        trainer.advance(trainer.batches(step, trainer.positions))
    assert trainer.model.learns == "mean"
    trainer.save()
    assert not run.model_file.exists()


def test_the_filter_and_the_scale_are_measured_on_the_pairs(smooth: RunFolder, staged: Recipe) -> None:
    model = sfumato.load(smooth.model_file).model
    assert isinstance(model, CVDM)
    assert isinstance(model.start, LinearFilter)
    assert bool(model.start.weight.any())
    assert float(model.log_scale) != 0
    trainer = Trainer(staged, smooth, prepare(staged), Ranks.join("cpu"))
    batch = trainer.batches(0, range(8))
    with torch.no_grad():
        filtered, whole = batch.target - model.start(batch.condition), batch.target - batch.target.mean()
    assert float(filtered.square().mean()) < float(whole.square().mean())


def test_filter_scale_and_spectrum_are_fitted_to_what_is_left_and_held(smooth: RunFolder, staged: Recipe) -> None:
    begun, done = state(smooth, 7), state(smooth, 8)
    for name in (name for name in done if name.startswith(("ema/finish", "ema/scale_network", "ema/log_scale"))):
        assert torch.equal(begun[name], done[name]), name
        assert torch.equal(done[name.replace("ema", "model", 1)], done[name]), name
    model = sfumato.load(smooth.model_file).model
    assert isinstance(model, CVDM)
    assert model.colour is not None
    trainer = Trainer(staged, smooth, prepare(staged), Ranks.join("cpu"))
    batches = [trainer.batches(step, range(8)) for step in range(4)]
    condition, target = (torch.cat(side) for side in zip(*(batch[:2] for batch in batches), strict=True))
    with torch.no_grad():
        known = model.read(condition)
        assert known.center is not None
        before, after = (target - mean for mean in (model.unfinished(condition), known.center))
        assert float(after.square().mean()) < float(before.square().mean())
        kernel = Colour(1).fit([known.diffused(target)]).kernel
    white = Colour(1).kernel
    assert float((model.colour.kernel - kernel).norm()) < 0.5 * float((white - kernel).norm())


def test_steps_of_all_stages_are_timed(staged: Recipe, tmp_path: Path) -> None:
    trainer = Trainer(staged, RunFolder(tmp_path / "run"), prepare(staged), Ranks.join("cpu"))
    assert steps_in(5, trainer) > 1


def test_a_share_of_the_mean_needs_a_mean_network(folders: tuple[str, str]) -> None:
    with pytest.raises(RecipeError, match=r"train.mean_share.*mean_network"):
        recipe(folders, train_mean_share=0.5)


def test_a_correction_is_trusted_as_far_as_it_helps_on_validation_images() -> None:
    condition = torch.randn(3, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    for wanted, share in ((1.0, 0.5), (-1.0, 0.0), (5.0, 1.0)):
        found = trusted_share(lambda image: image, lambda image: image + 2, condition, condition + wanted)
        assert found == pytest.approx(share, abs=1e-6)


def test_a_mean_that_learned_nothing_of_use_is_as_good_as_the_linear_start(
    folders: tuple[str, str], tmp_path: Path
) -> None:
    """One step with a huge rate spoils the network; what is written is still no worse than the filter."""
    spoilt = recipe(folders, **STAGED, train_learning_rate=30.0, train_warmup=0)
    spoilt = spoilt.model_copy(update={"train": spoilt.train.model_copy(update={"steps": 2})})
    run = RunFolder(tmp_path / "run")
    run.start(spoilt)
    trainer = Trainer(spoilt, run, prepare(spoilt), Ranks.join("cpu"))
    trainer.run(quiet=True)
    assert trainer.validation is not None
    condition, target = trainer.validation.condition, trainer.validation.target
    model = trainer.average
    with torch.no_grad():
        errors = [(part(condition) - target).square().mean() for part in (model.center, model.start)]  # type: ignore[misc, operator]
    assert errors[0] <= errors[1]


def test_a_scale_that_learns_alone_learns_faster() -> None:
    """Its few steps decide how wide all samples are; at the denoiser's rate it is still far from its minimum."""
    settings = TrainRecipe(learning_rate=1e-3, warmup=2)
    rates = {
        learns: [Stage(learns, 100, 40).learning_rate(settings, step) for step in range(100, 140)]
        for learns in ("scale", "rest")
    }
    assert rates["scale"] == pytest.approx([5 * rate for rate in rates["rest"]], rel=1e-12)
    assert max(rates["rest"]) == pytest.approx(1e-3)
