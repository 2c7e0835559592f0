"""Restoring arrays and files with a trained model."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import sfumato
from pair_folders import make_pairs
from sfumato.cli import app
from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import open_image, write_image
from sfumato.data.normalize import Normalization
from sfumato.diffusion import sampling
from sfumato.diffusion.noise import NoiseField
from sfumato.models.model_file import LoadedModel, save_model
from sfumato.restoration.planning import Settings
from sfumato.restoration.run import restore_file
from sfumato.system.errors import ImageError
from sfumato.training import validation
from sfumato.training.train import train
from small_runs import recipe


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    return train(recipe(make_pairs(place), train_steps=3), place / "run", quiet=True).model_file


@pytest.fixture(scope="module")
def model(model_file: Path) -> LoadedModel:
    return sfumato.load(model_file)


def image(*shape: int, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def test_it_is_the_mean_and_spread_of_the_samples_in_the_targets_units(model: LoadedModel) -> None:
    measured = image(20, 26)
    restored = sfumato.restore(measured, model, num_samples=5, num_steps=3, seed=7)
    condition = model.info.condition.apply(torch.from_numpy(measured)[None, None])
    draws = sfumato.sample(model.model, condition, num_samples=5, num_steps=3, seed=7)
    draws = model.info.target.invert(draws[:, 0])[:, 0]
    np.testing.assert_allclose(restored.mean, draws.mean(0), rtol=1e-5, atol=1e-6)
    assert restored.std is not None
    np.testing.assert_allclose(restored.std, draws.std(0), rtol=1e-4, atol=1e-6)


def test_samples_do_not_depend_on_how_many_go_through_the_network_together(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = sfumato.restore(image(20, 26), model, num_samples=5, num_steps=2)
    monkeypatch.setattr("sfumato.restoration.layout._FLOATS_PER_FILTER", 2**30 // (4 * 3 * 20 * 26))
    apart = sfumato.restore(image(20, 26), model, num_samples=5, num_steps=2)
    np.testing.assert_allclose(together.mean, apart.mean, atol=1e-5)
    assert together.std is not None
    assert apart.std is not None
    np.testing.assert_allclose(together.std, apart.std, atol=1e-5)


def test_frames_get_noise_of_their_own(model: LoadedModel) -> None:
    assert not torch.equal(*(NoiseField(0, image=i)(0, torch.Size([1, 1, 1, 4, 4])) for i in (0, 1)))
    first, second = (sfumato.restore(image(16, 16), model, num_samples=2, num_steps=2, image=i) for i in (0, 1))
    assert not np.array_equal(first.mean, second.mean)


def test_a_file_keeps_its_frames_axes_and_pixel_size(model: LoadedModel, model_file: Path, tmp_path: Path) -> None:
    size = PixelSize(0.1, "micrometer")
    write_image(tmp_path / "in.tif", image(3, 17, 18), axes="TYX", pixel_size={"Y": size, "X": size})
    paths = restore_file(model_file, tmp_path / "in.tif", tmp_path / "out.ome.zarr", Settings(2, 2))
    assert [Path(path).name for path in paths] == ["out.ome.zarr", "out_std.ome.zarr"]
    for path in paths:
        written = open_image(path)
        assert (written.axes, written.shape) == ("TYX", (3, 17, 18))
        assert written.pixel_size["X"] == size
        assert written.metadata["model_sha256"] == model.sha256
    alone = sfumato.restore(image(3, 17, 18)[2], model, num_samples=2, num_steps=2, image=2)
    np.testing.assert_array_equal(open_image(paths[0]).read({"T": 2}), alone.mean)


def test_the_command_restores_a_png_and_draws_a_picture(model: LoadedModel, tmp_path: Path) -> None:
    info = dataclasses.replace(model.info, target=Normalization((100.0,), (90.0,)))  # of 8 bits
    model_file = tmp_path / "model.safetensors"
    save_model(model_file, model.model.state_dict(), info)
    pixels = (200 * image(30, 40)).astype(np.uint8)
    write_image(tmp_path / "in.png", pixels, axes="YX")
    names = [str(tmp_path / name) for name in ("in.png", "out.png", "picture.png")]
    options = ["--samples", "2", "--steps", "2", "--picture", names[2]]
    done = CliRunner().invoke(app, ["restore", str(model_file), *names[:2], *options])
    assert done.exit_code == 0, done.output
    assert open_image(names[1]).dtype == np.uint8
    assert open_image(tmp_path / "out_std.tif").dtype == np.float32
    assert open_image(names[2]).shape[1] > 3 * 180
    again = CliRunner().invoke(app, ["restore", str(model_file), *names[:2]])
    assert again.exit_code == 2
    assert "samples 2, now 16" in again.output.replace("\n", " ")


def test_a_volume_trains_resumes_and_is_restored(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path, number=3, shape=(16, 20, 24))
    settings = {"model_ndim": 3, "train_save_every": 2}
    smooth = train(recipe(folders, train_steps=4, **settings), tmp_path / "smooth", quiet=True)
    whole = recipe(folders, train_steps=4, **settings)
    stopped = train(whole, tmp_path / "stopped", quiet=True)
    (stopped.checkpoints / "step-00000004.safetensors").unlink()
    train(whole, tmp_path / "stopped", quiet=True)
    assert smooth.model_file.read_bytes() == stopped.model_file.read_bytes()
    output, spread = restore_file(
        stopped.model_file, Path(folders[0]) / "image0.tif", tmp_path / "volume.tif", Settings(2, 2)
    )
    assert open_image(output).shape == open_image(spread).shape == (16, 20, 24)
    assert open_image(output).axes == "ZYX"


@pytest.mark.parametrize(("shape", "crop"), [((40, 40), (16, 16)), ((40, 40, 40), (8, 8, 8))])
def test_validation_takes_no_more_memory_than_a_training_step(
    shape: tuple[int, ...], crop: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crops of volumes are patches, and one after another is sampled, so that a batch that trains can be validated."""
    folders = make_pairs(tmp_path, number=8, shape=shape)
    seen: list[tuple[int, ...]] = []

    def sample(*args: Any, **kwargs: Any) -> torch.Tensor:
        drawn = sampling.sample(*args, **kwargs)
        seen.append((*args[1].shape, kwargs["num_samples"]))
        return drawn

    monkeypatch.setattr(validation, "sample", sample)
    data = {"data_patch": 8, "data_validation_fraction": 0.5}
    chosen = recipe(folders, train_steps=1, model_ndim=len(shape), **data)
    train(chosen, tmp_path / "run", quiet=True)
    assert seen == [(1, 1, *crop, chosen.sample.samples)] * 3


BAD = {
    "channels": (image(2, 16, 16), "this model takes"),
    "axes": (image(16), "this model takes"),
    "NaN": (np.full((16, 16), np.nan, np.float32), "NaN or infinite"),
    "complex": (np.zeros((16, 16), np.complex64), "expected real numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_images_that_do_not_fit_raise_typed_errors(case: str, model: LoadedModel) -> None:
    pixels, message = BAD[case]
    with pytest.raises(ImageError, match=message):
        sfumato.restore(pixels, model)


def test_one_sample_has_no_spread(model: LoadedModel) -> None:
    with pytest.raises(ImageError, match="at least 2"):
        sfumato.restore(image(16, 16), model, num_samples=1)
