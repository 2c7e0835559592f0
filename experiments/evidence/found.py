"""Figures of claims, from what is stored: ratios of errors at equal seconds, and means over test images."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evidence.archive import MINUTES, archived
from few_calls import stored as few_calls
from yardstick.comparison import Ratio, compare, mean_and_half_width, ratio, stored_at, values_of
from yardstick.contenders import PARTS
from yardstick.stored import Figure, figures

__all__ = [
    "NEW",
    "Found",
    "against",
    "beta_and_samples",
    "default_calls",
    "longest",
    "mean_found",
    "of_0_1",
    "within_on_w2s",
]

NEW = "default"


class Found(NamedTuple):
    """A figure with the ends of its interval, trainings of both sides, and where it is from."""

    value: float
    low: float
    high: float
    seeds: str
    source: str
    is_ratio: bool = True


def longest(problem: str, rival: str, metric: str = "MAE", *, seeds: int = 1) -> tuple[float, Ratio] | None:
    """Today's default over a rival after the most minutes for which both are stored, at equal seconds of one core.

    With several ``seeds``, after the most minutes for which each that is trained has so many trainings.
    """
    stored = figures(problem)
    own = sorted({figure.minutes for figure in stored if figure.contender == NEW}, reverse=True)
    for minutes in own:
        at = stored_at(stored, rival, minutes)
        found = compare(stored, (NEW, minutes), (rival, at), metric, by_seed=rival in PARTS)
        if found is not None and all(known >= seeds for known in found.seeds[: 2 if at else 1]):
            return minutes, found
    return None


def against(problem: str, rival: str, metric: str = "MAE") -> Found | None:
    """That comparison as the figure of a claim: where trainings were repeated, as intervals then include them.

    If there is a longer training, its figure stands beside it.
    """
    found = longest(problem, rival, metric)
    if found is None:
        return None
    repeated = longest(problem, rival, metric, seeds=2) or found
    later = "" if repeated is found or repeated[0] == found[0] else f"; {found[1].value:.3g} after {found[0]:g}"
    return _of(repeated[1], f"today, {repeated[0]:g} min{later}")


def of_0_1(problem: str, method: str, rival: str, group: str | None = None, metric: str = "MAE") -> Found | None:
    """A ratio of two methods of version 0.1."""
    found = compare(archived(problem), (method, MINUTES), (rival, MINUTES), metric, group)
    return None if found is None else _of(found, "version 0.1")


def _of(found: Ratio, source: str) -> Found:
    return Found(found.value, found.low, found.high, " and ".join(map(str, found.seeds)), source)


def mean_found(figures: Sequence[Figure], contender: str, minutes: float, metric: str, source: str) -> Found | None:
    """Mean of a metric over images and seeds."""
    values = values_of(figures, contender, minutes, metric)
    if values.size == 0:
        return None
    middle, half = mean_and_half_width(values)
    return Found(middle, middle - half, middle + half, str(len(values)), source, is_ratio=False)


def within_on_w2s() -> Found | None:
    """Share of the true pixels within 16 samples, after the most minutes of several trainings."""
    stored = figures("w2s")
    budgets = sorted({figure.minutes for figure in stored if figure.contender == NEW})
    minutes = max(budgets, key=lambda at: (len(values_of(stored, NEW, at, "within")) > 1, at), default=0.0)
    return mean_found(stored, NEW, minutes, "within", f"today, {minutes:g} min")


def default_calls() -> Found | None:
    """CRPS of the presets' 8 calls over that of 32, over the images of all problems of which both are stored."""
    few, full = (
        {
            (*row[:2], row.image): row.value
            for row in few_calls()
            if row[3:5] == ("gaussian", n) and row.metric == "CRPS"
        }
        for n in (8, 32)
    )
    values = [np.array([side[key] for key in sorted(few)]) for side in (few, full)]
    found = ratio(values[0][None], values[1][None])
    return None if found is None else _of(found, "today")


def beta_and_samples() -> Found | None:
    """Rank correlation of the spread of samples with the integral of beta, over the pixels of each image."""
    return mean_found(archived("microscopy"), "cvdm_0_1", MINUTES, "std-beta", "version 0.1")
