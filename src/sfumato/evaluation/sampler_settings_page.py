"""Present a comparison of steps and solvers: a table, a CSV, a figure, and the recommendation in words."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sfumato.evaluation.sampler_settings import Comparison, Recommendation, Summary
from sfumato.figures.plotting import new_figure
from sfumato.models.ownership import Written
from sfumato.statistics.calibration_report import Estimate
from sfumato.system.marks import PICTURE, text_like

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_steps", "explain", "step_files", "step_table", "write_steps_csv"]

_COLOURS = ("#0072B2", "#D55E00", "#56B4E9", "#CC79A7", "#000000")
_MARKERS = ("o", "s", "^", "D", "v")
_FAR = 0.02
"""A coverage whose interval is further than this from its expectation gives a warning."""


_COLUMNS = "solver,eta,last_noise,steps,images,draws,rmse,"
"""Header of the CSV."""


def step_files(folder: Path) -> list[Written]:
    """Files that a comparison of steps writes to a folder."""
    figures = text_like("table of sampling steps", lambda text: text.startswith(_COLUMNS))
    return [Written(folder / "steps.csv", figures), Written(folder / "steps.png", PICTURE)]


def step_table(found: Comparison, rows: Sequence[Summary], chosen: Recommendation) -> list[str]:
    """A Markdown table with a row per setting; the recommended one is bold."""
    lines = [
        f"| setting | RMSE of the mean of {found.num_samples} draws | CRPS | CRPS over the best | coverage, expected "
        f"{found.expected:.3f} | spread over error | seconds per draw |",
        "|---" * 7 + "|",
    ]
    for number, (setting, row) in enumerate(zip(found.settings, rows, strict=True)):
        name = f"**{setting}**" if number == chosen.chosen else str(setting)
        excess = chosen.verdicts[number].crps_excess
        lines.append(
            f"| {name} | {row.rmse} | {row.crps} | {excess:+.1%} | {row.coverage:.3f} | {row.spread_over_error:.3f} "
            f"| {row.seconds:.3g} |"
        )
    return lines


def explain(found: Comparison, rows: Sequence[Summary], chosen: Recommendation) -> list[str]:
    """Why this setting is recommended, and why not a cheaper one."""
    number = found.crps.shape[1]
    setting, verdict = found.settings[chosen.chosen], chosen.verdicts[chosen.chosen]
    lines = [
        f"recommended: {setting}: the fewest network calls whose CRPS is at most {chosen.crps_tolerance:.1%} above "
        f"the best one ({found.settings[chosen.best]}) and whose coverage is within "
        f"{chosen.coverage_tolerance:.3f} of the best calibrated of those ({found.settings[chosen.reference]}), both "
        f"by paired 95% intervals over {number} images",
        f"  its CRPS: {verdict.crps_excess.value:+.2%}, its coverage: {verdict.coverage_change.value:+.4f}",
    ]
    for cheaper, refused in zip(found.settings, chosen.verdicts, strict=True):
        if cheaper.num_steps < setting.num_steps and not refused.accepted:
            lines.append(f"  not {cheaper}: {refused.why}")
    if number == 1:
        lines.append("with one image there are no intervals; differences were taken as they are: give more images")
    is_last = setting.num_steps == max(other.num_steps for other in found.settings)
    if is_last and any(other.num_steps < setting.num_steps for other in found.settings):
        lines.append(f"{setting.num_steps} is the largest number of steps that was tried: try larger ones too")
    coverage = rows[chosen.chosen].coverage
    if number > 1 and (coverage.high < found.expected - _FAR or coverage.low > found.expected + _FAR):
        word = "over" if coverage.value < found.expected else "under"
        lines.append(
            f"the recommended setting covers {coverage:.3f} where exact draws would cover "
            f"{found.expected:.3f}: no setting tried here is much better, so the model itself is {word}-confident"
            + ("" if is_last else ", and more steps will not fix it")
        )
    return lines


def write_steps_csv(found: Comparison, rows: Sequence[Summary], chosen: Recommendation, path: Path) -> None:
    """All numbers, a row per setting."""
    lines = []
    for number, (setting, row, verdict) in enumerate(zip(found.settings, rows, chosen.verdicts, strict=True)):
        lines.append(
            {
                "solver": setting.solver,
                "eta": setting.eta,
                "last_noise": setting.last_noise,
                "steps": setting.num_steps,
                "images": found.crps.shape[1],
                "draws": found.num_samples,
                **_columns("rmse", row.rmse),
                **_columns("crps", row.crps),
                **_columns("crps_excess", verdict.crps_excess),
                **_columns("coverage", row.coverage),
                "coverage_expected": f"{found.expected:.6g}",
                **_columns("coverage_change", verdict.coverage_change),
                **_columns("spread_over_error", row.spread_over_error),
                "seconds_per_draw": f"{row.seconds:.6g}",
                "accepted": verdict.accepted,
                "recommended": number == chosen.chosen,
            }
        )
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def draw_steps(found: Comparison, rows: Sequence[Summary], chosen: Recommendation) -> "Figure":
    """Plot error, CRPS and coverage against the number of steps: a line per solver, the recommended setting circled.

    Args:
        found: The comparison.
        rows: From :func:`sfumato.evaluation.sampler_settings.summarise_settings`.
        chosen: From :func:`sfumato.evaluation.sampler_settings.recommend`.
    """
    figure = new_figure(11.5, 4.0)
    panels = figure.subplots(1, 3)
    rmse = f"RMSE of the mean of {found.num_samples} draws\n(units of the targets)"
    labels = (rmse, "fair CRPS\n(units of the targets)", "coverage of pixels")
    families = list(dict.fromkeys(setting.family for setting in found.settings))
    steps = sorted({setting.num_steps for setting in found.settings})
    for panel, name, label in zip(panels, ("rmse", "crps", "coverage"), labels, strict=True):
        for place, family in enumerate(families):
            members = sorted(
                (setting.num_steps, number) for number, setting in enumerate(found.settings) if setting.family == family
            )
            # Slightly offset, so that intervals of equal values can be told apart.
            x = np.array([number for number, _ in members]) * 1.03 ** (place - (len(families) - 1) / 2)
            estimates = np.array([getattr(rows[number], name) for _, number in members])
            colour, marker = _COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)]
            if np.isfinite(estimates).all():
                panel.vlines(x, estimates[:, 1], estimates[:, 2], color=colour, linewidth=1, alpha=0.6)
            panel.plot(x, estimates[:, 0], color=colour, marker=marker, markersize=4.5, linewidth=1.4, label=family)
            for at, (_, number) in zip(x, members, strict=True):
                if number == chosen.chosen:
                    ring = {"s": 130, "facecolors": "none", "edgecolors": "black", "linewidths": 1.5, "zorder": 5}
                    panel.scatter(at, getattr(rows[number], name).value, label="recommended", **ring)
        panel.set_xscale("log", base=2)
        panel.set_xticks(steps, [str(step) for step in steps])
        panel.minorticks_off()
        panel.set(xlabel="steps (network calls per draw)", ylabel=label)
        panel.spines[["top", "right"]].set_visible(False)
    panels[2].axhline(found.expected, color="0.4", linestyle="--", linewidth=1, label="exact draws")
    entries = dict(zip(*reversed(panels[2].get_legend_handles_labels()), strict=True))
    names = [*families, "exact draws", "recommended"]
    handles = [entries[name] for name in names]
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9)
    return figure


def _columns(name: str, estimate: Estimate) -> dict[str, str]:
    return {f"{name}{end}": f"{value:.6g}" for end, value in zip(("", "_low", "_high"), estimate, strict=True)}
