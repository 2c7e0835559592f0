"""How this machine computes: a missing device is said at once, subnormals are 0 for a while, freed memory is kept."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from pair_folders import make_pairs
from random_models import write_random_model
from sfumato.cli import app
from sfumato.data.normalize import Normalization
from sfumato.system import device
from sfumato.system.device import (
    best_device,
    keep_freed_memory,
    named_device,
    told_device,
    usable_device,
    without_subnormals,
)
from sfumato.system.errors import RunError
from sfumato.training.distributed import Ranks
from sfumato.training.train import train
from small_runs import recipe


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

    def meet(place: torch.device) -> None:
        assert place == torch.device("cuda", expected)
        raise MetError

    for key, value in {"WORLD_SIZE": 4, "RANK": 3, "LOCAL_RANK": 3, "MASTER_ADDR": "here", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(key, str(value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    monkeypatch.setattr(torch.cuda, "set_device", meet)
    with pytest.raises(MetError):
        Ranks.join("cuda")


def test_subnormals_are_zero_meanwhile_and_only_then() -> None:
    def smallest() -> float:
        return float(torch.tensor(1e-40) * 1)

    before = smallest()
    with without_subnormals():
        assert smallest() == 0
        with without_subnormals():
            pass
        assert smallest() == 0, "the inner context turned subnormals on again"
    assert smallest() == before


TOUCH = """
import resource
import torch
from sfumato.nn import UNet
{setting}
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.set_num_threads(1)
network, images = UNet(1, 1, base=8, num_scales=2, norm="channel"), torch.zeros(5, 1, 512, 512)  # feature maps of 40 MB
with torch.no_grad():
    for _ in range(3):
        before = faults()
        network(images)
print(faults() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of the C library of Linux")
def test_freed_memory_is_used_again_without_the_system() -> None:
    def faults(setting: str) -> int:
        command = [sys.executable, "-c", TOUCH.format(setting=setting)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    kept = "from sfumato.system.device import keep_freed_memory; assert keep_freed_memory()"
    # What convolutions fetch from the system by themselves differs between processors, 1% to 14% of all.
    assert faults(kept) < 0.3 * faults("")


def test_keeping_freed_memory_may_be_asked_twice() -> None:
    assert keep_freed_memory() == keep_freed_memory()


def test_the_best_device_is_a_gpu_that_torch_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is pretended; nothing is computed on it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert best_device() == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda name: "RTX")
    assert best_device() == named_device("auto") == "cuda"
    assert usable_device("auto") == torch.device("cuda")
    assert named_device("auto", "cpu") == named_device("cpu") == "cpu"
    assert told_device("cuda") == "device: cuda (RTX); --device cpu uses the processor"


def test_a_recorded_device_that_is_not_there_is_told() -> None:
    with pytest.raises(RunError, match=r"the run was begun on another device, and device 'cuda' .* give --device"):
        named_device("auto", "cuda", what="the run")


@pytest.fixture
def _gpu_beside_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that nothing may compute on: the best device, by name alone."""
    monkeypatch.setattr(device, "best_device", lambda: "cuda")


def test_a_run_is_resumed_where_it_was_begun(
    tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = recipe(make_pairs(tmp_path), train_steps=2)
    run = train(asked, tmp_path / "run")
    assert "device: cpu, " in capsys.readouterr().err
    assert run.device() == "cpu"
    run.checkpoints.rename(tmp_path / "gone")
    run.checkpoints.mkdir()
    request.getfixturevalue("_gpu_beside_the_processor")
    for is_recorded in (True, False):
        train(asked, run.path)  # on a GPU that is not there, it would stop
        assert "device: cpu, as begun" in capsys.readouterr().err
        if is_recorded:
            run.device_file.unlink()  # as in version 0.1, which used the processor
    run.device_file.write_text("cuda\n")
    with pytest.raises(RunError, match="begun on another device"):
        train(asked, run.path)
    train(asked, run.path, device="cpu", quiet=True)
    assert run.device() == "cpu"
    with pytest.raises(RunError, match="device 'cuda' is not there"):
        train(asked, tmp_path / "new")


def test_a_half_done_restoration_goes_on_where_it_was_begun(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    data = Normalization((0.0,), (1.0,))
    model = write_random_model(tmp_path / "model.safetensors", base=2, num_scales=1, std=0.1, data=data)
    np.save(tmp_path / "in.npy", np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32))
    command = ["restore", str(model), str(tmp_path / "in.npy"), str(tmp_path / "out.zarr"), "--chunk", "32"]
    command += ["--samples", "2", "--steps", "2", "--axes", "YX"]
    begun = CliRunner().invoke(app, [*command, "--shard", "0/2"])
    assert begun.exit_code == 0, begun.output
    assert "device: cpu, " in begun.output
    job = tmp_path / "out.zarr.journal" / "job.json"
    assert json.loads(job.read_text())["device"] == "cpu"
    request.getfixturevalue("_gpu_beside_the_processor")
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0, ended.output
    assert "device: cpu, as begun" in ended.output
    new = CliRunner().invoke(app, [*command[:3], str(tmp_path / "other.zarr"), *command[4:]])
    assert new.exit_code == 2
    assert "device 'cuda' is not there" in new.output
