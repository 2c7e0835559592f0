"""Restoring open images part by part: the parts are those of the whole, and the work can be stopped."""

from pathlib import Path

import numpy as np
import pytest
import torch

import sfumato
from pair_folders import make_pairs
from sfumato.data.images.pixels import ArrayImage
from sfumato.models.intervals import Correction, Sampled
from sfumato.models.model_file import LoadedModel
from sfumato.models.model_updates import set_calibration
from sfumato.restoration import interactive
from sfumato.restoration.conditions import Measured
from sfumato.restoration.interactive import FieldOfView, Parts
from sfumato.restoration.schedule_map import curves_at, schedule_of
from sfumato.system.errors import ImageError
from sfumato.training.train import train
from small_runs import recipe


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    return train(recipe(make_pairs(place), train_steps=3), place / "run", quiet=True).model_file


@pytest.fixture(scope="module")
def model(model_file: Path) -> LoadedModel:
    return sfumato.load(model_file)


def pixels(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def measured(array: object, axes: str, model: LoadedModel) -> Measured:
    return Measured(ArrayImage.of(array, axes=axes, name="array"), model)


def test_frames_are_restored_as_arrays_are(model: LoadedModel) -> None:
    images = pixels(2, 20, 26)
    parts = Parts(measured(images, "TYX", model), model, num_samples=3, num_steps=2, keep_samples=True)
    restored = parts.restore()
    assert parts.contents == ("mean", "std", "samples")
    for frame in range(2):
        alone = sfumato.restore(images[frame], model, num_samples=3, num_steps=2, image=frame)
        np.testing.assert_allclose(restored["mean"][frame, 0], alone.mean, atol=1e-5)
        assert alone.std is not None
        np.testing.assert_allclose(restored["std"][frame, 0], alone.std, atol=1e-5)
    np.testing.assert_allclose(restored["samples"].mean(0), restored["mean"], atol=1e-5)


def test_lazy_arrays_are_read_where_they_are_needed(model: LoadedModel) -> None:
    dask = pytest.importorskip("dask.array")
    read = []

    def block(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]], block_id: tuple[int, ...]) -> object:
        read.append(block_id)
        return values

    images = pixels(3, 20, 26)
    lazy = dask.from_array(images, chunks=(1, 20, 26)).map_blocks(block, dtype=np.float32)
    read.clear()
    field = FieldOfView((1,), (0, 0), (20, 26))
    restored = Parts(measured(lazy, "TYX", model), model, num_samples=2, num_steps=1, field=field).restore()
    assert set(read) == {(1, 0, 0)}
    alone = sfumato.restore(images[1], model, num_samples=2, num_steps=1, image=1)
    np.testing.assert_allclose(restored["mean"][0, 0], alone.mean, atol=1e-5)


def test_a_field_and_the_parts_of_a_large_image_are_those_of_the_whole(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = measured(pixels(200, 40), "YX", model)
    whole = sfumato.restore(image.read(0, (0, 0), (200, 40))[0], model, num_samples=2, num_steps=1).mean
    monkeypatch.setitem(interactive._CHUNK, 2, 64)
    chunked = Parts(image, model, num_samples=2, num_steps=1)
    assert chunked.num_calls == 4 * 2 * 1
    np.testing.assert_allclose(chunked.restore()["mean"][0, 0], whole, atol=1e-4)
    field = FieldOfView((0,), (101, 3), (50, 30))
    seen = Parts(image, model, num_samples=2, num_steps=1, field=field).restore()["mean"]
    np.testing.assert_allclose(seen[0, 0], whole[101:151, 3:33], atol=1e-4)


def test_calls_are_counted_and_what_counts_them_may_stop_the_work(model: LoadedModel) -> None:
    parts = Parts(measured(pixels(2, 20, 26), "TYX", model), model, num_samples=3, num_steps=4)
    counted: list[int] = []
    parts.restore(counted.append)
    assert sum(counted) == parts.num_calls == 2 * 3 * 4

    def stop(number: int) -> None:
        counted.append(number)
        if len(counted) == 2:
            raise InterruptedError

    counted.clear()
    with pytest.raises(InterruptedError):
        parts.restore(stop)
    assert len(counted) == 2


def test_a_calibrated_model_gives_the_ends_of_its_interval(model_file: Path, tmp_path: Path) -> None:
    found = Correction("risk_control", 0.9, 2.0, 50, 50, 0.8, Sampled(3, 2, "2m", 0.0))
    model = sfumato.load(set_calibration(model_file, found, tmp_path / "model.safetensors"))
    image = measured(pixels(20, 26), "YX", model)
    parts = Parts(image, model)
    restored, alone = parts.restore(), sfumato.restore(pixels(20, 26), model)
    assert parts.label == found.label == alone.label
    for content in ("low", "high"):
        np.testing.assert_allclose(restored[content][0, 0], getattr(alone, content), atol=1e-5)
    assert Parts(image, model, num_samples=4).contents == ("mean", "std")


def test_what_does_not_fit_is_refused_before_any_work(model: LoadedModel) -> None:
    with pytest.raises(ImageError, match=r"has 2 channels .* takes 1"):
        Parts(measured(pixels(2, 20, 26), "CYX", model), model)
    with pytest.raises(ImageError, match=r"take .* GiB; .*sfumato restore"):
        Parts(measured(pixels(20, 26), "YX", model), model, memory_budget=1000)
    with pytest.raises(ImageError, match="at least 2"):
        Parts(measured(pixels(20, 26), "YX", model), model, num_samples=1)


def test_the_schedule_of_a_region_is_that_of_the_whole(model: LoadedModel) -> None:
    image = measured(pixels(1, 200, 40), "TYX", model)
    with torch.no_grad():
        whole = model.model.schedule(image.condition(0, (0, 0), (200, 40)))
    region = schedule_of(image, model, 0, (100, 8), (60, 30))
    torch.testing.assert_close(region.rate, whole.rate[..., 100:160, 8:38], atol=1e-5, rtol=1e-5)
    times, beta, gamma = curves_at(region, (5, 7), num_times=11)
    t = torch.from_numpy(times).float()
    for place, time in enumerate(t):
        assert beta[place, 0] == pytest.approx(float(whole.beta(time)[0, 0, 105, 15].detach()), rel=1e-4)
        assert gamma[place, 0] == pytest.approx(float(whole.gamma(time)[0, 0, 105, 15].detach()), rel=1e-4)
    mean = curves_at(region, None)[1]
    assert mean[-1, 0] == pytest.approx(float(region.beta(torch.tensor(1.0)).detach().mean()), rel=1e-4)
