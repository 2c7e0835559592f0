"""Measure everything that shows whether posterior samples can be trusted, in one report."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.statistics.exchange_test import check, exchange_test, pool
from sfumato.statistics.rank_histogram import central_interval, coverage_scores, member_histograms, rank_scores
from sfumato.statistics.scores import crps, energy_score, reliability, spread_and_error
from sfumato.statistics.significance import interval, ratio_interval
from sfumato.statistics.tarp import PROJECTIONS, reference_ranks, tarp_scores

__all__ = [
    "CalibrationReport",
    "Estimate",
    "JointCoverage",
    "PoolRanks",
    "ReliabilityBin",
    "by_images",
    "measure",
    "p_values",
    "rank_pools",
]

Values = NDArray[np.float64]

_AT_ONCE = 2**24
_TIES, _PROJECT, _REFER, _PERMUTE = range(4)


class Estimate(NamedTuple):
    """A mean over images and its 95% bootstrap interval over images; NaN ends for fewer than two images."""

    value: float
    low: float
    high: float

    @classmethod
    def of_mean(cls, values: Values, *, seed: int) -> "Estimate":
        """The mean of one value per image."""
        return cls(float(values.mean()), *interval(values, seed=seed))

    @classmethod
    def of_ratio(cls, numerators: Values, denominators: Values, *, seed: int) -> "Estimate":
        """The ratio of two means; NaN if the lower one is 0, as for truths that are met exactly."""
        below = float(denominators.mean())
        value = float(numerators.mean()) / below if below > 0 else math.nan
        return cls(value, *ratio_interval(numerators, denominators, seed=seed))

    def with_ends(self) -> "Estimate":
        """The estimate itself or, if it has no interval, with its value as both ends."""
        return Estimate(self.value, self.value, self.value) if math.isnan(self.low) else self

    def root(self) -> "Estimate":
        """The square root; an interval over few images may reach below 0, where no mean square lies."""
        return Estimate(*(math.sqrt(max(value, 0.0)) for value in self))

    def __format__(self, digits: str) -> str:
        value, low, high = (format(number, digits or ".4g") for number in self)
        return f"{value} [{low}, {high}]"


class ReliabilityBin(NamedTuple):
    """Pixels with similar predicted standard deviation; see :mod:`sfumato.statistics.scores`."""

    predicted: float
    """Root mean square error that the samples predict."""
    actual: float
    """Root mean square error."""
    ratio: Estimate
    """Predicted over actual; 1 if the samples are right."""


class JointCoverage(NamedTuple):
    """Coverage of balls around random references, on one kind of projection; see :mod:`sfumato.statistics.tarp`."""

    projection: str
    coverage: Estimate
    """How often the truth is among the members of its pool nearest to a reference."""
    expected: float
    """Expected value if the samples are right."""
    curve: tuple[float, ...]
    """Coverage of the k nearest of N + 1, for k = 1 to N + 1; k/(N + 1) if the samples are right."""
    p_value: float


@dataclass(frozen=True, kw_only=True)
class CalibrationReport:
    """How samples compare with truths. All p-values are exact: uniform from 0 to 1 if the samples are right.

    Digits below ``least_p`` come from breaking ties at random, so a smaller p-value is reported as below it.
    """

    num_images: int
    """M."""
    num_samples: int
    """N, samples per image."""
    crps: Estimate
    """Fair; in the units of the images."""
    energy_score: Estimate
    """Fair; for whole images, as a root mean square over their pixels."""
    level: float
    """Nominal level of the coverages."""
    coverage: Estimate
    """Fraction of pixels between two order statistics of the samples."""
    coverage_expected: float
    """Expected value if the samples are right."""
    coverage_p: float
    ranks: tuple[Estimate, ...]
    """Fraction of pixels whose truth has 0, 1 ... N samples below it; 1/(N + 1) each if the samples are right."""
    ranks_p: float
    spread: float
    """Root mean square error of the samples' mean, as predicted by the samples."""
    error: float
    """Root mean square error of the samples' mean."""
    spread_over_error: Estimate
    """1 if the samples are right, below 1 if they are too narrow."""
    reliability: tuple[ReliabilityBin, ...]
    """By predicted standard deviation, from small to large; empty for fewer than 4 samples."""
    joint: tuple[JointCoverage, ...]
    least_p: float = 0.001
    """One over the number of exchanges plus one: the smallest p-value this number of exchanges can show."""

    def told(self, p_value: float) -> str:
        """A p-value in words, to follow the letter p."""
        return f"= {p_value:.3g}" if p_value >= self.least_p else f"< {self.least_p:.3g}"

    def lines(self) -> list[str]:
        """The report as text, one result per line."""
        wide = [f"{r.value * (self.num_samples + 1):.3g}" for r in self.ranks]
        lines = [
            f"images: {self.num_images}, draws of each: {self.num_samples}",
            f"CRPS (fair): {self.crps}",
            f"energy score (fair): {self.energy_score}",
            f"coverage at {self.level:g}: {self.coverage}, expected {self.coverage_expected:.4g}, "
            f"p {self.told(self.coverage_p)}",
            f"ranks, over their expectation: {' '.join(wide)}, p {self.told(self.ranks_p)}",
            f"spread over error: {self.spread_over_error} ({self.spread:.4g} over {self.error:.4g})",
        ]
        for number, part in enumerate(self.reliability, 1):
            lines.append(
                f"reliability, bin {number}: predicted {part.predicted:.4g}, actual {part.actual:.4g}, "
                f"ratio {part.ratio}"
            )
        for joint in self.joint:
            lines.append(
                f"joint coverage, {joint.projection.replace('_', ' ')}: {joint.coverage}, "
                f"expected {joint.expected:.4g}, p {self.told(joint.p_value)}"
            )
        return lines


