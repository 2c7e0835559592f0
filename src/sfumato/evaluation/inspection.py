"""Inspect one model: its networks, and its schedule and samples on one image, as in the paper's figures."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.data.frames import UpsampledFrames
from sfumato.data.images.io import open_image
from sfumato.data.images.view import as_shares
from sfumato.data.pairs import Pair
from sfumato.data.pixel_hash import PairHashes, pixel_hash
from sfumato.data.seen import look_up, refuse_seen
from sfumato.data.sources import FilePairs, FrameReader, PairSource, evenly_spread
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.uncertainty import integral_of_beta
from sfumato.evaluation.sampler_settings import Comparison, Setting, compare_settings
from sfumato.figures.network_diagram import draw_network
from sfumato.figures.plotting import save_figure
from sfumato.figures.schedule_and_samples import draw_gamma, draw_mean_and_std, draw_sample_grid, draw_schedule
from sfumato.models.intervals import sampled_as
from sfumato.models.measure_reach import FIELDS, SIDES, TARGET_RANGE, measure_reach
from sfumato.models.model_file import LoadedModel
from sfumato.models.ownership import Written
from sfumato.models.reach import Reach
from sfumato.models.recipe import SampleRecipe
from sfumato.problems.registry import takes_shares
from sfumato.restoration.conditions import as_restored, condition_of, told_channels, upsampling_factor
from sfumato.restoration.intervals import sampled_by
from sfumato.restoration.restorer import Restorer
from sfumato.system.errors import ImageError
from sfumato.system.marks import PICTURE

__all__ = [
    "compare_steps",
    "crops",
    "describe",
    "draw_diagrams",
    "draw_posterior",
    "drawn_by",
    "figure_files",
    "reach_on",
    "read_image",
]

Image = NDArray[np.generic]

_DIAGRAMS = ("network", "rate_network", "reader")
_FIGURES = ("schedule", "gamma", "mean_and_std", "samples")


def describe(model: LoadedModel) -> list[str]:
    """The content of a model file as text, one fact per line."""
    info, settings = model.info, model.info.recipe.model
    count = sum(parameter.numel() for parameter in model.model.parameters())
    is_regression = settings.method == "regression"
    schedule = "none" if is_regression else settings.schedule
    usual = info.recipe.sample
    drawn = Setting(usual.solver, sampled_by(info).num_steps, usual.eta, usual.last_noise)
    return [
        f"name: {info.recipe.name}, problem: {info.recipe.problem}, sha256: {model.sha256[:12]}",
        f"method: {settings.method}, network: {settings.network}, schedule: {schedule}, {count:,} weights",
        f"channels: {told_channels(info)}, {settings.ndim}-D, "
        f"upsamples by {'unknown' if info.factor is None else ' x '.join(map(str, info.factor))}",
        *([] if is_regression else [f"draws by: {drawn}"]),
        f"reach: {info.reach or 'not measured'}",
        f"intervals: {'not calibrated' if info.calibration is None else info.calibration.label}",
        *([] if info.fast_calibration is None else [f"intervals without samples: {info.fast_calibration.label}"]),
        *(
            f"{key}: {value:.5g}" if isinstance(value, float) else f"{key}: {value}"
            for key, value in info.provenance.items()
        ),
    ]


def read_image(
    model: LoadedModel, source: Path, target: Path | None, *, allow_seen: bool = False
) -> tuple[Image, Image | None]:
    """The first frame of an image on the model's target grid, (K, H, W), and of its truth, (C, H, W).

    Raises:
        CalibrationError: If the model was trained on it and that is not allowed.
    """
    data, ndim = model.info.recipe.data, model.info.recipe.model.ndim
    shares = takes_shares(model.info.recipe.problem)
    if ndim != 2:
        raise ImageError(f"the model takes images of {ndim} spatial axes; figures are drawn for 2 only")
    if target is None:
        image = open_image(source, axes=data.input_axes)
        frames = UpsampledFrames(FrameReader(as_shares(image) if shares else image, ndim), upsampling_factor(model))
        hashes = PairHashes(pixel_hash(partial(frames.read, 0), frames.channels, frames.spatial), None)
        _refuse_trained(model, hashes, source.name, allow_seen)
        return frames.read(0, [0, 0], frames.spatial), None
    pairs = FilePairs(
        [Pair(source.name, source, target)],
        axes=(data.input_axes, data.target_axes),
        upsample=model.info.upsamples,
        shares=shares,
        cache_bytes=0,
    )
    _refuse_trained(model, pairs.hashes(0), source.name, allow_seen)
    return pairs.read(0, [0, 0], pairs.spatial(0))


def figure_files(folder: str | Path, *, with_image: bool) -> list[Written]:
    """Files that :func:`draw_diagrams` writes and, if an image is inspected, :func:`draw_posterior`."""
    names = [*_DIAGRAMS, *(_FIGURES if with_image else ())]
    return [Written(Path(folder) / f"{name}.png", PICTURE) for name in names]


def draw_diagrams(model: LoadedModel, folder: str | Path) -> list[Path]:
    """Draw the restoring network and, if there are any, the rate network and the reader; returns the files."""
    settings = model.info.recipe.model
    networks = (
        (model.model.network, f"{settings.method} network"),
        (getattr(model.model.schedule, "network", None), "rate network of the schedule"),
        (model.model.reader, "reader: what is known of the condition"),
    )
    paths = []
    for name, (network, title) in zip(_DIAGRAMS, networks, strict=True):
        if isinstance(network, nn.Module) and any(True for _ in network.children()):  # a global rate has no network
            paths.append(Path(folder) / f"{name}.png")
            title, channels = f"{title} ({type(network).__name__})", cast(int, network.in_channels)
            save_figure(draw_network(network, channels, title=title, ndim=settings.ndim), paths[-1])
    return paths


def draw_posterior(
    model: LoadedModel,
    measured: Image,
    folder: str | Path,
    *,
    target: Image | None = None,
    num_samples: int = 20,
    num_steps: int | None = None,
    seed: int = 0,
) -> list[Path]:
    """Draw schedule, gamma, mean and standard deviation, and samples of one image; returns the files.

    Args:
        model: A diffusion model of images.
        measured: Shape (K, H, W), on the model's target grid, in the units of its training inputs.
        folder: Where to write the figures.
        target: The truth, shape (C, H, W), in the units of the training targets; it is drawn in the units of the
            model's output. Without it, structure is where the mean of the samples is bright.
        num_samples: At least 2; the paper has 20.
        num_steps: Network calls per sample; by default as in the model's calibration, or the recipe's.
        seed: The same seed gives the same samples.

    Raises:
        ImageError: If the model is a regression, which has neither schedule nor samples.
    """
    _check_samples(model, num_samples)
    folder = Path(folder)
    condition = condition_of(measured, model, on_target_grid=True).condition()
    kept = Restorer.of(model, num_samples, num_steps).draw(condition, NoiseField(seed), keep=(...,)).kept
    draws = model.info.target.invert(torch.stack(kept))[:, 0].numpy()
    with torch.no_grad():
        schedule = model.model.read(condition).schedule
    seen = np.asarray(measured[0], np.float32)
    truth = None if target is None else as_restored(target, model)[0]
    beta = np.broadcast_to(integral_of_beta(schedule)[0, 0].cpu().numpy(), seen.shape)
    region, word = (draws.mean(0), f"mean of {num_samples} samples") if truth is None else (truth, "target")
    figures = (
        draw_schedule(schedule, region, what=word),
        draw_gamma(schedule),
        draw_mean_and_std(seen, draws, truth),
        draw_sample_grid(seen, draws, beta, truth),
    )
    for name, figure in zip(_FIGURES, figures, strict=True):
        save_figure(figure, folder / f"{name}.png")
    return [folder / f"{name}.png" for name in _FIGURES]


def compare_steps(
    model: LoadedModel,
    source: PairSource,
    settings: Sequence[Setting],
    *,
    num_samples: int = 16,
    most: int = 8,
    crop: int | None = None,
    level: float = 0.9,
    seed: int = 0,
    allow_seen: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Sample test images with several sampler settings, all with the same noise, and score the samples.

    Args:
        model: From :func:`sfumato.load`.
        source: Pairs that the model was not trained on; it may have been validated on them.
        settings: The settings to compare.
        num_samples: Samples of each image with each setting; at least 2.
        most: Use at most this many images, spread evenly over the set.
        crop: Use only the middle of each image, with this many pixels along each axis.
        level: Nominal coverage.
        seed: The same seed gives the same samples.
        allow_seen: Accept pairs that the model was trained on.
        progress: Called with the number of finished sample sets and their total.

    Raises:
        CalibrationError: If the model was trained on some of the pairs.
        ImageError: If the model is a regression, or the pairs do not fit it.
    """
    _check_samples(model, num_samples)
    if source.ndim != model.info.recipe.model.ndim:
        raise ImageError(
            f"the test images have {source.ndim} spatial axes and the model takes {model.info.recipe.model.ndim}; "
            "give images of the model's kind"
        )
    if source.target_channels != model.info.target_channels:
        raise ImageError(
            f"the truths have {source.target_channels} channels and the model gives {model.info.target_channels}; "
            "give truths of its channels"
        )
    chosen = evenly_spread(len(source), most)
    splits = look_up(model.info.seen, source, chosen)
    refuse_seen(splits, [source.name(index) for index in chosen], () if allow_seen else ("train",))
    pairs = crops(model, source, most=most, crop=crop)

    def draw(setting: Setting, image: int) -> Tensor:
        restorer = Restorer(model, sampled_as(drawn_by(setting, model.info.recipe.sample), num_samples))
        kept = restorer.draw(pairs[image][0], NoiseField(seed, image=image), keep=(...,)).kept
        return model.info.target.invert(torch.stack(kept), axis=1)

    return compare_settings(
        draw, lambda image: pairs[image][1], settings, num_images=len(pairs), level=level, progress=progress
    )


