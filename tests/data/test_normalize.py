"""Normalisation: exact where it says so, bounded in memory, the same on every run."""

import json
import math
import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from sfumato.data import normalize
from sfumato.data.normalize import Normalization, fit_together
from sfumato.system.errors import PairingError

LEVELS = (0.001, 0.999)


def images(number: int, dtype: Any = np.float32, channels: int = 2, side: int = 40) -> list[NDArray[Any]]:
    """Skewed images of unequal size, channels of unequal scale."""
    draw = np.random.default_rng(0)
    scale = np.array([300.0, 7.0, 40.0])[:channels, None, None]
    return [(draw.gamma(1.5, size=(channels, side + i, side)) * scale + 10).astype(dtype) for i in range(number)]


def fit(kind: Any, sets: Iterable[NDArray[Any]], quantiles: tuple[float, float] = LEVELS) -> Normalization:
    return fit_together(kind, ((image,) for image in sets), quantiles)[0]


def pooled(sets: list[NDArray[Any]]) -> NDArray[np.float64]:
    return np.concatenate([image.reshape(len(image), -1) for image in sets], axis=1).astype(np.float64)


def ends(normalization: Normalization) -> NDArray[np.float64]:
    """What becomes -1 and 1, shape (2, C)."""
    offset, scale = np.array(normalization.offset), np.array(normalization.scale)
    return np.stack([offset - scale, offset + scale])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("levels", [LEVELS, (0.0, 1.0), (0.25, 0.75), (0.013, 0.5)])
def test_quantiles_of_small_integers_are_exact(dtype: Any, levels: tuple[float, float]) -> None:
    draw = np.random.default_rng(1)
    limits = np.iinfo(dtype)
    sets = [draw.integers(limits.min, limits.max, (2, 30, 20 + i), dtype, endpoint=True) for i in range(5)]
    assert np.allclose(ends(fit("quantile", sets, levels)), np.quantile(pooled(sets), levels, axis=1), rtol=1e-12)


def test_a_mask_of_booleans() -> None:
    assert fit("quantile", [np.eye(4, dtype=bool)[None]], (0.0, 1.0)) == Normalization((0.5,), (0.5,))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.uint32])
def test_quantiles_of_other_numbers_are_exact_for_small_sets(dtype: Any) -> None:
    sets = images(5, dtype)
    assert np.allclose(ends(fit("quantile", sets, LEVELS)), np.quantile(pooled(sets), LEVELS, axis=1), rtol=1e-12)


def test_integers_and_floats_together() -> None:
    sets = [*images(3, np.uint16), *images(2, np.float32), *images(1, np.uint8, side=20)]
    assert np.allclose(ends(fit("quantile", sets, LEVELS)), np.quantile(pooled(sets), LEVELS, axis=1), rtol=1e-12)


@settings(max_examples=50, deadline=None)
@given(
    image=arrays.arrays(np.float64, st.tuples(st.just(1), st.integers(2, 50)), elements=st.floats(-1e6, 1e6)),
    levels=st.lists(st.floats(0, 1), min_size=2, max_size=2, unique=True).map(sorted),
)
def test_quantiles_agree_with_numpy(image: NDArray[np.float64], levels: list[float]) -> None:
    low, high = levels
    expected = np.quantile(image, levels)
    if expected[0] == expected[1]:
        return
    try:
        found = fit("quantile", [image], (low, high))
    except PairingError:
        assert expected[1] - expected[0] < 1e-9  # equal up to the rounding of the interpolation
        return
    assert np.allclose(ends(found)[:, 0], expected, rtol=1e-9, atol=1e-9)


def test_a_sample_of_many_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels of the quantiles found lie within 5 standard errors of those asked for, over sizes of image and stride.

    Columns of the images alternate between dark and bright: a sample at a fixed stride would see only one kind.
    """
    monkeypatch.setattr(normalize, "_MOST_KEPT", 4096)
    draw = np.random.default_rng(2)
    stripes = np.where(np.arange(64) % 2, 100.0, 0.0)
    sets = [draw.exponential(size=(1, 100 + i, 64)) + stripes for i in range(50)]
    levels = (0.05, 0.9)
    found = ends(fit("quantile", sets, levels))
    kept = 2048  # at least so many
    for level, value in zip(levels, found[:, 0], strict=True):
        reached = float((pooled(sets) <= value).mean())
        assert abs(reached - level) < 5 * math.sqrt(level * (1 - level) / kept)
    assert fit("quantile", sets, levels) == fit("quantile", iter(sets), levels), "the same on every run"


def test_every_pixel_is_as_likely_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of one value each: the share of each value in the sample is its share of all pixels."""
    monkeypatch.setattr(normalize, "_MOST_KEPT", 1024)
    sizes = [7, 5000, 333, 1, 20_000, 64]
    sets = [np.full((1, size), float(i)) for i, size in enumerate(sizes)]
    total, at = sum(sizes), np.cumsum(sizes)
    for index in (1, 4):
        middle = (at[index] - sizes[index] / 2) / total
        assert ends(fit("quantile", sets, (0.0, middle)))[1, 0] == index


