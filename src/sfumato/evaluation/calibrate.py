"""Calibrate a model on held-out images: intervals with guaranteed coverage, if there are enough images."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.data.pairs import find_units
from sfumato.evaluation.held_out import HeldOutImage
from sfumato.models.intervals import FLOOR, Correction, Method, Sampled
from sfumato.statistics.calibration_report import CalibrationReport, measure
from sfumato.statistics.conformal import Scores, fit_spread, num_units_needed, pooled_quantile, rcps, risk_control
from sfumato.system.errors import CalibrationError

__all__ = ["Checked", "calibrate", "cross_validate", "measure_middles"]

_FOLDS = 10
"""With more than twice as many units, several are left out at a time."""


def calibrate(
    images: Sequence[HeldOutImage],
    *,
    sampled: Sampled,
    method: Method = "risk_control",
    level: float = 0.9,
    delta: float = 0.1,
    unit: str | None = None,
) -> Correction:
    """Find how wide intervals must be.

    Args:
        images: From :func:`~sfumato.evaluation.held_out.restore_held_out`. If the model has seen any of them, the
            calibration guarantees nothing, and says so.
        sampled: How the samples were drawn.
        method: ``risk_control``: in further images, on average at most 1 - level of the pixels fall outside. ``rcps``:
            the same with confidence 1 - delta over calibration sets. ``recalibrated``: a linear correction of the
            standard deviation for a handful of images, without any guarantee.
        level: Fraction of pixels to be covered.
        delta: For ``rcps``.
        unit: Pattern that groups images which are not independent, as in :func:`~sfumato.data.pairs.find_units`.

    Raises:
        CalibrationError: If there are fewer units than the guarantee needs.
    """
    grouped = _grouped(images, unit)
    needed = _needed(method, level, delta)
    if len(grouped) < needed:
        raise CalibrationError(
            f"{len(grouped)} independent units are held out; a guarantee at level {level:g} by {method} needs at least "
            f"{needed}; hold out more, or take the method `recalibrated`, which corrects the standard deviation "
            f"without a guarantee{_about_units(images, grouped, unit)}"
        )
    return _correct(grouped, sampled, method, level, delta)


@dataclass(frozen=True)
class Checked:
    """Coverage of units that were not used to calibrate the intervals, one number per unit.

    Attributes:
        units: Names of the units.
        raw: Fraction inside the interval of the samples.
        corrected: Fraction inside intervals calibrated on the other units; NaN if there are too few of those.
    """

    units: list[str]
    raw: NDArray[np.float64]
    corrected: NDArray[np.float64]


def cross_validate(
    images: Sequence[HeldOutImage],
    *,
    sampled: Sampled,
    method: Method = "risk_control",
    level: float = 0.9,
    delta: float = 0.1,
    unit: str | None = None,
) -> Checked:
    """Calibrate repeatedly without some units, and measure which fraction of their pixels is covered.

    Up to 20 units are left out one at a time; more are left out a tenth at a time.
    """
    grouped = _grouped(images, unit)
    names = list(grouped)
    number = _FOLDS if len(names) > 2 * _FOLDS else len(names)
    folds = [names[k::number] for k in range(number)]
    corrected = dict.fromkeys(names, math.nan)
    for fold in folds:
        others = {name: grouped[name] for name in names if name not in fold}
        if len(others) < _needed(method, level, delta):
            continue
        found = _correct(others, sampled, method, level, delta)
        for name in fold:
            corrected[name] = 1 - _scores({name: grouped[name]}, found).risk(found.factor)
    raw = [float(np.mean([image.covered for image in grouped[name]])) for name in names]
    return Checked(names, np.array(raw), np.array([corrected[name] for name in names]))


def measure_middles(images: Sequence[HeldOutImage], *, level: float = 0.9, seed: int = 0) -> CalibrationReport:
    """A report on the samples kept of each image.

    Raises:
        CalibrationError: If none were kept, or their sizes differ.
    """
    truths = [image.truth for image in images if image.truth is not None]
    draws = [image.draws for image in images if image.draws is not None]
    if len(draws) < 2 or len({truth.shape for truth in truths}) > 1:
        raise CalibrationError(
            f"a report needs draws of at least two images of one size; got {len(draws)} of sizes "
            f"{sorted({truth.shape for truth in truths})[:3]}; keep a smaller part of each"
        )
    samples = torch.from_numpy(np.stack(draws, axis=1))
    return measure(samples, torch.from_numpy(np.stack(truths)), level=level, seed=seed)


_Units = dict[str, list[HeldOutImage]]


def _needed(method: Method, level: float, delta: float) -> int:
    """How many units a method needs."""
    return 1 if method == "recalibrated" else num_units_needed(level, delta if method == "rcps" else None)


def _correct(units: _Units, sampled: Sampled, method: Method, level: float, delta: float) -> Correction:
    images = [image for unit in units.values() for image in unit]
    found = Correction(
        method=method,
        level=level,
        factor=1.0,
        num_units=len(units),
        num_images=len(images),
        raw_coverage=float(np.mean([np.mean([image.covered for image in unit]) for unit in units.values()])),
        sampled=sampled,
        delta=delta if method == "rcps" else None,
        num_seen=sum(image.seen != "" for image in images),
    )
    if method == "recalibrated":
        scale, offset = fit_spread([image.std for image in images], [image.error for image in images])
        found = replace(found, scale=scale, offset=max(offset, FLOOR))
    scores = _scores(units, found)
    if method == "recalibrated":
        return replace(found, factor=pooled_quantile(scores, level))
    return replace(found, factor=rcps(scores, level, delta) if method == "rcps" else risk_control(scores, level))


def _scores(units: _Units, found: Correction) -> Scores:
    """Errors in units of the standard deviation that intervals are multiples of."""
    return Scores(
        [[np.abs(image.error) / (found.scale * image.std + found.offset) for image in unit] for unit in units.values()]
    )


def _about_units(images: Sequence[HeldOutImage], grouped: _Units, unit: str | None) -> str:
    if unit is not None or len(grouped) == len(images):
        return ""
    return (
        "; frames of a file, and files whose names differ in a last number, count as one unit: if they are fields of "
        "their own, give the unit '.*'"
    )


def _grouped(images: Sequence[HeldOutImage], unit: str | None) -> _Units:
    if not images:
        raise CalibrationError("no held-out image was given; expected some with known truth; hold out a few pairs")
    grouped: _Units = {}
    known = [image.unit for image in images]
    names = known if unit is None and all(known) else find_units([image.name for image in images], unit).names
    for image, name in zip(images, names, strict=True):
        grouped.setdefault(name, []).append(image)
    return grouped