def reach_on(model: LoadedModel, source: PairSource) -> Reach | None:
    """How far a model looks, measured on some pairs; None if it is further than can be measured on them.

    Args:
        model: From :func:`sfumato.load`.
        source: Pairs; targets only give the range of values.
    """
    pairs = crops(model, source, most=FIELDS[source.ndim], crop=SIDES[source.ndim])
    targets = torch.cat([model.info.target.apply(truth, axis=0).flatten() for _, truth in pairs])
    low, high = np.quantile(targets.numpy(), TARGET_RANGE)
    conditions = [condition for condition, _ in pairs]
    return measure_reach(model.model, model.info.recipe.sample, conditions, float(high - low))


def drawn_by(setting: Setting, sample: SampleRecipe) -> SampleRecipe:
    """A recipe section with the solver, steps and noise of a setting."""
    solver, num_steps, eta, last_noise = setting
    return sample.model_copy(update={"solver": solver, "steps": num_steps, "eta": eta, "last_noise": last_noise})


def crops(model: LoadedModel, source: PairSource, *, most: int, crop: int | None = None) -> list[tuple[Tensor, Tensor]]:
    """Conditions (1, K, *spatial) as the networks take them, and truths (C, *spatial) in the units of the output.

    Args:
        model: From :func:`sfumato.load`.
        source: The pairs.
        most: Use at most this many, spread evenly over the set.
        crop: Use only the middle of each; images scaled by their own range are scaled by the range of the whole.
    """
    pairs = []
    for index in evenly_spread(len(source), most):
        seen, truth = source.read(index, [0] * source.ndim, source.spatial(index))
        sizes = [min(side, crop or side) for side in seen.shape[1:]]
        corners = [(side - size) // 2 for side, size in zip(seen.shape[1:], sizes, strict=True)]
        middle = (slice(None), *(slice(c, c + s) for c, s in zip(corners, sizes, strict=True)))
        condition = condition_of(seen, model, on_target_grid=True).condition(0, corners, sizes)
        pairs.append((condition, torch.from_numpy(as_restored(truth, model)[middle]).float()))
    return pairs


def _refuse_trained(model: LoadedModel, hashes: PairHashes, name: str, allowed: bool) -> None:
    split = "" if model.info.seen is None else model.info.seen.split(hashes)
    refuse_seen([split], [name], () if allowed else ("train",))


def _check_samples(model: LoadedModel, num_samples: int) -> None:
    restorer = Restorer.of(model, num_samples)
    restorer.check_samples("to draw")
    restorer.check_spread()
