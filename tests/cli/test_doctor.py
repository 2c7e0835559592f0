"""The doctor tells the truth about this installation."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from sfumato.cli import doctor_profile
from sfumato.cli import doctor_report as doctor
from sfumato.cli.unseen_gpu import unseen_gpu
from sfumato.models.bundled import demo_model
from sfumato.models.model_file import load


def test_report_names_versions_devices_and_speed() -> None:
    report = doctor.examine()
    assert report.versions["torch"] == torch.__version__
    assert report.devices[0] == "cpu"
    assert report.cores >= 1
    assert 0 < report.step_seconds < 60
    assert {extra.name for extra in report.extras} >= {"evaluate", "cluster", "napari", "hub"}


def test_missing_libraries_come_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_is_installed", lambda name: name != "scipy")
    extras = {extra.name: extra for extra in doctor._extras()}
    assert extras["evaluate"].missing == ["scipy"]
    assert extras["evaluate"].command == "pip install 'sfumato[evaluate]'"
    assert extras["hub"].missing == []


def test_command_prints_it() -> None:
    result = subprocess.run([sys.executable, "-m", "sfumato", "doctor"], capture_output=True, text=True, check=True)
    assert "s per training step" in result.stdout
    assert "extra      evaluate" in result.stdout


def kinds_of(work: Callable[[], object]) -> set[str]:
    """Kinds of the operations that took time."""
    with doctor_profile._Clock() as clock:
        work()
    return {kind for kind, seconds in clock.spent.items() if seconds > 0}


def test_operations_are_counted_under_their_kind() -> None:
    images = torch.randn(1, 8, 64, 64)
    weights, ones = torch.randn(8, 8, 3, 3), torch.ones(8)
    assert kinds_of(lambda: F.conv2d(images, weights)) == {"convolution"}
    assert kinds_of(lambda: F.silu(images)) == kinds_of(lambda: F.softplus(images)) == {"activation"}
    assert "normalisation" in kinds_of(
        lambda: torch.batch_norm(images, ones, ones, ones, ones, False, 0.1, 1e-5, False)
    )
    assert kinds_of(lambda: torch.cat([images, images])) == {"pooling and joining"}
    assert kinds_of(lambda: images + 1) == {"rest"}


def test_a_profile_has_each_network_its_shares_and_its_operations() -> None:
    found = {profile.name: profile for profile in doctor_profile.profiles(load(demo_model()))}
    denoiser = found["denoiser"]
    assert sum(denoiser.shares.values()) == pytest.approx(1)
    assert denoiser.shares["convolution"] > 0.2
    assert 0 < denoiser.seconds < 60
    first, *rest = denoiser.lines()
    assert first.startswith("denoiser ")
    assert "256 x 256 pixels" in first
    assert [line.split(":")[0].strip() for line in rest[:-1]] == list(doctor_profile.KINDS)
    assert "GFLOP/s" in rest[0]


def test_command_profiles_a_model() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "sfumato", "doctor", str(demo_model())], capture_output=True, text=True, check=True
    )
    assert "ms of processor time per call" in result.stdout
    assert "times faster than the network as trained" in result.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands for the driver's program")
@pytest.mark.parametrize(
    ("cuda", "words"), [(None, "was built without CUDA"), ("99.9", "needs a newer driver than this one, for CUDA 99.9")]
)
def test_a_gpu_that_torch_cannot_see_comes_with_the_command(
    cuda: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho NVIDIA RTX A2000\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    found = unseen_gpu()
    assert found is not None
    assert f"NVIDIA RTX A2000: not used, because torch {torch.__version__} {words}." in found
    assert f"{sys.executable} -m uv pip install --python {sys.executable} --torch-backend=auto" in found
    report = doctor.Report({"sfumato": "1"}, ["cpu"], 1, 1.0, 1.0, [], found)
    assert any(line.startswith("GPU        NVIDIA RTX A2000") for line in report.lines())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert unseen_gpu() is None


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands for the driver's program")
@pytest.mark.parametrize("script", ["exit 9", "true"])
def test_a_driver_without_a_gpu_is_no_gpu(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert unseen_gpu() is None
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert unseen_gpu() is None
