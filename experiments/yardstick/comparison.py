r"""Compare contenders on the same images: geometric means of ratios, with intervals over images and seeds.

.. math:: \log ratio = \frac1n \sum_i (\bar a_i - \bar b_i), \qquad
          var = \frac{s_{images}^2}{n} + \frac{s_a^2}{S_a} + \frac{s_b^2}{S_b}

with logarithms a and b averaged over S seeds, and s_a, s_b the spread of the mean over images from seed to seed. The
quantile is Student's, with the degrees of freedom of Welch and Satterthwaite. A single seed adds nothing to the
variance, so its interval is about images alone, and is marked by `seeds`.

Contenders that differ in a part begin each seed with the same mean network, if both have one, and see the same batches;
what a seed does to one it does in part to the other. They are compared seed by seed: the spread is that of a - b.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from yardstick.stored import Figure, Figures

__all__ = [
    "Ratio",
    "compare",
    "geometric_mean",
    "mean_and_half_width",
    "mean_of",
    "ratio",
    "share_above",
    "stored_at",
    "values_of",
]


@dataclass(frozen=True)
class Ratio:
    """A ratio of geometric means with its 95% interval.

    Attributes:
        value: Below 1 if the first contender has the smaller error.
        low: Lower end.
        high: Upper end.
        seeds: Trainings of the two contenders.
        images: Test images.
    """

    value: float
    low: float
    high: float
    seeds: tuple[int, int]
    images: int

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def values_of(
    figures: Sequence[Figure], contender: str, minutes: float, metric: str, group: str | None = None
) -> NDArray[np.float64]:
    """Values of the images that all seeds have, shape (seeds, images), in the order of their names; maybe empty."""
    return _array(_table(figures, contender, minutes, metric, group))


def compare(
    figures: Sequence[Figure],
    first: tuple[str, float],
    second: tuple[str, float],
    metric: str,
    group: str | None = None,
    *,
    by_seed: bool = False,
) -> Ratio | None:
    """The ratio of two contenders, each with its minutes, over the images on which both were measured.

    ``by_seed`` is for contenders that differ in a part: trainings of the same seed are compared, others left out.
    """
    tables = [_table(figures, *of, metric, group) for of in (first, second)]
    if by_seed:
        seeds = set(tables[0]) & set(tables[1])
        tables = [{seed: table[seed] for seed in seeds} for table in tables]
    of_both = set.intersection(*(set(of) for table in tables for of in table.values())) if all(tables) else set()
    return ratio(*(_array(table, of_both) for table in tables), by_seed=by_seed)


def stored_at(figures: Sequence[Figure], contender: str, minutes: float) -> float:
    """Minutes under which a contender is found: 0 for what is not trained, and competes at every budget."""
    return 0.0 if any(figure[:2] == (contender, 0.0) for figure in figures) else minutes


def share_above(
    figures: Sequence[Figure], first: tuple[str, float], second: tuple[str, float], metric: str
) -> float | None:
    """Share of images, over the seeds of the first, on which it exceeds the first seed of the second contender."""
    table, other = (_table(figures, *of, metric, None) for of in (first, second))
    if not table or not other:
        return None
    against = other[min(other)]
    return float(np.mean([of[image] > against[image] for of in table.values() for image in of if image in against]))


def _table(
    figures: Sequence[Figure], contender: str, minutes: float, metric: str, group: str | None
) -> dict[int, dict[str, float]]:
    """Values by seed and image."""
    table: dict[int, dict[str, float]] = {}
    indexed = figures if isinstance(figures, Figures) else Figures(figures)
    for figure in indexed.by_contender.get((contender, minutes, metric), []):
        if figure.group != "training" and group in (None, figure.group):
            table.setdefault(figure.seed, {})[f"{figure.group}/{figure.image}"] = figure.value
    return table


def _array(table: dict[int, dict[str, float]], among: set[str] | None = None) -> NDArray[np.float64]:
    if not table:
        return np.zeros((0, 0))
    common = sorted(set.intersection(*(set(of) for of in table.values()), *([] if among is None else [among])))
    return np.array([[of[image] for image in common] for _, of in sorted(table.items())])


def geometric_mean(values: NDArray[np.float64]) -> float:
    """Over seeds and images."""
    return float(np.exp(np.log(values).mean())) if values.size else math.nan


def mean_of(values: NDArray[np.float64]) -> float:
    """Over seeds and images."""
    return float(values.mean()) if values.size else math.nan


def ratio(first: NDArray[np.float64], second: NDArray[np.float64], *, by_seed: bool = False) -> Ratio | None:
    """The ratio of two arrays (seeds, images) over the same images, and maybe seeds; None if one is empty.

    Example:
        >>> same = ratio(np.full((2, 4), 3.0), np.full((3, 4), 1.5))
        >>> same.value, same.seeds
        (2.0, (2, 3))
    """
    if not first.size or not second.size:
        return None
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"one contender has {first.shape[1]} images and the other {second.shape[1]}; measure both on all"
        )
    if by_seed and len(first) != len(second):
        raise ValueError(f"seeds are compared in pairs, but there are {len(first)} and {len(second)}; leave some out")
    logs = [np.log(values) for values in (first, second)]
    half = _half_width(logs[0].mean(0) - logs[1].mean(0), [logs[0] - logs[1]] if by_seed else logs)
    middle = float(logs[0].mean() - logs[1].mean())
    ends = (math.exp(middle - half), math.exp(middle + half))
    return Ratio(math.exp(middle), *ends, (len(first), len(second)), first.shape[1])


def mean_and_half_width(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean of an array (seeds, images), and half of its 95% interval over both."""
    return float(values.mean()), _half_width(values.mean(0), [values])


def _half_width(images: NDArray[np.float64], tables: Sequence[NDArray[np.float64]]) -> float:
    """Half of the interval of a mean over images, of which the tables (seeds, images) are the trainings."""
    number = len(images)
    parts = [(float(images.var(ddof=1)) / number, number - 1)] if number > 1 else []
    parts += [(float(each.mean(1).var(ddof=1)) / len(each), len(each) - 1) for each in tables if len(each) > 1]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return 0.0
    freedom = variance**2 / sum(part**2 / free for part, free in parts)
    return float(stats.t.ppf(0.975, freedom)) * math.sqrt(variance)
