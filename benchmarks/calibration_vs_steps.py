"""How calibrated is a sampler with few steps? Exactly, on posteriors that are known.

    python benchmarks/calibration_vs_steps.py --check --write

The denoiser is exact, so every error is the sampler's own. Rates are log-uniform from 6 to 60 over 32 correlated
pixels; the covariance of what ``sample()`` draws is computed exactly, by pushing basis vectors through it, without
Monte Carlo.
"""

import argparse
import itertools
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bars import DOCS, Bars, write_table
from sfumato import sample
from sfumato.diffusion.gaussian import reverse_step
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.sampling_grid import log_snr_grid
from sfumato.diffusion.schedule import Schedule
from sfumato.diffusion.warp import LinearWarp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the exact problems are test code
from exact_problems import Gaussian, Mixture, log_uniform_rates, sampler_moments, smooth_covariance

NUM_PIXELS = 32
CONDITION = torch.zeros(1, 1, 1, NUM_PIXELS, dtype=torch.float64)
STDS = (0.3, 0.03)
CALLS = (8, 16, 32, 64, 128, 200, 256, 500)
NUM_DRAWS = 20_000

SOLVERS: dict[str, dict[str, Any]] = {
    "Gaussian, of presets": {"solver": "gaussian"},
    "2M, eta 0": {"solver": "2m"},
    "2M, eta 1": {"solver": "2m", "eta": 1.0},
    "DDIM": {"solver": "first_order"},
    "ancestral": {"solver": "first_order", "eta": 1.0},
    "ancestral, uniform t": {"solver": "first_order", "eta": 1.0, "grid": "uniform"},
    "Algorithm 2, uniform t": {"solver": "algorithm2", "grid": "uniform"},
}
"""The last two are the paper's way: a uniform grid of t, here on the clock rho = t^2."""


class Quality(NamedTuple):
    """What a sampler does to the posterior's covariance."""

    error: float
    """Relative Frobenius error of the covariance."""
    std_ratio: float
    """Mean ratio of its standard deviations to the exact ones; below 1 is over-confident."""


def schedule(rates: Tensor) -> Callable[[Tensor], Schedule]:
    """Pixel-wise rates on the clock rho = t^2."""
    return lambda condition: Schedule(rates, LinearWarp(0.0, 2.0), reference_rate=6.0)


def gaussian(std: float) -> Gaussian:
    """A correlated posterior of mean 0."""
    rates = log_uniform_rates((1, 1, 1, NUM_PIXELS))
    covariance = smooth_covariance(NUM_PIXELS, std)
    return Gaussian(schedule(rates), torch.zeros(NUM_PIXELS, dtype=torch.float64), covariance)


def quality(std: float, **settings: Any) -> Quality:
    problem = gaussian(std)
    _, covariance = sampler_moments(problem, CONDITION, **settings)
    exact = problem.covariance
    ratio = (covariance.diagonal() / exact.diagonal()).sqrt().mean()
    return Quality(float((covariance - exact).norm() / exact.norm()), float(ratio))


def order_of_convergence(std: float, solver: str) -> float:
    """Exponent of the covariance's error between 32 and 256 calls, against 8192 calls on the same grid."""
    _, limit = sampler_moments(gaussian(std), CONDITION, solver=solver, num_steps=8192)
    sizes = torch.tensor([32, 64, 128, 256], dtype=torch.float64)
    errors = []
    for size in sizes:
        _, covariance = sampler_moments(gaussian(std), CONDITION, solver=solver, num_steps=int(size))
        errors.append((covariance - limit).norm() / limit.norm())
    x, y = sizes.log(), torch.stack(errors).log()
    return -float(((x - x.mean()) * y).sum() / (x - x.mean()).square().sum())


def distance_from_appendix(num_steps: int = 32) -> float:
    """Largest difference between ``sample(first_order, eta=1)`` and a loop over the posterior of [CVDM App. B.2]."""
    problem, noise = gaussian(0.3), NoiseField(seed=3)
    draws = sample(problem, CONDITION, num_samples=4, num_steps=num_steps, solver="first_order", eta=1.0, seed=noise)
    end = problem.schedule(CONDITION).log_gamma(torch.ones((), dtype=torch.float64))
    levels = [end * fraction for fraction in log_snr_grid(num_steps, 6.0)]
    shape = torch.Size([4, 1, *CONDITION.shape[1:]])
    z = noise(0, shape, dtype=torch.float64)[:, 0]
    for step, (now, after) in enumerate(itertools.pairwise(levels), start=1):
        posterior = reverse_step(z, problem.clean(z, now, CONDITION), now, after)
        z = posterior.mean + posterior.var.sqrt() * noise(step, shape, dtype=torch.float64)[:, 0]
    return float((problem.clean(z, levels[-1], CONDITION) - draws[:, 0]).abs().max())


def bimodal() -> Mixture:
    """Two separate Gaussians on a line of 8 pixels, weights .3 and .7."""
    rates = log_uniform_rates((1, 1, 1, 8))
    wave = torch.sin(torch.arange(8, dtype=torch.float64))
    means = torch.stack([wave, -0.8 * wave + 0.2])
    covariances = torch.stack([smooth_covariance(8, 0.2), smooth_covariance(8, 0.1, length=1.0)])
    return Mixture(schedule(rates), torch.tensor([0.3, 0.7], dtype=torch.float64), means, covariances)


