"""Intervals with a guarantee: the factor is the right one, and the promise holds over many calibration sets."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.statistics.conformal import (
    Scores,
    fit_spread,
    hoeffding_bentkus,
    num_units_needed,
    pooled_quantile,
    rcps,
    risk_control,
)


def single(values: np.ndarray) -> Scores:
    """Units of one image of one pixel: split conformal prediction."""
    return Scores([[value[None]] for value in values])


@given(st.integers(9, 200), st.integers(0, 1000), st.sampled_from([0.5, 0.8, 0.9]))
def test_one_pixel_per_image_is_split_conformal_prediction(n: int, seed: int, level: float) -> None:
    values = np.abs(np.random.default_rng(seed).normal(size=n))
    rank = math.ceil((n + 1) * level - 1e-9)
    expected = np.quantile(values, (rank - 0.5) / n, method="inverted_cdf")
    assert risk_control(single(values), level) == pytest.approx(expected, abs=1e-6)


def test_the_factor_is_the_least_that_is_allowed() -> None:
    rng = np.random.default_rng(0)
    scores = Scores([[np.abs(rng.normal(size=(8, 8)))] for _ in range(50)])
    for factor, bound in (
        (risk_control(scores, 0.9), lambda r: (50 * r + 1) / 51 <= 0.1),
        (rcps(scores, 0.9, 0.1), lambda r: hoeffding_bentkus(r, 50, 0.1) <= 0.1),
        (pooled_quantile(scores, 0.9), lambda r: r <= 0.1),
    ):
        assert bound(scores.risk(factor))
        assert not bound(scores.risk(np.nextafter(np.float32(factor), np.float32(0))))


@given(st.integers(1, 2000), st.floats(0, 1), st.sampled_from([0.01, 0.1, 0.3]))
def test_the_bound_is_that_of_hoeffding_and_bentkus(n: int, risk: float, alpha: float) -> None:
    a = min(risk, alpha)
    hoeffding = math.exp(-n * stats.entropy([a, 1 - a], [alpha, 1 - alpha]))
    bentkus = math.e * stats.binom.cdf(math.ceil(n * risk - 1e-9), n, alpha)
    assert hoeffding_bentkus(risk, n, alpha) == pytest.approx(min(1, hoeffding, bentkus), rel=1e-8, abs=1e-300)


def test_the_numbers_needed_are_those_of_the_theorems() -> None:
    for level in (0.5, 0.8, 0.9, 0.95, 0.99):
        n = num_units_needed(level)
        perfect = Scores([[np.zeros(4)]] * n)
        assert risk_control(perfect, level) == 0
        with pytest.raises(ValueError, match=f"at least {n} are needed"):
            risk_control(perfect.only(range(n - 1)), level)
        m = num_units_needed(level, 0.1)
        assert hoeffding_bentkus(0.0, m, 1 - level) <= 0.1 < hoeffding_bentkus(0.0, m - 1, 1 - level)


def test_images_of_a_unit_count_equally_whatever_their_size() -> None:
    scores = Scores([[np.array([0.0, 0.0, 0.0, 2.0]), np.array([2.0])], [np.array([0.0])]])
    np.testing.assert_allclose(scores.risks(1.0), [(0.25 + 1) / 2, 0])
    assert len(scores.only([1])) == 1


@pytest.mark.parametrize("bad", [[], [[]], [[np.array([])]], [[np.array([np.nan])]], [[np.array([-1.0])]]])
def test_what_is_no_score_is_refused(bad: list[list[np.ndarray]]) -> None:
    with pytest.raises(ValueError, match=r"unit without pixels|must be finite"):
        Scores(bad)


def test_guarantees_hold_over_calibration_sets() -> None:
    """Images with risks that differ much: per image an error scale of its own; the true risk is known."""
    rng = np.random.default_rng(1)
    n, level, delta, repeats = 60, 0.9, 0.1, 120
    pool = np.abs(rng.normal(size=(1500, 64))) * rng.lognormal(sigma=0.5, size=(1500, 1))
    population = Scores([[image] for image in pool])
    order = [rng.choice(1500, n, replace=False).tolist() for _ in range(repeats)]
    controlled = [population.risk(risk_control(population.only(chosen), level)) for chosen in order]
    confident = [population.risk(rcps(population.only(chosen), level, delta)) for chosen in order]
    assert np.mean(controlled) <= 0.1 + 2 * np.std(controlled) / math.sqrt(repeats)
    assert np.mean(controlled) > 0.08  # and it is not bought by intervals that are too wide
    assert np.mean(np.array(confident) > 0.1) <= delta + 2 * math.sqrt(delta * (1 - delta) / repeats)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.3, 3), st.floats(0, 1), st.integers(0, 100))
def test_a_linear_miscalibration_is_found(scale: float, offset: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    spreads = [rng.uniform(0.2, 3, size=(64, 64)) for _ in range(8)]
    errors = [rng.normal(size=s.shape) * (scale * s + offset) for s in spreads]
    a, b = fit_spread(spreads, errors)
    for s in (0.3, 1.0, 2.5):
        assert a * s + b == pytest.approx(scale * s + offset, rel=0.06)


def test_recalibration_does_not_depend_on_units() -> None:
    rng = np.random.default_rng(3)
    spread = rng.uniform(0.2, 3, size=(64, 64))
    error = rng.normal(size=spread.shape) * (2 * spread + 0.5)
    a, b = fit_spread([spread], [error])
    c, d = fit_spread([1000 * spread], [1000 * error])
    assert c == pytest.approx(a, rel=1e-4)
    assert d == pytest.approx(1000 * b, rel=1e-3)


def test_images_without_error_cannot_be_recalibrated() -> None:
    with pytest.raises(ValueError, match="no pixel has an error"):
        fit_spread([np.ones((4, 4))], [np.zeros((4, 4))])
