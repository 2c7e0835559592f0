"""Students of real runs: resumed to the bit after kills, taken by every command, and refused where they do not fit."""

import json
import random
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pair_folders import make_pairs
from sfumato.diffusion.model import CVDM
from sfumato.diffusion.student import Student
from sfumato.models.model_file import load
from sfumato.models.model_updates import set_calibration
from sfumato.models.recipe import Recipe
from sfumato.system.errors import OverwriteError, PairingError, RecipeError, RunError
from sfumato.training.distill import distill, run_folder_of
from sfumato.training.distributed import Ranks
from sfumato.training.preparation import prepare
from sfumato.training.run_folder import RunFolder
from sfumato.training.stages import stage_at
from sfumato.training.student_trainer import StudentTrainer
from sfumato.training.taught_recipe import taught_recipe
from sfumato.training.train import train
from small_runs import commanded, recipe
from warm_processes import start_command

FEW = {"steps": 12, "validate_every": 4, "save_every": 1, "mean_share": 0.0}
EIGHT = ("--teacher-calls", "8", "--calls", "2")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_pairs(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module")
def teacher(folders: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    asked = commanded(folders, train_steps=8, train_validate_every=8)
    return train(asked, tmp_path_factory.mktemp("teacher") / "run", quiet=True).model_file


def few(teacher: Path, **settings: object) -> Recipe:
    """A student of two calls of eight, taught in a moment."""
    loaded = load(teacher)
    chosen = loaded.info.recipe.train.model_copy(update={**FEW, **settings})
    return taught_recipe(loaded, calls=2, teacher_calls=8, train=chosen)


@pytest.fixture(scope="module")
def student(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("student") / "student.safetensors"
    return distill(teacher, out, calls=2, teacher_calls=8, train=few(teacher).train, quiet=True)


def test_a_student_knows_its_calls_its_teacher_and_no_calibration(teacher: Path, student: Path) -> None:
    taught, of = load(student), load(teacher)
    assert isinstance(taught.model, Student)
    assert taught.info.recipe.student is not None
    assert taught.info.recipe.student.teacher == of.sha256 == taught.info.provenance["teacher"]
    assert taught.model.levels == taught.info.recipe.student.levels
    assert (taught.info.recipe.sample.steps, taught.info.recipe.sample.solver) == (2, "first_order_gaussian")
    assert taught.info.calibration is None
    assert (taught.info.condition, taught.info.target, taught.info.audit) == (
        of.info.condition,
        of.info.target,
        of.info.audit,
    )
    assert taught.info.seen == of.info.seen


def test_only_the_denoising_network_changed(teacher: Path, student: Path) -> None:
    before, after = load(teacher).model.state_dict(), load(student).model.state_dict()
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        moved = name.startswith("network.") and name.endswith(("weight", "bias"))
        if not moved:
            assert torch.equal(tensor, after[name]), name
    assert any(not torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_levels_are_every_second_one_of_the_teachers(teacher: Path) -> None:
    loaded = load(teacher)
    all_, half, few_ = (taught_recipe(loaded, calls=calls, teacher_calls=16).student for calls in (8, 4, 1))
    assert all_ is not None
    assert half is not None
    assert few_ is not None
    assert half.levels == all_.levels[::2]
    assert few_.levels == (1.0,)


def test_stages_halve_the_calls_and_take_equally_long(teacher: Path) -> None:
    asked = few(teacher, steps=13)
    stages = [stage_at(asked.train, step, asked.student) for step in range(13)]
    assert [stage.calls for stage in stages] == [4] * 6 + [2] * 7
    assert {(stage.first, stage.steps) for stage in stages} == {(0, 6), (6, 7)}
    assert all(stage.freezes_statistics(step) for step, stage in enumerate(stages))


def same_run(a: Path, b: Path) -> None:
    """The last states, the logs and the models of two runs agree to the bit, seconds aside."""
    states = [sorted((run / "checkpoints").glob("*.safetensors"))[-1] for run in (a, b)]
    assert states[0].name == states[1].name
    first, second = (load_file(state) for state in states)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
    logs = [[{k: v for k, v in line.items() if k != "seconds"} for line in RunFolder(run).metrics()] for run in (a, b)]
    assert logs[0] == logs[1]
    for name in ("model.safetensors", "students/calls-4.safetensors"):
        assert (a / name).read_bytes() == (b / name).read_bytes()


@pytest.mark.parametrize("kills", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_killed_at_random_instants_it_ends_the_same(kills: int, teacher: Path, tmp_path: Path) -> None:
    """SIGKILL, at instants spread over start, both halvings, validation and writes."""
    steps = 20 * kills
    fields = {"steps": steps, "validate_every": 15, "save_every": 2}
    settings = [option for field, value in fields.items() for option in ("--set", f"train.{field}={value}")]
    distill(teacher, tmp_path / "smooth.safetensors", calls=2, teacher_calls=8, train=few(teacher, **fields).train)
    out = tmp_path / "killed.safetensors"
    run, generator = run_folder_of(out), random.Random(0)
    command = ["distill", str(teacher), "--out", str(out), *EIGHT, *settings]
    for number in range(kills):
        before = run.metrics_file.stat().st_size if run.metrics_file.exists() else 0
        process = start_command(command)
        started = time.monotonic()
        while number % 4 < 3 and process.is_alive() and time.monotonic() - started < 60:
            if run.metrics_file.exists() and run.metrics_file.stat().st_size != before:
                break
            time.sleep(0.01)
        time.sleep(generator.uniform(0, 0.4))
        process.kill()
        process.join()
    last = start_command(command)
    last.join(timeout=120)
    assert last.exitcode == 0
    same_run(tmp_path / "smooth_run", run.path)
    assert out.read_bytes() == (tmp_path / "smooth.safetensors").read_bytes()
    logged = [line["step"] for line in run.metrics() if "loss" in line]
    assert logged == list(range(1, steps + 1))


@pytest.mark.parametrize("stop", [5, 6, 7])
def test_stopped_around_the_halving_it_ends_the_same(
    stop: int, teacher: Path, student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill: checkpoint and students in the folder are all that a new process has."""
    from sfumato.training.loop import Trainer

    save = Trainer.save

    def save_and_die(trainer: Trainer) -> None:
        save(trainer)
        if trainer.step == stop:
            raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "save", save_and_die)
        with pytest.raises(SystemExit):
            train(few(teacher), tmp_path / "run", start_from=teacher, quiet=True)
    train(few(teacher), tmp_path / "run", start_from=teacher, quiet=True)
    same_run(run_folder_of(student).path, tmp_path / "run")


def test_rerun_it_changes_nothing_even_if_the_student_was_calibrated(teacher: Path, student: Path) -> None:
    from sfumato.models.intervals import Correction, sampled_as

    before = student.read_bytes()
    drawn = sampled_as(load(student).info.recipe.sample, 4)
    try:
        set_calibration(student, Correction("recalibrated", 0.9, 1.0, 3, 3, 0.8, drawn))
        calibrated = student.read_bytes()
        distill(teacher, student, calls=2, teacher_calls=8, train=few(teacher).train, quiet=True)
        assert student.read_bytes() == calibrated != before
    finally:
        student.write_bytes(before)


def test_no_other_file_is_replaced(teacher: Path, tmp_path: Path) -> None:
    out = tmp_path / "student.safetensors"
    out.write_bytes(teacher.read_bytes())
    with pytest.raises(OverwriteError, match="not recognised as sfumato's own copy of this student"):
        distill(teacher, out, calls=2, teacher_calls=8, train=few(teacher).train, quiet=True)
    with pytest.raises(OverwriteError, match="is an input"):
        distill(teacher, teacher, calls=2, teacher_calls=8, train=few(teacher).train, quiet=True)


def test_another_teacher_cannot_take_over(teacher: Path, student: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"give the same file as when this run was started"):
        train(few(teacher), tmp_path / "run", start_from=student, quiet=True)
    with pytest.raises(RunError, match=r"teach it with `sfumato distill"):
        train(few(teacher), tmp_path / "run", quiet=True)


def test_a_student_can_be_a_teacher(student: Path, tmp_path: Path) -> None:
    chosen = load(student).info.recipe.train.model_copy(update={"steps": 2})
    one = load(distill(student, tmp_path / "one.safetensors", calls=1, train=chosen, quiet=True))
    taught = one.info.recipe.student
    assert taught is not None
    assert (taught.teacher_calls, taught.teacher_solver, taught.levels) == (2, "first_order_gaussian", (1.0,))
    with pytest.raises(RecipeError, match="a student of 2 calls, and 32 were asked for"):
        taught_recipe(load(student), calls=1, teacher_calls=32)


@pytest.mark.parametrize("calls", [0, 3, 8, 16])
def test_numbers_of_calls_that_are_no_halves_are_refused(calls: int, teacher: Path) -> None:
    with pytest.raises(RecipeError, match=rf"take {calls} calls and its teacher 8; .* such as 4"):
        taught_recipe(load(teacher), calls=calls, teacher_calls=8)


def test_a_regression_has_no_students(folders: tuple[str, str], tmp_path: Path) -> None:
    run = train(recipe(folders, train_steps=1, model_method="regression"), tmp_path / "run", quiet=True)
    with pytest.raises(RecipeError, match="the teacher is a regression"):
        taught_recipe(load(run.model_file), calls=4)


def test_pairs_of_another_kind_are_refused(teacher: Path, tmp_path: Path) -> None:
    inputs, targets = make_pairs(tmp_path, number=4)
    asked = few(teacher)
    stacked = asked.data.model_copy(update={"inputs": inputs, "targets": targets, "input_axes": "CX"})
    with pytest.raises((PairingError, RunError)):
        train(asked.model_copy(update={"data": stacked}), tmp_path / "run", start_from=teacher, quiet=True)


def test_other_pairs_count_as_seen_as_well(teacher: Path, tmp_path: Path) -> None:
    inputs, targets = make_pairs(tmp_path / "more", number=8, shape=(24, 40))
    data = load(teacher).info.recipe.data.model_copy(update={"inputs": inputs, "targets": targets})
    out = distill(
        teacher, tmp_path / "s.safetensors", calls=4, teacher_calls=8, data=data, train=few(teacher).train, quiet=True
    )
    before, after = load(teacher).info.seen, load(out).info.seen
    assert before is not None
    assert after is not None
    assert before.train < after.train
    assert after.num_pairs == before.num_pairs + 8


def test_the_loss_of_a_student_needs_as_many_steps_as_halvings(teacher: Path) -> None:
    with pytest.raises(ValueError, match="at least one for each of its 2 halvings"):
        few(teacher, steps=1)


def test_stored_recipes_without_students_keep_their_meaning(teacher: Path) -> None:
    held = json.loads(load(teacher).info.recipe.model_dump_json())
    del held["student"]
    assert Recipe.model_validate(held) == load(teacher).info.recipe


def test_stored_students_without_a_solver_take_first_order_steps(student: Path) -> None:
    held = json.loads(load(student).info.recipe.model_dump_json())
    del held["student"]["solver"]
    with pytest.raises(ValueError, match="taught 2 calls of first_order with"):
        Recipe.model_validate(held)
    held["sample"]["solver"] = "first_order"
    recipe = Recipe.model_validate(held)
    assert recipe.student is not None
    assert recipe.student.solver == "first_order"


def test_minutes_fix_the_number_of_steps_and_leave_one_for_each_halving(teacher: Path, tmp_path: Path) -> None:
    chosen = few(teacher).train
    distill(teacher, tmp_path / "s.safetensors", calls=2, teacher_calls=8, train=chosen, minutes=1e-6, quiet=True)
    held = RunFolder(tmp_path / "s_run").recipe()
    assert held is not None
    assert held.train.steps == 2
    assert [path.name for path in (tmp_path / "s_run" / "students").iterdir()] == ["calls-4.safetensors"]


def test_the_teacher_of_a_later_halving_is_the_student_before(teacher: Path, student: Path) -> None:
    asked, run = few(teacher), run_folder_of(student)
    data = prepare(asked, run, load(teacher).info)
    trainer = StudentTrainer(asked, run, data, Ranks.join("cpu"), start_from=teacher)
    assert asked.student is not None
    for step, weights, solver, calls in (
        (0, teacher, "gaussian", 8),
        (11, run.student_file(4), "first_order_gaussian", 4),
    ):
        trainer.step = step
        trainer._enter_stage()
        assert isinstance(trainer.average, Student)
        taught_by = trainer.average.teacher
        assert taught_by is not None
        assert (taught_by.solver, len(taught_by.levels)) == (solver, calls)
        assert taught_by.levels[:: calls // 2] == asked.student.levels
        assert trainer.average.levels == taught_by.levels[::2]
        assert isinstance(taught_by.model, CVDM)
        expected = load(weights).model.state_dict()
        for name, tensor in taught_by.model.state_dict().items():
            assert torch.equal(tensor, expected[name]), name
