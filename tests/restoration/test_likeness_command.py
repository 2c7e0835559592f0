"""`sfumato restore` says of a newcomer's images when not to believe: blank ones, other units, another microscope."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from remembering_model import model_of
from sfumato.cli import app
from sfumato.data.images.io import open_image, write_image
from sfumato.models.model_file import save_model

DATA = os.environ.get("SFUMATO_DATA")
pytestmark = pytest.mark.skipif(DATA is None, reason="set SFUMATO_DATA to the folder of image sets")
CHANGES: dict[str, Any] = {
    "times_100": lambda image: 100 * image,
    "zero": lambda image: 0 * image,
    "constant": lambda image: 0 * image + 7,
}


def pixels(path: Path) -> NDArray[Any]:
    return np.asarray(open_image(path).read()).reshape(open_image(path).shape[-2:]).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights that knows W2S."""
    known = model_of([pixels(path)[None] for path in sorted((_w2s() / "train" / "noisy").iterdir())])
    path = tmp_path_factory.mktemp("w2s") / "model.safetensors"
    save_model(path, known.model.state_dict(), known.info)
    return path


def _w2s() -> Path:
    return Path(DATA or "") / "fluor_denoise_w2s"


def warnings_of(model: Path, images: dict[str, NDArray[Any]], folder: Path) -> dict[str, str]:
    """What the command warns of, by image, of a folder of them."""
    (folder / "in").mkdir()
    for name, image in images.items():
        write_image(folder / "in" / f"{name}.tif", image, axes="YX")
    options = ["--samples", "2", "--steps", "1"]
    done = CliRunner().invoke(app, ["restore", str(model), str(folder / "in"), str(folder / "out"), *options])
    assert done.exit_code == 0, done.output
    lines = [line.removeprefix("warning: ") for line in done.stderr.splitlines() if line.startswith("warning: ")]
    return {name: text for name, _, text in (line.partition(".tif: ") for line in lines)}


def test_images_of_the_same_microscope_are_believed(model: Path, tmp_path: Path) -> None:
    images = {path.stem: pixels(path) for path in sorted((_w2s() / "test" / "noisy").iterdir())}
    assert len(images) == 15
    assert len(warnings_of(model, images, tmp_path)) <= 1


def test_what_newcomers_give_is_warned_of(model: Path, tmp_path: Path) -> None:
    own = pixels(min((_w2s() / "test" / "noisy").iterdir()))
    images = {name: change(own) for name, change in CHANGES.items()}
    others = sorted((Path(DATA or "") / "fluor_denoise_fmd" / "raw").glob("*_1.*"))
    images |= {path.stem: pixels(path) for path in others}
    found = warnings_of(model, images, tmp_path)
    assert set(CHANGES) <= set(found)
    assert "other units, or another exposure" in found["times_100"]
    assert "all zero" in found["zero"]
    assert "constant, 7 everywhere" in found["constant"]
    assert len(others) == 12
    assert sum(path.stem in found for path in others) >= 0.8 * len(others)
