"""Training states: a run goes on to the bit, the last two are kept, and a damaged one is passed over."""

import copy
import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from fuzz_model_files import Parts
from networks import seeded
from sfumato.diffusion.model import CVDM
from sfumato.models.build import build_model
from sfumato.models.model_file import load
from sfumato.models.recipe import ModelRecipe, Recipe, dump
from sfumato.models.safetensors_file import open_tensors
from sfumato.system.errors import ModelFileError
from sfumato.training.checkpoint import (
    TrainingState,
    load_state,
    optimizer_tensors,
    restore_optimizer,
    save_state,
)

RECIPE = Recipe(model=ModelRecipe(base=4, rate_base=2, num_scales=2))
TEXT = dump(RECIPE)
Run = tuple[CVDM, CVDM, Optimizer]


def start(kind: str = "adamw", **choice: Any) -> Run:
    """A model, its average and its optimizer, as a run begins."""
    recipe = ModelRecipe.model_validate({**RECIPE.model.model_dump(), **choice})
    model = seeded(lambda: build_model(recipe, 1, 1, seed=0))
    optimizer = {"adam": Adam, "adamw": AdamW}[kind](model.parameters(), lr=1e-3)
    return model, copy.deepcopy(model), optimizer


def advance(run: Run, steps: range) -> list[float]:
    """Train on numbers that depend on the step alone; returns the losses."""
    model, average, optimizer = run
    losses = []
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        condition, target, eps = torch.randn(3, 2, 1, 8, 8, generator=generator)
        optimizer.param_groups[0]["lr"] = 1e-3 / (1 + step)
        optimizer.zero_grad()
        loss = model.loss(condition, target, torch.tensor([0.25, 0.75]), eps).total
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(weight, 0.1)
        losses.append(loss.item())
    return losses


def state_of(run: Run, step: int, best: float | None = None) -> TrainingState:
    model, average, optimizer = run
    tensors = optimizer_tensors(optimizer, model)
    return TrainingState(step, best, dict(model.state_dict()), dict(average.state_dict()), tensors)


def restore(run: Run, state: TrainingState) -> None:
    model, average, optimizer = run
    model.load_state_dict(state.model)
    average.load_state_dict(state.ema)
    restore_optimizer(optimizer, model, state.optimizer)


def tensors(state: TrainingState) -> dict[str, torch.Tensor]:
    return {
        f"{part}/{name}": tensor
        for part in ("model", "ema", "optimizer")
        for name, tensor in getattr(state, part).items()
    }


def assert_equal(first: TrainingState, second: TrainingState) -> None:
    one, two = tensors(first), tensors(second)
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert tensor.dtype == two[name].dtype
        assert torch.equal(tensor, two[name]), name
    assert (first.step, first.best) == (second.step, second.best)


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_a_run_goes_on_to_the_bit(kind: str, tmp_path: Path) -> None:
    whole = start(kind)
    losses = advance(whole, range(6))
    halted = start(kind)
    assert advance(halted, range(3)) == losses[:3]
    save_state(tmp_path, state_of(halted, 3, best=0.1 + 0.2), recipe_text=TEXT)
    resumed = start(kind)
    advance(resumed, range(7, 9))  # another life, all of which the state must replace
    model, _, optimizer = resumed
    state = load_state(tmp_path, model, optimizer)
    assert state is not None
    assert_equal(state, state_of(halted, 3, best=0.1 + 0.2))
    restore(resumed, state)
    assert advance(resumed, range(3, 6)) == losses[3:]
    assert_equal(state_of(resumed, 6), state_of(whole, 6))
    assert {tensor.item() for name, tensor in state.optimizer.items() if name.startswith("step/")} == {3.0}


def test_restoring_copies(tmp_path: Path) -> None:
    run = start()
    advance(run, range(1))
    save_state(tmp_path, state_of(run, 1), recipe_text=TEXT)
    state = load_state(tmp_path, run[0], run[2])
    assert state is not None
    kept = copy.deepcopy(state)
    restore(run, state)
    advance(run, range(1, 3))
    assert_equal(state, kept)


