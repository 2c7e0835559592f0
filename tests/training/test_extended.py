"""A finished run that is given more minutes: it goes on from its weights, and the learning rate ends at 0 again."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from pair_folders import make_pairs
from sfumato.cli import app
from sfumato.models.recipe import TrainRecipe, parse
from sfumato.nn.linear_filter import LinearFilter
from sfumato.system.errors import RecipeError, RunError
from sfumato.training import train as training
from sfumato.training.loop import Trainer
from sfumato.training.run_folder import RunFolder
from sfumato.training.stages import stage_at, stages_of
from sfumato.training.train import train
from small_runs import STAGED, command, recipe


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_pairs(tmp_path_factory.mktemp("pairs"))


@pytest.fixture
def _six_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "steps_in", lambda seconds, trainer: 6)


def last_state(run: RunFolder) -> dict[str, torch.Tensor]:
    return load_file(sorted(run.checkpoints.glob("step-*.safetensors"))[-1])


def test_what_is_added_has_stages_of_its_own_and_ends_at_a_rate_of_0() -> None:
    settings = TrainRecipe(steps=200, extended_at=(100,), mean_share=0.5, learning_rate=1.0, warmup=5)
    assert [(stage.learns, stage.first) for stage in stages_of(settings)] == [("mean", 100), ("rest", 150)]
    rates = [stage_at(settings, step).learning_rate(settings, step) for step in range(200)]
    alone = settings.model_copy(update={"steps": 100, "extended_at": ()})
    assert rates[:100] == [stage_at(alone, step).learning_rate(alone, step) for step in range(100)]
    assert max(rates[100:]) == pytest.approx(0.5)  # half of all steps are done
    assert rates[199] < 0.01


def test_little_time_changes_little() -> None:
    settings = TrainRecipe(steps=110, extended_at=(100,), learning_rate=1.0)
    assert max(stage_at(settings, step).learning_rate(settings, step) for step in range(100, 110)) < 0.03


def test_ends_that_do_not_rise_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"extended_at is \[5\] and steps 5; expected rising numbers below steps"):
        parse("train: {steps: 5, extended_at: [5]}")


@pytest.mark.usefixtures("_six_fit")
@pytest.mark.parametrize("settings", [{}, STAGED], ids=["whole", "in stages"])
def test_a_finished_run_is_extended_and_ends_the_same_after_a_kill(
    settings: dict[str, object],
    folders: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = recipe(folders, **settings | {"train_steps": 8, "train_save_every": 1, "train_validate_every": 2})
    smooth = train(asked, tmp_path / "smooth", quiet=True)
    before = last_state(smooth)
    train(asked, tmp_path / "smooth", minutes=1)
    assert "6 steps fit into 1 minutes and extend this run, which was finished at 8:" in capsys.readouterr().err
    held = smooth.recipe()
    assert held is not None
    assert (held.train.steps, held.train.extended_at) == (14, (8,))
    after = last_state(smooth)
    assert any(not torch.equal(before[name], after[name]) for name in before if name.startswith("model/"))

    broken = train(asked, tmp_path / "broken", quiet=True)
    save = Trainer.save

    def save_and_die(trainer: Trainer) -> None:
        save(trainer)
        if trainer.step == 10:
            raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "save", save_and_die)
        with pytest.raises(SystemExit):
            train(asked, broken.path, minutes=1, quiet=True)
    killed = last_state(broken)
    if "ema/finish.weight" in killed:  # the mean learns again, so the filter after it waits to be fitted again
        assert torch.equal(killed["ema/finish.weight"], LinearFilter.identity(1).weight)
    train(asked, broken.path, quiet=True)  # it is enough to run it again, without the time
    found = last_state(broken)
    assert all(torch.equal(tensor, found[name]) for name, tensor in after.items())
    assert smooth.model_file.read_bytes() == broken.model_file.read_bytes()


@pytest.mark.usefixtures("_six_fit")
def test_a_run_is_extended_again_and_stays_the_run_of_its_recipe(folders: tuple[str, str], tmp_path: Path) -> None:
    asked = recipe(folders, train_steps=4)
    run = train(asked, tmp_path / "run", minutes=1, quiet=True)  # which sets six steps
    for _ in range(2):
        train(asked, run.path, minutes=1, quiet=True)
    held = run.recipe()
    assert held is not None
    assert (held.train.steps, held.train.extended_at) == (18, (6, 12))
    train(held, run.path, quiet=True)
    other = recipe(folders, train_steps=4, train_seed=1)
    with pytest.raises(RunError, match="holds a run of another recipe"):
        train(other, run.path, minutes=1, quiet=True)


@pytest.mark.usefixtures("_six_fit")
def test_the_command_extends_a_run_that_was_begun_with_the_preset_of_another_time(
    folders: tuple[str, str], tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    for minutes, steps in (("30", 6), ("5", 12)):
        told = CliRunner().invoke(app, [*command(folders, run.path), "--minutes", minutes])
        assert told.exit_code == 0, told.output
        held = run.recipe()
        assert held is not None
        assert held.train.steps == steps
