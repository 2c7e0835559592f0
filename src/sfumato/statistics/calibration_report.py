"""Measure everything that shows whether posterior samples can be trusted, in one report."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sfumato.statistics.exchange_test import check
from sfumato.statistics.pooled import by_images, p_values, rank_pools
from sfumato.statistics.rank_histogram import central_interval, coverage_scores
from sfumato.statistics.scores import crps, energy_score, reliability, spread_and_error
from sfumato.statistics.significance import interval, ratio_interval

__all__ = ["CalibrationReport", "Estimate", "JointCoverage", "ReliabilityBin", "measure"]


class Estimate(NamedTuple):
    """A mean over images and its 95% bootstrap interval over images; NaN ends for fewer than two images."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


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
    samples: Tensor,
    truths: Tensor,
    *,
    level: float = 0.9,
    seed: int = 0,
    num_bins: int = 10,
    num_permutations: int = 999,
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
        num_bins: Number of reliability bins.
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
        crps=_estimate(by_images(crps, samples, truths), seed),
        energy_score=_estimate(by_images(energy_score, samples, truths), seed),
        level=level,
        coverage=_estimate(coverage_scores(ranks.histograms, (i, j))[0, :, 0], seed),
        coverage_expected=(j - i) / (len(samples) + 1),
        coverage_p=p["coverage"],
        ranks=tuple(_estimate(column, seed) for column in ranks.histograms[0].T),
        ranks_p=p["ranks"],
        spread=math.sqrt(spread.mean()),
        error=math.sqrt(error.mean()),
        spread_over_error=_root_ratio(spread, error, seed),
        reliability=_reliability(samples, truths, num_bins, seed) if len(samples) >= 4 else (),
        joint=tuple(_joint(name, found, level, p[name], seed) for name, found in ranks.joint.items()),
        least_p=1 / (num_permutations + 1),
    )


def _joint(name: str, ranks: Tensor, level: float, p_value: float, seed: int) -> JointCoverage:
    number = len(ranks)
    inside = min(max(round(level * number), 1), number - 1)
    counts = torch.bincount(ranks[0].flatten(), minlength=number).double()
    return JointCoverage(
        projection=name,
        coverage=_estimate((ranks[0] < inside).double().mean(1), seed),
        expected=inside / number,
        curve=tuple((counts.cumsum(0) / counts.sum()).tolist()),
        p_value=p_value,
    )


def _reliability(samples: Tensor, truths: Tensor, num_bins: int, seed: int) -> tuple[ReliabilityBin, ...]:
    bins = []
    for predicted, actual, pixels in zip(
        *(sums.T for sums in reliability(samples, truths, num_bins=num_bins)), strict=True
    ):
        total = float(pixels.sum())
        if total > 0:
            bins.append(
                ReliabilityBin(
                    math.sqrt(float(predicted.sum()) / total),
                    math.sqrt(float(actual.sum()) / total),
                    _root_ratio(predicted, actual, seed),
                )
            )
    return tuple(bins)


def _estimate(values: Tensor, seed: int) -> Estimate:
    array = values.double().cpu().numpy()
    return Estimate(float(array.mean()), *interval(array, seed=seed))


def _root_ratio(squares: Tensor, others: Tensor, seed: int) -> Estimate:
    if float(others.sum()) <= 0:
        return Estimate(math.nan, math.nan, math.nan)
    low, high = ratio_interval(squares.cpu().numpy(), others.cpu().numpy(), seed=seed)
    return Estimate(math.sqrt(float(squares.sum() / others.sum())), math.sqrt(low), math.sqrt(high))