def test_a_state_before_the_first_step(tmp_path: Path) -> None:
    """An optimizer that has made no step has no moments yet; zeros are what it would start from."""
    whole, fresh = start(), start()
    losses = advance(whole, range(2))
    save_state(tmp_path, state_of(fresh, 0), recipe_text=TEXT)
    state = load_state(tmp_path, fresh[0], fresh[2])
    assert state is not None
    assert state.step == 0
    assert state.best is None
    restore(fresh, state)
    assert advance(fresh, range(2)) == losses
    assert_equal(state_of(fresh, 2), state_of(whole, 2))


def test_parameters_without_gradients_and_in_groups(tmp_path: Path) -> None:
    """Names, not positions, say what belongs to what."""
    layers = [nn.Linear(2, 3), nn.Linear(3, 2), nn.Linear(2, 2)]
    model = nn.Sequential(*layers)
    _, *trained = [[*layer.parameters()] for layer in layers]
    groups: list[dict[str, Any]] = [{"params": trained[1], "lr": 0.5}, {"params": trained[0]}]
    optimizer = Adam(groups, lr=0.1)
    (layers[0].weight.sum() + layers[1].weight.sum() + layers[2].weight.sum() * 2).backward()
    optimizer.step()
    held = optimizer_tensors(optimizer, model)
    assert not any("0." in name for name in held)
    assert float(held["exp_avg/2.weight"][0, 0]) == pytest.approx(0.2)
    assert float(held["exp_avg/1.weight"][0, 0]) == pytest.approx(0.1)
    assert float(held["step/1.weight"]) == 1
    assert float(held["step/1.bias"]) == 0, "has had no gradient"
    other = Adam([{"params": trained[0]}, {"params": trained[1]}], lr=0.1)
    restore_optimizer(other, model, held)
    again = optimizer_tensors(other, model)
    assert all(torch.equal(held[name], again[name]) for name in held)
    assert [group["lr"] for group in other.param_groups] == [0.1, 0.1], "rates are the caller's"


def test_optimizers_that_are_not_kept() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="optimizer is SGD; states are kept for Adam"):
        optimizer_tensors(SGD(model.parameters()), model)
    with pytest.raises(ValueError, match="no amsgrad"):
        optimizer_tensors(Adam(model.parameters(), amsgrad=True), model)
    with pytest.raises(ValueError, match="a parameter that the model has not"):
        optimizer_tensors(Adam(nn.Linear(2, 2).parameters()), model)
    with pytest.raises(ModelFileError, match=r"'exp_avg/weight' is missing; .* use the run's own recipe"):
        restore_optimizer(Adam(model.parameters()), model, {})


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    run = start()
    (tmp_path / "step-best.safetensors").touch()
    (tmp_path / "notes.txt").touch()
    for step in (5, 10, 99_999_999, 100_000_000):
        path = save_state(tmp_path, state_of(run, step), recipe_text=TEXT)
        assert path.name == f"step-{step:08d}.safetensors"
    names = {"step-99999999.safetensors", "step-100000000.safetensors", "step-best.safetensors", "notes.txt"}
    assert {entry.name for entry in tmp_path.iterdir()} == names
    state = load_state(tmp_path, run[0], run[2])
    assert state is not None
    assert state.step == 100_000_000
    save_state(tmp_path, state_of(run, 100_000_001), recipe_text=TEXT, keep=1)
    assert {entry.name for entry in tmp_path.iterdir()} == {
        "step-100000001.safetensors",
        "step-best.safetensors",
        "notes.txt",
    }


def test_states_of_later_steps_are_not_touched(tmp_path: Path) -> None:
    run = start()
    for step in (1, 2, 9):
        save_state(tmp_path, state_of(run, step), recipe_text=TEXT, keep=5)
    save_state(tmp_path, state_of(run, 3), recipe_text=TEXT, keep=1)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "step-00000003.safetensors",
        "step-00000009.safetensors",
    ]


def test_nothing_saved_yet(tmp_path: Path) -> None:
    run = start()
    assert load_state(tmp_path, run[0], run[2]) is None
    assert load_state(tmp_path / "not there", run[0], run[2]) is None