def measure(
    samples: Tensor, truths: Tensor, *, level: float = 0.9, seed: int = 0, num_permutations: int = 999
) -> CalibrationReport:
    r"""Measure how far posterior samples can be trusted.

    Args:
        samples: N samples of each of M images, shape (N, M, C, \*spatial); N at least 2, better 16 or more. Give every
            image its own noise, by ``image`` or ``seed``: samples that share noise across images err together, and the
            tests would take that for evidence.
        truths: Shape (M, C, \*spatial). The images should be independent of each other.
        level: Nominal coverage. The nearest central interval between samples is used and compared with its own
            expectation, (j - i)/(N + 1).
        seed: Seed of ties, permutations, projections and bootstraps.
        num_permutations: Of the tests; a p-value below 1 / (num_permutations + 1) is reported as below that.

    Raises:
        ValueError: If the shapes do not match, a value is not finite, or there are fewer than two samples.
    """
    check(samples, truths)
    i, j = central_interval(len(samples), level)
    ranks = rank_pools(samples, truths, seed=seed)
    p = p_values(ranks, level=level, seed=seed, num_permutations=num_permutations)
    spread, error = by_images(lambda x, y: torch.stack(spread_and_error(x, y)), samples, truths, dim=1).double()
    return CalibrationReport(
        num_images=len(truths),
        num_samples=len(samples),
        crps=_mean(by_images(crps, samples, truths), seed),
        energy_score=_mean(by_images(energy_score, samples, truths), seed),
        level=level,
        coverage=_mean(coverage_scores(ranks.histograms, (i, j))[0, :, 0], seed),
        coverage_expected=(j - i) / (len(samples) + 1),
        coverage_p=p["coverage"],
        ranks=tuple(_mean(column, seed) for column in ranks.histograms[0].T),
        ranks_p=p["ranks"],
        spread=math.sqrt(spread.mean()),
        error=math.sqrt(error.mean()),
        spread_over_error=_root_ratio(spread, error, seed),
        reliability=_reliability(samples, truths, seed) if len(samples) >= 4 else (),
        joint=tuple(_joint(name, found, level, p[name], seed) for name, found in ranks.joint.items()),
        least_p=1 / (num_permutations + 1),
    )


class PoolRanks(NamedTuple):
    """Ranks of all members of all pools."""

    histograms: Tensor
    """Histograms of ranks over pixels, shape (N + 1, M, N + 1): member, image, rank."""
    joint: dict[str, Tensor]
    """Ranks of distances to R references, shape (N + 1, M, R), by projection."""