def test_small_images_count_no_more_than_their_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand images of one pixel each, less than the stride, beside a large one: 1 pixel out of 21."""
    monkeypatch.setattr(normalize, "_MOST_KEPT", 1024)
    sets = [np.full((1, 64), -1.0), np.zeros((1, 20_000)), *[np.ones((1, 1))] * 1000]
    assert ends(fit("quantile", sets, (0.0, 0.9)))[1, 0] == 0
    assert ends(fit("quantile", sets, (0.0, 0.99)))[1, 0] == 1


def test_integers_and_sampled_floats_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each float that is kept stands for as many pixels as its stride: here the integers are a tenth of all."""
    monkeypatch.setattr(normalize, "_MOST_KEPT", 1024)
    sets: list[NDArray[Any]] = [np.arange(20_000.0)[None] - 20_000, np.arange(2222, dtype=np.uint16)[None]]
    low, high = ends(fit("quantile", sets, (0.45, 0.95)))[:, 0]
    assert low == pytest.approx(-10_000, abs=5 * 20_000 * math.sqrt(0.25 / 512))
    assert high == pytest.approx(1111, abs=5 * 20_000 * math.sqrt(0.1 / 512) / 9)


def test_memory_does_not_grow_with_the_number_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalize, "_MOST_KEPT", 2**14)

    def stream(number: int) -> Iterator[NDArray[np.float32]]:
        draw = np.random.default_rng(3)
        return (draw.random((1, 64, 64), dtype=np.float32) for _ in range(number))

    def peak(number: int) -> int:
        tracemalloc.start()
        fit("quantile", stream(number))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(8)
    assert peak(400) < 1.5 * peak(20)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.float32, np.float64])
def test_mean_and_std(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalize, "_BLOCK", 1000)
    sets = images(4, dtype, channels=3)
    found = fit("mean_std", sets)
    assert np.allclose(found.offset, pooled(sets).mean(axis=1), rtol=1e-13)
    assert np.allclose(found.scale, pooled(sets).std(axis=1), rtol=1e-13)


def test_a_small_spread_on_a_large_offset_is_not_lost() -> None:
    """A sum of squares would lose all digits here: (1e9)^2 has 1e-16 * 1e18 = 100 of rounding."""
    image = np.array([1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3])
    found = fit("mean_std", [image[None, :2], image[None, 2:]])
    assert found.offset == (1e9 + 1.5,)
    assert found.scale[0] == pytest.approx(math.sqrt(1.25), rel=1e-12)


@pytest.mark.parametrize("kind", ["quantile", "mean_std"])
@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_constant_channels(kind: Any, dtype: Any) -> None:
    sets = images(2, dtype)
    for image in sets:
        image[1] = 7
    with pytest.raises(PairingError, match=r"channel 1 of the training set is 7 .*leave the channel out"):
        fit(kind, sets)


def test_a_constant_that_floats_cannot_average() -> None:
    """The mean of many 0.1 is not 0.1, so their standard deviation is not 0."""
    with pytest.raises(PairingError, match=r"channel 0 of the training set is 0\.1 everywhere"):
        fit("mean_std", [np.full((1, 1001), 0.1), np.full((1, 77), 0.1)])


