"""Calibrate a model on held-out images: intervals with guaranteed coverage, if there are enough images."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.data.pairs import find_units
from sfumato.data.seen import look_up, refuse_seen
from sfumato.data.sources import PairSource, evenly_spread
from sfumato.diffusion.noise import NoiseField
from sfumato.evaluation.evaluate import middle
from sfumato.models.intervals import FLOOR, NO_SAMPLES, Correction, Method, Sampled
from sfumato.models.model_file import LoadedModel
from sfumato.restoration.conditions import as_restored, condition_of, measured_channels
from sfumato.restoration.drawn import Drawn
from sfumato.restoration.intervals import check_fast
from sfumato.restoration.restorer import Restorer
from sfumato.statistics.calibration_report import CalibrationReport, measure
from sfumato.statistics.conformal import Scores, fit_spread, num_units_needed, pooled_quantile, rcps, risk_control
from sfumato.statistics.rank_histogram import central_interval
from sfumato.system.errors import CalibrationError, ImageError

__all__ = ["Checked", "HeldOutImage", "calibrate", "cross_validate", "measure_middles", "restore_held_out"]

_FOLDS = 10
"""With more than twice as many units, several are left out at a time."""


@dataclass(frozen=True)
class HeldOutImage:
    """One image with known truth, in normalised units of the target; arrays are (C, *spatial).

    Attributes:
        name: Name in the source.
        error: Truth minus the mean that a restoration writes.
        std: Standard deviation of the samples or, without samples, the networks' own.
        covered: Fraction of pixels between two order statistics of the samples or, without samples, inside the Gaussian
            interval of mean and standard deviation.
        truth: The middle of the truth, if requested.
        draws: The middle of every sample, (N, C, *spatial).
        unit: The independent unit it belongs to, which :func:`~sfumato.data.pairs.find_units` derives from the names
            of all images of the source; its own name if empty.
        seen: `train` or `validation` if the model was trained or validated on it.
    """

    name: str
    error: NDArray[np.float32]
    std: NDArray[np.float32]
    covered: float
    truth: NDArray[np.float32] | None = None
    draws: NDArray[np.float32] | None = None
    unit: str = ""
    seen: str = ""


def restore_held_out(
    model: LoadedModel,
    source: PairSource,
    *,
    sampled: Sampled,
    level: float,
    seed: int = 0,
    most: int | None = None,
    keep_side: int = 0,
    allow_seen: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[HeldOutImage]:
    """Restore every image of a source and compare the samples, or mean and standard deviation, with its truth.

    Args:
        model: From :func:`sfumato.load`.
        source: Pairs on the target grid, not scaled.
        sampled: From :func:`~sfumato.restoration.intervals.sampled_by`, or
            :data:`~sfumato.models.intervals.NO_SAMPLES`.
        level: Level of the central interval whose coverage is counted.
        seed: Seed of all noise; every image has its own noise.
        most: Use at most this many images, spread evenly over the set.
        keep_side: Keep the samples in the middle of each image, with this many pixels per side; there must be samples.
        allow_seen: Accept images that the model was trained or validated on; a calibration on them guarantees nothing.
        progress: Called with the number of images restored and their total.

    Raises:
        CalibrationError: If the model was trained or validated on some of the images.
        ImageError: If the images do not fit the model, or the model is a regression.
    """
    restorer = Restorer(model, sampled)
    restorer.check_samples("to calibrate")
    check_fast({"keep_side": bool(keep_side) and sampled == NO_SAMPLES})
    takes = (measured_channels(model.info), model.info.condition_channels)
    if source.condition_channels not in takes or source.target_channels != model.info.target_channels:
        raise ImageError(
            f"the held-out pairs have {source.condition_channels} and {source.target_channels} channels; this model "
            f"goes from {takes[0]} to {model.info.target_channels}; give pairs like its training's"
        )
    chosen = evenly_spread(len(source), most)
    names = [source.name(index) for index in chosen]
    units = find_units(names, among=[source.name(index) for index in range(len(source))]).names
    splits = look_up(model.info.seen, source, chosen)
    refuse_seen(splits, names, () if allow_seen else ("train", "validation"))
    ends = () if sampled == NO_SAMPLES else _ends(sampled.num_samples, level)
    found = []
    for place, index in enumerate(chosen):
        measured, truth = source.read(index, [0] * source.ndim, source.spatial(index))
        condition = condition_of(measured, model, on_target_grid=True).condition()
        wanted = model.info.target.of_pixels(as_restored(truth, model), axis=0)
        kept_part = middle(wanted.shape[1:], keep_side) if keep_side else None
        noise = NoiseField(seed, image=place)
        drawn = restorer.draw(condition, noise, quantiles=ends, keep=kept_part)
        low, high = _own_interval(drawn, level, ends)
        image = HeldOutImage(
            names[place],
            (wanted - drawn.mean).numpy(),
            drawn.std.numpy(),
            float(((wanted >= low) & (wanted <= high)).double().mean()),
            unit=units[place],
            seen=splits[place],
        )
        if kept_part is not None:
            image = replace(image, truth=wanted[kept_part].numpy(), draws=torch.stack(drawn.kept).numpy())
        found.append(image)
        if progress is not None:
            progress(place + 1, len(chosen))
    return found


def _ends(num_samples: int, level: float) -> tuple[float, ...]:
    """Levels of the two order statistics that bound the samples' central interval."""
    return tuple(end / (num_samples + 1) for end in central_interval(num_samples, level))


