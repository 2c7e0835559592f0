"""Levels of a pyramid: their shapes, scales and pixels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.data.images.image import PixelSize
from sfumato.data.images.ome_zarr_writer import halve_pixels, plan_levels
from sfumato.system.errors import ImageError

Array = npt.NDArray[Any]


def um(value: float) -> PixelSize:
    return PixelSize(value, "micrometer")


def mean_of_what_exists(pixels: Array, steps: Sequence[int]) -> Array:
    """Pixel by pixel, as the definition says."""
    shape = [-(-length // step) for length, step in zip(pixels.shape, steps, strict=True)]
    result = np.empty(shape)
    for index in np.ndindex(*shape):
        result[index] = pixels[tuple(slice(i * s, i * s + s) for i, s in zip(index, steps, strict=True))].mean()
    return result


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 4))
def test_halving_is_the_mean_of_what_exists(data: st.DataObject, ndim: int) -> None:
    shape = data.draw(st.tuples(*[st.integers(1, 5)] * ndim))
    steps = data.draw(st.tuples(*[st.integers(1, 2)] * ndim))
    pixels = data.draw(arrays(np.float32, shape, elements=st.floats(-100, 100, width=32)))
    np.testing.assert_allclose(halve_pixels(pixels, steps), mean_of_what_exists(pixels, steps), rtol=1e-6, atol=1e-5)


def test_halving_keeps_types_and_nan() -> None:
    assert halve_pixels(np.array([1, 2, 5, 255], np.uint8), [2]).tolist() == [2, 130]
    assert halve_pixels(np.array([2**31 - 1, 2**31 - 1], np.int32), [2]).tolist() == [2**31 - 1]
    assert halve_pixels(np.array([True, True, False]), [2]).tolist() == [True, False]
    halved = halve_pixels(np.array([np.nan, 1, 2, 3], np.float16), [2])
    assert halved.dtype == np.float16
    np.testing.assert_array_equal(halved, [np.nan, 2.5])
    assert halve_pixels(np.array([1 + 1j, 3], np.complex64), [2]).tolist() == [2 + 0.5j]


@pytest.mark.parametrize(
    ("sizes", "depths"),
    [
        ({}, [16, 8, 4, 2]),
        ({"Z": um(0.1), "Y": um(0.1), "X": um(0.1)}, [16, 8, 4, 2]),
        # Sections four times as far apart as pixels wait until these have caught up.
        ({"Z": um(0.4), "Y": um(0.1), "X": um(0.1)}, [16, 16, 16, 8]),
        ({"Z": PixelSize(400, "nanometer"), "Y": um(0.1), "X": PixelSize(1e-4, "millimeter")}, [16, 16, 16, 8]),
        ({"Z": um(0.05), "Y": um(0.1), "X": um(0.1)}, [16, 8, 4, 2]),
    ],
)
def test_depth_is_halved_where_voxels_get_closer_to_cubes(sizes: dict[str, PixelSize], depths: list[int]) -> None:
    levels = plan_levels((16, 64, 64), "ZYX", sizes, num_levels=4)
    assert [level.shape[0] for level in levels] == depths
    assert [level.shape[1:] for level in levels] == [(64, 64), (32, 32), (16, 16), (8, 8)]
    if sizes:
        for level, finer in zip(levels[1:], levels, strict=False):
            ratios = []
            for depth in (finer.factors[0], 2 * finer.factors[0]):
                ratios.append(abs(np.log(sizes["Z"].to("micrometer") * depth / (0.1 * level.factors[1]))))
            assert (level.factors[0] != finer.factors[0]) == (ratios[1] < ratios[0])


def test_what_cannot_be_halved_stays() -> None:
    levels = plan_levels((2, 1, 1, 5), "TZYX", num_levels=4)
    assert [level.shape for level in levels] == [(2, 1, 1, 5), (2, 1, 1, 3), (2, 1, 1, 2), (2, 1, 1, 1)]
    assert levels[-1].factors == (1, 1, 1, 8)
    for wrong in (0, 5):
        with pytest.raises(ImageError, match=rf"{wrong} levels were asked .* expected 1 to"):
            plan_levels((2, 1, 1, 5), "TZYX", num_levels=wrong)