def test_a_channel_that_is_nearly_constant_says_so() -> None:
    sparse = np.zeros((1, 100, 100), np.uint8)
    sparse[0, 0, 0] = 200
    with pytest.raises(
        PairingError, match=r"0 at both quantiles 0\.001 and 0\.999.*quantiles wider apart or .* mean_std"
    ):
        fit("quantile", [sparse])
    assert fit("quantile", [sparse], (0.0, 1.0)) == Normalization((100.0,), (100.0,))
    assert fit("mean_std", [sparse]).scale[0] == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("kind", ["quantile", "mean_std"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_pixels_that_are_not_finite(kind: Any, value: float) -> None:
    sets = images(3)
    sets[2][1, 3, 4] = value
    with pytest.raises(
        PairingError, match="image 2 of the training set has NaN or infinite pixels in channel 1; replace"
    ):
        fit(kind, sets)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ([], "no image; check the folders"),
        ([np.zeros((1, 4)), np.zeros((2, 4))], "image 1 .* has 2 channels and those before it 1; bring all"),
        ([np.zeros((1, 0))], r"image 0 .* shape \(1, 0\)"),
        ([np.zeros(4)], r"image 0 .* shape \(4,\)"),
        ([np.zeros((1, 4), complex)], "dtype complex128; expected channels and pixels of real numbers"),
    ],
)
@pytest.mark.parametrize("kind", ["quantile", "mean_std"])
def test_sets_that_cannot_be_normalised(kind: Any, sets: list[NDArray[Any]], words: str) -> None:
    with pytest.raises(PairingError, match=words):
        fit(kind, sets)


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_values_beyond_what_can_be_squared(size: float) -> None:
    with pytest.raises(PairingError, match=r"channel 0 of the training set has a spread of .*; multiply the images"):
        fit("mean_std", [np.array([[size, -size]])])
    assert fit("quantile", [np.array([[size, -size]])], (0.0, 1.0)) == Normalization((0.0,), (size,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_apply_and_invert(dtype: torch.dtype) -> None:
    normalization = Normalization((100.0, -3.0), (50.0, 0.25))
    data = torch.rand(4, 2, 5, 6, generator=torch.Generator().manual_seed(0), dtype=dtype) * 200
    normal = normalization.apply(data)
    assert normal.dtype == dtype
    assert torch.equal(normal[:, 0], (data[:, 0] - 100) / 50)
    assert torch.equal(normal[:, 1], (data[:, 1] + 3) / 0.25)
    rounding = 4 * 200 * torch.finfo(dtype).eps
    assert torch.allclose(normalization.invert(normal), data, rtol=0, atol=rounding)
    spread = torch.full((1, 2, 3, 3), 2.0, dtype=dtype)
    assert normalization.invert_spread(spread)[0, :, 0, 0].tolist() == [100.0, 0.5]
    assert torch.equal(normalization.apply(data[0], axis=0), normal[0])
    assert torch.equal(normalization.apply(data.movedim(1, -1), axis=-1), normal.movedim(1, -1))


def test_integers_become_float32() -> None:
    normalization = Normalization((32768.0,), (32768.0,))
    for dtype in (torch.uint8, torch.uint16, torch.int32):
        applied = normalization.apply(torch.tensor([[[0, 255]]]).to(dtype))
        assert applied.dtype == torch.float32
        assert applied.flatten().tolist() == [-1.0, (255 - 32768) / 32768]


def test_quantiles_go_to_minus_one_and_one() -> None:
    image = images(1)[0]
    normal = fit("quantile", [image], (0.1, 0.9)).apply(torch.from_numpy(image)[None])
    assert np.allclose(np.quantile(normal[0].flatten(1).numpy(), [0.1, 0.9], axis=1), [[-1, -1], [1, 1]], atol=1e-5)


def test_wrong_channels() -> None:
    with pytest.raises(ValueError, match="images have 3 channels but the normalisation 1; bring"):
        Normalization((0.0,), (1.0,)).apply(torch.zeros(1, 3, 4, 4))


@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=False, allow_infinity=False), st.floats(0, exclude_min=True, allow_infinity=False)
        ),
        min_size=1,
        max_size=4,
    )
)
def test_json_keeps_every_bit(pairs: list[tuple[float, float]]) -> None:
    offset, scale = zip(*pairs, strict=True)
    normalization = Normalization(offset, scale)
    assert Normalization.from_json(json.loads(json.dumps(normalization.to_json()))) == normalization


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (None, "keys"),
        ({"offset": [0.0]}, "keys"),
        ({"offset": [0.0], "scale": [1.0], "more": 1}, "keys"),
        ({"offset": 0.0, "scale": [1.0]}, "list of numbers"),
        ({"offset": [True], "scale": [1.0]}, "list of numbers"),
        ({"offset": ["0"], "scale": [1.0]}, "list of numbers"),
        ({"offset": [], "scale": []}, "0 offsets and 0 scales"),
        ({"offset": [0.0], "scale": [1.0, 2.0]}, "1 offsets and 2 scales"),
        ({"offset": [0.0], "scale": [0.0]}, "positive scales"),
        ({"offset": [0.0], "scale": [-1.0]}, "positive scales"),
        ({"offset": [math.nan], "scale": [1.0]}, "finite offsets"),
        ({"offset": [0.0], "scale": [math.inf]}, "positive scales"),
        ({"offset": [10**400], "scale": [1.0]}, "beyond the range"),
    ],
)
def test_json_that_is_no_normalisation(values: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Normalization.from_json(values)


@pytest.mark.parametrize("kind", ["quantile", "mean_std"])
def test_sets_that_are_read_together_are_fitted_as_if_alone(kind: Any) -> None:
    first, second = images(5, np.uint16), images(5, np.float32, channels=1)
    assert fit_together(kind, zip(first, second, strict=True)) == [fit(kind, first), fit(kind, second)]
    with pytest.raises(PairingError, match="no image"):
        fit_together(kind, [])
