"""What test_second_device.py does on the device of second_device.py, each in a process of its own.

    python tests/second_device_runs.py build work training

builds the device in a folder, and does one of the runs with its files in another.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import sfumato
from pair_folders import make_pairs
from second_device import NAME, register
from sfumato.cli import app
from sfumato.diffusion.noise import NoiseField
from sfumato.models.recipe import Recipe
from sfumato.training.distributed import Ranks
from sfumato.training.loop import Trainer
from sfumato.training.preparation import prepare
from sfumato.training.run_folder import RunFolder
from sfumato.training.train import train
from small_runs import commanded, recipe

IMAGE = np.random.default_rng(0).random((40, 48), dtype=np.float32)
MIXED = "[Ee]xpected all tensors to be on the same device"


def training(place: Path) -> None:
    """A preset in its three stages, version 0.1 and a regression: each as on the CPU, and so are their samples."""
    folders = make_pairs(place)
    often = {"train_validate_every": 5, "train_save_every": 5}
    asked = {
        "preset": commanded(folders, train_steps=10, **often),
        "before_presets": recipe(folders, train_steps=5, model_norm="population", **often),
        "regression": recipe(folders, train_steps=5, model_method="regression", **often),
    }
    for name, one in asked.items():
        assert_alike(place / name, one)


def assert_alike(place: Path, asked: Recipe) -> None:
    cpu, second = (
        train(asked, place / device, device=device, workers=1, quiet=True).metrics() for device in ("cpu", NAME)
    )
    assert [line["step"] for line in cpu] == [line["step"] for line in second]
    for step, (one, other) in enumerate(zip(cpu, second, strict=True), start=1):
        kept = one.keys() & {"loss", "diffusion", "validation", "gradient_norm"}
        # The first steps of Adam divide gradients by their own size, and so make rounding larger.
        assert {name: other[name] for name in kept} == pytest.approx(
            {name: one[name] for name in kept}, rel=1e-5 if step < 3 else 5e-3
        )
    model_file = place / "cpu" / "model.safetensors"
    for fast in (False, True) if asked.model.scale_network else (False,):
        results = [
            sfumato.restore(IMAGE, sfumato.load(model_file, device=device), fast=fast) for device in ("cpu", NAME)
        ]
        np.testing.assert_allclose(results[1].mean, results[0].mean, atol=1e-5)
        if (std := results[0].std) is not None:  # a regression has none
            assert results[1].std is not None
            np.testing.assert_allclose(results[1].std, std, atol=1e-5)


def commands(place: Path) -> None:
    """What is given `--device` besides training."""
    folders = make_pairs(place)
    model = train(commanded(folders, train_steps=5), place / "run", quiet=True).model_file
    image, student = place / "image.npy", place / "student.safetensors"
    np.save(image, IMAGE)
    held_out = place / "held_out"
    for made, name in zip(make_pairs(held_out, number=12), ("inputs", "targets"), strict=True):
        Path(made).rename(held_out / name)
    few = ["--samples", "2", "--steps", "2"]
    pairs = ["--inputs", folders[0], "--targets", folders[1], "--allow-seen"]
    spoken = [
        ["restore", model, image, place / "whole.npy", *few],
        ["restore", model, image, place / "tiled.npy", *few, "--chunk", "32", "--halo", "8"],
        ["restore", model, image, place / "fast.npy", "--fast"],
        ["restore", model, image, place / "hint.npy", "--uncertainty", "schedule", "--samples", "1"],
        ["audit", model, image, place / "whole.npy", "--out", place / "audited"],
        ["evaluate", model, *pairs, "--out", place / "evaluated", "--samples", "2"],
        ["inspect", model, *pairs, "--out", place / "inspected", "--reach"],
        ["calibrate", model, held_out, "--allow-seen", *few],
        ["calibrate", model, held_out, "--allow-seen", "--fast"],
        ["distill", model, "--out", student, "--calls", "2", "--teacher-calls", "8", "--set", "train.steps=4"],
        ["restore", student, image, place / "taught.npy", "--samples", "2"],
    ]
    for words in spoken:
        ran = CliRunner().invoke(app, [*map(str, words), "--device", NAME])
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        assert ran.exit_code == 0, (words[0], ran.output)


def planted(place: Path) -> None:
    """One tensor made on the CPU stops both training and sampling; batches wait in pinned memory."""
    asked = recipe(make_pairs(place), train_steps=2)
    model = sfumato.load(train(asked, place / "run", quiet=True).model_file, device=NAME)
    trainer = Trainer(asked, RunFolder(place / "other"), prepare(asked), Ranks.join(NAME))
    for workers in (0, 1):
        with trainer._ahead(workers) as batches:
            batch = next(batches)
        assert all(tensor.is_pinned() for tensor in (batch.condition, batch.target, batch.t))
    right = NoiseField.__call__

    def left_behind(*arguments: object, **named: object) -> torch.Tensor:
        return right(*arguments, **{**named, "device": "cpu"})  # type: ignore[arg-type]

    NoiseField.__call__ = left_behind  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match=MIXED):
        sfumato.restore(IMAGE, model, num_samples=2)
    NoiseField.__call__ = right  # type: ignore[method-assign]
    trainer.advance(batch)
    sfumato.restore(IMAGE, model, num_samples=2)
    next(trainer.model.children()).cpu()  # one of its networks
    with pytest.raises(RuntimeError, match=MIXED):
        trainer.advance(batch)


if __name__ == "__main__":
    torch.set_num_threads(1)
    register(Path(sys.argv[1]))
    {"training": training, "commands": commands, "planted": planted}[sys.argv[3]](Path(sys.argv[2]))
