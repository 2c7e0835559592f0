"""The command line answers at once, and importing costs what importing torch costs: told by what is loaded."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sfumato
from sfumato.cli import app

ANSWER = """
import sys
from sfumato.cli import main
sys.argv = ["sfumato", {flag!r}]
try:
    main()
finally:
    loaded = {{"torch", "numpy", "pydantic", "zarr", "PIL"}} & set(sys.modules)
    assert not loaded, loaded
"""
EVERY_NAME = """
import sys, sfumato
assert "torch" not in sys.modules
import torch
before = set(sys.modules)
for name in sfumato.__all__:
    getattr(sfumato, name)
print(*{name.split(".")[0] for name in set(sys.modules) - before} - {"sfumato", *sys.stdlib_module_names})
"""
LIGHT = {"numpy", "safetensors"}
"""What a public name may load beside torch and the standard library: no reader of images, no library of an extra."""


@pytest.mark.parametrize(
    ("flag", "words"), [("--help", "Restore scientific images"), ("--version", f"sfumato {sfumato.__version__}")]
)
def test_answers_without_loading_anything_heavy(flag: str, words: str) -> None:
    command = [sys.executable, "-c", ANSWER.format(flag=flag)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert words in result.stdout


def test_runs_as_a_module() -> None:
    result = subprocess.run([sys.executable, "-m", "sfumato", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == f"sfumato {sfumato.__version__}"


def test_importing_loads_nothing_heavy() -> None:
    result = subprocess.run([sys.executable, "-c", EVERY_NAME], capture_output=True, text=True, check=True)
    assert set(result.stdout.split()) <= LIGHT


@pytest.mark.parametrize("command", [["train"], ["simulate", "microscopy", "--train", "31"]], ids=" ".join)
def test_an_error_is_one_message_and_the_exit_code_two(command: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "new")])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.output
