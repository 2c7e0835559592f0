"""Plan a restoration: decide everything that must be known before the first pixel is restored.

Chunks are written to OME-Zarr stores. For any other output format, the stores are kept in a folder beside the output
until they are complete, and are then copied into the file. The folder ``<output>.journal`` holds the job and its
progress.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from sfumato.data.images.choice import WHOLE, Choice
from sfumato.data.images.convert import check_format
from sfumato.data.images.identity import identify
from sfumato.data.images.ome_zarr_writer import Version, plan_levels
from sfumato.models.hub import is_address
from sfumato.models.intervals import Correction
from sfumato.models.model_file import LoadedModel, load
from sfumato.problems.registry import full_scale
from sfumato.restoration.conditions import Measured
from sfumato.restoration.intervals import check_fast
from sfumato.restoration.job import Job, Plan
from sfumato.restoration.layout import Halo, Layout, choose_layout
from sfumato.restoration.outputs import as_begun, beside, name_outputs
from sfumato.restoration.passed_through import check_passing
from sfumato.restoration.restorer import Restorer, Uncertainty
from sfumato.system.bounds import seed_of, whole
from sfumato.system.device import AUTO, named_device
from sfumato.system.errors import ImageError

__all__ = ["FORMATS", "Restoration", "Settings", "plan_restoration", "png_dtype"]

_FEWEST_GREY_LEVELS = 16
"""Grey levels between the ends of a model's targets, for a picture worth looking at."""
_COARSEST = 512
"""The pyramid ends with the first level whose sides are no longer than this."""
_SCALED = (".tif", ".tiff", ".npy", ".mrc")
"""Formats of whole numbers with a scale: a store is written chunk by chunk, and PNG holds whole numbers anyway."""
FORMATS = (".zarr", ".tif", ".tiff", ".png", ".npy", ".mrc")


