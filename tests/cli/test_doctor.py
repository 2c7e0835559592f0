"""The doctor tells the truth about this installation."""

import subprocess
import sys

import pytest
import torch

from sfumato.cli import doctor_report as doctor


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
