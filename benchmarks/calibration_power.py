"""How often are wrong posteriors found, and right ones accused? On Gaussian problems whose posterior is known.

    python benchmarks/calibration_power.py --check
    python benchmarks/calibration_power.py --write   # the table of docs/calibration.md

Images of 32 x 32 pixels, measured with noise: once with independent pixels, once with a smooth prior and a blurred
measurement, where pixels of the posterior are correlated. A test rejects at p < 0.05. Right posteriors must be rejected
as often as that, and their p-values be uniform; wrong ones nearly always.
"""

import argparse
import math
import sys
from pathlib import Path

import torch
from scipy.stats import kstest

from bars import DOCS, Bars, write_table
from sfumato.statistics.calibration_report import p_values, rank_pools
from sfumato.statistics.exchange_test import exchange_test, pool
from sfumato.statistics.rank_histogram import member_histograms, rank_scores
from sfumato.statistics.significance import holm

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the exact problems are test code
from calibrated_draws import GaussianDraws

NUM_IMAGES = 200
NUM_EXACT = 2000
LEVEL = 0.05
PROBLEMS = {"independent pixels": 0.0, "correlated pixels": 1.5}
WRONG = {"std 10% too small": {"scale": 0.9}, "bias of 0.2 std": {"bias": 0.2}}
BARRED = ("coverage", "ranks")


def tests_of(
    problem: GaussianDraws, number: int, *, num_samples: int, num_images: int, **wrong: float
) -> dict[str, list[float]]:
    """P-values of repetitions, by test."""
    found: dict[str, list[float]] = {}
    for seed in range(number):
        samples, truths = problem.draw(num_samples, num_images, seed, **wrong)
        for name, p in p_values(rank_pools(samples, truths, seed=seed), seed=seed).items():
            found.setdefault(name, []).append(p)
    return found


def rejected(p: list[float]) -> float:
    return sum(value < LEVEL for value in p) / len(p)


def shared_noise(number: int) -> float:
    """How often exact draws are rejected by their ranks if all images share the noise of their draws."""
    found = []
    for seed in range(number):
        generator = torch.Generator().manual_seed(seed)
        samples = torch.randn(16, 1, 1, 16, 16, generator=generator).expand(16, NUM_IMAGES, 1, 16, 16)
        truths = torch.randn(NUM_IMAGES, 1, 16, 16, generator=generator)
        found.append(exchange_test(rank_scores(member_histograms(pool(samples, truths), generator)), generator))
    return rejected(found)


def report_exact(bars: Bars, title: str, blur: float) -> None:
    """Rates on small images with exact draws; p-values of the tests of uniformity are adjusted for their number."""
    margin = 3 * math.sqrt(LEVEL * (1 - LEVEL) / NUM_EXACT)
    found = tests_of(GaussianDraws(8, blur=blur), NUM_EXACT, num_samples=8, num_images=20)
    adjusted = holm([float(kstest(p, "uniform").pvalue) for p in found.values()])
    for (name, p), uniform in zip(found.items(), adjusted, strict=True):
        label = f"{title}, exact posterior, {name}"
        bars.report(f"{label}: rejected", rejected(p), low=LEVEL - margin, high=LEVEL + margin)
        bars.report(f"{label}: Kolmogorov-Smirnov p of its p-values, by Holm", uniform, low=0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    parser.add_argument("--write", action="store_true", help="write the table of docs/calibration.md")
    parser.add_argument("--repetitions", type=int, default=20, help="of each wrong posterior")
    parser.add_argument("--samples", type=int, default=16, help="draws per image")
    arguments = parser.parse_args()
    bars = Bars()
    for title, blur in PROBLEMS.items():
        report_exact(bars, title, blur)
        problem = GaussianDraws(32, blur=blur)
        for what, wrong in WRONG.items():
            found = tests_of(
                problem, arguments.repetitions, num_samples=arguments.samples, num_images=NUM_IMAGES, **wrong
            )
            for name, p in found.items():
                low = 0.9 if name in BARRED else -math.inf
                bars.report(f"{title}, {what}, {name}: rejected", rejected(p), low=low)
    bars.report("exact posterior, images that share the noise of their draws, ranks: rejected", shared_noise(20))
    if arguments.write:
        write_table(DOCS / "calibration.md", bars.table(), "power")
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