def test_what_a_state_says_of_itself(tmp_path: Path) -> None:
    run = start()
    path = save_state(tmp_path, state_of(run, 7, best=0.25), recipe_text=TEXT)
    with open_tensors(path, "training state") as file:
        assert [file.metadata[key] for key in ("step", "best", "recipe")] == [7, 0.25, TEXT]
    with pytest.raises(ModelFileError, match=r"holds a training state, expected a model; give the model\.safetensors"):
        load(path)


@pytest.mark.parametrize("change", [{"step": -1}, {"best": float("nan")}])
def test_states_that_make_no_sense_are_not_written(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give a step of at least 0"):
        save_state(tmp_path, dataclasses.replace(state_of(start(), 1), **change), recipe_text=TEXT)
    with pytest.raises(ValueError, match="keep at least 1"):
        save_state(tmp_path, state_of(start(), 1), recipe_text=TEXT, keep=0)
    assert list(tmp_path.iterdir()) == []


def parts_changed(change: Callable[[Parts], object]) -> Callable[[bytes], bytes]:
    def apply(original: bytes) -> bytes:
        parts = Parts.of(original)
        change(parts)
        return parts.join()

    return apply


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: b"", "it has 0 bytes"),
        (lambda content: content[: len(content) // 2], "is not a whole safetensors file"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "damaged: its checksum"),
        (lambda content: bytes(len(content)), "invalid JSON in header"),
        (parts_changed(lambda parts: parts.info.update(step=-1)), "says step -1"),
        (parts_changed(lambda parts: parts.info.update(step=2.5)), "says step 2.5"),
        (parts_changed(lambda parts: parts.info.update(best="x")), "best 'x'"),
        (parts_changed(lambda parts: parts.info.pop("recipe")), "the text of a recipe"),
        (
            parts_changed(lambda parts: parts.info.update(format=7, version="3.0")),
            r"newer sfumato \(3\.0, file format 7\)",
        ),
        (parts_changed(lambda parts: parts.info.update(kind="model")), "holds a model, expected a training state"),
        (
            parts_changed(lambda parts: parts.entries.update(x=parts.entries.pop("ema/network.head.bias"))),
            "'ema/network.head.bias' is missing; 'x' should not be there; use the recipe that the run began with",
        ),
        (
            parts_changed(lambda parts: parts.entries["model/network.head.bias"].update(shape=[1, 1])),
            r"is \[1, 1\] float32 instead of \[1\] float32",
        ),
        (
            parts_changed(lambda parts: parts.entries["optimizer/step/network.head.bias"].update(dtype="I32")),
            r"is \[\] int32 instead of \[\] float32",
        ),
    ],
)
def test_a_damaged_state_is_passed_over(
    change: Callable[[bytes], bytes], words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = start()
    for step in (1, 2):
        advance(run, range(step, step + 1))
        save_state(tmp_path, state_of(run, step), recipe_text=TEXT)
        if step == 1:
            expected = copy.deepcopy(state_of(run, step))
    newest = tmp_path / "step-00000002.safetensors"
    newest.write_bytes(change(newest.read_bytes()))
    with caplog.at_level(logging.WARNING):
        state = load_state(tmp_path, run[0], run[2])
    assert state is not None
    assert_equal(state, expected)
    (record,) = caplog.records
    assert "Resuming from step-00000001.safetensors instead, step 1" in record.getMessage()
    (tmp_path / "step-00000001.safetensors").unlink()
    with pytest.raises(ModelFileError, match=words) as caught:
        load_state(tmp_path, run[0], run[2])
    assert str(newest) in str(caught.value)
    assert "no other checkpoint" in str(caught.value)


def test_a_changed_recipe_is_told_and_not_passed_over(tmp_path: Path) -> None:
    run = start()
    for step in (1, 2):
        save_state(tmp_path, state_of(run, step), recipe_text=TEXT)
    model, _, optimizer = start(base=6)
    with pytest.raises(
        ModelFileError, match=r"00000002.*is \[4, 3, 3, 3\] float32 instead of \[6, 3, 3, 3\] float32"
    ) as caught:
        load_state(tmp_path, model, optimizer)
    assert str(caught.value).count(" instead of ") == 5
    assert " more; use the recipe that the run began with, or a new folder" in str(caught.value)
