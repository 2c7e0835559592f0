"""Tables of the pages, made of the stored figures alone."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from evidence.found import NEW, longest, within_on_w2s
from few_calls import stored as few_calls
from few_calls import table as calls_table
from yardstick.comparison import geometric_mean, mean_of, values_of
from yardstick.contenders import CONTENDERS
from yardstick.problems import PROBLEMS
from yardstick.stored import Figure, figures
from yardstick.tables import full_tables

__all__ = ["NAMES", "TITLES", "full_tables", "main_table", "peers_table", "readme_claims", "rivals_of", "w2s_table"]

NAMES = {
    "measured": "the measured image",
    "gaussian": "best Gaussian blur",
    "filter": "best linear filter (15 x 15)",
    "richardson_lucy": "Richardson-Lucy, given the true blur",
    "us_tie": "US-TIE",
    "regression": "regression, our U-Net",
    "care": "CARE, by CAREamics",
    "dfcan": "DFCAN",
    "flow": "flow matching, as ResMatching does it",
    "cddpm_paper": "CDDPM as the paper sets it",
    "cosine": "today's presets, fixed cosine schedule",
    "default_0_1": "CVDM, version 0.1",
    NEW: "**CVDM, today's presets**",
}
"""Contenders in the order of the tables."""
TITLES = {"microscopy": "Simulated microscopy", "phase": "Phase", "w2s": "Denoising, W2S"}
PEERS = ("regression", "care", "dfcan", "flow", NEW)
SHOWN = (0.0, 4.0, 30.0)
"""Budgets in the tables: nothing to train, and minutes of one core."""


def main_table() -> Iterator[str]:
    """Lines of one table: errors, and whether error bars are right, of every contender on every problem."""
    yield (
        "| method | minutes | microscopy, MAE | CRPS | phase, MAE (rad) | CRPS | W2S, PSNR | CRPS | "
        "true pixels within 16 samples |"
    )
    yield "|---" * 9 + "|"
    stored = {problem: figures(problem) for problem in PROBLEMS}
    for name, title in NAMES.items():
        for minutes in SHOWN:
            cells = _cells(stored, name, minutes)
            if any(cells):
                yield f"| {title} | {f'{minutes:g}' if minutes else ''} | " + " | ".join(cells) + " |"


def _cells(stored: Mapping[str, Sequence[Figure]], name: str, minutes: float) -> list[str]:
    def error(problem: str, metric: str, scale: float = 1.0) -> str:
        values = _of_all_images(stored[problem], name, minutes, metric)
        return f"{geometric_mean(values) * scale:.3g}" if values.size else ""

    decibels = _of_all_images(stored["w2s"], name, minutes, "PSNR")
    within = [_of_all_images(stored[problem], name, minutes, "within") for problem in ("microscopy", "phase", "w2s")]
    shares = [f"{mean_of(values):.2f}" if values.size else "" for values in within]
    return [
        error("microscopy", "MAE"),
        error("microscopy", "CRPS"),
        error("phase", "MAE"),
        error("phase", "CRPS"),
        f"{mean_of(decibels):.2f} dB" if decibels.size else "",
        error("w2s", "CRPS"),
        ", ".join(share or "-" for share in shares) if any(shares) else "",
    ]


def _of_all_images(stored: Sequence[Figure], name: str, minutes: float, metric: str) -> NDArray[np.float64]:
    """Values as :func:`values_of` has them; none of who restored some images only, as a mean would be of others."""
    values = values_of(stored, name, minutes, metric)
    every = values_of(stored, "measured", 0, "MAE").shape[-1]
    return values if values.shape[-1] == every else np.empty((0, 0))


def w2s_table() -> Iterator[str]:
    """Lines of the table of the real images: PSNR of every contender, and whether its error bars are right."""
    yield "| method | minutes | PSNR, mean | lowest | highest | CRPS | true pixels within 16 samples |"
    yield "|---" * 7 + "|"
    stored = figures("w2s")
    for name, title in NAMES.items():
        for minutes in sorted({figure.minutes for figure in stored if figure.contender == name}):
            decibels = _of_all_images(stored, name, minutes, "PSNR")
            if not decibels.size:
                continue
            crps, within = (values_of(stored, name, minutes, metric) for metric in ("CRPS", "within"))
            shown = (
                f"{minutes:.2g}" if minutes else "",
                f"{mean_of(decibels):.2f} dB",
                f"{decibels.mean(0).min():.2f}",
                f"{decibels.mean(0).max():.2f}",
                f"{geometric_mean(crps):.3g}" if crps.size else "",
                f"{mean_of(within):.2f}" if within.size else "",
            )
            yield f"| {title} | " + " | ".join(shown) + " |"


def peers_table() -> Iterator[str]:
    """Lines of the table of peers: their error over that of today's presets, on the same pairs at equal seconds."""
    yield "| method | microscopy | phase | W2S | gives besides the mean |"
    yield "|---|---|---|---|---|"
    for name in PEERS:
        if name == NEW:
            continue
        shown = []
        for problem in PROBLEMS:
            found = longest(problem, name) if problem in CONTENDERS[name].problems else None
            shown.append(
                "not measured"
                if found is None
                else f"{1 / found[1].value:.2f} ({1 / found[1].high:.2f} to {1 / found[1].low:.2f}), {found[0]:g} min"
            )
        yield f"| {NAMES[name]} | " + " | ".join(shown) + f" | {_gives(name)} |"


def _gives(name: str) -> str:
    """What a peer gives besides the mean, and the error of that whole distribution over ours."""
    if name != "flow":
        return "nothing"
    found = {problem: longest(problem, name, "CRPS") for problem in PROBLEMS}
    shown = [
        f"{TITLES[problem]} {1 / ratio.value:.2f} ({1 / ratio.high:.2f} to {1 / ratio.low:.2f})"
        for problem, (_, ratio) in ((problem, each) for problem, each in found.items() if each is not None)
    ]
    return f"samples; their CRPS over ours: {', '.join(shown)}" if shown else "samples"


def rivals_of(problem: str) -> Iterator[tuple[str, float, tuple[float, float, float]]]:
    """Name, minutes, and ratio with its interval of today's presets over each rival, at equal seconds."""
    for name, title in NAMES.items():
        if name == NEW or problem not in CONTENDERS[name].problems:
            continue
        found = longest(problem, name)
        if found is not None:
            yield title, found[0], (found[1].value, found[1].low, found[1].high)


def readme_claims() -> Iterator[str]:
    """Three sentences with figures."""
    w2s = figures("w2s")
    own, blur, regression = (
        mean_of(values_of(w2s, name, minutes, "PSNR"))
        for name, minutes in ((NEW, 4.0), ("gaussian", 0.0), ("regression", 4.0))
    )
    yield (
        "- **A better image in minutes.** On real images (W2S), four minutes of training on one core give "
        f"{own:.1f} dB; the best Gaussian blur gives {blur:.1f}, a regression of the same minutes {regression:.1f}."
    )
    found = within_on_w2s()
    assert found is not None
    yield (
        f"- **Honest error bars.** Between the least and the largest of 16 samples lie {found.value:.0%} of the true "
        "pixels there, where 88% is right."
    )
    rows = [line.split("|") for line in calls_table(few_calls()) if "| gaussian | 8 |" in line]
    worst = max(abs(float(row[7].split()[0]) - 1) for row in rows)
    yield (
        "- **Few calls.** A sample takes 8 network calls, not 500; with 32 the error (CRPS) is the same within "
        f"{worst:.0%} on each of three problems. The mean and an error bar take one."
    )
