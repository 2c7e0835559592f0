"""One of three channels is restored; the file of the mean has all three, the others as they were measured."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from sfumato.audit.files import read_restored
from sfumato.cli import app
from sfumato.data.images.io import open_image, write_image
from sfumato.data.images.sidecar import origin_of
from sfumato.data.images.whole_numbers import as_values
from sfumato.models.model_file import load
from untrained_models import write_model

DRAWN = ["--samples", "2", "--steps", "2"]
PIXELS = np.random.default_rng(0).integers(0, 900, (2, 3, 40, 48)).astype(np.uint16)
NAMES = ["DAPI", "GFP", "Cy5"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("passed")
    write_model(place / "model.safetensors", scale=300.0)
    write_image(place / "cells.ome.tif", PIXELS, axes="TCYX", metadata={"channels": NAMES})
    assert restore(place, "alone.tif", "--channel", "GFP").exit_code == 0
    return place


def restore(folder: Path, name: str, *options: str) -> Result:
    model, source = str(folder / "model.safetensors"), str(folder / "cells.ome.tif")
    return CliRunner().invoke(app, ["restore", model, source, str(folder / name), *DRAWN, *options])


@pytest.mark.parametrize("name", ["all.tif", "all.npy"])
def test_other_channels_stay_as_they_are(folder: Path, name: str) -> None:
    options = ["--channel", "GFP", "--pass-through", "--picture", str(folder / f"{name}.png")]
    found = restore(folder, name, *options)
    assert found.exit_code == 0, found.output
    joined = open_image(folder / name, axes="TCYX")
    pixels, alone = joined.read(), open_image(folder / "alone.tif").read()
    assert np.array_equal(pixels[:, [0, 2]], PIXELS[:, [0, 2]])
    assert np.array_equal(pixels[:, 1], alone)
    assert open_image(folder / name.replace("all", "all_std"), axes="TYX").shape == alone.shape
    if name.endswith(".tif"):
        assert joined.channel_names == tuple(NAMES)
        image, _ = read_restored(load(folder / "model.safetensors"), folder / name, folder / "cells.ome.tif", frame=1)
        assert np.array_equal(image[0], alone[1])
    assert "already restored" in restore(folder, name, *options).stderr
    other = restore(folder, name, "--channel", "GFP")
    assert other.exit_code == 2
    assert "passed_through True, now None" in other.stderr


def test_a_part_of_the_times_as_uint16(folder: Path) -> None:
    options = ["--channel", "Cy5", "--time", "1:", "--pass-through", "--dtype", "uint16"]
    assert restore(folder, "part.tif", *options).exit_code == 0
    stored = open_image(folder / "part.tif")
    assert (stored.axes, stored.shape, stored.dtype.name) == ("CYX", (3, 40, 48), "uint16")
    values = as_values(stored, origin_of(folder / "part.tif")).read()
    assert np.array_equal(values[:2], PIXELS[1, :2])


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("a.zarr", ["--channel", "0"], "expected .tif, .tiff, .npy; rename it"),
        ("a.mrc", ["--channel", "0"], "expected .tif, .tiff, .npy; rename it"),
    ],
)
def test_what_has_no_place_is_refused(folder: Path, name: str, options: list[str], said: str) -> None:
    found = restore(folder, name, *options, "--pass-through")
    assert found.exit_code == 2
    assert said in found.stderr


def test_an_image_without_other_channels_is_refused(folder: Path) -> None:
    write_image(folder / "one.tif", PIXELS[0, 0], axes="YX")
    model = str(folder / "model.safetensors")
    command = ["restore", model, str(folder / "one.tif"), str(folder / "b.tif"), *DRAWN, "--pass-through"]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 2
    assert "0 of its channels are chosen and 1 restored" in found.stderr
