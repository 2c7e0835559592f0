"""Devices: what is not there is said at once, and processes that each see one GPU take that one."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from random_models import write_random_model
from sfumato.cli import app
from sfumato.data.normalize import Normalization
from sfumato.system.device import usable_device
from sfumato.system.errors import RunError
from sfumato.training.distributed import Ranks


@pytest.mark.parametrize("name", ["gpu", "cuda:7", "cpu:1", "cpu:x", ""])
def test_a_device_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(RunError, match=rf"device '{name}' is not there; .* offer: cpu"):
        usable_device(name)


def test_commands_say_so_before_they_start(tmp_path: Path) -> None:
    data = Normalization((0.0,), (1.0,))
    model = write_random_model(tmp_path / "model.safetensors", base=2, num_scales=1, std=0.1, data=data)
    told = CliRunner().invoke(app, ["restore", str(model), "in.npy", "out.npy", "--device", "gpu"])
    assert told.exit_code == 2
    assert "device 'gpu' is not there" in told.output


@pytest.mark.parametrize(("visible", "expected"), [(1, 0), (4, 3)])
def test_a_process_takes_a_gpu_that_it_sees(visible: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without GPUs stands for one whose scheduler shows each process one, or all four."""

    class MetError(Exception):
        pass

    def meet(device: torch.device) -> None:
        assert device == torch.device("cuda", expected)
        raise MetError

    for key, value in {"WORLD_SIZE": 4, "RANK": 3, "LOCAL_RANK": 3, "MASTER_ADDR": "here", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(key, str(value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    monkeypatch.setattr(torch.cuda, "set_device", meet)
    with pytest.raises(MetError):
        Ranks.join("cuda")
