"""The order of training: exact permutations, pure functions, independent of ranks."""

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.data.order import Order, permute, uniform


@given(size=st.integers(1, 5000), seed=st.integers(-(2**70), 2**70), epoch=st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_an_epoch_visits_every_sample_once(size: int, seed: int, epoch: int) -> None:
    order = permute(np.arange(size), size, seed=seed, epoch=epoch)
    assert sorted(order.tolist()) == list(range(size))


def test_permutations_look_random() -> None:
    """Where sample 0 goes is uniform over seeds; neighbours do not stay neighbours; epochs differ."""
    size = 97
    first = np.array([permute(np.array([0]), size, seed=seed)[0] for seed in range(5000)])
    assert stats.chisquare(np.bincount(first, minlength=size)).pvalue > 1e-3
    pairs = np.array([permute(np.array([10, 11]), size, seed=seed) for seed in range(5000)])
    gaps = (pairs[:, 1] - pairs[:, 0]) % size
    assert stats.chisquare(np.bincount(gaps, minlength=size)[1:]).pvalue > 1e-3
    order = permute(np.arange(10_000), 10_000, seed=3)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 4.5 / 100
    other = permute(np.arange(10_000), 10_000, seed=3, epoch=1)
    assert (order == other).mean() < 0.002


def test_ten_million_samples_in_constant_memory() -> None:
    order = Order(seed=5, num_samples=10**7, batch_size=64)
    order.samples(0)
    tracemalloc.start()
    start = time.perf_counter()
    for step in range(200):
        order.samples(step)
    seconds = time.perf_counter() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20
    assert seconds / (200 * 64) < 50e-6  # tracing slows it; benchmarks/data_loading.py measures it bare


def test_batches_walk_through_the_epochs() -> None:
    order = Order(seed=1, num_samples=10, batch_size=4)
    drawn = np.concatenate([order.samples(step) for step in range(5)])
    assert sorted(drawn[:10]) == sorted(drawn[10:]) == list(range(10))
    assert drawn[:10].tolist() != drawn[10:].tolist()


@given(step=st.integers(0, 10**9), cut=st.integers(0, 12))
@settings(max_examples=30, deadline=None)
def test_ranks_share_one_global_batch(step: int, cut: int) -> None:
    order = Order(seed=9, num_samples=1000, batch_size=12)
    limits = np.full((12, 2), 33)
    halves = [range(0, cut), range(cut, 12)]
    assert np.array_equal(order.samples(step), np.concatenate([order.samples(step, part) for part in halves]))
    assert np.array_equal(order.times(step), np.concatenate([order.times(step, part) for part in halves]))
    assert np.array_equal(order.flips(step, 8), np.concatenate([order.flips(step, 8, part) for part in halves]))
    corners = [order.corners(step, limits[part.start : part.stop], part) for part in halves]
    assert np.array_equal(order.corners(step, limits), np.concatenate(corners))


def test_draws_are_uniform_and_independent() -> None:
    order = Order(seed=2, num_samples=100, batch_size=16)
    steps = range(2000)
    times = np.array([order.times(step) for step in steps])
    assert ((times * 16).astype(int) == np.arange(16)).all(), "one time per stratum"
    assert stats.kstest((times * 16 % 1)[:, 0], "uniform").pvalue > 1e-3
    flips = np.concatenate([order.flips(step, 8) for step in steps])
    assert stats.chisquare(np.bincount(flips, minlength=8)).pvalue > 1e-3
    limits = np.array([[5, 1]] * 16)
    corners = np.concatenate([order.corners(step, limits) for step in steps])
    assert stats.chisquare(np.bincount(corners[:, 0], minlength=5)).pvalue > 1e-3
    assert (corners[:, 1] == 0).all()
    assert abs(np.corrcoef(corners[:, 0], flips)[0, 1]) < 4.5 / len(flips) ** 0.5


@pytest.mark.parametrize("fields", [(0,), (1, 2), (-1, 2**63)])
def test_uniform_is_strictly_between_zero_and_one(fields: tuple[int, ...]) -> None:
    value = float(uniform(*fields)[0])
    assert 0 < value < 1
    assert value == float(uniform(*fields)[0])
