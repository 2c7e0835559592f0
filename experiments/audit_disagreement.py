"""Structures that samples disagree on, with a posterior in closed form: does the audit count the right share?

    python experiments/audit_disagreement.py --check

Every image has sixteen places where a spot is or is not, with odds of one half, and one number measured of each, y =
spot + noise. Given y the spot is there with probability p = 1 / (1 + exp((1 - 2 y) / (2 s^2))), so samples of the
posterior can be drawn without any model; brightness, place (by up to a pixel) and background vary between samples. The
audit sees the samples alone. Its share is compared with the share that was drawn and with p, and with the truth: of the
structures that it finds in some share of the samples, that share should exist.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.audit.disagreement import CERTAIN, check_disagreement
from sfumato.audit.structures import smooth

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # where figures are held against bars
from bars import Bars

IMAGES, SAMPLES, NOISE, SIDE, APART = 40, 32, 0.6, 96, 24
SCALE_PX, TOLERANCE_PX = 2.0, 4

Floats = NDArray[np.float64]


def posterior(rng: np.random.Generator) -> tuple[Floats, Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Samples (N, H, W), probabilities, which samples have each spot (N, spots), and which spots exist."""
    places = np.stack(np.meshgrid(*2 * [np.arange(APART // 2, SIDE, APART)], indexing="ij"), -1).reshape(-1, 2)
    is_there = rng.random(len(places)) < 0.5
    y = is_there + NOISE * rng.standard_normal(len(places))
    probability = 1 / (1 + np.exp((1 - 2 * y) / (2 * NOISE**2)))
    has = rng.random((SAMPLES, len(places))) < probability
    rows, columns = np.mgrid[:SIDE, :SIDE]
    draws = np.zeros((SAMPLES, SIDE, SIDE))
    for number in range(SAMPLES):
        draws[number] = 0.05 * 7 * smooth(rng.standard_normal((SIDE, SIDE)), 2)
        for place in places[has[number]]:
            row, column = place + rng.uniform(-1, 1, 2)
            light = 1 + 0.15 * rng.standard_normal()
            draws[number] += light * np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * 2.5**2))
    return draws, probability, has, is_there


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed")
    options = parser.parse_args()
    shares: list[float] = []
    drawn: list[float] = []
    known: list[float] = []
    truth: list[float] = []
    spurious = 0
    for image in range(IMAGES):
        draws, probability, has, is_there = posterior(np.random.default_rng(image))
        found = check_disagreement(draws, SCALE_PX)
        spots = np.full(has.shape[1], 0.0)
        centres = np.arange(APART // 2, SIDE, APART)
        for structure in found.structures:
            row, column = (int(np.argmin(np.abs(centres - place))) for place in (structure.row, structure.column))
            if max(abs(centres[row] - structure.row), abs(centres[column] - structure.column)) <= TOLERANCE_PX:
                spots[row * len(centres) + column] = structure.share
            else:
                spurious += 1
        shares, drawn = [*shares, *spots], [*drawn, *has.mean(0)]
        known, truth = [*known, *probability], [*truth, *is_there]
    share, exact, p, there = (np.array(values, np.float64) for values in (shares, drawn, known, truth))
    bars = Bars()
    bars.report(f"structures, of {len(share)} places", int((exact > 0).sum()))
    bars.report("mean difference of the share and that drawn", float(np.abs(share - exact).mean()), high=0.02)
    chance = float(np.abs(exact - p).mean())
    words = f"mean difference of the share and the posterior, {chance:.3f} of the drawn ones"
    bars.report(words, float(np.abs(share - p).mean()), high=chance + 0.01)
    uncertain, called = (exact > 0) & (exact < CERTAIN), (share > 0) & (share < CERTAIN)
    bars.report("recall of uncertain structures", float((called & uncertain).sum() / uncertain.sum()), low=0.95)
    bars.report("precision of uncertain structures", float((called & uncertain).sum() / called.sum()), low=0.95)
    bars.report("structures where none was drawn, per image", spurious / IMAGES, high=0.1)
    for low, high in ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.01)):
        chosen = (share >= low) & (share < high)
        words = f"share {low:g} to {min(high, 1):g}, {chosen.sum()} places: mean share minus share that exist"
        bars.report(words, float(share[chosen].mean() - there[chosen].mean()), low=-0.12, high=0.12)
    bars.finish(check=options.check)


if __name__ == "__main__":
    main()
