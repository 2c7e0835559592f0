r"""The claims of the paper and ours, each with a figure, its 95% interval, and a verdict in one word.

A claim says that a figure lies in a range; for ratios of errors the range is below 1. The verdict is

- **equal** if the figure is a ratio whose interval lies within 5% of 1,
- **yes** if the interval lies in the range, **no** if it lies outside,
- **open** otherwise, and where nothing is measured.

Intervals are over test images and, where a contender was trained more than once, over its seeds.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from evidence.found import Found, against, beta_and_samples, default_calls, of_0_1, within_on_w2s

__all__ = ["CLAIMS", "MARGIN", "Claim", "claim_table", "verdict"]

MARGIN = 0.05


class Claim(NamedTuple):
    """A statement, what the paper found, and what was found here; it holds from ``least`` to ``most``."""

    says: str
    paper: str
    found: Callable[[], Found | None]
    least: float = -math.inf
    most: float = 1.0


def verdict(found: Found | None, least: float, most: float) -> str:
    """One word, by the rules above.

    Example:
        >>> verdict(Found(0.9, 0.85, 0.94, "3", "today"), -math.inf, 1.0)
        'yes'
    """
    if found is None:
        return "open"
    if found.is_ratio and found.low >= 1 - MARGIN and found.high <= 1 + MARGIN:
        return "equal"
    if least <= found.low and found.high <= most:
        return "yes"
    return "no" if found.high < least or most < found.low else "open"


CLAIMS = (
    Claim(
        "Phase: less error than the paper's CDDPM",
        "0.54",
        lambda: against("phase", "cddpm_paper") or of_0_1("qpi", "cvdm_0_1", "cddpm_paper:ancestral", "noise-free"),
    ),
    Claim("Phase: less error than US-TIE", "0.66", lambda: against("phase", "us_tie")),
    Claim(
        "Phase: samples of the learned schedule have less error (CRPS) than those of a fixed one",
        "",
        lambda: (
            against("phase", "cosine", "CRPS")
            or of_0_1("qpi", "cvdm_population", "cddpm_tuned_population", "noise-free", "CRPS")
        ),
    ),
    Claim(
        "Microscopy: the same",
        "0.95 (MAE)",
        lambda: against("microscopy", "cosine", "CRPS") or of_0_1("microscopy", "cvdm_0_1", "cddpm_tuned"),
    ),
    Claim(
        "Microscopy: less error than DFCAN",
        "1.05",
        lambda: against("microscopy", "dfcan") or of_0_1("microscopy", "cvdm_0_1", "dfcan"),
    ),
    Claim(
        "Photographs, four times finer: less error than a tuned fixed schedule",
        "",
        lambda: of_0_1("natural_x4", "cvdm_0_1", "cddpm_tuned", "kodak"),
    ),
    Claim(
        "Without the smoothness term of the loss the error is larger (ratio above 1)",
        "",
        lambda: of_0_1("qpi", "cvdm_no_smoothness", "cvdm_0_1", "noise-free"),
        least=1.0,
        most=math.inf,
    ),
    Claim(
        "Where the schedule is steep, samples differ (rank correlation over the pixels of microscopy)",
        "",
        beta_and_samples,
        least=0.0,
        most=1.0,
    ),
    Claim(
        "Microscopy: less error than a regression, at equal seconds", "", lambda: against("microscopy", "regression")
    ),
    Claim(
        "Microscopy: less error than Richardson-Lucy, which is given the true blur",
        "",
        lambda: against("microscopy", "richardson_lucy"),
    ),
    Claim("8 network calls per sample are as good as 32 (CRPS)", "", default_calls),
    Claim(
        "W2S: raw error bars are right (pixels within 16 samples, .85 to .92; .882 is right)",
        "",
        within_on_w2s,
        least=0.85,
        most=0.92,
    ),
)
"""At most twelve. The paper's ratios are of MAE in its tables: 2a for phases, the mean of 1 for microscopy."""


def claim_table() -> Iterator[str]:
    """Lines of the table of claims."""
    yield "| claim | the paper's ratio | ours (95% interval) | trainings | measured with | holds |"
    yield "|---|---|---|---|---|---|"
    for claim in CLAIMS:
        found = claim.found()
        shown = "not measured" if found is None else f"{found.value:.3g} ({found.low:.3g} to {found.high:.3g})"
        seeds, source = ("", "") if found is None else (found.seeds, found.source)
        word = verdict(found, claim.least, claim.most)
        yield f"| {claim.says} | {claim.paper} | {shown} | {seeds} | {source} | **{word}** |"
