"""Restore held-out images and compute what calibration needs of each: error, standard deviation and coverage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.pairs import find_units
from sfumato.data.seen import look_up, refuse_seen
from sfumato.data.sources import PairSource, evenly_spread
from sfumato.diffusion.noise import NoiseField
from sfumato.models.intervals import Sampled
from sfumato.models.model_file import LoadedModel
from sfumato.restoration.conditions import as_restored, condition_of, measured_channels
from sfumato.restoration.restorer import Restorer
from sfumato.statistics.rank_histogram import central_interval
from sfumato.system.errors import ImageError

__all__ = ["HeldOutImage", "restore_held_out"]


@dataclass(frozen=True)
class HeldOutImage:
    """One image with known truth, in normalised units of the target; arrays are (C, *spatial).

    Attributes:
        name: Name in the source.
        error: Truth minus the mean of the samples.
        std: Standard deviation of the samples.
        covered: Fraction of pixels between two order statistics of the samples.
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
    """Sample every image of a source and compare the samples with its truth.

    Args:
        model: From :func:`sfumato.load`.
        source: Pairs on the target grid, not scaled.
        sampled: From :func:`~sfumato.restoration.intervals.sampled_by`.
        level: Level of the samples' central interval, whose coverage is counted.
        seed: Seed of all noise; every image has its own noise.
        most: Use at most this many images, spread evenly over the set.
        keep_side: Keep the samples in the middle of each image, with this many pixels per side.
        allow_seen: Accept images that the model was trained or validated on; a calibration on them guarantees nothing.
        progress: Called with the number of images restored and their total.

    Raises:
        CalibrationError: If the model was trained or validated on some of the images.
        ImageError: If the images do not fit the model, or the model draws no samples.
    """
    restorer = Restorer(model, sampled)
    restorer.check_samples("to calibrate")
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
    i, j = central_interval(sampled.num_samples, level)
    ends = [end / (sampled.num_samples + 1) for end in (i, j)]
    found = []
    for place, index in enumerate(chosen):
        measured, truth = source.read(index, [0] * source.ndim, source.spatial(index))
        condition = condition_of(measured, model, on_target_grid=True).condition()
        wanted = model.info.target.of_pixels(as_restored(truth, model), axis=0)
        middle = _middle(wanted.shape[1:], keep_side)
        noise = NoiseField(seed, image=place)
        posterior, kept = restorer.draw(condition, noise, quantiles=ends, keep=middle if keep_side else None)
        low, high = (posterior.quantile(end) for end in ends)
        inside = float(((wanted >= low) & (wanted <= high)).double().mean())
        found.append(
            HeldOutImage(
                names[place],
                (wanted - posterior.mean).numpy(),
                posterior.std.numpy(),
                inside,
                wanted[middle].numpy() if keep_side else None,
                np.stack([draw.numpy() for draw in kept]) if keep_side else None,
                unit=units[place],
                seen=splits[place],
            )
        )
        if progress is not None:
            progress(place + 1, len(chosen))
    return found


def _middle(spatial: Sequence[int], side: int) -> tuple[Any, ...]:
    """Index of a central region with this many pixels per side, or as many as there are."""
    corners = [max(0, (length - side) // 2) for length in spatial]
    return (..., *(slice(corner, corner + side) for corner in corners))
