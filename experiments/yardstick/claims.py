"""What today's presets must reach on the yardstick, each figure against its bar; what is not measured misses it."""

import math
import time
from collections.abc import Mapping, Sequence

import torch

from bars import Bars
from sfumato.diffusion.model import CVDM
from sfumato.models.build import build_model
from sfumato.models.recipe import ModelRecipe, parse
from yardstick.comparison import Ratio, compare, geometric_mean, mean_of, stored_at, values_of
from yardstick.contenders import CONTENDERS
from yardstick.scores import BANDS
from yardstick.stored import Figure

__all__ = ["call_cost", "report", "report_calls", "version_0_1"]

NEW, OLD = "default", "default_0_1"
_DECIBELS = {1.0: 32.0, 4.0: 32.5, 30.0: 32.8}
_AGAINST_0_1 = {
    ("microscopy", "MAE"): 0.85,
    ("phase", "MAE"): 0.85,
    ("microscopy", "CRPS"): 0.8,
    ("phase", "CRPS"): 0.9,
}
_OTHERS = {("phase", "cddpm_paper"): 0.7, ("phase", "us_tie"): 0.75}
_RIVALS = ("regression", "dfcan", "care")
_COVERAGE = (0.85, 0.92)
"""Least to largest of 16 samples; 15/17 = .882 is right."""

Stored = Mapping[str, Sequence[Figure]]


def report(stored: Stored, bars: Bars) -> None:
    """Report every figure of the default; ``stored`` has the figures of each problem."""
    for minutes, least in _DECIBELS.items():
        bars.report(f"w2s, {minutes:g} min, PSNR", mean_of(values_of(stored["w2s"], NEW, minutes, "PSNR")), low=least)
    for problem, figures in stored.items():
        for minutes in CONTENDERS[NEW].budgets:
            name = f"{problem}, {minutes:.2g} min, MAE against the linear filter"
            _ratio(bars, name, _compared(figures, minutes, "MAE", "filter"), 1.0)
    for (problem, metric), most in _AGAINST_0_1.items():
        found = _compared(stored[problem], 30.0, metric, OLD)
        _ratio(bars, f"{problem}, 30 min, {metric} against version 0.1", found, most)
    for problem, figures in stored.items():
        _rivals(bars, problem, figures)
    _classical(bars, stored)
    for problem, figures in stored.items():
        _samples(bars, problem, figures)


def _compared(
    figures: Sequence[Figure], minutes: float, metric: str, other: str, group: str | None = None
) -> Ratio | None:
    """The default against another contender after the same minutes."""
    return compare(figures, (NEW, minutes), (other, stored_at(figures, other, minutes)), metric, group)


def _ratio(bars: Bars, name: str, found: Ratio | None, most: float) -> None:
    bars.report(name, math.nan if found is None else found.value, high=most)


def _rivals(bars: Bars, problem: str, figures: Sequence[Figure]) -> None:
    """Against the best rival at each budget: no more error, whatever samples and error bars cost."""
    for minutes in CONTENDERS[NEW].budgets:
        found = [_compared(figures, minutes, "MAE", rival) for rival in _RIVALS]
        known = [each for each in found if each is not None]
        if minutes in CONTENDERS["regression"].budgets:
            worst = max(known, key=lambda each: each.value, default=None)
            _ratio(bars, f"{problem}, {minutes:g} min, MAE against the best rival", worst, 1.0)
            end = math.nan if worst is None else worst.high
            bars.report(f"{problem}, {minutes:g} min, upper end of its interval", end, high=1.03)


def _classical(bars: Bars, stored: Stored) -> None:
    figures = stored["microscopy"]
    for group in sorted({figure.group for figure in figures if figure.contender == "richardson_lucy"} - {"training"}):
        found = _compared(figures, 30.0, "MAE", "richardson_lucy", group)
        _ratio(bars, f"microscopy, {group}, MAE against Richardson-Lucy", found, 1.0)
    for (problem, other), most in _OTHERS.items():
        _ratio(bars, f"{problem}, MAE against {other}", _compared(stored[problem], 30.0, "MAE", other), most)


def _samples(bars: Bars, problem: str, figures: Sequence[Figure]) -> None:
    groups = sorted({figure.group for figure in figures if figure.contender == NEW} - {"training"}) or ["test"]
    for group in groups:
        within = mean_of(values_of(figures, NEW, 30.0, "within", group))
        bars.report(f"{problem}, {group}, pixels within 16 samples", within, low=_COVERAGE[0], high=_COVERAGE[1])
    for band in range(1, BANDS + 1):
        power = values_of(figures, NEW, 30.0, f"power {band}")
        bars.report(f"{problem}, power of samples in band {band}", geometric_mean(power), low=0.75, high=1.25)


def call_cost(model: CVDM, side: int = 128, repeats: int = 5) -> float:
    """Processor seconds of one call of the denoising network on an image, the least of some."""
    model.eval()
    noisy, log_gamma, taken = torch.zeros(1, 1, side, side), torch.full((1, 1, 1, 1), -1.0), []
    with torch.no_grad():
        seen = model.read(noisy).seen
        for _ in range(repeats):
            started = time.process_time()
            model.predict(noisy, log_gamma, seen)
            taken.append(time.process_time() - started)
    return min(taken)


def version_0_1(base: int) -> CVDM:
    """The networks of version 0.1 at a size."""
    return build_model(ModelRecipe(base=base, rate_base=max(4, base // 2)), 1, 1)


def report_calls(bars: Bars) -> None:
    """Calls of version 0.1's network at four sizes, and of today's default, in one run."""
    for base in (8, 16, 32, 64):
        bars.report(f"version 0.1, base {base}, ms per call of 128 x 128", 1000 * call_cost(version_0_1(base)))
    chosen = parse("preset: default").model
    costs = [call_cost(model) for model in (build_model(chosen, 1, 1), version_0_1(chosen.base))]
    bars.report("one call of the default against version 0.1 at its size", costs[0] / costs[1], high=0.5)
