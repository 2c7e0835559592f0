"""How this machine computes: a missing device is said at once, subnormals are 0 for a while, freed memory is kept."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from random_models import write_random_model
from sfumato.cli import app
from sfumato.data.normalize import Normalization
from sfumato.system.device import keep_freed_memory, usable_device, without_subnormals
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
