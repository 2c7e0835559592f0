"""Fixtures of the attacks."""

from pathlib import Path

import pytest

from attack.attacking import write_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file that many tests read and none changes."""
    return write_model(tmp_path_factory.mktemp("attacked") / "model.safetensors")
