r"""Find the cheapest sampler setting (steps, solver, last noise) that is as well calibrated as the best one.

With few steps, samples become too narrow before their mean becomes worse, so the error alone would recommend too few
steps. Settings are compared on the same images with the same noise, so their differences are paired. The rule:

1. the best setting has the lowest mean CRPS;
2. a setting is good enough if its CRPS exceeds the best one by at most a given fraction of it;
3. among those, the reference is the setting whose coverage is nearest to the coverage of exact samples; a setting is
   calibrated enough if its coverage differs from the reference's by at most a second tolerance;
4. of these, the setting with the fewest network calls is recommended; ties go to the lowest CRPS.

The whole 95% interval over images of the paired difference must lie within a tolerance, not only its middle.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.diffusion.sampling_grid import LAST_NOISE
from sfumato.diffusion.solvers import WITHOUT_ETA, Solver
from sfumato.statistics.calibration_report import Estimate
from sfumato.statistics.rank_histogram import central_interval
from sfumato.statistics.scores import crps, spread_and_error
from sfumato.system.errors import RecipeError

__all__ = [
    "Comparison",
    "Recommendation",
    "Setting",
    "Summary",
    "Verdict",
    "compare_settings",
    "recommend",
    "summarise_settings",
]

Values = NDArray[np.float64]


class Setting(NamedTuple):
    """A sampler setting."""

    solver: Solver
    num_steps: int
    eta: float = 0.0
    last_noise: float = LAST_NOISE
    """Noise at the last network call; see :func:`sfumato.diffusion.sampling.sample`."""

    @property
    def family(self) -> str:
        """Everything except the number of steps."""
        name = self.solver if self.solver in WITHOUT_ETA else f"{self.solver}, eta {self.eta:g}"
        return name if self.last_noise == LAST_NOISE else f"{name}, last noise {self.last_noise:g}"

    def __str__(self) -> str:
        return f"{self.family}, {self.num_steps} steps"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Scores of each setting's samples on each image; arrays have shape (settings, images).

    Attributes:
        settings: The compared settings.
        num_samples: Samples of each image.
        level: Nominal coverage.
        expected: Coverage of exact samples between the same order statistics, (j - i)/(N + 1).
        crps: Fair, in the units of the images.
        coverage: Fraction of pixels between the two order statistics.
        spread: Mean square error of the samples' mean, as predicted by the samples.
        error: Mean square error of the samples' mean.
        seconds: Measured time per sample.
    """

    settings: tuple[Setting, ...]
    num_samples: int
    level: float
    expected: float
    crps: Values
    coverage: Values
    spread: Values
    error: Values
    seconds: Values


class Summary(NamedTuple):
    """One setting over all images."""

    rmse: Estimate
    """Of the mean of the samples."""
    crps: Estimate
    coverage: Estimate
    spread_over_error: Estimate
    """1 if the samples are right, below 1 if they are too narrow."""
    seconds: float
    """Per sample, the median over images."""


class Verdict(NamedTuple):
    """Whether a setting is good enough and, if not, why."""

    crps_excess: Estimate
    """Relative to the best setting: 0.02 is 2% worse."""
    coverage_change: Estimate
    """Coverage minus the reference's coverage."""
    accepted: bool
    why: str


@dataclass(frozen=True)
class Recommendation:
    """The setting to use; numbers are indices into :attr:`Comparison.settings`."""

    best: int
    """The setting with the lowest CRPS."""
    reference: int
    """The setting with the coverage nearest to the expectation, among those with a good CRPS."""
    chosen: int
    verdicts: tuple[Verdict, ...]
    crps_tolerance: float
    coverage_tolerance: float


