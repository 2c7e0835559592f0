r"""Test whether a difference between methods is more than chance, with images as the unit of replication.

Tables show means over images, so the tests are about means. For paired differences :math:`d_i` of two methods on the
same images, the test flips signs: if neither method were better, :math:`d_i` and :math:`-d_i` would be equally likely,

.. math:: p = P\big(|\textstyle\sum_i s_i d_i| \ge |\sum_i d_i|\big), \qquad s_i = \pm 1

exactly for up to 16 images, and with random flips for more. Wilcoxon's test would compare ranks instead: it can prefer
a method whose mean, the number in the table, is worse. Both assume symmetric differences if there is no effect.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FEWEST",
    "Ranking",
    "holm",
    "interval",
    "least_p",
    "paired_test",
    "rank_correlation",
    "ranking",
    "ratio_interval",
]

_EXACT = 16
"""Up to this many images, all sign patterns are tried: 32,768 of them, since the others are mirror images."""
_NUM_FLIPS = 20_000
"""Random sign patterns that are tried for more images."""
FEWEST = 6
"""Images whose signs can be flipped in enough ways for a level of 0.05, and whose bootstrap has its stated coverage."""
_LEVEL = 0.95
"""How often an interval should contain the true value."""
_AT_ONCE = 2**22

Values = NDArray[np.float64]


def interval(values: Values, *, num_draws: int = 10_000, seed: int = 0) -> tuple[float, float]:
    r"""95% bootstrap interval of a mean: images are resampled with replacement.

    Quantiles of the resampled means, at levels widened as a t interval is against a normal one, :math:`\alpha' =
    \Phi(-\sqrt{n/(n-1)}\, t_{n-1,\,1-\alpha/2})`; without this, intervals from 20 images cover too rarely.
    [Hesterberg, The American Statistician 69, 371 (2015)]

    No such interval reaches beyond the least and the largest value, so with fewer than six images it contains the true
    mean too rarely at any level: even for symmetric values with probability at most 1 - :func:`least_p`, 3/4 for three
    images. Student's interval, which assumes normal values, is used in that case.

    Args:
        values: One per image, shape (n).
        num_draws: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        Lower and upper end; NaN if there are fewer than two images or a value is not finite.
    """
    if 2 <= len(values) < FEWEST:
        return _student(values)
    return _interval(values[:, None], lambda means: means[:, 0], num_draws, seed)


def ratio_interval(numerators: Values, denominators: Values, *, seed: int = 0) -> tuple[float, float]:
    """95% bootstrap interval of the ratio of two means over the same images, like :func:`interval` for one mean.

    For fewer than six images it is Student's interval of the geometric mean of the images' ratios.

    Args:
        numerators: One per image, shape (n).
        denominators: One per image, none negative, shape (n). If a resample has no positive one, the interval is NaN.
        seed: Seed of the resamples.
    """
    values = np.stack([numerators, denominators], 1)
    if 2 <= len(values) < FEWEST:
        if not bool((values > 0).all()):
            return math.nan, math.nan
        low, high = _student(np.log(numerators / denominators))
        return math.exp(low), math.exp(high)
    return _interval(values, lambda means: means[:, 0] / np.where(means[:, 1] > 0, means[:, 1], np.nan), 10_000, seed)


def _student(values: Values) -> tuple[float, float]:
    """Interval of the mean of a few normally distributed values."""
    if not bool(np.isfinite(values).all()):
        return math.nan, math.nan
    reach = _quantile_of_t(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return float(values.mean()) - reach, float(values.mean()) + reach


def _quantile_of_t(freedom: int) -> float:
    try:
        from scipy.special import stdtrit
    except ImportError as error:
        raise ImportError("intervals need scipy: pip install 'sfumato[evaluate]'") from error
    return float(stdtrit(freedom, (1 + _LEVEL) / 2))


def _interval(values: Values, statistic: Callable[[Values], Values], num_draws: int, seed: int) -> tuple[float, float]:
    """Bootstrap interval of a statistic of means: (draws, q) to (draws), for values (n, q)."""
    n = len(values)
    if n < 2 or not bool(np.isfinite(values).all()):
        return math.nan, math.nan
    widened = math.sqrt(n / (n - 1)) * _quantile_of_t(n - 1)
    generator = np.random.default_rng(seed)
    part = max(1, _AT_ONCE // n)
    sizes = [min(part, num_draws - start) for start in range(0, num_draws, part)]
    means = np.concatenate([values[generator.integers(0, n, (size, n))].mean(1) for size in sizes])
    tail = 0.5 * math.erfc(widened / math.sqrt(2))
    low, high = np.quantile(statistic(means), [tail, 1 - tail])
    return float(low), float(high)


def paired_test(first: Values, second: Values, *, seed: int = 0) -> float:
    """Probability of a mean difference at least this large, in either direction, if there were none.

    Args:
        first: Values of one method, one per image, shape (n).
        second: Values of another method on the same images, shape (n).
        seed: Seed of the random sign patterns, if there are too many to try all.

    Example:
        >>> paired_test(np.array([2.0, 3.0, 4.0]), np.array([1.0, 1.0, 1.0]))
        0.25
    """
    if first.shape != second.shape or first.ndim != 1 or len(first) == 0:
        raise ValueError(f"values have shapes {first.shape} and {second.shape}; give one per image for both methods")
    d = first - second
    # A tie counts as a tie although sums of floats round.
    bar = abs(d.sum()) - 1e-12 * np.abs(d).sum()
    n = len(d)
    if n <= _EXACT:
        sums = d[:1]  # with all signs of the others, one after another
        for each in d[1:]:
            sums = np.concatenate([sums + each, sums - each])
        return float((np.abs(sums) >= bar).mean())
    generator, count = np.random.default_rng(seed), 0
    part = max(1, _AT_ONCE // n)
    for start in range(0, _NUM_FLIPS, part):
        flips = generator.integers(0, 2, (min(part, _NUM_FLIPS - start), n), dtype=np.int8)
        count += int((np.abs(d.sum() - 2 * (flips @ d)) >= bar).sum())
    return (1 + count) / (1 + _NUM_FLIPS)


def least_p(num_images: int) -> float:
    """The smallest value that :func:`paired_test` can return for this many images."""
    return 2.0 ** (1 - num_images) if num_images <= _EXACT else 1 / (1 + _NUM_FLIPS)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values so that the chance of any false claim among them stays below the level.  [Holm 1979]

    Example:
        >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03, 0.005])]
        [0.03, 0.06, 0.06, 0.02]
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


class Ranking(NamedTuple):
    """Which method is first, and whether that is significant."""

    p_values: dict[tuple[int, int], float]
    """For every pair of methods (i < j), Holm-adjusted over all pairs."""
    best: int | None
    """The method that is significantly better than every other, or None."""
    second: int | None
    """The method that is second to a significant best and significantly better than all further ones, or None."""


def ranking(values: Values, *, higher_is_better: bool, level: float = 0.05, seed: int = 0) -> Ranking:
    """Rank methods by their mean over images and find which ranks are significant.

    Args:
        values: Shape (methods, images).
        higher_is_better: Whether larger values are better.
        level: Significance level, for all pairs of methods together.
        seed: Seed of the random sign patterns.
    """
    pairs = list(itertools.combinations(range(len(values)), 2))
    if not bool(np.isfinite(values).all()):
        return Ranking(dict.fromkeys(pairs, math.nan), None, None)
    adjusted = holm([paired_test(values[i], values[j], seed=seed) for i, j in pairs])
    p_values = dict(zip(pairs, adjusted, strict=True))
    order = np.argsort(values.mean(1) * (-1 if higher_is_better else 1), kind="stable").tolist()

    def beats_all(place: int) -> bool:
        after = order[place + 1 :]
        return bool(after) and all(p_values[min(order[place], j), max(order[place], j)] < level for j in after)

    best = order[0] if order and beats_all(0) else None
    second = order[1] if best is not None and beats_all(1) else None
    return Ranking(p_values, best, second)


def rank_correlation(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Spearman's correlation of two images' pixels; equal values share their mean rank; NaN if one image is flat.

    Example:
        >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 9.0]))
        1.0
    """
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return round(float(np.corrcoef(_ranks(first), _ranks(second))[0, 1]), 12)


def _ranks(image: NDArray[Any]) -> NDArray[np.float64]:
    _, place, count = np.unique(image, return_inverse=True, return_counts=True)
    mean_rank: NDArray[np.float64] = np.cumsum(count) - (count - 1) / 2
    return mean_rank[place.ravel()]
