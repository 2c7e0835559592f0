"""Outputs as uint16: the values come back from the stated scale, in half the space, and runs stay resumable."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from sfumato.audit.files import read_restored
from sfumato.cli import app
from sfumato.data.images.io import open_image, write_image
from sfumato.data.images.pixels import ArrayImage
from sfumato.data.images.sidecar import origin_of
from sfumato.data.images.whole_numbers import Scale, as_values, scale_for
from sfumato.models.model_file import load
from untrained_models import noise, write_model

DRAWN = ["--samples", "3", "--steps", "2", "--chunk", "64"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("whole")
    write_model(place / "model.safetensors")
    write_image(place / "cells.tif", noise(2, 96, 96), axes="TYX")
    assert restore(place, "float.tif").exit_code == 0
    return place


def restore(folder: Path, name: str, *options: str) -> Result:
    model, source = str(folder / "model.safetensors"), str(folder / "cells.tif")
    return CliRunner().invoke(app, ["restore", model, source, str(folder / name), *DRAWN, *options])


@pytest.mark.parametrize("name", ["whole.tif", "whole.npy"])
def test_values_come_back(folder: Path, name: str) -> None:
    found = restore(folder, name, "--dtype", "uint16", "--keep-samples")
    assert found.exit_code == 0, found.output
    scales = set()
    for beside in ("", "_std"):
        stem, suffix = name.split(".")
        file = folder / f"{stem}{beside}.{suffix}"
        stored = open_image(file)
        assert stored.dtype == np.uint16
        scale = Scale.noted(origin_of(file))
        assert scale is not None
        expected = open_image(folder / f"float{beside}.tif").read()
        values = as_values(stored, origin_of(file)).read()
        assert np.abs(values - expected).max() <= scale.scale / 2 + 1e-6
        assert f"stored as uint16: {scale.told}: {file.name}" in found.stderr
        scales.add(scale)
    assert len(scales) == 2, "the deviation is far smaller than the mean"
    sample = Scale.noted(origin_of(folder / name.replace("whole", "whole_sample000")))
    assert sample == Scale.noted(origin_of(folder / name)), "samples are compared with the mean"
    again = restore(folder, name, "--dtype", "uint16", "--keep-samples")
    assert "already restored" in again.stderr
    other = restore(folder, name, "--keep-samples")
    assert other.exit_code == 2
    assert "dtype uint16, now None" in other.stderr
    # The audit sees values, not what is stored.
    image, draws = read_restored(load(folder / "model.safetensors"), folder / name, folder / "cells.tif")
    assert draws is not None
    truth = open_image(folder / "float.tif").read({"T": 0})
    assert np.abs(image[0] - truth).max() < 0.01
    assert np.abs(draws.mean(0)[0] - truth).max() < 0.01


def test_it_takes_less_space(folder: Path) -> None:
    restore(folder, "space.tif", "--dtype", "uint16")
    assert (folder / "space.tif").stat().st_size < 0.6 * (folder / "float.tif").stat().st_size


@pytest.mark.parametrize("name", ["whole.zarr", "whole.png"])
def test_other_formats_are_refused(folder: Path, name: str) -> None:
    found = restore(folder, name, "--dtype", "uint16")
    assert found.exit_code == 2
    assert "expected .tif, .tiff, .npy, .mrc" in found.stderr


@pytest.mark.parametrize("values", [(0.0, 65534.0), (-3.5, 4.0), (1e-9, 3e-9), (0.0, 0.0), (5e4, 2e5), (-1e6, -1.0)])
def test_every_value_fits(values: tuple[float, float]) -> None:
    scale = scale_for([ArrayImage.of(np.array([values]), axes="YX", name="two")])
    stored = np.rint((np.array(values) - scale.offset) / scale.scale)
    assert stored.min() >= 0
    assert stored.max() <= 65535
    assert np.abs(stored * scale.scale + scale.offset - values).max() <= scale.scale / 2
    assert np.log2(scale.scale).is_integer()
    span = max(values[1], 0) - min(values[0], 0)
    assert span == 0 or scale.scale <= 2 * span / 65534
    assert (scale.offset < 0) == (values[0] < 0)