def mean_distance(a: Tensor, b: Tensor) -> float:
    return float(torch.stack([torch.cdist(block, b).mean(1).sum() for block in a.split(2000)]).sum()) / len(a)


def energy_distance(a: Tensor, b: Tensor) -> float:
    """Székely's distance 2 E|A - B| - E|A - A'| - E|B - B'|, V-statistic."""
    return 2 * mean_distance(a, b) - mean_distance(a, a) - mean_distance(b, b)


def report_mixture(bars: Bars) -> None:
    problem = bimodal()
    condition = torch.zeros(1, 1, 1, 8, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    truth, others = problem.draw(NUM_DRAWS, generator), problem.draw(NUM_DRAWS, generator)
    for calls in (16, 32):
        draws = sample(problem, condition, num_samples=NUM_DRAWS, num_steps=calls, seed=5).flatten(1)
        nearer = torch.cdist(draws, problem.means).argmin(1)
        weight = float((nearer == 0).double().mean())
        bars.report(f"mixture, {calls} calls: weight of the .3 mode", weight, low=0.28, high=0.32)
        ratio = energy_distance(draws, truth) / energy_distance(others, truth)
        highest = 2.0 if calls == 32 else math.inf
        bars.report(f"mixture, {calls} calls: energy distance over that of exact draws", ratio, high=highest)


def write(table: dict[float, dict[str, dict[int, Quality]]]) -> None:
    lines = []
    for std in STDS:
        lines += [f"Posterior standard deviation {std} of the data's scale:", ""]
        lines += ["| sampler | " + " | ".join(f"{calls} calls" for calls in CALLS) + " |"]
        lines += ["|---" * (len(CALLS) + 1) + "|"]
        for name in SOLVERS:
            cells = [f"{q.error:.3f} / {q.std_ratio:.3f}" for q in table[std][name].values()]
            lines += [f"| {name} | " + " | ".join(cells) + " |"]
        lines += [""]
    write_table(DOCS / "calibration_vs_steps.md", lines[:-1])
    draw(table)


def draw(table: dict[float, dict[str, dict[int, Quality]]]) -> None:
    from matplotlib.figure import Figure

    colours = ["#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#000000"]
    markers = ["o", "s", "^", "D", "v", "X", "P"]
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = figure.subplots(1, len(STDS), sharey=True)
    for axes, std in zip(panels, STDS, strict=True):
        axes.axhspan(0.99, 1.01, color="0.85", zorder=0)
        for (name, row), colour, marker in zip(table[std].items(), colours, markers, strict=True):
            ratios = [q.std_ratio for q in row.values()]
            axes.plot(CALLS, ratios, color=colour, marker=marker, markersize=4.5, linewidth=1.4, label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks([8, 16, 32, 64, 128, 256, 500], ["8", "16", "32", "64", "128", "256", "500"])
        axes.set(title=f"posterior std {std}", xlabel="network calls", ylim=(0, 1.15))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("standard deviation drawn / exact")
    panels[0].text(8, 0.06, "below 1: over-confident   (band: 1% around exact)", color="0.35", fontsize=8)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=9)
    path = DOCS / "figures" / "calibration_vs_steps.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    parser.add_argument(
        "--write", action="store_true", help="write the table and the figure to docs/ (two minutes more)"
    )
    arguments = parser.parse_args()
    bars = Bars()
    for std in STDS:
        for calls, highest in ((16, 0.08), (32, 0.02)):
            found = quality(std, solver="2m", num_steps=calls)
            bars.report(f"std {std}, {calls} calls, 2M: error of the covariance", found.error, high=highest)
            bounds = {"low": 0.99, "high": 1.01} if calls == 32 else {}
            bars.report(f"std {std}, {calls} calls, 2M: ratio of stds", found.std_ratio, **bounds)
        bars.report(f"std {std}, DDIM: order", order_of_convergence(std, "first_order"), low=0.85, high=1.15)
        bars.report(f"std {std}, 2M: order", order_of_convergence(std, "2m"), low=1.7, high=2.3)
    bars.report("ancestral against Appendix B.2, largest difference", distance_from_appendix(), high=1e-10)
    report_mixture(bars)
    calls_shown = CALLS if arguments.write else (32, 200, 500)
    table: dict[float, dict[str, dict[int, Quality]]] = {}
    for std in STDS:
        shown = SOLVERS if arguments.write else dict(list(SOLVERS.items())[-2:])
        table[std] = {name: {n: quality(std, num_steps=n, **SOLVERS[name]) for n in calls_shown} for name in shown}
        for name in list(SOLVERS)[-2:]:
            for calls in (32, 200, 500):
                error, ratio = table[std][name][calls]
                print(f"std {std}, {calls} calls, {name}: error {error:.3f}, ratio of stds {ratio:.3f}", flush=True)
    if arguments.write:
        write(table)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
