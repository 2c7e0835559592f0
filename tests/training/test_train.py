"""Runs: the same seed gives the same run to the bit, whether it is interrupted, killed or shared between ranks."""

import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.utils._python_dispatch import TorchDispatchMode

from pair_folders import make_pairs
from sfumato.data.batches import Batch
from sfumato.models.build import build_model
from sfumato.models.model_file import load
from sfumato.models.recipe import parse
from sfumato.system.errors import RunError, SfumatoError
from sfumato.training.distributed import Ranks
from sfumato.training.loop import Trainer
from sfumato.training.preparation import prepare
from sfumato.training.run_folder import RunFolder
from sfumato.training.stages import stage_at
from sfumato.training.train import train
from small_runs import command, commanded, recipe, same_run
from warm_processes import run_ranks, start_command

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_pairs(tmp_path_factory.mktemp("pairs"))


def test_a_run_leaves_everything_behind(folders: tuple[str, str], tmp_path: Path) -> None:
    run = train(
        recipe(folders, train_steps=6, train_validate_every=3, train_save_every=2), tmp_path / "run", quiet=True
    )
    assert run.model_file.is_file()
    assert len(list(run.checkpoints.iterdir())) == 2
    assert [line["step"] for line in run.metrics() if "loss" in line] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in run.metrics() if "validation" in line] == [3, 6]
    assert len(list(run.panels.glob("*.png"))) == 2
    held = run.recipe()
    assert held is not None
    assert held == recipe(
        folders, train_steps=6, train_validate_every=3, train_save_every=2, model_scale=held.model.scale
    )


def test_tensorboard_shows_the_metrics_and_the_panels(folders: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra `train` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(recipe(folders, train_steps=4, train_validate_every=2), tmp_path / "run", quiet=True)
    shown = EventAccumulator(str(run.tensorboard)).Reload()
    logged = {line["step"]: line["loss"] for line in run.metrics() if "loss" in line}
    assert {event.step: event.value for event in shown.Scalars("train/loss")} == pytest.approx(logged, rel=1e-6)
    assert [event.step for event in shown.Scalars("validation/loss")] == [2, 4]
    assert [event.step for event in shown.Images("validation/restored")] == [2, 4]


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_killed_at_random_instants_it_ends_the_same(kills: int, folders: tuple[str, str], tmp_path: Path) -> None:
    """SIGKILL, at instants spread over start, steps, validation and checkpoint writes."""
    steps = 40 * kills
    settings = (f"train.steps={steps}", "train.validate_every=25", "train.save_every=2")
    smooth, killed = tmp_path / "smooth", tmp_path / "killed"
    train(commanded(folders, train_steps=steps, train_validate_every=25, train_save_every=2), smooth, quiet=True)
    generator, log = random.Random(0), killed / "metrics.jsonl"
    for number in range(kills):
        before = log.stat().st_size if log.exists() else 0
        process = start_command(command(folders, killed, *settings))
        started = time.monotonic()
        while number % 4 < 3 and process.is_alive() and time.monotonic() - started < 60:
            if log.exists() and log.stat().st_size != before:
                break
            time.sleep(0.01)
        time.sleep(generator.uniform(0, 0.4))
        process.kill()
        process.join()
    train(commanded(folders, train_steps=steps, train_validate_every=25, train_save_every=2), killed, quiet=True)
    same_run(smooth, killed)
    logged = [line["step"] for line in RunFolder(killed).metrics() if "loss" in line]
    assert logged == list(range(1, steps + 1))


def test_sigterm_saves_and_the_same_command_goes_on(folders: tuple[str, str], tmp_path: Path) -> None:
    settings = ("train.steps=400", "train.validate_every=400", "train.save_every=400")
    process = subprocess.Popen(
        [sys.executable, "-m", "sfumato", *command(folders, tmp_path / "run", *settings)],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    )
    run = RunFolder(tmp_path / "run")
    while not any(line["step"] >= 3 for line in run.metrics()):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "run the same command again to resume" in errors
    saved = sorted(run.checkpoints.glob("*.safetensors"))
    assert len(saved) == 1
    assert f"step {int(saved[0].stem.split('-')[1])}" in errors


LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "sfumato"]
SHARED = ("train.steps=50", "train.validate_every=50", "train.save_every=10")


