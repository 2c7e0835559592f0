"""Targets brought to the intensities of their inputs."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pairs import Memory
from pair_folders import make_pairs
from sfumato.data.intensity import MatchedPairs, offset_and_slope
from sfumato.system.errors import PairingError
from sfumato.training.train import train
from small_runs import recipe


@given(st.floats(-100, 100), st.floats(-10, 10), st.integers(0, 99))
def test_the_fit_finds_an_affine_map(offset: float, slope: float, seed: int) -> None:
    source = np.random.default_rng(seed).random((7, 9))
    assert offset_and_slope(source, offset + slope * source) == pytest.approx((offset, slope), abs=1e-9)


def test_noise_in_the_goal_does_not_bias_the_slope() -> None:
    """Fitted the other way, this noise would halve it."""
    generator = np.random.default_rng(0)
    source = generator.standard_normal(200_000)
    slopes = offset_and_slope(source, 2 * source + 2 * generator.standard_normal(source.shape))
    assert slopes[1] == pytest.approx(2, abs=0.02)


def test_each_channel_of_each_image_gets_its_own_scale() -> None:
    generator = np.random.default_rng(0)
    targets = [generator.random((2, 20, 30)) for _ in range(3)]
    scales = [np.array([[[1.0 + n]], [[0.5 + n]]]) for n in range(3)]
    conditions = [5 + scale * target for scale, target in zip(scales, targets, strict=True)]
    matched = MatchedPairs(Memory(conditions, targets))
    for sample in range(3):
        for corner, size in (([0, 0], [20, 30]), ([3, 4], [5, 6])):
            condition, target = matched.read(sample, corner, size)
            assert target.dtype == np.float32
            np.testing.assert_allclose(np.asarray(target, float), np.asarray(condition, float), rtol=1e-5)


def test_regions_have_the_scale_of_the_whole_image() -> None:
    """Not of the region, whose own fit would differ."""
    generator = np.random.default_rng(0)
    target = generator.random((1, 16, 16))
    matched = MatchedPairs(Memory([target + generator.standard_normal(target.shape)], [target]))
    whole = matched.read(0, [0, 0], [16, 16])[1]
    offset, slope = offset_and_slope(target, matched.read(0, [0, 0], [16, 16])[0])
    np.testing.assert_allclose(np.asarray(whole, float), offset + slope * target, rtol=1e-5)
    np.testing.assert_array_equal(matched.read(0, [2, 3], [4, 5])[1], whole[:, 2:6, 3:8])


def test_what_cannot_be_matched_says_so() -> None:
    image = np.random.default_rng(0).random((1, 8, 8))
    with pytest.raises(PairingError, match="falls where the target rises"):
        MatchedPairs(Memory([-image], [image])).read(0, [0, 0], [4, 4])
    with pytest.raises(PairingError, match="give as many in both"):
        MatchedPairs(Memory([np.concatenate([image, image])], [image]))


def test_a_recipe_asks_for_it(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path)
    run = train(recipe(folders, train_steps=1, data_match_intensity=True), tmp_path / "run", quiet=True)
    assert run.model_file.is_file()
