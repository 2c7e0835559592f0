"""The tables of docs/results.md, made of the stored figures alone, and the check that the page has them."""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paper.claims import (
    CHAIN,
    CLAIMS,
    EXPECTED_COVERAGE,
    GOALS,
    SEEDLESS,
    STRUCTURES,
    Claim,
    Finding,
    in_brackets,
    verdict,
)
from paper.matrix import CELLS, CVDM_0_1, DEFAULT, EFFORTS, LEVELS, POWERS, PROBLEMS, SOLVERS, TRIAL_SHARE, Cell, trials
from paper.methods import DESCRIPTIONS
from paper.pictures import PICTURES
from paper.stored import (
    Figures,
    Places,
    chosen_trial,
    common_images,
    file_of,
    is_measured,
    label,
    read_all,
    values_on_common,
)
from sfumato.diffusion.schedule import LinearSchedule
from sfumato.statistics.significance import FEWEST, interval, paired_test

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["blocks", "check", "write"]

SHOWN: Mapping[str, Sequence[str]] = {
    "qpi": ("MAE", "MAE raw", "MS-SSIM", "NRMSE", "CRPS", "coverage 90", "seconds"),
    "microscopy": ("MAE", "MS-SSIM", "NRMSE", "resolution", "resolution single", "CRPS", "coverage 90", "seconds"),
    "w2s": ("MAE", "MS-SSIM", "PSNR", "CRPS", "coverage 90", "seconds"),
    "natural_x4": ("MAE", "PSNR", "SSIM", "MS-SSIM", "CRPS", "coverage 90", "seconds"),
    "tsim_er": ("MAE", "MS-SSIM", "PSNR", "CRPS", "coverage 90", "seconds"),
    "real_phase": ("forward error", "correlation with TIE", "NRMSE against TIE"),
}
"""Columns of the tables; further metrics are in the files."""
_UNITS = {"resolution": "nm", "resolution single": "nm", "PSNR": "dB", "seconds": "s per draw, not comparable"}
_NONE = "not measured yet"


def blocks(figures: Figures, results: Path, drawn: Path) -> dict[str, str]:
    """Every generated part of the page by name; pictures of models are those that stand in a folder."""
    found = {claim: [f for check in claim.checks for f in check(figures)] for claim in (*CLAIMS, *GOALS)}
    made = {"short": _short(figures), "verdicts": _verdicts(found), "seeds": _seeds(figures), "methods": _glossary()}
    made |= {"cells": _cells(results, figures), "gain": _gain(figures)}
    made |= {f"claim {claim.number}": _claim(claim, findings) for claim, findings in found.items()}
    made |= {f"table {name}": _tables(name, figures) for name in PROBLEMS}
    made |= {f"pictures {name}": _pictures(name, drawn) for name in dict.fromkeys(p.problem for p in PICTURES)}
    made["ablations"] = _ablations(figures)
    made["tuning"] = _tuning(figures)
    made["attempts"] = _attempts(figures)
    made["levels"] = _levels(figures)
    made["solvers"] = _solvers(figures)
    made["solvers beside"] = _beside_default_solver(figures)
    made["costs"] = _costs(figures)
    return made


def _verdicts(found: Mapping[Claim, Sequence[Finding]]) -> str:
    lines = ["| | claim | verdict | lines that hold |", "|---|---|---|---|"]
    for claim, findings in found.items():
        holding = f"{sum(finding.holds == 'yes' for finding in findings)} of {len(findings)}"
        lines.append(f"| {claim.number} | {claim.text} | **{verdict(findings)}** | {holding} |")
    return "\n".join(lines)


_SHORT: Mapping[str, Sequence[str]] = {
    "classical, tuned": ("us_tie", "tie_uniform", "richardson_lucy", "wiener", "gaussian", "bicubic"),
    "regression": ("regression",),
    "CDDPM, tuned or cosine": ("cddpm_tuned", "cddpm_cosine"),
    "CVDM": (CVDM_0_1,),
    "CDDPM, tuned, recipes' norm": ("cddpm_tuned_population",),
    "CVDM, recipes' norm": ("cvdm_population",),
}
"""Columns of the first table: of the methods that a problem has, the one of least error."""