def compare_settings(
    draw: Callable[[Setting, int], Tensor],
    truth: Callable[[int], Tensor],
    settings: Sequence[Setting],
    *,
    num_images: int,
    level: float = 0.9,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    r"""Sample every image with every setting and score the samples.

    Args:
        draw: Returns N samples of an image, shape (N, C, \*spatial); use the same noise for all settings.
        truth: Returns its truth, shape (C, \*spatial).
        settings: The settings to compare.
        num_images: Images are numbered from 0.
        level: Nominal coverage; the nearest interval between samples is used.
        progress: Called with the number of samples drawn and their total.

    Raises:
        RecipeError: If there is nothing to compare.
    """
    if not settings or len(set(settings)) < len(settings) or num_images < 1:
        raise RecipeError(
            f"there are {len(settings)} settings, {len(set(settings))} of them different, and {num_images} images; "
            "give at least one image, and settings that differ"
        )
    found, num_samples = np.empty((5, len(settings), num_images)), 0
    for image in range(num_images):
        target = truth(image)[None].double()
        for row, setting in enumerate(settings):
            started = time.perf_counter()
            draws = draw(setting, image)
            seconds, num_samples = (time.perf_counter() - started) / len(draws), len(draws)
            samples = draws[:, None].double()
            spread, error = spread_and_error(samples, target)
            numbers = (crps(samples, target), _coverage(samples, target, level), spread, error)
            found[:, row, image] = [*map(float, numbers), seconds]
            if progress is not None:
                progress(image * len(settings) + row + 1, num_images * len(settings))
    i, j = central_interval(num_samples, level)
    names = ("crps", "coverage", "spread", "error", "seconds")
    return Comparison(
        settings=tuple(settings),
        num_samples=num_samples,
        level=level,
        expected=(j - i) / (num_samples + 1),
        **dict(zip(names, found, strict=True)),
    )


def summarise_settings(found: Comparison, *, seed: int = 0) -> list[Summary]:
    """Means over images with 95% intervals, one per setting."""
    return [
        Summary(
            rmse=Estimate.of_mean(found.error[row], seed=seed).root(),
            crps=Estimate.of_mean(found.crps[row], seed=seed),
            coverage=Estimate.of_mean(found.coverage[row], seed=seed),
            spread_over_error=Estimate.of_ratio(found.spread[row], found.error[row], seed=seed).root(),
            seconds=float(np.median(found.seconds[row])),
        )
        for row in range(len(found.settings))
    ]


def recommend(
    found: Comparison, *, crps_tolerance: float = 0.02, coverage_tolerance: float = 0.02, seed: int = 0
) -> Recommendation:
    """Recommend the cheapest setting that is as good as the best, by the rule above.

    Args:
        found: From :func:`compare_settings`.
        crps_tolerance: How much worse than the best CRPS is good enough, as a fraction of it.
        coverage_tolerance: How far from the reference's coverage is calibrated enough.
        seed: Seed of the bootstrap.
    """
    if crps_tolerance < 0 or coverage_tolerance < 0:
        raise RecipeError(f"tolerances are {crps_tolerance} and {coverage_tolerance}; give 0 or more")
    means = found.crps.mean(1)
    rows = range(len(found.settings))
    cost = [setting.num_steps for setting in found.settings]
    best = min(rows, key=lambda row: (means[row], cost[row]))
    ratios = [Estimate.of_ratio(found.crps[row], found.crps[best], seed=seed) for row in rows]
    excess = [Estimate(*(number - 1 for number in ratio)) for ratio in ratios]
    good = [row for row in rows if row == best or excess[row].with_ends().high <= crps_tolerance]
    reference = min(good, key=lambda row: (abs(float(found.coverage[row].mean()) - found.expected), cost[row]))
    change = [Estimate.of_mean(found.coverage[row] - found.coverage[reference], seed=seed) for row in rows]
    verdicts = []
    for row in rows:
        reasons, worse, shift = [], excess[row].with_ends(), change[row].with_ends()
        if row not in good:
            reasons.append(
                f"its CRPS is {worse.value:+.1%} from the best, at most {worse.high:+.1%}, and {crps_tolerance:.1%} is "
                "allowed"
            )
        if not -coverage_tolerance <= shift.low <= shift.high <= coverage_tolerance:
            reasons.append(
                f"its coverage is {shift:+.3f} from the reference's, and {coverage_tolerance:.3f} is allowed"
            )
        verdicts.append(Verdict(excess[row], change[row], not reasons, " and ".join(reasons) or "good enough"))
    chosen = min((row for row in rows if verdicts[row].accepted), key=lambda row: (cost[row], means[row]))
    return Recommendation(best, reference, chosen, tuple(verdicts), crps_tolerance, coverage_tolerance)


def _coverage(samples: Tensor, truths: Tensor, level: float) -> Tensor:
    """Fraction of pixels between two order statistics of (N, 1, ...) samples."""
    i, j = central_interval(len(samples), level)
    ordered = samples.sort(0).values
    inside: Tensor = (ordered[i - 1] <= truths) & (truths <= ordered[j - 1])
    return inside.to(torch.float64).mean()
