"""The one way from a condition to what is known of its image: the sampler's draws, summed up, in the target's units."""

from pathlib import Path

import numpy as np
import pytest
import torch

from networks import seeded
from sfumato.data.normalize import Normalization
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.sampling import sample
from sfumato.models.build import build_model
from sfumato.models.model_file import LoadedModel, ModelInfo, load, save_model
from sfumato.models.recipe import parse
from sfumato.restoration.conditions import condition_of
from sfumato.restoration.outputs import Output
from sfumato.restoration.restorer import Restorer
from sfumato.system.errors import ImageError
from untrained_models import noise, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load(write_model(tmp_path_factory.mktemp("model") / "model.safetensors"))


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    recipe = parse("model: {method: regression, base: 4, num_scales: 2}", source="test")
    path, data = tmp_path_factory.mktemp("model") / "model.safetensors", Normalization((10.0,), (3.0,))
    weights = seeded(lambda: build_model(recipe.model, 1, 1)).state_dict()
    save_model(path, weights, ModelInfo(recipe, 1, 1, data, data, {}, {}))
    return load(path)


def test_what_is_summed_up_are_the_draws_of_the_sampler(model: LoadedModel) -> None:
    restorer = Restorer.of(model, 4, 3)
    condition = condition_of(noise(16, 24), model).condition()
    drawn = sample(model.model, condition, num_samples=4, num_steps=3, seed=NoiseField(7, image=2))[:, 0]
    draws = 10 + 3 * drawn.double()  # as `write_model` normalises
    outputs = [*restorer.outputs, Output("quantile", "", level=0.6), Output("sample", "", number=2)]
    assert [output.content for output in outputs] == ["mean", "std", "quantile", "sample"]
    mean, std, quantile, third = restorer.summarise(condition, NoiseField(7, image=2), outputs)
    np.testing.assert_allclose(mean, draws.mean(0), rtol=1e-5)
    np.testing.assert_allclose(std, draws.std(0), rtol=1e-4)
    np.testing.assert_allclose(quantile, draws.sort(0).values[2], rtol=1e-5)  # 0.6 of 4 + 1 is the third
    np.testing.assert_allclose(third, draws[2], rtol=1e-5)


def test_batches_and_what_is_wanted_of_a_region_do_not_change_it(model: LoadedModel) -> None:
    restorer = Restorer.of(model, 3, 2)
    condition, outputs = condition_of(noise(16, 24), model).condition(), restorer.outputs
    whole = restorer.summarise(condition, NoiseField(1), outputs)
    inner = (..., slice(4, 9), slice(8, 24))
    part = restorer.summarise(condition, NoiseField(1), outputs, inner=inner, batch=1, full_scale=255.0)
    for one, other in zip(whole, part, strict=True):
        np.testing.assert_allclose(255 * one[inner], other, rtol=2e-4)


def test_a_regression_answers_with_its_mean_alone(regression: LoadedModel) -> None:
    restorer = Restorer.of(regression, 16)
    condition, told = condition_of(noise(16, 16), regression).condition(), list[int]()
    assert restorer.outputs == [Output("mean", "")]
    assert (restorer.num_draws, restorer.num_calls, restorer.label) == (1, 1, "not calibrated")
    (mean,) = restorer.summarise(condition, NoiseField(0), restorer.outputs, progress=told.append)
    with torch.no_grad():
        center = regression.model.center(condition)
    assert center is not None
    np.testing.assert_array_equal(mean, regression.info.target.invert(center)[0].numpy())
    assert told == [16]
    Restorer.of(regression, 1).check_spread()
    with pytest.raises(ImageError, match="no samples to compare; expected a diffusion model"):
        restorer.check_samples("to compare")


def test_one_sample_has_no_spread(model: LoadedModel) -> None:
    with pytest.raises(ImageError, match="samples is 1; a standard deviation needs at least 2"):
        Restorer.of(model, 1).check_spread()


def test_regions_of_an_image_that_is_scaled_by_itself_are_scaled_alike(tmp_path: Path) -> None:
    model = load(write_model(tmp_path / "model.safetensors", normalize="image"))
    frames = condition_of(noise(20, 30), model)
    torch.testing.assert_close(frames.condition(0, [3, 5], [8, 9]), frames.condition()[..., 3:11, 5:14])


def test_the_written_mean_is_the_networks_if_the_recipe_says_so(tmp_path: Path) -> None:
    parts = "mean_network: true, linear_start: true, read_once: true, scale_network: true"
    text = f"{{model: {{base: 4, rate_base: 4, num_scales: 2, {parts}}}, sample: {{mean: network}}}}"
    recipe, data = parse(text, source="test"), Normalization((10.0,), (3.0,))
    weights = seeded(lambda: build_model(recipe.model, 1, 1)).state_dict()
    save_model(tmp_path / "model.safetensors", weights, ModelInfo(recipe, 1, 1, data, data, {}, {}))
    model = load(tmp_path / "model.safetensors")
    condition = condition_of(noise(40, 24), model).condition()
    with torch.no_grad():
        center = model.model.center(condition)
    assert center is not None
    drawn = sample(model.model, condition, num_samples=4, num_steps=3, seed=NoiseField(7))[:, 0]
    assert not torch.allclose(drawn.mean(0), center[0], atol=0.1)
    inner = (..., slice(4, 36), slice(8, 24))
    for tile in (None, 16):
        restorer = Restorer.of(model, 4, 3, tile=tile)
        mean, std = restorer.summarise(condition, NoiseField(7), restorer.outputs, inner=inner)
        np.testing.assert_allclose(mean, (10 + 3 * center[0])[inner], rtol=1e-5)
        np.testing.assert_allclose(std, 3 * drawn.std(0)[inner], rtol=1e-3)
