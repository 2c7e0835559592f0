"""Calibrate and evaluate models on pairs in memory, or from any dataset that gives pairs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.data.array_pairs import ArrayPairs, Pairs
from sfumato.data.pairs import find_units
from sfumato.diffusion.model import CVDM
from sfumato.evaluation import calibrate as held_out
from sfumato.evaluation.compared_methods import Method, model_method
from sfumato.evaluation.evaluate import Evaluation
from sfumato.evaluation.evaluate import evaluate as evaluate_methods
from sfumato.models import intervals
from sfumato.models.intervals import NO_SAMPLES
from sfumato.models.model_file import LoadedModel
from sfumato.models.own_model import as_loaded
from sfumato.restoration.restorer import Restorer
from sfumato.system.errors import RecipeError

__all__ = ["Compared", "calibrate", "evaluate"]

Compared: TypeAlias = LoadedModel | CVDM | Callable[[NDArray[Any]], Any]
"""A model, or any function from a measured image (K, H, W) to its estimate, (C, H, W) or (H, W)."""

_EACH = ".*"
"""Pairs in memory have no names that could tell which belong together, so each counts as independent."""


def calibrate(
    model: LoadedModel | CVDM,
    pairs: Pairs,
    *,
    level: float = 0.9,
    method: intervals.Method = "risk_control",
    delta: float = 0.1,
    num_samples: int | None = None,
    num_steps: int | None = None,
    fast: bool = False,
    seed: int = 0,
    allow_seen: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> LoadedModel:
    """A model whose restorations have intervals that cover the truth as often as asked.

    Args:
        model: From :func:`sfumato.load`, or a :class:`~sfumato.CVDM`.
        pairs: Measured images and truths that the model has not seen: a list, or a dataset of torch, whose items are
            two arrays or tensors, (channels, *spatial) or, of one channel, (*spatial). Each counts as independent.
        level: Fraction of pixels that intervals should cover.
        method: As of `sfumato calibrate`: guaranteed on average (``risk_control``), with confidence (``rcps``), or
            without a guarantee (``recalibrated``).
        delta: For ``rcps``: how often the guarantee may fail.
        num_samples: Samples per image; restoring must then use as many.
        num_steps: Network calls per sample.
        fast: Calibrate what a fast restoration gives without samples.
        seed: The same seed gives the same result.
        allow_seen: Accept pairs that the model was trained on, which voids the guarantee.
        progress: Called with the number of images restored and their total.

    Returns:
        The same model with its calibration, for :func:`sfumato.restore` and :func:`sfumato.save`.

    Raises:
        CalibrationError: If there are too few pairs for the guarantee, or the model has seen some.
        ImageError: If the pairs do not fit the model.

    Example:
        >>> model = sfumato.calibrate(model, pairs, level=0.9)  # doctest: +SKIP
        >>> sfumato.restore(image, model).low  # doctest: +SKIP
    """
    loaded = as_loaded(model)
    if not 0 < level < 1 or not 0 < delta < 1:
        raise RecipeError(f"level is {level} and delta {delta}; give numbers between 0 and 1")
    source = ArrayPairs(pairs, ndim=loaded.info.recipe.model.ndim)
    sampled = Restorer.of(loaded, num_samples, num_steps, fast=fast).sampled
    images = held_out.restore_held_out(
        loaded, source, sampled=sampled, level=level, seed=seed, allow_seen=allow_seen, progress=progress
    )
    found = held_out.calibrate(images, sampled=sampled, method=method, level=level, delta=delta, unit=_EACH)
    if sampled == NO_SAMPLES:
        return replace(loaded, info=replace(loaded.info, fast_calibration=found))
    return replace(loaded, info=replace(loaded.info, calibration=found))


def evaluate(
    methods: Compared | Mapping[str, Compared],
    pairs: Pairs,
    *,
    num_samples: int = 16,
    num_steps: int | None = None,
    seed: int = 0,
    affine: bool = False,
    allow_seen: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Score models, and any other functions that restore, on pairs of images.

    Args:
        methods: A model, or several methods by name.
        pairs: As of :func:`calibrate`; images, not volumes.
        num_samples: Samples per image of every model.
        num_steps: Network calls per sample; by default each model's own.
        seed: The same seed gives the same result.
        affine: First fit each estimate to its truth by the best scale and offset.
        allow_seen: Accept pairs that a model was trained on.
        progress: Called with the number of finished estimates and their total.

    Returns:
        The scores of every image; :func:`~sfumato.evaluation.evaluate.summarise` makes a table of them.

    Raises:
        ImageError: If a method cannot take the images, or its estimates are of another shape.
        CalibrationError: If a model was trained on some of the pairs.

    Example:
        >>> scores = evaluate({"as measured": lambda image: image}, [(np.eye(16), np.eye(16) + 0.1)])
        >>> [metric.name for metric in scores.metrics], scores.values.shape
        (['MAE', 'NRMSE', 'PSNR (dB)', 'SSIM'], (4, 1, 1))
    """
    named = methods if isinstance(methods, Mapping) else {"model": methods}
    source = ArrayPairs(pairs, ndim=2)
    drawn = {"num_samples": num_samples, "num_steps": num_steps, "seed": seed}
    compared = [_method(name, method, drawn) for name, method in named.items()]
    found = evaluate_methods(compared, source, affine=affine, allow_seen=allow_seen, progress=progress)
    return replace(found, units=find_units(found.images, _EACH))


def _method(name: str, method: Compared, drawn: dict[str, Any]) -> Method:
    if isinstance(method, LoadedModel | CVDM):
        return model_method(name, as_loaded(method), **drawn)

    def run(measured: NDArray[Any], _: int) -> NDArray[np.float32]:
        made = np.asarray(method(measured), np.float32)
        return made if made.ndim == measured.ndim else made[None]

    return Method(name, run, "a function")
