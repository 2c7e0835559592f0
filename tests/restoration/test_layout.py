"""Halos: what was chosen before a model was measured stays, and `reach` is all that one call looks at."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from networks import seeded
from sfumato.cli import app
from sfumato.data.images.io import open_image
from sfumato.data.normalize import Normalization
from sfumato.models.build import build_model
from sfumato.models.model_file import LoadedModel, ModelInfo, save_model
from sfumato.models.reach import Reach
from sfumato.models.recipe import parse
from sfumato.restoration.folder import restore_folder
from sfumato.restoration.layout import choose_layout
from sfumato.restoration.planning import Settings, plan_restoration
from sfumato.restoration.run import run_restoration
from sfumato.system.errors import RecipeError
from untrained_models import noise, write_model

ONE_SCALE = "model: {base: 4, rate_base: 4, num_scales: 1, norm: channel}"
"""Rate network and denoising network look 2 pixels far; a sample of 3 calls 2 + 3 * 2 = 8, or 6 with known rates."""


def loaded(text: str, reach: Reach | None = None) -> LoadedModel:
    recipe, unit = parse(text), Normalization((0.0,), (1.0,))
    info = ModelInfo(recipe, 1, 1, unit, unit, {}, {}, reach=reach)
    return LoadedModel(seeded(lambda: build_model(recipe.model, 1, 1)), info, "")


def written(path: Path, text: str, reach: Reach) -> Path:
    model = loaded(text, reach)
    save_model(path, model.model.state_dict(), model.info)
    return path


def restored(model: Path, image: Path, out: Path, **settings: Any) -> NDArray[np.float64]:
    """Both samples, of three calls each."""
    chosen = Settings(num_samples=2, num_steps=3, keep_samples=True, threads=1, **settings)
    files = run_restoration(plan_restoration(model, image, out, chosen))
    return np.stack([np.asarray(open_image(file).read({}), np.float64) for file in files[-2:]])


@pytest.mark.parametrize(
    ("text", "usual", "of_call"),
    [
        ("model: {base: 2, rate_base: 2}", 128, 256),  # version 0.1: 122, and 122 + 122
        ("model: {base: 2, rate_base: 2, num_scales: 3}", 64, 56),  # 26 + 26
        ("model: {base: 2, rate_base: 2, mean_network: true, linear_start: true}", 128, 256),  # 7 + 122 + 122
        ("{preset: small, model: {base: 2, rate_base: 2, denoiser_base: 2}}", 208, 208),  # 7 + 122 + 7 + 2 + 58
    ],
)
def test_the_usual_halo_stays_and_reach_is_the_sum(text: str, usual: int, of_call: int) -> None:
    model = loaded(text)
    assert choose_layout(model, (4096, 4096), 16).halo == usual
    assert choose_layout(model, (4096, 4096), 16, halo="reach").halo == of_call


def test_a_network_that_sees_the_whole_image_has_no_exact_halo() -> None:
    model = loaded("model: {base: 2, rate_base: 2, norm: instance}")
    assert choose_layout(model, (4096, 4096), 16).halo == 128
    with pytest.raises(RecipeError, match="a network of this model looks at the whole image"):
        choose_layout(model, (4096, 4096), 16, halo="reach")


def test_a_measured_model_has_the_halo_that_it_needs() -> None:
    measured = loaded("model: {base: 2, rate_base: 2}", Reach(sample=40, denoiser=9))
    layout = choose_layout(measured, (4096, 4096), 16)
    assert (layout.halo, layout.sampling_halo) == (48, 16)  # multiples of the stride
    assert choose_layout(measured, (4096, 4096), 16, 4).halo == 48  # whatever the number of calls
    reading = loaded("model: {base: 2, rate_base: 2}", Reach(sample=40, one_pass=30, denoiser=9))
    assert (choose_layout(reading, (4096, 4096), 1, 0).halo, choose_layout(reading, (4096, 4096), 16).halo) == (32, 48)
    given = choose_layout(measured, (4096, 4096), 16, halo=64)
    assert (given.halo, given.sampling_halo) == (64, None)
    of_rates = choose_layout(measured, (4096, 4096), 16, measured=False)
    assert (of_rates.halo, of_rates.sampling_halo) == (128, None)
    alike = choose_layout(loaded("model: {base: 2, rate_base: 2}", Reach(sample=40, denoiser=40)), (4096, 4096), 16)
    assert (alike.halo, alike.sampling_halo) == (48, None)


def test_chunks_that_see_all_that_matters_equal_the_whole(tmp_path: Path) -> None:
    import tifffile

    image = tmp_path / "image.tif"
    tifffile.imwrite(image, (noise(100, 90) - 10) / 3)
    enough = written(tmp_path / "enough.safetensors", ONE_SCALE, Reach(sample=8, denoiser=8))
    whole = restored(enough, image, tmp_path / "whole.zarr")
    split = written(tmp_path / "split.safetensors", ONE_SCALE, Reach(sample=16, denoiser=8))
    planned = plan_restoration(split, image, tmp_path / "split.zarr", Settings(chunk=32, num_samples=2))
    assert (planned.job.plan.halo, planned.job.sampling_halo) == ((16, 16), 8)
    assert planned.told_halo == (
        "halo: 16 pixels, 8 for the denoising network, as far as this model was measured to look"
    )
    for name, model in (("enough", enough), ("split", split)):
        cut = restored(model, image, tmp_path / f"{name}.zarr", chunk=32)
        assert np.abs(cut - whole).max() < 1e-5 * np.ptp(whole)
    blind = written(tmp_path / "blind.safetensors", ONE_SCALE, Reach(sample=16, denoiser=0))
    assert np.abs(restored(blind, image, tmp_path / "blind.zarr", chunk=32) - whole).max() > 1e-3 * np.ptp(whole)


def test_narrower_halos_hold_where_networks_pad_the_image(tmp_path: Path) -> None:
    import tifffile

    image, text = tmp_path / "image.tif", "model: {base: 4, rate_base: 4, num_scales: 2, norm: population}"
    tifffile.imwrite(image, (noise(171, 91) - 10) / 3)  # odd sides; the networks' grid is 2 pixels wide
    model = written(tmp_path / "model.safetensors", text, Reach(sample=48, denoiser=32))
    whole = restored(model, image, tmp_path / "whole.zarr")
    cut = restored(model, image, tmp_path / "cut.zarr", chunk=32)
    assert np.abs(cut - whole).max() < 1e-5 * np.ptp(whole)


def test_a_folder_says_its_halo_where_there_are_chunks(tmp_path: Path) -> None:
    import tifffile

    (tmp_path / "measured").mkdir()
    for name, side in (("large", 40), ("small", 24)):
        tifffile.imwrite(tmp_path / "measured" / f"{name}.tif", noise(side, side))
    model = written(tmp_path / "model.safetensors", ONE_SCALE, Reach(sample=8, denoiser=8))
    told: list[str] = []
    settings = Settings(num_samples=2, num_steps=1, chunk=32)
    restore_folder(model, tmp_path / "measured", tmp_path / "restored", settings, note=told.append)
    assert told == ["halo: 8 pixels, as far as this model was measured to look"]


def test_the_command_takes_pixels_or_reach(tmp_path: Path) -> None:
    import tifffile

    model, image = write_model(tmp_path / "model.safetensors"), tmp_path / "image.tif"
    tifffile.imwrite(image, noise(96, 80))
    begin = ["restore", str(model), str(image), str(tmp_path / "out.zarr"), "--samples", "2", "--steps", "2"]
    done = CliRunner().invoke(app, [*begin, "--chunk", "32", "--halo", "reach"])
    assert done.exit_code == 0, done.output
    same = CliRunner().invoke(app, [*begin, "--chunk", "32", "--halo", "56"])
    assert same.exit_code == 0, same.output
    assert "already restored" in same.output
    refused = CliRunner().invoke(app, [*begin, "--halo", "far"])
    assert refused.exit_code == 2
    assert "--halo is 'far'" in refused.output
