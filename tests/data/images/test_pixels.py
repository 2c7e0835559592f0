"""Pixels as numbers: what float32 gets of them."""

from typing import Any

import numpy as np
import pytest
import torch

from sfumato.data.frames import upsample
from sfumato.data.images.pixels import as_pixels, floats
from sfumato.data.normalize import Normalization
from sfumato.system.bounds import seed_of, whole
from sfumato.system.errors import ImageError, RecipeError

FAR = 2**30


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "uint16", "float16", "float32", ">u2", "<f4"])
def test_narrow_types_become_float32(dtype: str) -> None:
    pixels = np.array([[0, 1, 200]]).astype(dtype)
    assert floats(pixels).dtype == np.float32
    np.testing.assert_array_equal(floats(pixels), pixels.astype(np.float32))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "float64"])
def test_wide_types_become_float64_only_where_they_must(dtype: str) -> None:
    assert floats(np.array([2**24], dtype)).dtype == np.float32
    assert floats(np.array([2**24 + 1], dtype)).tolist() == [2**24 + 1]


def test_a_pixel_does_not_depend_on_its_neighbours() -> None:
    """Regions of an image must hold what the whole holds: 0.1 is rounded as float32 beside a far pixel too."""
    beside, alone = floats(np.array([0.1, 1e9])), floats(np.array([0.1]))
    assert beside[0] == alone[0] == np.float32(0.1)
    scaling = Normalization((0.3,), (0.7,))
    both, one = scaling.of_pixels(np.array([[0.1, 1e9]]), axis=0), scaling.of_pixels(np.array([[0.1]]), axis=0)
    assert both[0, 0] == one[0, 0]


def test_the_offset_is_subtracted_before_levels_are_lost() -> None:
    """(value - offset) / scale in closed form: whole numbers over a power of two, exact in float32."""
    levels = np.arange(-50, 50)[None]
    found = Normalization((float(FAR),), (64.0,)).of_pixels(FAR + levels, axis=0)
    assert found.dtype == torch.float32
    assert found.tolist() == (levels / 64).tolist()


@pytest.mark.parametrize("dtype", ["uint16", "int64", "float32", "float64"])
def test_other_pixels_are_normalised_as_ever(dtype: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 60_000, (2, 3, 8, 8)).astype(dtype)
    scaling = Normalization((123.4, 5.6, 7.8), (33.3, 44.4, 55.5))
    assert torch.equal(scaling.of_pixels(pixels), scaling.apply(torch.from_numpy(pixels.astype(np.float32))))


def test_upsampling_keeps_levels() -> None:
    levels = np.random.default_rng(0).integers(0, 50, (1, 8, 8))
    near, far = upsample(levels.astype(np.float64), (2, 2)), upsample(FAR + levels, (2, 2))
    np.testing.assert_allclose(far.astype(np.float64) - FAR, near.astype(np.float64), atol=1e-5)


@pytest.mark.parametrize("given", [np.zeros((0, 2)), np.zeros(2, object), "a.tif", None, [[1], [2, 3]], torch.zeros(0)])
def test_what_holds_no_pixels_is_refused(given: Any) -> None:
    with pytest.raises(ImageError, match="expected"):
        as_pixels(given)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "3", None])
def test_only_whole_numbers_in_range_count(value: Any) -> None:
    with pytest.raises(RecipeError, match="expected a whole number of at least 1; give one"):
        whole("n", value)
    assert whole("n", np.int64(3)) == 3


def test_seeds_are_64_bits() -> None:
    assert seed_of(np.uint64(2**64 - 1)) == 2**64 - 1
    for seed in (-1, 2**64):
        with pytest.raises(RecipeError, match="from 0 to"):
            seed_of(seed)