def _own_interval(drawn: Drawn, level: float, ends: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Ends of the uncalibrated interval: two order statistics of the samples; without samples, the Gaussian's."""
    if ends:
        low, high = (drawn.posterior.quantile(end) for end in ends)
        return low, high
    half = NormalDist().inv_cdf((1 + level) / 2) * drawn.std
    return drawn.mean - half, drawn.mean + half


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
        images: From :func:`restore_held_out`. If the model has seen any of them, the calibration guarantees nothing,
            and says so.
        sampled: How the images were restored.
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
    wanted = Correction(
        method=method,
        level=level,
        factor=1.0,
        num_units=len(grouped),
        num_images=len(images),
        raw_coverage=float(_raw_coverage(grouped).mean()),
        sampled=sampled,
        delta=delta if method == "rcps" else None,
        num_seen=sum(image.seen != "" for image in images),
    )
    needed = _num_needed(wanted)
    if len(grouped) < needed:
        about_units = (
            "; frames of a file, and files whose names differ in a last number, count as one unit: if they are fields "
            "of their own, give the unit '.*'"
        )
        raise CalibrationError(
            f"{len(grouped)} independent units are held out; a guarantee at level {level:g} by {method} needs at least "
            f"{needed}; hold out more, or take the method `recalibrated`, which corrects the standard deviation "
            f"without a guarantee{about_units if unit is None and len(grouped) < len(images) else ''}"
        )
    return _fitted(wanted, grouped)


@dataclass(frozen=True)
class Checked:
    """Coverage of units that were not used to calibrate the intervals, one number per unit.

    Attributes:
        units: Names of the units.
        raw: Fraction inside the uncalibrated interval.
        corrected: Fraction inside intervals calibrated on the other units; NaN if there are too few of those.
    """

    units: list[str]
    raw: NDArray[np.float64]
    corrected: NDArray[np.float64]

    def lines(self, level: float, *, is_fast: bool) -> list[str]:
        """The coverage at a level, in words; of the networks' own intervals if they drew no samples."""
        lines = [
            f"coverage of {len(self.units)} independent units at {level:g}:",
            f"  the {'networks' if is_fast else 'samples'}' own interval: {self.raw.mean():.3f}",
        ]
        if np.isfinite(self.corrected).all():
            worst = self.units[int(self.corrected.argmin())]
            least = f"least {self.corrected.min():.3f} ({worst})"
            lines.append(f"  calibrated on others: {self.corrected.mean():.3f}; {least}")
        return lines


def cross_validate(images: Sequence[HeldOutImage], found: Correction, *, unit: str | None = None) -> Checked:
    """Calibrate repeatedly without some units, and measure which fraction of their pixels is covered.

    Up to 20 units are left out one at a time; more are left out a tenth at a time.

    Args:
        images: As for :func:`calibrate`.
        found: Its result; its method and levels are used again.
        unit: As for :func:`calibrate`.
    """
    grouped = _grouped(images, unit)
    names = list(grouped)
    num_folds = _FOLDS if len(names) > 2 * _FOLDS else len(names)
    corrected = dict.fromkeys(names, math.nan)
    for first in range(num_folds):
        fold = names[first::num_folds]
        others = {name: members for name, members in grouped.items() if name not in fold}
        if len(others) >= _num_needed(found):
            by_others = _fitted(found, others)
            for name in fold:
                corrected[name] = 1 - _scores({name: grouped[name]}, by_others).risk(by_others.factor)
    return Checked(names, _raw_coverage(grouped), np.array([corrected[name] for name in names]))


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


def _num_needed(wanted: Correction) -> int:
    """How many units a calibration needs."""
    return 1 if wanted.method == "recalibrated" else num_units_needed(wanted.level, wanted.delta)


def _fitted(wanted: Correction, units: _Units) -> Correction:
    """A calibration with its numbers fitted to units."""
    if wanted.method == "recalibrated":
        images = [image for unit in units.values() for image in unit]
        scale, offset = fit_spread([image.std for image in images], [image.error for image in images])
        wanted = replace(wanted, scale=scale, offset=max(offset, FLOOR))
        return replace(wanted, factor=pooled_quantile(_scores(units, wanted), wanted.level))
    scores = _scores(units, wanted)
    if wanted.delta is not None:
        return replace(wanted, factor=rcps(scores, wanted.level, wanted.delta))
    return replace(wanted, factor=risk_control(scores, wanted.level))


def _raw_coverage(units: _Units) -> NDArray[np.float64]:
    return np.array([np.mean([image.covered for image in unit]) for unit in units.values()])


def _scores(units: _Units, found: Correction) -> Scores:
    """Errors in units of the standard deviation that intervals are multiples of."""
    return Scores(
        [[np.abs(image.error) / (found.scale * image.std + found.offset) for image in unit] for unit in units.values()]
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
