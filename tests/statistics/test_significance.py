"""Statistics of comparisons: they hold their promises on data whose truth is known."""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from sfumato.statistics.significance import (
    holm,
    interval,
    least_p,
    paired_test,
    rank_correlation,
    ranking,
    ratio_interval,
)


def standardised(n: int, seed: int) -> NDArray[np.float64]:
    """Values whose mean is 0 and whose standard error is 1, both exactly."""
    values = np.random.default_rng(seed).standard_normal(n)
    values -= values.mean()
    return np.asarray(values / (values.std(ddof=1) / math.sqrt(n)))


def test_holm_on_a_worked_example() -> None:
    """.005 x 4, .01 x 3, .03 x 2, .04 x 1 raised to the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize("n", [5, 12])
def test_the_test_is_exact_for_few_images(n: int) -> None:
    """Against all sign patterns, written out, and against scipy's permutation test."""
    first, second = np.random.default_rng(n).standard_normal((2, n)) + np.array([[0.6], [0.0]])
    d = first - second
    every = [abs(np.dot(signs, d)) >= abs(d.sum()) - 1e-12 for signs in itertools.product((1, -1), repeat=n)]
    assert paired_test(first, second) == np.mean(every)
    oracle = stats.permutation_test(
        (first, second), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=10**6
    )
    assert paired_test(first, second) == pytest.approx(oracle.pvalue, abs=1e-12)


def test_random_flips_agree_with_the_t_test_for_many_images() -> None:
    first = standardised(60, 0) + 2.0
    oracle = stats.ttest_rel(first, np.zeros(60)).pvalue
    error = math.sqrt(oracle * (1 - oracle) / 20_000)
    assert abs(paired_test(first, np.zeros(60)) - oracle) < 4 * error + 0.003


def test_equal_methods_are_not_told_apart() -> None:
    same = np.arange(20.0)
    assert paired_test(same, same) == 1
    assert paired_test(same[:1], same[1:2]) == 1
    assert least_p(5) == paired_test(np.arange(1.0, 6.0), np.zeros(5))


@pytest.mark.parametrize("n", [20, 24, 50])
@pytest.mark.parametrize("seed", range(5))
def test_one_standard_error_is_not_significant_and_three_are(n: int, seed: int) -> None:
    """Three methods; the first differs from the second by so many standard errors of the paired difference."""
    base = 10 * np.random.default_rng(100 + seed).standard_normal(n)

    def best(errors: float) -> int | None:
        values = np.stack([base, base + standardised(n, seed) + errors, base + 20 + standardised(n, seed + 50)])
        return ranking(values, higher_is_better=False).best

    assert best(1.0) is None
    assert best(3.0) == 0


def test_false_claims_are_as_rare_as_promised() -> None:
    """Three equal methods, 400 times: some pair is called different in at most 5% of them, and 3 standard errors."""
    generator = np.random.default_rng(0)
    claims = 0
    for _ in range(400):
        values = generator.standard_normal((3, 12)) + generator.standard_normal(12)
        claims += min(ranking(values, higher_is_better=True).p_values.values()) < 0.05
    assert claims / 400 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_places(higher_is_better: bool) -> None:
    noise = np.random.default_rng(1).standard_normal((4, 30)) * 0.1
    values = noise + np.array([[3.0], [1.0], [0.0], [2.0]]) * (1 if higher_is_better else -1)
    found = ranking(values, higher_is_better=higher_is_better)
    assert (found.best, found.second) == (0, 3)
    tied = ranking(values[[0, 0, 1]], higher_is_better=higher_is_better)
    assert (tied.best, tied.second) == (None, None)
    two = ranking(values[:2], higher_is_better=higher_is_better)
    assert (two.best, two.second) == (0, None)  # the last of two is no distinction
    assert ranking(values[:1], higher_is_better=higher_is_better).best is None


def test_infinite_values_are_ranked_by_nobody() -> None:
    values = np.ones((2, 8))
    values[0, 3] = np.inf
    assert ranking(values, higher_is_better=True).best is None
    assert math.isnan(interval(values[0])[0])
    assert math.isnan(interval(values[0, :1])[0])


@pytest.mark.parametrize(("kind", "n"), [("normal", 20), ("skewed", 30)])
def test_intervals_cover_the_mean_as_often_as_they_say(kind: str, n: int) -> None:
    """Over 600 sets; skewed values, of an exponential distribution, may cost 3 points more."""
    generator = np.random.default_rng(0)
    inside = 0
    for trial in range(600):
        values = generator.standard_normal(n) if kind == "normal" else generator.exponential(size=n) - 1
        low, high = interval(values, num_draws=1000, seed=trial)
        inside += low <= 0 <= high
    tolerance = 3 * math.sqrt(0.95 * 0.05 / 600)
    assert 0.95 - tolerance - (0.03 if kind == "skewed" else 0) < inside / 600 < 0.95 + tolerance


@pytest.mark.parametrize("n", [3, 4, 5])
def test_intervals_of_few_images_are_students(n: int) -> None:
    """A bootstrap interval of so few would hold the mean less often than they flip signs: 3 times in 4 of three."""
    values = np.random.default_rng(n).normal(2, 1, size=n)
    oracle = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert interval(values) == pytest.approx((oracle.low, oracle.high))
    ratios = stats.ttest_1samp(np.log(np.abs(values)), 0).confidence_interval(0.95)
    found = ratio_interval(3 * np.abs(values), np.full(n, 3.0))
    assert found == pytest.approx((math.exp(ratios.low), math.exp(ratios.high)))
    generator = np.random.default_rng(0)
    inside = [low <= 0 <= high for low, high in map(interval, generator.normal(size=(600, n)))]
    assert abs(np.mean(inside) - 0.95) < 3 * math.sqrt(0.95 * 0.05 / 600)
    assert all(map(math.isnan, ratio_interval(values, 0 * values)))
    assert least_p(5) > 0.05 > least_p(6)


def test_seeds_decide() -> None:
    values = np.random.default_rng(0).standard_normal(40)
    assert interval(values, seed=1) == interval(values, seed=1) != interval(values, seed=2)
    assert paired_test(values, 0 * values, seed=1) == paired_test(values, 0 * values, seed=1)


def test_unequal_images_are_refused() -> None:
    with pytest.raises(ValueError, match="one per image"):
        paired_test(np.ones(3), np.ones(4))


def test_rank_correlation() -> None:
    values = np.random.default_rng(0).random((8, 9))
    assert rank_correlation(values, np.exp(values)) == pytest.approx(1)
    assert rank_correlation(values, -values) == pytest.approx(-1)
    assert np.isnan(rank_correlation(values, np.ones((8, 9))))


def test_equal_values_share_their_rank() -> None:
    generator = np.random.default_rng(1)
    first, second = generator.integers(0, 4, (2, 200))
    assert rank_correlation(first, second) == pytest.approx(float(stats.spearmanr(first, second).statistic), abs=1e-9)
