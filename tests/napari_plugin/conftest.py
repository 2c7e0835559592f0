"""A viewer for each test that asks for one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from real_viewer import can_show, process
from trial_model import write_trial_model


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trial_model(tmp_path_factory.mktemp("model") / "trial.safetensors")


@pytest.fixture
def viewer() -> Iterator[Any]:
    napari = pytest.importorskip("napari", reason="napari is not installed", exc_type=ImportError)
    if not can_show():
        pytest.skip("a viewer cannot be shown here: it needs OpenGL")
    viewer = napari.Viewer(show=True)
    process()
    yield viewer
    viewer.close()
    process()
