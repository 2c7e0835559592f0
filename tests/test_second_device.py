"""Training and sampling on a device that is not the CPU: no tensor is left on the wrong one, and values are the same.

The device is built here from torch's interface for private devices; its memory is that of the CPU. What only a real GPU
shows, such as memory that runs out or rounding of its own, it does not.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import second_device_runs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("g++") and shutil.which("ninja")), reason="needs g++ and ninja"),
]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("build")


@pytest.mark.parametrize("name", ["planted", "training", "commands"])
def test_on_a_second_device(name: str, build: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, second_device_runs.__file__, str(build), str(tmp_path), name],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