def _short(figures: Figures) -> str:
    """MAE of the main methods on every problem with a truth, each seed by itself."""
    lines = [f"| MAE | images | {' | '.join(_SHORT)} |", "|---" * (len(_SHORT) + 2) + "|"]
    for problem, about in PROBLEMS.items():
        for test_set in about.sets:
            each = {
                method: [
                    [*figures.images(problem, method, seed, test_set, "MAE").values()]
                    for seed in figures.seeds(problem, method, test_set, "MAE")
                ]
                for method in _methods(problem)
            }
            number = max((len(values) for seeds in each.values() for values in seeds), default=0)
            cells = []
            for methods in _SHORT.values():
                found = [each[m] for m in methods if each.get(m)]
                best = min(found, key=lambda seeds: float(np.mean(seeds)), default=[])
                cells.append(", ".join(f"{np.mean(values):.3g}" for values in best))
            if number:
                lines.append(f"| {about.title}, {test_set} ({about.unit}) | {number} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _glossary() -> str:
    """What every name in the tables is."""
    names = dict.fromkeys(name for problem in PROBLEMS for name in _methods(problem))
    lines = ["| method | is |", "|---|---|", *(f"| `{name}` | {DESCRIPTIONS[name]} |" for name in names)]
    return "\n".join(lines)


def _seeds(figures: Figures) -> str:
    """How much a method differs from itself, trained with another seed."""
    heads = ("problem, set", "method", "MAE, seed 0", "seed 1", "change", "p", "n")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for problem, about in PROBLEMS.items():
        for test_set, method in itertools.product(about.sets, _methods(problem)):
            before, now = values_on_common(*(figures.images(problem, method, s, test_set, "MAE") for s in (0, 1)))
            if len(now):
                means = f"{before.mean():.4g} | {now.mean():.4g}"
                lines.append(f"| {problem}, {test_set} | `{method}` | {means} | {_change(now, before)} | {len(now)} |")
    return "\n".join(lines)


def _claim(claim: Claim, found: Sequence[Finding]) -> str:
    lines = [f"{claim.text}", "", f"Verdict: **{verdict(found)}**. Rule: {claim.rule}", ""]
    lines += ["| what | found | test | holds |", "|---|---|---|---|"]
    lines += [f"| {f.what} | {f.found} | {f.test} | {'' if f.holds == 'not measured' else f.holds} |" for f in found]
    return "\n".join(lines)


def _methods(problem: str, test_set: str | None = None) -> list[str]:
    """Labels of what is drawn of a test set, or of any, in the order of the matrix, without the study of solvers."""
    found = []
    for cell in CELLS:
        kinds = ("model", "tuned", "classical")
        if cell.problem == problem and cell.tier < 3 and cell.kind in kinds and cell.method != "truth":
            draws = [draw for draw in cell.draws if test_set is None or not draw.sets or test_set in draw.sets]
            found += [label(cell, draw) for draw in draws]
    return list(dict.fromkeys(found))


def _tables(problem: str, figures: Figures) -> str:
    about, parts = PROBLEMS[problem], []
    for test_set in about.sets:
        parts += [_table(problem, test_set, figures, group) for group in (STRUCTURES if about.groups else ("",))]
    for test_set in about.sets:
        if itself := figures.images(problem, "truth", 0, test_set, "resolution"):
            each = {group: [*_in_group(itself, group).values()] for group in STRUCTURES}
            told = ", ".join(f"{group} {np.mean(values):.3g} nm" for group, values in each.items() if values)
            parts.append(f"Resolution of the truth itself by the same analysis: {told}.")
            powers = [figures.images(problem, "truth", 0, test_set, power) for power in POWERS]
            if all(powers):
                shares = ", ".join(f"{100 * np.mean([*each.values()]):.2g}%" for each in powers)
                parts.append(f"Its power in eight bands, from the slowest to the cut-off: {shares}.")
    if _has_figure(problem, figures):
        parts.insert(0, f"![Error of every method](figures/results_{problem}.svg)")
    return "\n\n".join(parts)


def _table(problem: str, test_set: str, figures: Figures, group: str) -> str:
    """Means over images, of all seeds, with 95% intervals. It names no winner: verdicts do, by their tests."""
    metrics, methods = SHOWN[problem], _methods(problem, test_set)
    values = {
        (method, metric): _in_group(figures.mean_over_seeds(problem, method, test_set, metric), group)
        for method in methods
        for metric in metrics
    }
    heads = [f"{metric} ({_UNITS[metric]})" if metric in _UNITS else metric for metric in metrics]
    unit = PROBLEMS[problem].unit
    told = f"; MAE and CRPS {'as shares' if unit.startswith('of ') else 'in'} {unit}" if "MAE" in metrics else ""
    lines = [
        f"**{PROBLEMS[problem].title}, {group or test_set}**{told}.",
        "",
        f"| method | seeds | images | {' | '.join(heads)} |",
        "|---" * (len(metrics) + 3) + "|",
    ]
    for method in methods:
        seeds = figures.seeds(problem, method, test_set, metrics[0])
        if not seeds:
            lines.append(f"| `{method}` | | | {_NONE} |" + " |" * (len(metrics) - 1))
            continue
        cells = [_cell([*values[method, metric].values()]) for metric in metrics]
        number = len(values[method, metrics[0]])
        lines.append(f"| `{method}` | {len(seeds)} | {number} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _in_group(values: Mapping[str, float], group: str) -> dict[str, float]:
    """Of one structure, or of all."""
    return {image: value for image, value in values.items() if image.startswith(group) and np.isfinite(value)}


def _cell(numbers: Sequence[float]) -> str:
    return f"{np.mean(numbers):.3g}{in_brackets(interval(np.array(numbers)), '.3g')}" if numbers else ""


def _common_seeds(problem: str, methods: Iterable[str], test_set: str, metric: str, figures: Figures) -> set[int]:
    """Seeds of all methods that are measured; what has no seed has the first, and does not count."""
    each = [figures.seeds(problem, method, test_set, metric) for method in methods if method not in SEEDLESS]
    return {0, 1}.intersection(*filter(None, each))


def _gain(figures: Figures) -> str:
    """MAE along the chain from the paper's CDDPM to CVDM: each step on all images and seeds that its two ends have."""
    heads = ("step", "method", "MAE (rad) before", "after", "change", "p", "n")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    steps = [(method, cause) for method, cause in CHAIN.items() if figures.seeds("qpi", method, "noise-free", "MAE")]
    for (one, _), (other, cause) in itertools.pairwise(steps):
        now, before = _on_common_seeds("qpi", other, one, "noise-free", "MAE", figures)
        means = f"{before.mean():.4g} | {now.mean():.4g}"
        lines.append(f"| {cause} | `{one}` to `{other}` | {means} | {_change(now, before)} | {len(now)} |")
    left = [f"`{method}`" for method in CHAIN if method not in dict(steps)]
    return "\n".join(lines + ["", f"{_NONE.capitalize()}: {', '.join(left)}."] * bool(left))


_CHANGED = {"cvdm_two_networks_no_smoothness": "cvdm_two_networks", "cvdm_lower_rates": "cvdm_population"}
"""What a method has one choice otherwise than, where that is not CVDM as all of the page has it."""


def _ablations(figures: Figures) -> str:
    """CVDM against itself with one choice made otherwise, trained to the end, on the seeds that both have."""
    metrics = ("MAE", "MS-SSIM")
    lines = _paired_heads("problem, set", "method, against", metrics)
    for problem, about in PROBLEMS.items():
        others = [method for method in _methods(problem) if method.startswith("cvdm_") and method != CVDM_0_1]
        for test_set, method in itertools.product(about.sets, others):
            other = _CHANGED.get(method, CVDM_0_1)
            pairs = [_on_common_seeds(problem, method, other, test_set, metric, figures) for metric in metrics]
            lines.append(f"| {problem}, {test_set} | `{method}`, `{other}` | {_paired_columns(pairs)} |")
    return "\n".join(lines)


def _paired_heads(of: str, what: str, metrics: Sequence[str]) -> list[str]:
    """Two lines, for rows that end with `_paired_columns`."""
    heads = (of, what, *(head for metric in metrics for head in (metric, "change", "p")), "n")
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]


def _paired_columns(pairs: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> str:
    """Mean, change and p-value of each metric, from its values now and before, and the number of the first's images."""
    columns = [f"{now.mean():.4g} | {_change(now, before)}" if len(now) else f"{_NONE} | | " for now, before in pairs]
    return " | ".join([*columns, str(len(pairs[0][0]) or "")])


def _on_common_seeds(
    problem: str, method: str, other: str, test_set: str, metric: str, figures: Figures
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values of two methods, on the images and seeds that both have."""
    both = (method, other)
    seeds = _common_seeds(problem, both, test_set, metric, figures)
    return values_on_common(*(figures.mean_over_seeds(problem, each, test_set, metric, only=seeds) for each in both))


_EFFORT = {
    "us_tie": "damping",
    "tie_uniform": "damping",
    "wiener": "noise over signal",
    "richardson_lucy": "iterations:",
    "gaussian": "sigma in pixels:",
}
"""What the ``EFFORTS`` of each method are."""


def _tuning(figures: Figures) -> str:
    lines = ["| problem | candidate | MAE on validation images | 95% interval | |", "|---|---|---|---|---|"]
    for problem in PROBLEMS:
        chosen = chosen_trial(problem, figures)
        for trial in trials(problem):
            lines.append(f"{_short_training(trial, figures)} {'chosen' if trial == chosen else ''} |")
    lines += ["", "| problem, set | classical method | setting |", "|---|---|---|"]
    for problem, about in PROBLEMS.items():
        for method, test_set in itertools.product(EFFORTS, about.sets):
            for effort in sorted({*figures.images(problem, method, 0, test_set, "effort").values()}):
                lines.append(f"| {problem}, {test_set} | `{method}` | {_EFFORT[method]} {effort:g} |")
    costs = [f"{len(trials(name)) / TRIAL_SHARE:g} on {name}" for name in PROBLEMS if trials(name)]
    return "\n".join([*lines, "", f"What the tuning costs on top, in full trainings: {', '.join(costs)}."])


def _attempts(figures: Figures) -> str:
    """Short trainings that differ from the default in one choice, or in the seed alone."""
    heads = ("problem", "attempt", "MAE on validation images", "95% interval", "change to the default", "p", "n")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for cell in CELLS:
        if cell.tier == 3 and cell.kind == "trial":
            now, default = values_on_common(
                *(
                    figures.images(cell.problem, method, seed, "validation", "MAE")
                    for method, seed in ((cell.method, cell.seed), (DEFAULT, 0))
                )
            )
            is_default = (cell.method, cell.seed) == (DEFAULT, 0)
            change = "| " if is_default else _change(now, default)
            lines.append(f"{_short_training(cell, figures)} {change} | {len(now) or ''} |")
    note = (
        "n: images in common with the default, on which the change and its p-value are taken; fewer than six give "
        "none. Another seed keeps other photographs for validation, so its error does not compare with the others'."
    )
    return "\n".join([*lines, "", note])


def _change(now: NDArray[np.float64], before: NDArray[np.float64]) -> str:
    """Two columns: the change of the mean, and the p-value of the paired difference; empty if images are too few."""
    if len(now) < FEWEST:
        return "| "
    return f"{100 * (now.mean() / before.mean() - 1):+.1f}% | {paired_test(now, before):.2g}"


def _short_training(cell: Cell, figures: Figures) -> str:
    """A row for a cell that is judged on validation images."""
    values = [*figures.images(cell.problem, cell.method, cell.seed, "validation", "MAE").values()]
    start = f"| {cell.problem} | `{cell.method}`{f', seed {cell.seed}' if cell.seed else ''} |"
    if not values:
        return f"{start} {_NONE} | |"
    low, high = interval(np.array(values))
    return f"{start} {np.mean(values):.4g} | {low:.4g} to {high:.4g} |"


def _unknown(problem: str, figures: Figures) -> NDArray[np.float64]:
    """Share of the power that the network does not know, mean over images, by ``LEVELS``; empty if not measured."""
    each = [figures.images(problem, DEFAULT, 0, "levels", f"unknown {level:+d}").values() for level in LEVELS]
    return np.array([np.mean([*values]) for values in each if values])


_ENDS = {
    "the paper's schedule": LinearSchedule.named("qpi"),
    "linear to 0.04": LinearSchedule(1e-4, 0.04, LinearSchedule.SETTINGS["qpi"][2]),
}
"""Fixed schedules for phases whose ends are drawn."""


def _levels(figures: Figures) -> str:
    found = {name: values for name in PROBLEMS if len(values := _unknown(name, figures))}
    if not found:
        return "Not measured yet."
    shown = range(0, len(LEVELS), 2)
    lines = [f"| log-SNR | {' | '.join(f'{LEVELS[place]:+d}' for place in shown)} |", "|---" * (len(shown) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(f'{100 * values[p]:.0f}%' for p in shown)} |" for name, values in found.items()]
    return "\n".join(["![What is not known at each level of noise](figures/results_levels.svg)", "", *lines])


def draw_levels(figures: Figures) -> "Figure":
    """What a network does not know of the image, against the noise on it, with the ends of two schedules."""
    from sfumato.figures.plotting import new_figure

    figure = new_figure(7, 3.2)
    axes = figure.subplots()
    for name, colour in (("qpi", "#0072B2"), ("microscopy", "#D55E00")):
        if len(values := _unknown(name, figures)):
            axes.plot([*LEVELS], 100 * values, "o-", color=colour, markersize=4, label=PROBLEMS[name].title)
    for name, schedule in _ENDS.items():
        end = -math.log(math.expm1(schedule.rate))
        axes.axvline(end, color="0.4", linestyle="--")
        axes.annotate(f"end of\n{name}", (end, 101), ha="center", va="bottom", fontsize=8, annotation_clip=False)
    axes.set_xlabel("log-SNR: from all noise, where sampling starts, to none")
    axes.set_ylabel("not known (% of its power)")
    axes.set_xticks(LEVELS[::2])
    axes.set_ylim(0, 100)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _costs(figures: Figures) -> str:
    lines = ["| problem | method | minutes of training on one core, by seed |", "|---|---|---|"]
    for cell in CELLS:
        seeds = figures.seeds(cell.problem, cell.method, "training", "minutes")
        if cell.kind in ("model", "tuned") and cell.seed == 0:
            each = [figures.images(cell.problem, cell.method, seed, "training", "minutes")["all"] for seed in seeds]
            lines.append(f"| {cell.problem} | `{cell.method}` | {', '.join(f'{m:.0f}' for m in each) or _NONE} |")
    return "\n".join(lines)


def _solvers(figures: Figures) -> str:
    """Means, of each problem on the images that all measured draws have: so few images differ by more than draws do."""
    metrics = ("MAE", "MS-SSIM", "CRPS", "coverage 90", "seconds")
    heads = (
        "problem",
        "draw",
        "images",
        *metrics[:3],
        f"coverage of 90%, {EXPECTED_COVERAGE:.3f} if right",
        "s per draw",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    draws = [draw for part in SOLVERS.values() for draw in part]
    for cell in {cell.problem: cell for cell in CELLS if cell.kind == "solvers"}.values():
        (test_set,) = cell.sets
        values = {
            (draw.name, metric): _in_group(
                figures.images(cell.problem, label(cell, draw), cell.seed, test_set, metric), ""
            )
            for draw in draws
            for metric in metrics
        }
        common = {metric: _on_all([values[draw.name, metric] for draw in draws]) for metric in metrics}
        for draw in draws:
            shown = f" | {_NONE}" + " |" * len(metrics[1:])
            if values[draw.name, "MAE"]:
                columns = [[values[draw.name, metric][n] for n in common[metric]] for metric in metrics]
                shown = " | ".join(
                    [str(len(columns[0])), *(f"{np.mean(each):.4g}" if each else "" for each in columns)]
                )
            lines.append(f"| {cell.problem} | {draw.name} | {shown} |")
    return "\n".join(lines)


def _beside_default_solver(figures: Figures) -> str:
    """Each draw against 16 calls of the default solver, on the images that both have; only what can be tested."""
    metrics = ("MAE", "MS-SSIM", "CRPS", "coverage 90")
    lines = _paired_heads("problem", "draw", metrics)
    default, *others = (draw for part in SOLVERS.values() for draw in part)  # 2m 16 is the first
    for cell in {cell.problem: cell for cell in CELLS if cell.kind == "solvers"}.values():
        (test_set,) = cell.sets
        for draw in others:
            names = [label(cell, each) for each in (draw, default)]
            pairs = [
                values_on_common(*(figures.images(cell.problem, name, cell.seed, test_set, metric) for name in names))
                for metric in metrics
            ]
            if len(pairs[0][0]) >= FEWEST:
                lines.append(f"| {cell.problem} | {draw.name} | {_paired_columns(pairs)} |")
    return "\n".join(lines) if len(lines) > 2 else _NONE


def _on_all(values: Iterable[Mapping[str, float]]) -> list[str]:
    """Images that all methods have, of those that have any."""
    some = [each for each in values if each]
    return common_images(*some) if some else []


def _cells(results: Path, figures: Figures) -> str:
    """How much of the matrix is measured."""
    places = Places(results, results, results)
    lines = ["| tier | measured | cells |", "|---|---|---|"]
    for tier in (1, 2, 3):
        cells = [cell for cell in CELLS if cell.tier == tier]
        done = [cell for cell in cells if _measured(cell, places, figures)]
        lines.append(f"| {tier} | {len(done)} | {len(cells)} |")
    return "\n".join(lines)


def _measured(cell: Cell, places: Places, figures: Figures) -> bool:
    is_trial = file_of(cell) == "tuning"
    rows = [row for row in figures.rows if row.problem == cell.problem and (row.set == "validation") == is_trial]
    return is_measured(cell, places, rows)


def _pictures(problem: str, drawn: Path) -> str:
    """Those of a problem, each under what it shows and which figure of the paper it stands for."""
    parts = []
    for picture in PICTURES:
        if picture.problem == problem and (drawn / picture.file).exists():
            image = f"![{picture.caption}](figures/{picture.file})"
            paper = f" (the paper's {picture.paper})" if picture.paper else ""
            parts.append(f"{picture.caption}{paper}:\n\n{image}")
    return "\n\n".join(parts) or "Not drawn yet."


def _has_figure(problem: str, figures: Figures) -> bool:
    metric = SHOWN[problem][0]
    test_set = next(iter(PROBLEMS[problem].sets))
    return sum(bool(figures.seeds(problem, method, test_set, metric)) for method in _methods(problem)) >= 2


def draw(problem: str, figures: Figures) -> "Figure":
    """The first metric of every method: a dot per seed, the 95% interval of the mean over seeds as a bar."""
    from sfumato.figures.plotting import new_figure

    metric, about = SHOWN[problem][0], PROBLEMS[problem]
    sets = [s for s in about.sets if any(figures.seeds(problem, m, s, metric) for m in _methods(problem))]
    methods = [m for m in _methods(problem) if any(figures.seeds(problem, m, s, metric) for s in sets)]
    figure = new_figure(7, 0.9 + 0.34 * len(methods))
    axes = figure.subplots()
    colours = ("#0072B2", "#D55E00")
    for number, (test_set, colour) in enumerate(zip(sets, colours, strict=False)):
        shift = 0.16 * (number - (len(sets) - 1) / 2)
        for place, method in enumerate(methods):
            values = np.array([*figures.mean_over_seeds(problem, method, test_set, metric).values()])
            if not len(values):
                continue
            axes.plot(
                interval(values), [place + shift] * 2, color=colour, linewidth=5, alpha=0.35, solid_capstyle="butt"
            )
            for seed in figures.seeds(problem, method, test_set, metric):
                mean = np.mean([*figures.images(problem, method, seed, test_set, metric).values()])
                axes.plot(mean, place + shift, "o", color=colour, markersize=5)
        axes.plot([], [], "o", color=colour, label=f"{test_set}: mean of a seed; bar: 95% interval")
    axes.set_yticks(range(len(methods)), methods)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.set_xlabel(f"{metric} ({about.unit})" if metric == "MAE" else metric)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    return figure


def _replaced(text: str, made: Mapping[str, str]) -> tuple[str, list[str]]:
    """The page with its generated parts renewed, and the names of those that are not in it."""
    missing = []
    for name, body in made.items():
        pattern = re.compile(rf"(<!-- begin {re.escape(name)} -->\n).*?(<!-- end {re.escape(name)} -->)", re.DOTALL)
        text, found = pattern.subn(_filler(body), text)
        if not found:
            missing.append(name)
    return text, missing


def _filler(body: str) -> Callable[[re.Match[str]], str]:
    return lambda match: f"{match[1]}\n{body}\n\n{match[2]}"


def write(page: Path, results: Path) -> None:
    """Renew the generated parts of the page, and its figures."""
    figures = read_all(results)
    made = blocks(figures, results, page.parent / "figures")
    text, missing = _replaced(page.read_text(encoding="utf-8"), made)
    if missing:
        raise SystemExit(f"{page} has no place for {', '.join(missing)}; add <!-- begin NAME --> and <!-- end NAME -->")
    page.write_text(text, encoding="utf-8")
    drawn = {problem: draw(problem, figures) for problem in PROBLEMS if _has_figure(problem, figures)}
    if len(_unknown("qpi", figures)):
        drawn["levels"] = draw_levels(figures)
    for name, figure in drawn.items():
        _save(figure, page.parent / "figures" / f"results_{name}.svg")


def _save(figure: "Figure", path: Path) -> None:
    """The same bytes for the same figure."""
    import matplotlib

    path.parent.mkdir(exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": path.name}):
        figure.savefig(path, metadata={"Date": None})


def check(page: Path, results: Path) -> None:
    """Exit non-zero if the page does not say what the stored figures say."""
    figures = read_all(results)
    now = page.read_text(encoding="utf-8")
    made = blocks(figures, results, page.parent / "figures")
    _, missing = _replaced(now, made)
    stale = [name for name, body in made.items() if name not in missing and _replaced(now, {name: body})[0] != now]
    drawn = [f"figures/results_{name}.svg" for name in PROBLEMS if _has_figure(name, figures)]
    lost = [name for name in drawn if not (page.parent / name).exists()]
    if missing or stale or lost:
        raise SystemExit(
            f"{page.name} does not say what is stored: {', '.join([*missing, *stale, *lost])}; "
            "run python experiments/paper_small.py --report"
        )
    print(f"{page.name} says what is stored: {len(made)} tables from {len(figures.rows)} numbers")