@pytest.fixture(scope="module")
def of_two_ranks(folders: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks that nothing disturbed, with statistics of the population."""
    run = tmp_path_factory.mktemp("ranks") / "smooth"
    assert run_ranks(command(folders, run, *SHARED, "model.norm=population")) == [0, 0]
    return run


def losses_of(run: Path) -> list[float]:
    return [line["loss"] for line in RunFolder(run).metrics() if "loss" in line]


def same_losses(one: list[float], two: list[float], *, steps: int) -> None:
    assert len(one) == len(two) == steps
    for step, (a, b) in enumerate(zip(one, two, strict=True), start=1):
        assert b == pytest.approx(a, rel=1e-5 if step <= 10 else 1e-3), step


def test_two_ranks_give_the_loss_of_one(folders: tuple[str, str], of_two_ranks: Path, tmp_path: Path) -> None:
    """With statistics of the population, which ranks have to share."""
    asked = commanded(folders, train_steps=50, train_validate_every=50, train_save_every=10, model_norm="population")
    train(asked, tmp_path / "one", quiet=True)
    same_losses(losses_of(tmp_path / "one"), losses_of(of_two_ranks), steps=50)


def test_two_ranks_that_share_no_statistics_give_the_loss_of_one(folders: tuple[str, str], tmp_path: Path) -> None:
    settings = ("train.steps=20", "train.validate_every=20", "train.save_every=20", "model.norm=channel")
    assert run_ranks(command(folders, tmp_path / "two", *settings)) == [0, 0]
    asked = commanded(folders, train_steps=20, train_validate_every=20, train_save_every=20, model_norm="channel")
    train(asked, tmp_path / "one", quiet=True)
    same_losses(losses_of(tmp_path / "one"), losses_of(tmp_path / "two"), steps=20)


def test_nothing_of_a_closed_trainer_holds_the_group_of_ranks(folders: tuple[str, str], tmp_path: Path) -> None:
    """What is freed after the group may wait for ever for one of the group's threads."""
    asked = recipe(folders, train_steps=8)
    torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        ranks = Ranks(rank=0, size=2, device=torch.device("cpu"))
        trainer = Trainer(asked, RunFolder(tmp_path / "run"), prepare(asked), ranks)
        averaging = weakref.ref(trainer.parallel)
        assert isinstance(averaging(), torch.nn.parallel.DistributedDataParallel)
        trainer.advance(trainer.batches(0, trainer.positions))
        trainer.close()
        assert averaging() is None
    finally:
        torch.distributed.destroy_process_group()


def test_statistics_of_the_population_settle_halfway(folders: tuple[str, str], tmp_path: Path) -> None:
    """They change until then and no more; the average of the weights has those of the model."""
    asked = recipe(folders, train_steps=8, model_norm="population")
    trainer = Trainer(asked, RunFolder(tmp_path / "run"), prepare(asked), Ranks.join("cpu"))
    found = []
    for step in range(8):
        trainer.advance(trainer.batches(step, trainer.positions))
        found.append([statistics.clone() for statistics in trainer.model.buffers()])
        for followed, statistics in zip(trainer.average.buffers(), found[-1], strict=True):
            assert torch.equal(followed, statistics)
    assert found[0]
    for step, (before, after) in enumerate(itertools.pairwise(found), start=1):
        same = [torch.equal(*pair) for pair in zip(before, after, strict=True)]
        assert all(same) if step >= 4 else not any(same), step


def test_ranks_of_srun_without_a_place_to_meet_are_refused(folders: tuple[str, str], tmp_path: Path) -> None:
    """With such a place they are one run: that is how the ranks above were started."""
    task = {"SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "2"}
    process = start_command(command(folders, tmp_path / "two"), errors=tmp_path / "errors.txt", **task)
    process.join(timeout=120)
    assert process.exitcode == 2
    assert "MASTER_ADDR and MASTER_PORT do not say where they meet" in (tmp_path / "errors.txt").read_text()


def test_a_killed_rank_ends_the_job_and_it_resumes(
    folders: tuple[str, str], of_two_ranks: Path, tmp_path: Path
) -> None:
    """One of two ranks gets SIGKILL: torchrun fails within seconds; two ranks go on to the bit, one goes on too."""
    killed, settings = RunFolder(tmp_path / "killed"), (*SHARED, "model.norm=population")
    process = subprocess.Popen(
        [*LAUNCHER, *command(folders, killed.path, *settings)], env=ENVIRONMENT, stderr=subprocess.DEVNULL
    )
    while not list(killed.checkpoints.glob("*.safetensors")):
        assert process.poll() is None
        time.sleep(0.02)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    assert process.wait(timeout=60) != 0
    shutil.copytree(killed.path, tmp_path / "alone")
    assert run_ranks(command(folders, killed.path, *settings)) == [0, 0]
    same_run(of_two_ranks, killed.path)
    asked = commanded(folders, train_steps=50, train_validate_every=50, train_save_every=10, model_norm="population")
    train(asked, tmp_path / "alone", quiet=True)
    assert losses_of(tmp_path / "alone") == pytest.approx(losses_of(of_two_ranks), rel=1e-3)


def test_another_recipe_in_the_same_folder_is_refused(folders: tuple[str, str], tmp_path: Path) -> None:
    train(recipe(folders, train_steps=1), tmp_path / "run", quiet=True)
    with pytest.raises(RunError, match="choose another --out"):
        train(recipe(folders, train_steps=2), tmp_path / "run", quiet=True)


def test_learning_rate_rises_and_falls() -> None:
    settings = parse("train: {steps: 100, warmup: 10, learning_rate: 1.0}").train
    rates = [stage_at(settings, step).learning_rate(settings, step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == pytest.approx(1.0)
    assert rates[55] == pytest.approx(0.5, abs=0.02)
    assert rates[-1] < 1e-3


def test_a_schedule_may_learn_faster_than_the_network(folders: tuple[str, str], tmp_path: Path) -> None:
    moved: dict[float, dict[str, torch.Tensor]] = {}
    for speed in (1.0, 10.0):
        chosen = recipe(folders, train_steps=1, train_optimizer="adam", train_warmup=0, train_schedule_speed=speed)
        run = train(chosen, tmp_path / f"run{speed:g}", quiet=True)
        held = run.recipe()
        assert held is not None
        start = build_model(held.model, 1, 1, seed=held.train.seed).named_parameters()
        after = load_file(next(run.checkpoints.glob("*.safetensors")))
        moved[speed] = {name: after[f"model/{name}"] - value.detach() for name, value in start}
    for name, way in moved[1.0].items():
        factor = 10 if name.startswith("schedule.") else 1
        torch.testing.assert_close(moved[10.0][name], factor * way, rtol=1e-3, atol=1e-6)
    assert max(float(way.abs().max()) for name, way in moved[10.0].items() if name.startswith("schedule.")) > 1e-3


def test_a_faster_schedule_resumes_to_the_bit(folders: tuple[str, str], tmp_path: Path) -> None:
    chosen = recipe(folders, train_steps=4, train_save_every=2, train_schedule_speed=3)
    runs = [train(chosen, tmp_path / name, quiet=True) for name in ("smooth", "broken")]
    (runs[1].checkpoints / "step-00000004.safetensors").unlink()
    train(chosen, tmp_path / "broken", quiet=True)
    same_run(tmp_path / "smooth", tmp_path / "broken")


def test_accumulation_changes_nothing_but_memory(folders: tuple[str, str], tmp_path: Path) -> None:
    """If patches are normalised by themselves, not by statistics of those that go through the network together."""
    losses = []
    for number in (1, 2):
        asked = recipe(folders, train_steps=5, train_accumulate=number, model_norm="channel")
        run = train(asked, tmp_path / f"run{number}", quiet=True)
        losses.append([line["loss"] for line in run.metrics() if "loss" in line])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    with pytest.raises(RunError, match="choose a number that divides"):
        train(recipe(folders, train_steps=5, train_accumulate=3), tmp_path / "run3", quiet=True)


def test_minutes_fix_the_number_of_steps(folders: tuple[str, str], tmp_path: Path) -> None:
    asked = recipe(folders, train_steps=10**6, train_validate_every=1000, train_warmup=10**5)
    run = train(asked, tmp_path / "run", minutes=0.05, quiet=True)
    held = run.recipe()
    assert held is not None
    assert 1 <= held.train.steps < 10**4
    assert max(line["step"] for line in run.metrics()) == held.train.steps
    assert held.train.warmup == min(asked.train.warmup, held.train.steps // 10)


def test_few_steps_in_the_time_are_told(
    folders: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for steps, words in (
        (999, r"999 steps fit into 7 minutes: few,.*--set model.base=2, now 4\)"),
        (1000, r"1000 steps fit into 7 minutes$"),
    ):
        monkeypatch.setattr("sfumato.training.train.steps_in", lambda seconds, trainer, steps=steps: steps)
        monkeypatch.setattr(Trainer, "run", lambda self, **_: None)
        train(recipe(folders), tmp_path / str(steps), minutes=7)
        assert re.search(words, capsys.readouterr().err, re.MULTILINE)


def test_time_counts_what_validation_calls(folders: tuple[str, str], tmp_path: Path) -> None:
    """A panel, of many draws, takes longer than the loss; a time that a run is given has to hold both."""
    asked = recipe(folders, sample_samples=2, sample_steps=3)
    trainer = Trainer(asked, RunFolder(tmp_path / "run"), prepare(asked, None), Ranks.join("cpu"))
    validation = trainer.validation
    assert validation is not None
    images: list[int] = []
    network = trainer.average.network
    assert isinstance(network, torch.nn.Module)
    network.register_forward_hook(lambda network, inputs, result: images.append(len(result)))
    validation.loss(trainer.average, torch.device("cpu"))
    assert sum(images) == validation.calls_of_loss
    images.clear()
    validation.draw(trainer.average, torch.device("cpu"), asked.sample, tmp_path / "panel.png")
    assert sum(images) == validation.calls_of_panel(asked.sample)


def test_a_batch_that_is_not_finite_leaves_the_state_before_it(folders: tuple[str, str], tmp_path: Path) -> None:
    asked = recipe(folders, train_steps=50, model_norm="population")
    folder = RunFolder(tmp_path / "run")
    folder.start(asked)
    trainer = Trainer(asked, folder, prepare(asked, None), Ranks.join("cpu"))
    for step in range(2):
        trainer.advance(trainer.batches(step, trainer.positions))
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    good = trainer.batches(2, trainer.positions)
    with pytest.raises(RunError, match=r"not finite at step 2, on .*; the state before it is saved: start a new run"):
        trainer.advance(good._replace(target=good.target / 0))
    resumed = Trainer(asked, folder, prepare(asked, None), Ranks.join("cpu"))
    resumed._resume()
    assert resumed.step == 2
    for name, tensor in resumed.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


class _Waits(TorchDispatchMode):
    """Tensors of which a single number was asked, which waits for the device; `tolist` is not among these calls."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.of: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            self.of.append(args[0])
        return func(*args, **(kwargs or {}))


def test_a_step_waits_for_the_device_only_for_its_values(folders: tuple[str, str], tmp_path: Path) -> None:
    asked = recipe(folders, train_steps=50, model_norm="population")
    folder = RunFolder(tmp_path / "run")
    folder.start(asked)
    trainer = Trainer(asked, folder, prepare(asked, None), Ranks.join("cpu"))
    trainer.advance(trainer.batches(0, trainer.positions))
    counters = {state["step"].data_ptr() for state in trainer.optimizer.state.values()}  # on the CPU on any device
    batch = trainer.batches(1, trainer.positions)
    with _Waits() as waits:
        trainer.advance(batch)
    assert [tensor for tensor in waits.of if tensor.data_ptr() not in counters] == []


def test_volumes_train_too(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path, number=3, shape=(16, 20, 24))
    run = train(recipe(folders, train_steps=2, model_ndim=3), tmp_path / "run", quiet=True)
    assert run.model_file.is_file()


def test_wrong_input_gives_typed_errors(folders: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(SfumatoError, match=r"set data\.patch"):
        train(recipe(folders, data_patch=100), tmp_path / "a", quiet=True)
    with pytest.raises(SfumatoError, match="does not exist"):
        train(recipe((folders[0], "/nowhere/at/all")), tmp_path / "b", quiet=True)
    with pytest.raises(SfumatoError, match="this machine and build of torch offer"):
        train(recipe(folders), tmp_path / "c", device="tpu", quiet=True)


def test_subnormal_numbers_are_flushed_while_training_only(
    folders: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    advance = Trainer.advance

    def watched(self: Trainer, batch: Batch) -> dict[str, float]:
        seen.append(float(torch.tensor(1e-40) * 1))
        return advance(self, batch)

    monkeypatch.setattr(Trainer, "advance", watched)
    train(recipe(folders, train_steps=2), tmp_path / "run", quiet=True)
    assert seen == [0.0, 0.0]
    assert float(torch.tensor(1e-40) * 1) > 0


def test_what_is_diffused_is_brought_to_half_of_unit_size(tmp_path: Path) -> None:
    """The recipe of a run holds twice the RMS of its residuals, here against whole images in plain numbers."""
    folders = make_pairs(tmp_path, number=8)
    asked = recipe(folders, model_residual=True, train_steps=2)
    assert asked.model.scale is None
    train(asked, tmp_path / "run")
    held = RunFolder(tmp_path / "run").recipe()
    assert held is not None
    data = prepare(held)
    squares = []
    for sample in range(len(data.train)):
        condition, target = data.train.read(sample, [0, 0], data.train.spatial(sample))
        sides = (torch.from_numpy(np.asarray(side, np.float32)) for side in (condition, target))
        low, high = (kind.apply(side, axis=0) for kind, side in zip((data.condition, data.target), sides, strict=True))
        squares.append(float((high - low).square().mean()))
    assert held.model.scale == pytest.approx(2 * float(np.mean(squares)) ** 0.5, rel=0.1)
    model = load(tmp_path / "run" / "model.safetensors")
    assert model.model.scale == held.model.scale
    # The same request goes on with the run, another scale does not, and a new run from its weights keeps their scale.
    train(asked, tmp_path / "run")
    with pytest.raises(RunError, match="another recipe"):
        train(recipe(folders, model_residual=True, train_steps=2, model_scale=0.5), tmp_path / "run")
    given = recipe(folders, model_residual=True, train_steps=2, model_scale=0.123)
    train(given, tmp_path / "given")
    train(asked, tmp_path / "tuned", start_from=tmp_path / "given" / "model.safetensors")
    tuned = RunFolder(tmp_path / "tuned").recipe()
    assert tuned is not None
    assert tuned.model.scale == 0.123


def test_with_nothing_to_diffuse_the_scale_is_1(tmp_path: Path) -> None:
    inputs, _ = make_pairs(tmp_path, number=4)
    targets = shutil.copytree(inputs, tmp_path / "same")
    train(recipe((inputs, str(targets)), model_residual=True, train_steps=1), tmp_path / "run")
    held = RunFolder(tmp_path / "run").recipe()
    assert held is not None
    assert held.model.scale == 1.0
