"""Arrays are checked like files: what is no image is refused, and a number means what it does in a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sfumato
from attack.attacking import FEW, pixels, run, write_model
from networks import seeded
from sfumato.data.batches import PatchBatches
from sfumato.data.images.io import write_image
from sfumato.data.images.pixels import ArrayImage
from sfumato.data.normalize import Normalization
from sfumato.data.order import Order
from sfumato.data.pairs import find_pairs
from sfumato.data.sources import FilePairs
from sfumato.diffusion.noise import NoiseField
from sfumato.models.build import build_model
from sfumato.models.model_file import LoadedModel, ModelInfo, load, save_model
from sfumato.models.recipe import parse
from sfumato.restoration.conditions import Measured
from sfumato.restoration.interactive import Parts
from sfumato.system.errors import SfumatoError

FAR = 2**30
WIDE = ["uint32", "int32", "uint64", "int64", "float64"]


@pytest.fixture(scope="session")
def loaded(model: Path) -> LoadedModel:
    return load(model)


def levels(dtype: Any = np.float32, first: int = 0) -> NDArray[Any]:
    """An image of neighbouring levels."""
    return (first + np.random.default_rng(0).integers(0, 20, (32, 32))).astype(dtype)


def restored(array: Any, model: LoadedModel, **settings: Any) -> NDArray[np.float32]:
    return sfumato.restore(array, model, **{"num_samples": 2, "num_steps": 2, **settings}).mean


def shifted_model(path: Path, offset: float) -> Path:
    """A model that was trained on images around an offset; its weights are those of any other."""
    read = parse("model: {base: 4, rate_base: 2, num_scales: 2}")
    weights = seeded(lambda: build_model(read.model, 1, 1), 0).state_dict()
    scaling = Normalization(offset=(offset,), scale=(10.0,))
    save_model(path, weights, ModelInfo(read, 1, 1, scaling, Normalization((0.0,), (1.0,)), {}, {}))
    return path


# Pictures: a model of shares takes whole numbers as parts of the largest of their type.


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_picture_in_memory_is_restored_as_its_file_is(tmp_path: Path, dtype: Any) -> None:
    model = write_model(tmp_path / "model.safetensors", recipe="problem: natural")
    array = np.random.default_rng(1).integers(0, np.iinfo(dtype).max, (32, 32)).astype(dtype)
    write_image(tmp_path / "in.tif", array, axes="YX")
    assert run("restore", model, tmp_path / "in.tif", tmp_path / "out.tif", *FEW).code == 0
    found = sfumato.restore(array, load(model), num_samples=2, num_steps=2)
    np.testing.assert_array_equal(found.mean, pixels(tmp_path / "out.tif"))
    np.testing.assert_array_equal(found.std, pixels(tmp_path / "out_std.tif"))


@pytest.mark.guard
def test_a_picture_of_shares_stays_as_it_is(tmp_path: Path) -> None:
    model = load(write_model(tmp_path / "model.safetensors", recipe="problem: natural"))
    array = np.random.default_rng(1).random((32, 32)).astype(np.float32)
    np.testing.assert_array_equal(restored(array, model), restored(array.astype(np.float64), model))


# Levels: beyond 2**24 float32 knows only every second whole number, then every fourth.


@pytest.mark.parametrize("dtype", WIDE)
def test_levels_far_from_zero_are_kept(tmp_path: Path, dtype: str) -> None:
    near, far = (load(shifted_model(tmp_path / f"{at}.safetensors", at)) for at in (0, FAR))
    np.testing.assert_array_equal(restored(levels(dtype, FAR), far), restored(levels(), near))


def test_levels_of_a_file_are_kept(tmp_path: Path) -> None:
    near, far = (shifted_model(tmp_path / f"{at}.safetensors", at) for at in (0, FAR))
    write_image(tmp_path / "near.tif", levels(), axes="YX")
    write_image(tmp_path / "far.tif", levels("uint32", FAR), axes="YX")
    for name, model in (("near", near), ("far", far)):
        assert run("restore", model, tmp_path / f"{name}.tif", tmp_path / f"{name}_out.tif", *FEW).code == 0
    np.testing.assert_array_equal(pixels(tmp_path / "far_out.tif"), pixels(tmp_path / "near_out.tif"))


def test_levels_reach_the_training(tmp_path: Path) -> None:
    for folder, first, dtype in (("near", 0, "float32"), ("far", FAR, "uint32")):
        (tmp_path / folder).mkdir()
        write_image(tmp_path / folder / "a.tif", levels(dtype, first), axes="YX")
    pairs = FilePairs(find_pairs(tmp_path / "far", tmp_path / "near"))
    scaling = {"condition": Normalization((float(FAR),), (10.0,)), "target": Normalization((0.0,), (10.0,))}
    batch = PatchBatches(pairs, Order(0, 1, 2), patch=16, augment=True, **scaling)(0, range(2))
    assert torch.equal(batch.condition, batch.target)


@pytest.mark.guard
@pytest.mark.parametrize("dtype", [*WIDE, "uint16", "float16"])
def test_smaller_numbers_mean_the_same_in_every_type(loaded: LoadedModel, dtype: str) -> None:
    np.testing.assert_array_equal(restored(levels(dtype), loaded), restored(levels(), loaded))


def test_pixels_that_no_float32_holds_are_refused(loaded: LoadedModel) -> None:
    array = levels(np.float64)
    array[0, 0] = 1e300
    with pytest.raises(SfumatoError, match="check the units"):
        restored(array, loaded)


# What is no image.


def test_masked_pixels_are_refused(loaded: LoadedModel) -> None:
    with pytest.raises(SfumatoError, match=r"2 masked pixels.*array.filled"):
        restored(_masked(2), loaded)


@pytest.mark.guard
def test_a_mask_that_hides_nothing_does_not_matter(loaded: LoadedModel) -> None:
    np.testing.assert_array_equal(restored(_masked(0), loaded), restored(levels(), loaded))


def test_masked_pixels_of_a_viewer_are_refused(loaded: LoadedModel) -> None:
    measured = Measured(ArrayImage.of(_masked(3), axes="YX", name="layer"), loaded)
    with pytest.raises(SfumatoError, match="layer has 3 masked pixels"):
        Parts(measured, loaded, num_samples=2, num_steps=2).restore()


@pytest.mark.parametrize("shape", [(0, 32), (32, 0)])
def test_arrays_without_pixels_are_refused(loaded: LoadedModel, shape: tuple[int, ...]) -> None:
    with pytest.raises(SfumatoError, match="no pixels"):
        restored(np.zeros(shape, np.float32), loaded)


@pytest.mark.parametrize("given", ["cells.tif", Path("cells.tif"), None, [[1, 2], [3]]], ids=str)
def test_what_is_no_array_is_refused(loaded: LoadedModel, given: Any) -> None:
    with pytest.raises(SfumatoError, match="expected"):
        restored(given, loaded)


@pytest.mark.guard
@pytest.mark.parametrize("dtype", [object, np.complex64, "U1"])
def test_arrays_of_other_things_are_refused(loaded: LoadedModel, dtype: Any) -> None:
    with pytest.raises(SfumatoError, match="of type"):
        restored(np.zeros((32, 32), dtype), loaded)


@pytest.mark.guard
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused(loaded: LoadedModel, value: float) -> None:
    array = levels()
    array[3, 4] = value
    with pytest.raises(SfumatoError, match="NaN or infinite"):
        restored(array, loaded)


@pytest.mark.parametrize(
    "change",
    [
        lambda array: torch.from_numpy(array),
        lambda array: torch.from_numpy(array).to(torch.bfloat16).requires_grad_(),
        lambda array: array.tolist(),
    ],
    ids=["tensor", "half tensor", "lists"],
)
def test_tensors_and_lists_are_arrays(loaded: LoadedModel, change: Callable[[NDArray[Any]], Any]) -> None:
    np.testing.assert_array_equal(restored(change(levels()), loaded), restored(levels(), loaded))


# What is no model.


def test_networks_alone_are_no_model(loaded: LoadedModel) -> None:
    with pytest.raises(SfumatoError, match=r"bare CVDM.*sfumato\.load"):
        restored(levels(), loaded.model)  # type: ignore[arg-type]


def test_a_path_is_no_model(model: Path) -> None:
    with pytest.raises(SfumatoError, match=r"a path.*sfumato\.load"):
        restored(levels(), model)  # type: ignore[arg-type]


def test_a_loaded_model_is_no_network(loaded: LoadedModel) -> None:
    with pytest.raises(SfumatoError, match="give the `model`"):
        sfumato.sample(loaded, torch.zeros(1, 1, 8, 8), num_samples=1, num_steps=1, seed=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("condition", [np.zeros((1, 1, 8, 8), np.float32), torch.zeros(1, 1, 0, 8), torch.zeros(8)])
def test_sampling_takes_normalised_images_alone(loaded: LoadedModel, condition: Any) -> None:
    with pytest.raises(SfumatoError, match="condition"):
        sfumato.sample(loaded.model, condition, num_samples=1, num_steps=1, seed=0)


@pytest.mark.guard
def test_only_model_files_are_loaded(tmp_path: Path) -> None:
    write_image(tmp_path / "cells.tif", levels(), axes="YX")
    for place in (tmp_path, tmp_path / "missing.safetensors", tmp_path / "cells.tif"):
        with pytest.raises(SfumatoError, match=r"give the path|model"):
            sfumato.load(place)


# Numbers.


@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_there_is_no_zeroth_step(loaded: LoadedModel, value: Any) -> None:
    with pytest.raises(SfumatoError, match=r"steps is .*; expected a whole number of at least 1"):
        restored(levels(), loaded, num_steps=value)


def test_there_is_no_half_sample(loaded: LoadedModel) -> None:
    with pytest.raises(SfumatoError, match=r"samples is 2\.5; expected a whole number"):
        restored(levels(), loaded, num_samples=2.5)


@pytest.mark.guard
@pytest.mark.parametrize("value", [0, -1, 1, True])
def test_there_is_no_spread_of_one_sample(loaded: LoadedModel, value: Any) -> None:
    with pytest.raises(SfumatoError, match="samples is"):
        restored(levels(), loaded, num_samples=value)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5])
def test_seeds_have_64_bits(loaded: LoadedModel, seed: Any) -> None:
    for draw in (
        lambda: restored(levels(), loaded, seed=seed),
        lambda: sfumato.sample(loaded.model, torch.zeros(1, 1, 8, 8), num_samples=1, num_steps=1, seed=seed),
        lambda: NoiseField(seed),
    ):
        with pytest.raises(SfumatoError, match=r"seed is .*; expected a whole number from 0 to 18446744073709551615"):
            draw()


@pytest.mark.guard
def test_the_largest_seed_draws(loaded: LoadedModel) -> None:
    assert np.isfinite(restored(levels(), loaded, seed=2**64 - 1)).all()


def test_a_posterior_takes_samples_of_the_same_pixels() -> None:
    posterior = sfumato.Posterior(4).add(torch.zeros(2, 3, 1))
    with pytest.raises(ValueError, match="the same pixels"):
        posterior.add(torch.zeros(2, 3, 5))
    with pytest.raises(ValueError, match="floating-point"):
        posterior.add(np.zeros((2, 3, 1)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"num_samples is 2\.5"):
        sfumato.Posterior(2.5)  # type: ignore[arg-type]


def _masked(number: int) -> Any:
    mask = np.zeros((32, 32), bool)
    mask[0, :number] = True
    return np.ma.masked_array(levels(), mask)