@dataclass(frozen=True)
class Settings:
    """How to restore. Fields left as None are inferred from the model and the image.

    Attributes:
        num_samples: Samples per frame; by default as in the model's calibration, or 16.
        num_steps: Network calls per sample; by default as in the model's calibration, or the recipe's.
        seed: The same seed gives the same samples.
        first_image: Number of the first frame among all images restored with the same seed.
        quantiles: Levels between 0 and 1 whose images are written too.
        keep_samples: Write every sample.
        uncertainty: ``samples`` for their standard deviation, or ``schedule`` for a relative hint from one pass.
        axes: Axes of the source, if it does not state them.
        on_target_grid: Whether the source was upsampled to the target grid already.
        ome_zarr: Version of OME-Zarr to write.
        chunk: Side of a chunk in pixels.
        halo: Pixels beyond a chunk that the networks see, or ``reach`` for all that one network call looks at.
        tile: Side of a tile.
        batch: Samples that go through the network together.
        threads: Torch threads per worker.
        fast: Draw no samples: mean and standard deviation by one read of the image; of a model with mean and scale
            networks. A regression answers as usual.
        dtype: Type of the pixels in files; ``uint16`` for whole numbers with a scale that is noted in the file.
        pass_through: Copy the channels that are not chosen to the file of the mean.
        choice: Channels, scene and times of the source; the channels of the model by default, if the source names them.
    """

    num_samples: int | None = None
    num_steps: int | None = None
    seed: int = 0
    first_image: int = 0
    quantiles: tuple[float, ...] = ()
    keep_samples: bool = False
    uncertainty: Uncertainty = "samples"
    axes: str | None = None
    on_target_grid: bool = False
    ome_zarr: Version = "0.5"
    chunk: int | None = None
    halo: Halo | None = None
    tile: int | None = None
    batch: int | None = None
    threads: int | None = None
    fast: bool = False
    choice: Choice = WHOLE
    dtype: Literal["float32", "uint16"] = "float32"
    pass_through: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers out of range, before a model is read.

        Raises:
            RecipeError: If a number is out of range, or needs the samples that a fast restoration does not draw; it
                names the option.
        """
        seed_of(self.seed)
        if self.fast:
            asked = {"samples": self.num_samples, "steps": self.num_steps, "quantiles": self.quantiles}
            asked |= {"keep_samples": self.keep_samples, "batch": self.batch}
            check_fast({**asked, "uncertainty schedule": self.uncertainty == "schedule"})
        least = {"num_samples": 1, "num_steps": 1, "first_image": 0, "chunk": 1, "halo": 0, "tile": 1, "batch": 1}
        for name, number in (least | {"threads": 1}).items():
            if getattr(self, name) is not None and (name, self.halo) != ("halo", "reach"):
                whole(name.removeprefix("num_"), getattr(self, name), number)
        if not all(0 < level < 1 for level in self.quantiles):
            raise ImageError(f"quantiles are {list(self.quantiles)}; expected levels between 0 and 1")
        if len({*self.quantiles}) < len(self.quantiles):
            raise ImageError(f"quantiles are {list(self.quantiles)}; expected each level once; remove repeated ones")


@dataclass(frozen=True)
class Restoration:
    """A planned restoration.

    Attributes:
        job: The job that workers receive.
        journal: Folder of the job and its journal.
        files: Path of each output; the same as in the job if the outputs are stores.
        model: The loaded model.
        measured: The image to restore.
        has_measured_halo: Whether the halo is the model's measured reach.
        is_scaled: Whether the files hold whole numbers with a scale.
        passes_through: Whether the file of the mean has the source's other channels too.
    """

    job: Job
    journal: Path
    files: tuple[str, ...]
    model: LoadedModel
    measured: Measured
    has_measured_halo: bool = False
    is_scaled: bool = False
    passes_through: bool = False

    @property
    def restorer(self) -> Restorer:
        """The model and how its samples are drawn."""
        return Restorer.of_job(self.model, self.job)

    @property
    def correction(self) -> Correction | None:
        """The calibration used for its intervals, if it has any."""
        has_any = any(output.content == "low" for output in self.job.outputs)
        return self.restorer.correction if has_any else None

    @property
    def channel_names(self) -> tuple[str, ...]:
        """Names of the restored channels: those of the measured ones, if there are as many."""
        names = self.measured.channel_names
        return names if len(names) == self.model.info.target_channels else ()

    @property
    def told_halo(self) -> str | None:
        """How far the networks see beyond chunks, if that was measured; None if not, or if there is a single chunk."""
        halo, narrower = max(self.job.plan.halo), self.job.sampling_halo
        if not self.has_measured_halo or len(self.job.plan.stages[0]) == 1:
            return None
        denoising = "" if narrower is None else f", {narrower} for the denoising network"
        return f"halo: {halo} pixels{denoising}, as far as this model was measured to look"

    def dtype_of(self, file: str) -> np.dtype[Any] | None:
        """Type of the pixels in one of the files, or None if it is a PNG that cannot hold them."""
        is_png = Path(file).suffix.lower() == ".png"
        if is_png:
            return png_dtype(self.model, self.measured.dtype)
        return np.dtype(np.uint16 if self.is_scaled else np.float32)

    @property
    def is_store(self) -> bool:
        """Whether the outputs are the stores themselves."""
        return self.files == tuple(output.place for output in self.job.outputs)


def plan_restoration(
    model: str | Path,
    source: str | Path,
    output: str | Path,
    settings: Settings = Settings(),
    *,
    device: str = "auto",
    journal: str | Path | None = None,
    loaded: LoadedModel | None = None,
) -> Restoration:
    """Decide everything that must be known before the first pixel is read.

    Args:
        model: Path of a model file.
        source: Anything that :func:`~sfumato.data.images.io.open_image` reads.
        output: Where to write the mean, a path or the address of a store; its suffix selects the format. The other
            outputs are written beside it, with ``_std``, ``_q05`` or ``_sample003`` in their names.
        settings: How to restore.
        device: Device for the model; ``auto`` for the one that the restoration was begun on, and for a new one that of
            ``loaded`` or the best.
        journal: Folder of the journal; by default beside the output, or in the current folder if that is an address.
        loaded: The model of that file, if it was loaded before.

    Raises:
        ImageError: If the model, source and output do not fit together.
    """
    place = str(output)
    suffix = Path(place.rstrip("/")).suffix.lower()
    is_store = suffix == ".zarr"
    if suffix not in FORMATS or ("://" in place and not is_store):
        raise ImageError(f"the output is {place}; expected {', '.join(FORMATS)}, and at an address .zarr; rename it")
    if settings.dtype == "uint16" and suffix not in _SCALED:
        raise ImageError(
            f"the output is {place}, as uint16 with a scale; expected {', '.join(_SCALED)}, which are written when all "
            "values are known; rename it, or leave out the type"
        )
    folder = Path(journal) if journal is not None else Path(f"{_local(place)}.journal")
    device = _device_of(device, folder, loaded)
    loaded = loaded or load(model, device=device)
    restorer = Restorer.of(loaded, settings.num_samples, settings.num_steps, fast=settings.fast)
    sampled = restorer.sampled
    measured = Measured(
        str(source), loaded, axes=settings.axes, on_target_grid=settings.on_target_grid, choice=settings.choice
    )
    kept = sampled.num_samples if settings.keep_samples else 0
    names = name_outputs(*restorer.available(settings.uncertainty), quantiles=settings.quantiles, num_samples=kept)
    files = tuple(_absolute(beside(place, name)) for _, name in names)
    places = files if is_store else tuple(_absolute(f"{folder}/parts/{name or 'mean'}.zarr") for _, name in names)
    outputs = as_begun(tuple(what._replace(place=at) for (what, _), at in zip(names, places, strict=True)), folder)
    layout = choose_layout(
        loaded,
        measured.spatial,
        sampled.num_samples,
        sampled.num_steps,
        chunk=settings.chunk,
        halo=settings.halo,
        tile=settings.tile,
        batch=settings.batch,
        measured=settings.uncertainty == "samples",
    )
    axes, plan = _chunks(measured, layout, is_store=is_store)
    channels = loaded.info.target_channels
    job = Job(
        model=str(model) if is_address(model) else str(Path(model).resolve()),
        model_sha256=loaded.sha256,
        source=_absolute(str(source)),
        source_identity=identify(source),
        source_axes=settings.axes,
        source_on_target_grid=settings.on_target_grid,
        axes=axes,
        channels=channels if channels > 1 else 0,
        outputs=outputs,
        num_samples=sampled.num_samples,
        num_steps=sampled.num_steps,
        seed=settings.seed,
        first_image=settings.first_image,
        plan=plan,
        tile=layout.tile,
        batch=layout.batch,
        threads=settings.threads or torch.get_num_threads(),
        ome_zarr=settings.ome_zarr,
        sampling_halo=layout.sampling_halo,
        source_choice=None if measured.choice == WHOLE else measured.choice,
        device=device,
    )
    places = tuple(o.place for o in outputs) if is_store else files
    has_reach = loaded.info.reach is not None and settings.halo is None and settings.uncertainty == "samples"
    if settings.pass_through:
        check_passing(place, measured, channels)
    as_asked = settings.dtype == "uint16", settings.pass_through
    planned = Restoration(job, folder, places, loaded, measured, has_reach, *as_asked)
    if not is_store:
        _check_format(planned)
    return planned


def _device_of(asked: str, journal: Path, loaded: LoadedModel | None) -> str:
    """The device of a restoration: that which was asked for, or recorded, or of the model, or the best."""
    job = journal / "job.json"
    recorded = Job.device_in(job.read_text(encoding="utf-8")) if job.exists() else None
    if recorded is None and loaded is not None and asked == AUTO:
        return str(next(loaded.model.parameters()).device)
    return named_device(asked, recorded, what=f"the restoration in {journal}")


def png_dtype(model: LoadedModel, measured: np.dtype[Any]) -> np.dtype[Any] | None:
    """Pixel type of a restored PNG: the type of the measured image, 16 bits, or None if PNG cannot hold the values.

    Unsigned integers cannot hold radians, or values scaled by each image's own range.

    Args:
        model: Its targets give the range of values.
        measured: Pixel type of the measured image.
    """
    ends = _ends(model, measured)
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    narrowest = min(high - low for low, high in ends)
    if narrowest < _FEWEST_GREY_LEVELS or low < -narrowest / 4:
        return None
    types = [measured] if measured.name in ("uint8", "uint16") else []
    return next((np.dtype(kind) for kind in (*types, np.dtype(np.uint16)) if high <= np.iinfo(kind).max), None)


def _ends(model: LoadedModel, measured: np.dtype[Any]) -> list[tuple[float, float]]:
    """Approximate least and largest restored value of each channel."""
    target, unit = model.info.target, full_scale(model.info.recipe.problem, measured)
    return [(unit * (o - s), unit * (o + s)) for o, s in zip(target.offset, target.scale, strict=True)]


def _check_format(planned: Restoration) -> None:
    """Refuse files that cannot hold the values before any sampling is done."""
    job, shape = planned.job, planned.job.with_channels(planned.job.plan.levels[0], planned.job.channels)
    for file in planned.files:
        dtype = planned.dtype_of(file)
        if dtype is None:
            ends = [f"{low:.3g} to {high:.3g}" for low, high in _ends(planned.model, planned.measured.dtype)]
            raise ImageError(
                f"{file} would hold whole numbers from 0 on, and this model restores values of about "
                f"{', '.join(ends)}; expected a range that integers can resolve; write .tif"
            )
        check_format(file, job.output_axes, shape, dtype, planned.measured.pixel_size)


def _chunks(measured: Measured, layout: Layout, *, is_store: bool) -> tuple[str, Plan]:
    """Axes of the output without C, in OME-Zarr's order, and the chunks along them; a store gets a pyramid."""
    lengths = dict(zip(measured.frame_axes, measured.frame_shape, strict=True))
    lengths |= dict(zip(measured.axes, measured.spatial, strict=True))
    axes = "".join(axis for axis in "TSZYX" if axis in lengths)
    number, longest = 1, max(lengths["Y"], lengths["X"])
    while is_store and longest > _COARSEST:
        number, longest = number + 1, -(-longest // 2)
    levels = plan_levels([lengths[axis] for axis in axes], axes, measured.pixel_size, num_levels=number)
    sides = dict(zip(measured.axes, layout.chunk, strict=True))
    return axes, Plan(
        levels=tuple(level.shape for level in levels),
        chunk=tuple(sides.get(axis, 1) for axis in axes),
        halo=tuple(layout.halo if axis in sides else 0 for axis in axes),
    )


def _local(place: str) -> str:
    return place.rstrip("/").rpartition("/")[2] if "://" in place else place.rstrip("/")


def _absolute(place: str) -> str:
    """Make a path absolute: workers may have a different current folder."""
    return place if "://" in place else str(Path(place).resolve())
