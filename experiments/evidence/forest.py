"""The forest plot: error of today's presets over each rival's, on every problem, with 95% intervals."""

from pathlib import Path

from evidence.tables import TITLES, rivals_of
from evidence.verdicts import MARGIN
from sfumato.figures.plotting import new_figure, save_figure
from yardstick.problems import PROBLEMS

__all__ = ["draw_forest"]

_TICKS = (0.2, 0.3, 0.5, 0.7, 1.0)


def draw_forest(path: Path) -> None:
    """Write the plot; the grey band is a difference of 5%."""
    rows = [(problem, *rival) for problem in PROBLEMS for rival in sorted(rivals_of(problem), key=lambda row: row[2])]
    figure = new_figure(8, 0.8 + 0.29 * (len(rows) + len(PROBLEMS)))
    axes = figure.add_subplot()
    axes.axvspan(1 - MARGIN, 1 + MARGIN, color="#dddddd", lw=0)
    axes.axvline(1, color="#888888", lw=0.8)
    place, before = 0, ""
    labels: dict[int, str] = {}
    for problem, name, minutes, (value, low, high) in rows:
        if problem != before:
            axes.text(0.0, place, TITLES[problem], fontweight="bold", fontsize=9, va="center", ha="right",
                      transform=axes.get_yaxis_transform())  # fmt: skip
            place, before = place + 1, problem
        axes.plot([low, high], [place, place], color="#0072B2", lw=2)
        axes.plot([value], [place], "o", color="#0072B2", ms=5)
        labels[place] = f"{name} ({minutes:g} min)"
        place += 1
    axes.set_xscale("log")
    axes.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axes.minorticks_off()
    axes.set_yticks(list(labels), list(labels.values()), fontsize=8)
    axes.set_ylim(place - 0.3, -0.7)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("error (MAE) of CVDM over that of the method; below 1 CVDM is better", fontsize=9)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    save_figure(figure, path)
