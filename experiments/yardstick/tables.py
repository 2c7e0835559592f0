"""Print what is stored: errors relative to version 0.1, decibels, coverage and power, and their bars."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bars import Bars
from yardstick.cells import cells
from yardstick.claims import report, report_calls
from yardstick.comparison import compare, geometric_mean, mean_of, share_above, stored_at, values_of
from yardstick.contenders import BUDGETS, CONTENDERS, PART_MINUTES, PARTS
from yardstick.problems import PROBLEMS
from yardstick.stored import Figure, figures, is_stored

__all__ = ["full_tables", "print_all", "print_calls"]

REFERENCE = "default_0_1"


def print_all(*, check: bool) -> None:
    """Tables of all problems, then the bars."""
    for line in full_tables():
        print(line)
    bars = Bars()
    report({problem: figures(problem) for problem in PROBLEMS}, bars)
    report_calls(bars)
    bars.report("cells that are not measured yet", sum(not is_stored(cell) for cell in cells()), high=0)
    bars.finish(check=check)


def full_tables() -> Iterator[str]:
    """Lines of a table of each problem at each budget, and of that of single parts."""
    for problem in PROBLEMS:
        stored = figures(problem)
        groups = sorted({figure.group for figure in stored if figure.group != "training"})
        for minutes in BUDGETS:
            yield f"## {problem}, {minutes:g} {'minute' if minutes == 1 else 'minutes'} of one core"
            yield ""
            yield from _table(stored, minutes, groups)
            yield ""
    yield f"## One part left out, {PART_MINUTES:g} minutes"
    yield ""
    yield (
        "Over the default of the same seed: MAE; CRPS; then the pixels within 16 samples. Above 1, the part lowers the "
        "error. One training each, so intervals are over images; the fixed schedule has two."
    )
    yield ""
    yield from _parts({problem: figures(problem) for problem in PROBLEMS})
    yield ""


def _parts(stored: Mapping[str, Sequence[Figure]]) -> list[str]:
    """Lines of the table of single parts: above 1, the part lowers the error."""
    lines = ["| left out | " + " | ".join(stored) + " |", "|---" * (len(stored) + 1) + "|"]
    for name, contender in PARTS.items():
        cells = [contender.about]
        for each in stored.values():
            errors = [
                compare(each, (name, PART_MINUTES), ("default", PART_MINUTES), metric, by_seed=True)
                for metric in ("MAE", "CRPS")
            ]
            within = values_of(each, name, PART_MINUTES, "within")
            known = [str(error) for error in errors if error is not None]
            cells.append("; ".join([*known, *([f"{mean_of(within):.3f}"] if within.size else [])]))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _table(stored: Sequence[Figure], minutes: float, groups: Sequence[str]) -> list[str]:
    """Lines of one table; what is not trained competes at every budget."""
    titles = [
        "contender",
        "MAE / 0.1",
        "CRPS / 0.1",
        "PSNR",
        *(f"MAE {group.replace('_', ' ')}" for group in groups),
        "worse than filter",
        "within",
        "seconds",
    ]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for name in CONTENDERS:
        if name in PARTS:
            continue
        at = stored_at(stored, name, minutes)
        errors = values_of(stored, name, at, "MAE")
        if not errors.size:
            continue
        cells = [name.replace("_", " ")]
        for metric in ("MAE", "CRPS"):
            found = compare(stored, (name, at), (REFERENCE, minutes), metric)
            cells.append("" if found is None else str(found))
        cells.append(f"{mean_of(values_of(stored, name, at, 'PSNR')):.2f}")
        cells += [f"{geometric_mean(values_of(stored, name, at, 'MAE', group)):.4g}" for group in groups]
        worse = share_above(stored, (name, at), ("filter", 0.0), "MAE")
        cells.append("" if worse is None else f"{worse:.0%}")
        within = values_of(stored, name, at, "within")
        cells.append(f"{mean_of(within):.3f}" if within.size else "")
        seconds = [f.value for f in stored if (f.contender, f.minutes, f.group) == (name, at, "training")]
        cells.append(f"{np.mean(seconds):.0f}" if seconds else "")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def print_calls() -> None:
    """Cost of a network call."""
    report_calls(Bars())