def rank_pools(samples: Tensor, truths: Tensor, *, seed: int = 0) -> PoolRanks:
    r"""Rank the truths among their samples, and every sample among the others.

    Args:
        samples: Shape (N, M, C, \*spatial), N at least 2.
        truths: Shape (M, C, \*spatial).
        seed: Seed of ties, projections and references.
    """
    check(samples, truths)
    ties = _generator(seed, _TIES)
    histograms = by_images(lambda x, y: member_histograms(pool(x, y), ties), samples, truths, dim=1)
    joint = {}
    for place, (name, project) in enumerate(PROJECTIONS.items()):

        def features(x: Tensor, y: Tensor, project: Callable[..., Tensor] = project, place: int = place) -> Tensor:
            # A new generator each time, to get the same projections for every block of images.
            return project(pool(x, y), _generator(seed, _PROJECT, place))

        joint[name] = reference_ranks(
            by_images(features, samples, truths, dim=1).double(), _generator(seed, _REFER, place)
        )
    return PoolRanks(histograms, joint)


def p_values(ranks: PoolRanks, *, level: float = 0.9, seed: int = 0, num_permutations: int = 999) -> dict[str, float]:
    """Exact p-values of coverage, ranks and the joint coverage of each projection, by name.

    Each is uniform from 0 to 1 if the samples are right. They are not independent: before claiming that any of them is
    significant, adjust them with :func:`sfumato.statistics.significance.holm`.

    Args:
        ranks: From :func:`rank_pools`.
        level: Nominal level of the coverage.
        seed: Seed of the permutations.
        num_permutations: No p-value is below about 1 / (num_permutations + 1).
    """
    interval = central_interval(len(ranks.histograms) - 1, level)
    scores = {"coverage": coverage_scores(ranks.histograms, interval), "ranks": rank_scores(ranks.histograms)}
    scores |= {name: tarp_scores(distances) for name, distances in ranks.joint.items()}
    return {
        name: exchange_test(score, _generator(seed, _PERMUTE, place), num_permutations=num_permutations)
        for place, (name, score) in enumerate(scores.items())
    }


def by_images(function: Callable[[Tensor, Tensor], Tensor], samples: Tensor, truths: Tensor, *, dim: int = 0) -> Tensor:
    """Apply a function of samples and truths to blocks of images that fit into memory; join results along ``dim``."""
    part = max(1, _AT_ONCE // samples[:, 0].numel())
    dtype = torch.promote_types(torch.promote_types(samples.dtype, truths.dtype), torch.float32)
    blocks = zip(samples.split(part, 1), truths.split(part), strict=True)
    return torch.cat([function(x.to(dtype), y.to(dtype)) for x, y in blocks], dim)


def _joint(name: str, ranks: Tensor, level: float, p_value: float, seed: int) -> JointCoverage:
    number = len(ranks)
    inside = min(max(round(level * number), 1), number - 1)
    counts = torch.bincount(ranks[0].flatten(), minlength=number).double()
    return JointCoverage(
        projection=name,
        coverage=_mean((ranks[0] < inside).double().mean(1), seed),
        expected=inside / number,
        curve=tuple((counts.cumsum(0) / counts.sum()).tolist()),
        p_value=p_value,
    )


def _reliability(samples: Tensor, truths: Tensor, seed: int) -> tuple[ReliabilityBin, ...]:
    bins = zip(*(sums.T for sums in reliability(samples, truths)), strict=True)
    return tuple(
        ReliabilityBin(
            math.sqrt(predicted.sum() / pixels.sum()),
            math.sqrt(actual.sum() / pixels.sum()),
            _root_ratio(predicted, actual, seed),
        )
        for predicted, actual, pixels in bins
        if pixels.sum() > 0
    )


def _mean(values: Tensor, seed: int) -> Estimate:
    return Estimate.of_mean(values.double().cpu().numpy(), seed=seed)


def _root_ratio(squares: Tensor, others: Tensor, seed: int) -> Estimate:
    return Estimate.of_ratio(squares.cpu().numpy(), others.cpu().numpy(), seed=seed).root()


def _generator(seed: int, *purpose: int) -> torch.Generator:
    """A separate random stream per purpose, none of which can coincide with a caller's samples of the same seed."""
    high, low = np.random.SeedSequence((seed, *purpose)).generate_state(2, np.uint32).tolist()
    return torch.Generator().manual_seed((high << 31) ^ low)
