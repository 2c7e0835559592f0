"""Compare methods on one test set: the scores of each image, and which differences are more than chance."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.data.pairs import Units, find_units, named
from sfumato.data.seen import look_up, refuse_seen
from sfumato.data.sources import PairSource, evenly_spread
from sfumato.evaluation.compared_methods import Method
from sfumato.statistics import metrics
from sfumato.statistics.resolution import decorrelation
from sfumato.statistics.significance import Ranking, interval, least_p, ranking
from sfumato.system.errors import ImageError, RecipeError

__all__ = [
    "METRICS",
    "Evaluation",
    "Example",
    "Metric",
    "MetricRow",
    "average_units",
    "evaluate",
    "middle",
    "summarise",
    "too_few",
]

Array = NDArray[Any]

_SHOWN_SIDE = 256
"""Examples are cropped to this many pixels around their middle."""


class Metric(NamedTuple):
    """One number per image."""

    name: str
    measure: Callable[[Tensor, Tensor], Tensor]
    higher_is_better: bool
    least_side: int = 1
    """Images with a shorter side have no value."""


METRICS = (
    Metric("MAE", metrics.mae, False),
    Metric("NRMSE", metrics.nrmse, False),
    Metric("PSNR (dB)", metrics.psnr, True),
    Metric("SSIM", metrics.ssim, True, 11),
    Metric("MS-SSIM", metrics.ms_ssim, True, 176),
)
"""In the order of tables; ranges are those of each truth."""


@dataclass(frozen=True)
class Example:
    """The middle of one test image, kept for a picture; all arrays are (channels, H, W)."""

    name: str
    condition: Array
    truth: Array
    estimates: list[Array]


@dataclass(frozen=True)
class Evaluation:
    """Scores of methods on images.

    Attributes:
        methods: The compared methods.
        images: Names of the test images.
        metrics: The measured metrics.
        values: Shape (metrics, methods, images); NaN where a metric is undefined, for example for a flat truth.
        affine: Whether each estimate was first fitted to the truth's scale and offset.
        examples: A few images to look at.
        notes: What a reader must know.
        units: Which images are not independent, judging by their names; None to derive it from the image names.
    """

    methods: list[Method]
    images: list[str]
    metrics: list[Metric]
    values: NDArray[np.float64]
    affine: bool
    examples: list[Example] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    units: Units | None = None


class MetricRow(NamedTuple):
    """One metric in a table."""

    metric: Metric
    num_images: int
    """Images for which every method has a value; everything else is computed over these."""
    means: list[float]
    intervals: list[tuple[float, float]]
    ranking: Ranking


def evaluate(
    methods: Sequence[Method],
    source: PairSource,
    *,
    affine: bool = False,
    remove_mean: bool = False,
    pixel_um: float | None = None,
    most: int | None = None,
    num_examples: int = 3,
    allow_seen: bool = False,
    progress: Callable[[int, int], None] | None = None,
    scored: Callable[[int, Evaluation], None] | None = None,
) -> Evaluation:
    """Run every method on every image and score its estimates.

    Args:
        methods: Methods with distinct names.
        source: Pairs of 2-D images.
        affine: First fit each estimate to its truth by the best scale and offset, for intensities that are not
            absolute; the same for every method.
        remove_mean: First give each estimate its truth's mean, for phases, whose constant no intensity shows.
        pixel_um: Side of a target pixel; if given, resolution is measured too, by decorrelation analysis.
        most: Use at most this many images, spread evenly over the set.
        num_examples: How many images to keep for pictures.
        allow_seen: Accept images that a method was trained on; a note then says so.
        progress: Called with the number of finished estimates and their total.
        scored: Called after each image with its position in the set and its scores, so that they can be saved.

    Raises:
        RecipeError: If names repeat or there is nothing to do.
        ImageError: If a method cannot take the images, or its estimates cannot be compared with the truth.
        CalibrationError: If a method was trained on some of the images.
    """
    names = [method.name for method in methods]
    if not names or len(set(names)) < len(names):
        raise RecipeError(f"methods are {', '.join(names) or 'none'}; give at least one, with names that differ")
    if source.ndim != 2:
        raise ImageError(f"the test images have {source.ndim} spatial axes; metrics are for 2: evaluate planes")
    unscaled = [method.name for method in methods if method.relative and not affine]
    if unscaled:
        raise ImageError(
            f"{', '.join(unscaled)}: trained with data.normalize: image, so each image is scaled by its own range and "
            "restored only up to scale; expected estimates in the units of the targets; fit scale "
            "and offset of every estimate to the truth first (affine=True, --affine)"
        )
    chosen = evenly_spread(len(source), most)
    images = [source.name(index) for index in chosen]
    number = len(chosen)
    seen = list(_seen(methods, source, chosen, images, allow_seen))
    side = min(min(source.spatial(index)) for index in chosen)
    used = [metric for metric in METRICS if side >= metric.least_side]
    notes = [
        f"{metric.name} is left out: it needs sides of {metric.least_side} pixels, and the shortest is {side}."
        for metric in METRICS
        if metric not in used
    ]
    notes += seen
    if remove_mean:
        notes.append("Each estimate was given its truth's mean before measuring.")
    if pixel_um is not None:
        used.append(_resolution(pixel_um))
    shown = set(chosen[:: max(1, -(-number // max(num_examples, 1)))][:num_examples])
    values, examples, done = np.empty((len(used), len(methods), number)), [], 0
    for place, index in enumerate(chosen):
        condition, truth = source.read(index, [0, 0], source.spatial(index))
        estimates, against = [], torch.from_numpy(np.asarray(truth, np.float64))[None]
        for row, method in enumerate(methods):
            made = method.run(condition, place)
            estimate, against = _comparable(method, made, truth, affine=affine, remove_mean=remove_mean)
            values[:, row, place] = list(_measured(used, estimate, against))
            estimates.append(estimate[0].numpy())
            done += 1
            if progress is not None:
                progress(done, number * len(methods))
        if scored is not None:
            alone = values[:, :, place : place + 1]
            scored(place, Evaluation(list(methods), [source.name(index)], used, alone, affine))
        if index in shown:
            shown_part = middle(truth.shape[1:], _SHOWN_SIDE)
            pictures = [image[shown_part].copy() for image in (condition, against[0].numpy(), *estimates)]
            examples.append(Example(images[place], pictures[0], pictures[1], pictures[2:]))
    units = find_units(images, among=[source.name(index) for index in range(len(source))])
    return Evaluation(list(methods), images, used, values, affine, examples, notes, units)


def average_units(found: Evaluation, pattern: str | None) -> Evaluation:
    """Average the scores of images that are not independent, such as the channels of one field.

    Args:
        found: Scores per image.
        pattern: As in :func:`~sfumato.data.pairs.find_units`.
    """
    found_units = found.units if pattern is None and found.units is not None else find_units(found.images, pattern)
    keys, why = found_units
    units = list(dict.fromkeys(keys))
    if pattern is None and len(units) == len(keys):
        return dataclasses.replace(found, units=found_units)
    values = np.stack([found.values[..., [key == unit for key in keys]].mean(-1) for unit in units], axis=-1)
    note = f"Scores of {len(keys)} images were averaged to {len(units)} independent units: {why}."
    return dataclasses.replace(found, images=units, values=values, notes=[*found.notes, note], units=found_units)


def _seen(
    methods: Sequence[Method], source: PairSource, chosen: Sequence[int], images: Sequence[str], allowed: bool
) -> Iterator[str]:
    """What a reader must know of methods that were trained or validated on the images; refused unless allowed."""
    for method in methods:
        splits = look_up(method.seen, source, chosen)
        refuse_seen(splits, images, () if allowed else ("train",), whose=f"model {method.name}")
        for split, word, so in (
            ("train", "trained", "its scores promise nothing for other images"),
            ("validation", "validated", "they chose its weights, so its scores may be a little too good"),
        ):
            inside = [name for name, of in zip(images, splits, strict=True) if of == split]
            if inside:
                yield f"{method.name} was {word} on {len(inside)} of the {len(images)} images ({named(inside)}): {so}."


def summarise(found: Evaluation, *, seed: int = 0) -> list[MetricRow]:
    """Mean, 95% interval and significant ranks, one row per metric; images are the unit of replication."""
    rows = []
    for metric, values in zip(found.metrics, found.values, strict=True):
        kept = values[:, np.isfinite(values).all(0)]
        number = kept.shape[1]
        means = kept.mean(1).tolist() if number else [math.nan] * len(kept)
        intervals = [interval(of_method, seed=seed) for of_method in kept]
        places = ranking(kept if number else values, higher_is_better=metric.higher_is_better, seed=seed)
        rows.append(MetricRow(metric, number, means, intervals, places))
    return rows


def too_few(found: Evaluation) -> str | None:
    """A warning if there are too few images for any difference to be significant."""
    pairs, n = len(found.methods) * (len(found.methods) - 1) // 2, len(found.images)
    if pairs and pairs * least_p(n) >= 0.05:
        return f"With {n} images and {pairs} comparisons no difference can be significant; evaluate more images."
    return None


def _resolution(pixel_um: float) -> Metric:
    """Resolution of the estimate alone. The truth is ignored, so noise or invented detail can win."""

    def measure(estimate: Tensor, _: Tensor) -> Tensor:
        return torch.tensor([decorrelation(estimate[0, 0], pixel_um=pixel_um).resolution_um * 1000])

    return Metric("Resolution (nm)", measure, False)


def _comparable(
    method: Method, estimate: Array, truth: Array, *, affine: bool, remove_mean: bool
) -> tuple[Tensor, Tensor]:
    """Both as (1, C, H, W) of float64."""
    if estimate.shape != truth.shape:
        raise ImageError(
            f"{method.name} gives an image of shape {estimate.shape} and the truth has {truth.shape}; "
            "leave the method out, or give targets of its channels and grid"
        )
    made, against = (torch.from_numpy(np.asarray(image, np.float64))[None] for image in (estimate, truth))
    if remove_mean:
        made, against = metrics.without_offset(made, against)
    return (metrics.affine_fit(made, against) if affine else made), against


def _measured(used: Sequence[Metric], estimate: Tensor, truth: Tensor) -> Iterator[float]:
    for metric in used:
        try:
            yield float(metric.measure(estimate, truth))
        except ValueError:  # a flat truth has no range, a smooth estimate no measurable resolution
            yield math.nan


def middle(spatial: Sequence[int], side: int) -> tuple[Any, ...]:
    """Index of a central region with this many pixels per side, or as many as there are."""
    corners = [max(0, (length - side) // 2) for length in spatial]
    return (..., *(slice(corner, corner + side) for corner in corners))
