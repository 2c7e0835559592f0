"""Draw pages that show whether an uncertainty can be trusted: a full report, and a calibration before and after."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluation.calibrate import Checked, HeldOutImage
from sfumato.figures.plotting import new_figure, save_figure, use_logarithms
from sfumato.models.intervals import Correction
from sfumato.statistics.calibration_report import CalibrationReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_calibration", "draw_report", "reliability_curve"]

Values = NDArray[np.float64]

_BLUE, _ORANGE, _GREY = "#0072B2", "#E69F00", "#777777"
"""Distinguishable with any colour vision (Okabe and Ito), and by shape and line style."""
_NUM_BINS = 12


def draw_report(report: CalibrationReport, path: str | Path | None = None, *, unit: str = "") -> "Figure":
    """Draw one page with all results of :func:`sfumato.statistics.calibration_report.measure`.

    Args:
        report: The results.
        path: Where to write a PNG, if anywhere.
        unit: Unit of the images, such as ``rad``.
    """
    figure = new_figure(11, 7.6)
    places = figure.subplots(2, 3)
    _draw_ranks(places[0, 0], report)
    _draw_coverage(places[0, 1], report)
    _draw_bins(places[0, 2], report, unit)
    _draw_joint(places[1, 0], report)
    _draw_spread(places[1, 1], report, unit)
    places[1, 2].axis("off")
    told = [
        f"{report.num_images} images, {report.num_samples} draws of each",
        *([f"in {unit}:"] if unit else []),
        "CRPS (fair)",
        f"  {report.crps}",
        "energy score (fair)",
        f"  {report.energy_score}",
        "spread over error",
        f"  {report.spread_over_error}",
        "",
        "p-values, uniform if right:",
        f"  coverage: p {report.told(report.coverage_p)}",
        f"  ranks: p {report.told(report.ranks_p)}",
        *(f"  {joint.projection.replace('_', ' ')}: p {report.told(joint.p_value)}" for joint in report.joint),
        "",
        "[ ]: 95% interval over images",
    ]
    places[1, 2].text(0, 1, "\n".join(told), va="top", fontsize=9, family="monospace")
    return _saved(figure, path)


def draw_calibration(
    images: Sequence[HeldOutImage], found: Correction, checked: Checked, path: str | Path | None = None
) -> "Figure":
    """Draw the coverage of every unit and the reliability of the standard deviation, before and after.

    Args:
        images: Held-out images.
        found: The calibration made from them.
        checked: Coverage of units that were not used for their calibration.
        path: Where to write a PNG, if anywhere.
    """
    figure = new_figure(10.5, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
    _draw_units(left, checked, found.level)
    curves = {
        ("uncalibrated std", _BLUE, "o-"): reliability_curve(images),
        ("behind calibrated intervals", _ORANGE, "s--"): reliability_curve(images, found),
    }
    _draw_reliability(right, curves)
    right.set(xlabel="predicted std (normalised units)", ylabel="root mean square error (normalised units)")
    right.set_title("Reliability, by pixels of similar prediction", fontsize=10)
    right.legend(fontsize=8)
    figure.suptitle(found.label, fontsize=9)
    return _saved(figure, path)


def reliability_curve(images: Sequence[HeldOutImage], found: Correction | None = None) -> tuple[Values, Values]:
    """Predicted std and root mean square error of pixels with similar prediction, each (bins), in normalised units.

    With a correction, the prediction is the standard deviation whose Gaussian interval is as wide as the calibrated
    one.
    """
    spread = np.concatenate([image.std.ravel() for image in images]).astype(np.float64)
    error = np.concatenate([image.error.ravel() for image in images]).astype(np.float64)
    if found is not None:
        gaussian = NormalDist().inv_cdf((1 + found.level) / 2)
        spread = found.factor / gaussian * (found.scale * spread + found.offset)
    parts = np.array_split(np.argsort(spread, kind="stable"), _NUM_BINS)
    root = [(np.sqrt(np.mean(spread[part] ** 2)), np.sqrt(np.mean(error[part] ** 2))) for part in parts if part.size]
    predicted, actual = np.array(root).T
    return predicted, actual


def _draw_units(place: Any, checked: Checked, level: float) -> None:
    """Coverage of every unit by the uncalibrated intervals and by the calibrated ones, from least covered to most."""
    order = np.argsort(checked.raw)
    x, few = np.arange(len(order)), len(order) <= 30
    place.axhline(level, color=_GREY, lw=1, ls="--", label=f"wanted: {level:g}")
    for coverage, label, colour, marker in (
        (checked.raw, "uncalibrated", _BLUE, "o"),
        (checked.corrected, "calibrated on others", _ORANGE, "s"),
    ):
        if np.isfinite(coverage).any():
            label = f"{label}, mean {np.nanmean(coverage):.3f}"
            place.scatter(x, coverage[order], s=28 if few else 9, color=colour, marker=marker, label=label)
    place.set(ylabel="fraction of pixels inside", xlabel="held-out unit, from least covered to most", ylim=(None, 1.02))
    place.set_xticks([])
    if few:
        place.set_xticks(x, [_short(checked.units[int(index)]) for index in order], rotation=60, ha="right", fontsize=8)
    place.legend(fontsize=8, loc="best")
    place.set_title("Coverage", fontsize=10)


def _draw_reliability(place: Any, curves: Mapping[tuple[str, str, str], tuple[Values, Values]]) -> None:
    """Curves of predicted and actual error, by label, colour and style, on logarithmic axes."""
    ends = [value for curve in curves.values() for values in curve for value in values if value > 0]
    low, high = min(ends) / 1.2, max(ends) * 1.2
    place.plot([low, high], [low, high], color=_GREY, lw=1, ls=":", label="as it should be")
    for (label, colour, style), (predicted, actual) in curves.items():
        place.plot(predicted, actual, style, color=colour, ms=4, lw=1.2, label=label)
    use_logarithms(place, low, high)


def _draw_ranks(place: Any, report: CalibrationReport) -> None:
    number = report.num_samples + 1
    height, low, high = number * np.array(report.ranks).T
    ends = np.maximum(height - low, 0), high - height
    place.bar(range(number), height, color=_BLUE, width=0.85)
    if np.isfinite(ends).all():
        place.errorbar(range(number), height, ends, fmt="none", ecolor="black", elinewidth=0.8)
    place.axhline(1, color=_GREY, ls="--", lw=1)
    place.set(xlabel="draws below the truth", ylabel="pixels, over their expectation")
    place.set_title("Ranks: flat if the draws are right", fontsize=9)


def _draw_coverage(place: Any, report: CalibrationReport) -> None:
    """Coverage of every central interval between samples, from the rank histogram."""
    number = report.num_samples + 1
    ranks = np.array([rank.value for rank in report.ranks])
    outside = range(1, (number + 1) // 2)
    inside = [ranks[i : number - i].sum() for i in outside]
    expected = [(number - 2 * i) / number for i in outside]
    place.plot([0, 1], [0, 1], color=_GREY, lw=1, ls=":")
    place.plot(expected, inside, "o-", color=_BLUE, ms=4, lw=1.2)
    place.set(xlabel="expected coverage", ylabel="fraction of pixels inside", xlim=(0, 1), ylim=(0, 1))
    place.set_title("Coverage: over-confident below the line", fontsize=9)


def _draw_bins(place: Any, report: CalibrationReport, unit: str) -> None:
    if not report.reliability:
        place.axis("off")
        return
    predicted, actual = np.array([(part.predicted, part.actual) for part in report.reliability]).T
    _draw_reliability(place, {("", _BLUE, "o-"): (predicted, actual)})
    in_unit = f" ({unit})" if unit else ""
    place.set(xlabel=f"predicted error{in_unit}", ylabel=f"root mean square error{in_unit}")
    place.set_title("Reliability: over-confident above the line", fontsize=9)


def _draw_joint(place: Any, report: CalibrationReport) -> None:
    place.plot([0, 1], [0, 1], color=_GREY, lw=1, ls=":")
    for joint, colour, style in zip(report.joint, (_BLUE, _ORANGE, "black"), ("-", "--", "-."), strict=False):
        x = np.arange(1, len(joint.curve) + 1) / len(joint.curve)
        place.plot(x, joint.curve, style, color=colour, lw=1.4, label=joint.projection.replace("_", " "))
    place.set(xlabel="expected coverage", ylabel="coverage of projections", xlim=(0, 1), ylim=(0, 1))
    place.set_title("Joint coverage (TARP)", fontsize=9)
    if report.joint:
        place.legend(fontsize=8)


def _draw_spread(place: Any, report: CalibrationReport, unit: str) -> None:
    place.bar([0, 1], [report.spread, report.error], color=[_BLUE, _ORANGE], width=0.6)
    place.set_xticks([0, 1], ["predicted", "actual"])
    place.set(ylabel=f"error of the mean{f' ({unit})' if unit else ''}")
    place.set_title("Spread against skill", fontsize=9)


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"...{name[-11:]}"


def _saved(figure: "Figure", path: str | Path | None) -> "Figure":
    if path is not None:
        save_figure(figure, path)
    return figure
