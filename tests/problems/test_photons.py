"""Exposures of stored light: their statistics against the camera's formulas, and noise that is never seen twice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from sfumato.cli import app
from sfumato.data.frames import upsample
from sfumato.physics import rendering
from sfumato.problems import microscopy_simulation as simulation
from sfumato.problems.photons import PhotonPairs, PhotonSettings, open_photons, simulate_light
from sfumato.problems.request import Request
from sfumato.system.errors import ImageError, PairingError, RecipeError

LEVELS = simulation.PHOTON_LEVELS


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photons") / "light"
    return simulate_light(
        folder, seed=4, cells={"train": 2, "validation": 1}, side=24, names=["microtubules", "coated_pits"]
    )


def pairs(light: Path, **settings: int) -> PhotonPairs:
    fields = sorted(path.parent for path in (light / "train").glob("*/light.tif"))
    return PhotonPairs(fields, PhotonSettings(**settings), seed=1)


def test_the_light_patterns_of_nine_frames_cancel() -> None:
    microscope = simulation.Microscope()
    emitters = simulation.specimen("microtubules", (24 * microscope.pixel_um,) * 2, seed=4, cell=0)
    optics: dict[str, Any] = {"pixel_um": microscope.pixel_um, "cutoff": microscope.cutoff}
    plain = rendering.render(emitters, (24, 24), **optics)
    lit = [rendering.render(each, (24, 24), **optics) for each in simulation._patterns(emitters, microscope, 7)]
    torch.testing.assert_close(torch.stack(lit).mean(0), plain, atol=1e-9 * float(plain.max()), rtol=0)


def test_exposures_have_the_mean_and_variance_of_the_camera(light: Path) -> None:
    source = pairs(light)
    number, field = len(source.fields), 1
    draws = range(0, 9 * 400, 9)  # all at one level
    exposures = np.stack([source.expose(number * draw + field) for draw in draws]).astype(np.float64)
    photons = LEVELS[field] * torch.from_numpy(source._read(field, "light").astype(np.float64))
    camera = simulation.Microscope().camera
    mean, variance = camera.mean(photons).numpy(), camera.variance(photons).numpy() / 9
    wrong = (exposures.mean(0) - mean) / np.sqrt(variance / len(exposures))
    assert abs(wrong.mean()) < 5 / np.sqrt(wrong.size)
    assert wrong.std() == pytest.approx(1, abs=0.15)
    assert (exposures.var(0, ddof=1) / variance).mean() == pytest.approx(1, abs=0.02)


def test_every_draw_has_noise_of_its_own_and_every_field_all_levels(light: Path) -> None:
    source = pairs(light)
    number = len(source.fields)
    assert len(source) == number * 10**6
    assert source.num_images == number == 4
    same, other = (source.expose(number * draw) for draw in (0, 9))
    assert np.array_equal(same, pairs(light).expose(0))
    assert not np.array_equal(same, other)
    assert {source.name(number * draw).split("/")[1][:8] for draw in range(9)} == {
        f"level_{i:02}" for i in range(1, 10)
    }
    assert source.hashes(0) == source.hashes(number)  # noise does not make another image
    assert source.hashes(0) != source.hashes(1)


def test_a_patch_is_part_of_the_whole_exposure(light: Path) -> None:
    source = pairs(light)
    condition, target = source.read(5, [0, 0], source.spatial(5))
    assert condition.shape == target.shape == (1, 48, 48)
    np.testing.assert_array_equal(condition, upsample(source.expose(5), (2, 2)))
    part = source.read(5, [7, 11], [16, 20])
    np.testing.assert_array_equal(part[0], condition[:, 7:23, 11:31])
    np.testing.assert_array_equal(part[1], target[:, 7:23, 11:31])


def test_splits_are_opened_with_fields_and_noise_of_their_own(light: Path) -> None:
    found = open_photons(Request(folder=light, forward={"draws": 9}))
    assert {split: (len(source), source.num_images) for split, source in found.items()} == {
        "train": (36, 4),
        "validation": (2, 2),
    }
    with pytest.raises(PairingError, match="holds no fields"):
        open_photons(Request(folder=light / "train"))
    with pytest.raises(RecipeError, match="at least 1"):
        open_photons(Request(folder=light, forward={"draws": 0}))
    with pytest.raises(ImageError, match="not an empty folder"):
        simulate_light(light, seed=0, cells={"train": 1})


def test_a_field_of_another_size_is_refused(light: Path, tmp_path: Path) -> None:
    fields = sorted(path.parent for path in (light / "train").glob("*/light.tif"))
    other = simulate_light(tmp_path / "other", seed=5, cells={"train": 1}, side=20, names=["microtubules"])
    source = PhotonPairs([fields[0], other / "train" / "microtubules_0000"], PhotonSettings(), seed=1)
    source.read(0, [0, 0], [8, 8])
    with pytest.raises(ImageError, match="as the first field has"):
        source.read(1, [0, 0], [8, 8])
    with pytest.raises(ImageError, match="unknown"):
        simulate_light(tmp_path / "wrong", seed=5, cells={"train": 1}, names=["mitochondria"])


def test_a_store_of_endless_draws_is_refused(light: Path, tmp_path: Path) -> None:
    command = ["pack", "--folder", str(light), "--out", str(tmp_path / "store.zarr"), "--set", "problem=photons"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "1,000,000 draws of each of 4 images" in refused.stderr
    assert not (tmp_path / "store.zarr").exists()
    packed = CliRunner().invoke(app, [*command, "--set", "forward.draws=9"])
    assert "36 train, 2 validation" in packed.stderr
