"""Recipes and commands of runs that end in a moment."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from pair_folders import TINY
from sfumato.models.recipe import Recipe, parse
from sfumato.training.run_folder import RunFolder

__all__ = ["STAGED", "command", "commanded", "recipe", "same_run"]

STAGED: dict[str, object] = {
    "model_linear_start": True,
    "model_read_once": True,
    "model_denoiser_base": 3,
    "model_denoiser_scales": 2,
    "model_mean_network": True,
    "model_scale_network": True,
    "model_linear_finish": True,
    "model_coloured_noise": True,
    "train_mean_share": 0.5,
    "train_scale_share": 0.25,
    "train_steps": 8,
    "train_save_every": 1,
    "train_validate_every": 2,
}
"""Settings of :func:`recipe` for a mean and a scale that learn first."""


def recipe(folders: tuple[str, str], **settings: object) -> Recipe:
    """A tiny recipe without a preset; keyword ``train_steps`` stands for ``train.steps``."""
    return parse(json.dumps(_values(folders, settings)))


def commanded(folders: tuple[str, str], **settings: object) -> Recipe:
    """The recipe that :func:`command` makes: with the default preset."""
    return parse(json.dumps({"preset": "default", **_values(folders, settings)}))


def _values(folders: tuple[str, str], settings: dict[str, object]) -> dict[str, Any]:
    values: dict[str, Any] = {"data": {"inputs": folders[0], "targets": folders[1]}}
    tiny = dict(setting.split("=") for setting in TINY)
    replaced = {name.replace("_", ".", 1): value for name, value in settings.items()}
    for key, value in {**tiny, **replaced}.items():
        section, field = key.split(".")
        values.setdefault(section, {})[field] = value
    return values


def command(folders: tuple[str, str], out: Path, *settings: str) -> list[str]:
    """What `sfumato` is given to train in a moment."""
    options = [option for setting in (*TINY, *settings) for option in ("--set", setting)]
    return ["train", "--inputs", folders[0], "--targets", folders[1], "--out", str(out), *options]


def same_run(a: Path, b: Path) -> None:
    """The last states and the logs of two runs agree to the bit, seconds aside."""
    states = [sorted((run / "checkpoints").glob("*.safetensors"))[-1] for run in (a, b)]
    assert states[0].name == states[1].name
    tensors = [load_file(state) for state in states]
    assert tensors[0].keys() == tensors[1].keys()
    for name, tensor in tensors[0].items():
        assert torch.equal(tensor, tensors[1][name]), name
    logs = [[{k: v for k, v in line.items() if k != "seconds"} for line in RunFolder(run).metrics()] for run in (a, b)]
    assert logs[0] == logs[1]
    assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()
