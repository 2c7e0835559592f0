"""Restoring an image file of any size: planned, journalled, and gone on with when the same call is made again.

Chunks go into OME-Zarr stores. Where the output is another format, they stand in a folder beside it until all are
there, and are then copied into the file. The folder ``<output>.journal`` holds the job and what is done of it.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from sfumato import __version__
from sfumato.baselines import Regression
from sfumato.data.convert import copy_image
from sfumato.data.frames import FrameReader
from sfumato.data.io import open_image
from sfumato.data.ome_zarr_writer import Version
from sfumato.data.output import OutputImage
from sfumato.data.pyramid import plan_levels
from sfumato.durable import replace_text
from sfumato.errors import ImageError, RunError
from sfumato.model_file import LoadedModel, load
from sfumato.restoration.engine import Engine, InProcess
from sfumato.restoration.job import Job, Output
from sfumato.restoration.journal import Journal
from sfumato.restoration.layout import choose_layout
from sfumato.restoration.plan import Plan
from sfumato.restoration.task import Outcome, checksum_of

__all__ = ["Progress", "Restoration", "Settings", "plan_restoration", "restore_file", "verify"]

_COARSEST = 512
"""The pyramid ends with a level whose sides are no longer."""
_FORMATS = (".zarr", ".tif", ".tiff", ".png", ".npy", ".mrc")
_MOST_LISTED = 20


@dataclass(frozen=True)
class Settings:
    """How to restore; what is None is chosen by the model and the image.

    Attributes:
        num_samples: Draws per frame.
        num_steps: Network calls per draw.
        seed: The same seed gives the same draws.
        quantiles: Levels between 0 and 1 whose images are written too.
        keep_samples: Write every draw.
        axes: Of the source, where it does not say.
        ome_zarr: Version of OME-Zarr that is written.
        chunk: Side of a chunk in pixels.
        halo: Pixels beyond it that the networks see.
        tile: Side of a tile.
        batch: Samples that go through the network together.
        threads: Of torch, per worker.
    """

    num_samples: int = 16
    num_steps: int | None = None
    seed: int = 0
    quantiles: tuple[float, ...] = ()
    keep_samples: bool = False
    axes: str | None = None
    ome_zarr: Version = "0.5"
    chunk: int | None = None
    halo: int | None = None
    tile: int | None = None
    batch: int | None = None
    threads: int | None = None


class Progress(NamedTuple):
    """How far a restoration is."""

    done: int
    """Chunks, the pyramid's too."""
    total: int
    megapixels: float
    """Restored by this call."""
    seconds: float
    """That its tasks took, summed over workers."""


@dataclass(frozen=True)
class Restoration:
    """A planned restoration.

    Attributes:
        job: What workers are told.
        journal: Folder of the job and its journal.
        files: Where each output will be; the job's own places if they are stores.
        model: The loaded model.
        frames: What was measured.
    """

    job: Job
    journal: Path
    files: tuple[str, ...]
    model: LoadedModel
    frames: FrameReader

    @property
    def is_store(self) -> bool:
        """Whether the outputs are the stores themselves."""
        return self.files == tuple(output.place for output in self.job.outputs)


def plan_restoration(
    model: str | Path,
    source: str | Path,
    output: str | Path,
    settings: Settings = Settings(),  # noqa: B008, it is frozen
    *,
    device: str = "cpu",
    journal: str | Path | None = None,
) -> Restoration:
    """Decide all that must be decided before a pixel is read.

    Args:
        model: Path of a model file.
        source: Anything that :func:`~sfumato.data.io.open_image` reads.
        output: Where the mean goes, a path or the address of a store; its suffix is the format. The others stand beside
            it, with ``_std``, ``_q05`` or ``_sample003`` in their names.
        settings: How to restore.
        device: Where the model should be.
        journal: Folder of the journal; beside the output if not given, or in this folder if that is an address.

    Raises:
        ImageError: If model, source and output do not fit each other.
    """
    place = str(output)
    suffix = Path(place.rstrip("/")).suffix.lower()
    if suffix not in _FORMATS or ("://" in place and suffix != ".zarr"):
        raise ImageError(f"the output is {place}; expected {', '.join(_FORMATS)}, and at an address .zarr; rename it")
    loaded = load(model, device=device)
    frames = FrameReader(open_image(source, axes=settings.axes), loaded.info.recipe.model.ndim)
    _check(loaded, frames, settings)
    layout = choose_layout(
        loaded,
        frames.spatial,
        settings.num_samples,
        chunk=settings.chunk,
        halo=settings.halo,
        tile=settings.tile,
        batch=settings.batch,
    )
    axes = "".join(axis for axis in "TSZYX" if axis in (*frames.frame_axes, *frames.axes))
    lengths = dict(zip(frames.image.axes, frames.image.shape, strict=True)) | dict(
        zip(frames.axes, frames.spatial, strict=True)
    )
    shape = tuple(lengths[axis] for axis in axes)
    sides = dict(zip(frames.axes, layout.chunk, strict=True))
    plan = Plan(
        levels=_levels(shape, axes, frames, is_store=suffix == ".zarr"),
        chunk=tuple(sides.get(axis, 1) for axis in axes),
        halo=tuple(layout.halo if axis in sides else 0 for axis in axes),
    )
    folder = Path(journal) if journal is not None else Path(f"{_local(place)}.journal")
    names = _names(loaded, settings)
    files = tuple(_beside(place, name) for _, name in names)
    places = files if suffix == ".zarr" else tuple(str(folder / "parts" / f"{name or 'mean'}.zarr") for _, name in names)
    channels = loaded.info.target_channels
    job = Job(
        model=str(Path(model).resolve()),
        model_sha256=loaded.sha256,
        source=_absolute(str(source)),
        source_axes=settings.axes,
        axes=axes,
        channels=channels if channels > 1 else 0,
        outputs=tuple(what._replace(place=_absolute(at)) for (what, _), at in zip(names, places, strict=True)),
        num_samples=settings.num_samples,
        num_steps=settings.num_steps or loaded.info.recipe.sample.steps,
        seed=settings.seed,
        plan=plan,
        tile=layout.tile,
        batch=layout.batch,
        threads=settings.threads or torch.get_num_threads(),
    )
    files = tuple(_absolute(file) for file in files)
    return Restoration(job, folder, files, loaded, frames)


def restore_file(
    restoration: Restoration,
    *,
    engine: Engine | None = None,
    shard: tuple[int, int] | None = None,
    ome_zarr: Version = "0.5",
    progress: Callable[[Progress], None] | None = None,
) -> list[Path | str]:
    """Do what is missing of a restoration.

    Args:
        restoration: From :func:`plan_restoration`.
        engine: Who does the tasks; this process if not given.
        shard: (i, n): only every n-th task, from the i-th on, counted from 0. The shard that finds all others done
            builds the pyramid or the file.
        ome_zarr: Version of the stores.
        progress: Called after every task.

    Returns:
        The files, or none of them as long as other shards have work left.

    Raises:
        RunError: If tasks failed, with the list of them, or another restoration has the output.
    """
    job, folder = restoration.job, restoration.journal
    if not restoration.is_store and all(Path(file).exists() for file in restoration.files) and not folder.exists():
        raise ImageError(f"{restoration.files[0]} exists already; expected a new name; choose one or remove it")
    _keep_job(restoration)
    journal = Journal(folder, job.plan.num_tasks)
    name = "main" if shard is None else f"shard-{shard[0]}-of-{shard[1]}"
    with journal.writer(name) as writer:
        _create_outputs(restoration, ome_zarr)
        counted = _Counter(job.plan, progress, int(journal.done().sum()))
        for level, stage in enumerate(job.plan.stages):
            missing = [int(n) for n in np.flatnonzero(~journal.done()[stage.start : stage.stop]) + stage.start]
            if shard is not None and level == 0:
                missing = [number for number in missing if number % shard[1] == shard[0]]
            failed: list[Outcome] = []
            for outcome in (engine or InProcess()).run(job, missing):
                if outcome.error is not None:
                    failed.append(outcome)
                    if outcome.fatal:
                        break
                    continue
                writer.record(outcome.number, outcome.checksum)
                counted.add(outcome, level)
                if 0 < outcome.batch < job.batch:
                    _note_memory(folder, outcome)
            if failed:
                raise _failure(failed, job.plan)
            if not journal.done()[stage.start : stage.stop].all():
                return []  # other shards are at work
        if not restoration.is_store:
            _copy_out(restoration)
    return list(restoration.files)


def verify(restoration: Restoration) -> list[int]:
    """Recorded tasks whose chunks are not what the journal says, or cannot be read.

    Raises:
        RunError: If there is no journal, or one of another job.
    """
    if not (restoration.journal / "job.json").exists():
        raise RunError(f"{restoration.journal} has no job; expected the journal of a restoration; restore it first")
    _keep_job(restoration)
    job, wrong = restoration.job, []
    for number, checksum in Journal(restoration.journal, job.plan.num_tasks).checksums():
        try:
            good = checksum_of(job, number) == checksum
        except ImageError:
            good = False
        if not good:
            wrong.append(number)
    return wrong


def _check(model: LoadedModel, frames: FrameReader, settings: Settings) -> None:
    """What would fail in every task is better said at once."""
    channels = model.info.condition_channels
    if frames.channels != channels:
        raise ImageError(
            f"{frames.image.name} has {frames.channels} channels (axes {frames.image.axes}); this model takes {channels}; "
            "choose channels, or state the axes"
        )
    if settings.num_samples < 2 and not isinstance(model.model, Regression):
        raise ImageError(f"{settings.num_samples} samples were asked for; a standard deviation needs at least 2")
    if not all(0 < level < 1 for level in settings.quantiles):
        raise ImageError(f"quantiles are {list(settings.quantiles)}; expected levels between 0 and 1")


def _levels(shape: Sequence[int], axes: str, frames: FrameReader, *, is_store: bool) -> tuple[tuple[int, ...], ...]:
    number, longest = 1, max(length for axis, length in zip(axes, shape, strict=True) if axis in "YX")
    while is_store and longest > _COARSEST:
        number, longest = number + 1, -(-longest // 2)
    return tuple(level.shape for level in plan_levels(shape, axes, _sizes(frames, axes), num_levels=number))


def _sizes(frames: FrameReader, axes: str) -> dict[str, Any]:
    return {axis: size for axis, size in frames.image.pixel_size.items() if axis in axes}


def _names(model: LoadedModel, settings: Settings) -> list[tuple[Output, str]]:
    """What is written, each with what its name gets."""
    if isinstance(model.model, Regression):
        return [(Output("mean", ""), "")]
    quantiles = [(Output("quantile", "", level=q), f"q{100 * q:04.1f}".replace(".0", "")) for q in settings.quantiles]
    number = settings.num_samples if settings.keep_samples else 0
    samples = [(Output("sample", "", number=i), f"sample{i:03}") for i in range(number)]
    return [(Output("mean", ""), ""), (Output("std", ""), "std"), *quantiles, *samples]


def _beside(place: str, name: str) -> str:
    """`cells.ome.tif` to `cells_std.ome.tif`; a PNG could not hold a standard deviation, so it becomes a TIFF."""
    if not name:
        return place
    folder, slash, last = place.rstrip("/").rpartition("/")
    stem, dot, suffixes = last.partition(".")
    if suffixes.lower().endswith("png") and name == "std":
        suffixes = "tif"
    return f"{folder}{slash}{stem}_{name}{dot}{suffixes}"


def _local(place: str) -> str:
    return place.rstrip("/").rpartition("/")[2] if "://" in place else place.rstrip("/")


def _absolute(place: str) -> str:
    """Workers may have another current folder."""
    return place if "://" in place else str(Path(place).resolve())


def _keep_job(restoration: Restoration) -> None:
    """Write the job, or make sure that the one that is there is the same."""
    path = restoration.journal / "job.json"
    if path.exists():
        differences = restoration.job.differences(path.read_text(encoding="utf-8"))
        if differences:
            raise RunError(
                f"{restoration.journal} holds another restoration: {'; '.join(differences)}; give the settings it was "
                "begun with, or remove it and its output"
            )
        return
    taken = [file for file in restoration.files if "://" not in file and Path(file).exists()]
    if taken:
        raise ImageError(f"{taken[0]} exists already; expected a new name; choose one or remove it")
    try:
        restoration.journal.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"cannot make {restoration.journal}: {error.strerror}; expected a folder to write to; choose another"
        ) from error
    replace_text(path, restoration.job.to_json(), untouched="Nothing else was changed")


def _create_outputs(restoration: Restoration, version: Version) -> None:
    job, frames = restoration.job, restoration.frames
    before = sum(axis in "TS" for axis in job.axes)
    axes = f"{job.axes[:before]}C{job.axes[before:]}" if job.channels else job.axes

    def full(numbers: Sequence[int]) -> tuple[int, ...]:
        return (*numbers[:before], job.channels, *numbers[before:]) if job.channels else tuple(numbers)

    for output in job.outputs:
        OutputImage.create(
            output.place,
            shape=full(job.plan.levels[0]),
            dtype=np.float32,
            axes=axes,
            pixel_size=_sizes(frames, axes),
            chunks=full(job.plan.chunk),
            num_levels=len(job.plan.levels),
            version=version,
            metadata=_provenance(restoration, output),
        )


def _provenance(restoration: Restoration, output: Output) -> dict[str, Any]:
    job, settings = restoration.job, restoration.model.info.recipe.sample
    notes: dict[str, Any] = {"sfumato": __version__, "model_sha256": job.model_sha256, "seed": job.seed}
    if isinstance(restoration.model.model, Regression):
        return {**notes, "content": "regression"}
    notes |= {"samples": job.num_samples, "steps": job.num_steps, "solver": settings.solver, "eta": settings.eta}
    details = {"quantile": f"quantile {output.level:g}", "sample": f"sample {output.number}"}
    return {**notes, "content": details.get(output.content, {"std": "standard deviation"}.get(output.content, "mean"))}


def _copy_out(restoration: Restoration) -> None:
    """Copy finished stores into files; a kill on the way leaves whole files and the rest to be copied again."""
    for output, file in zip(restoration.job.outputs, restoration.files, strict=True):
        if Path(file).exists():
            continue
        store = OutputImage.open(output.place)
        dtype: Any = None
        if Path(file).suffix.lower() == ".png":
            source = restoration.frames.image.dtype
            dtype = source if source.name in ("uint8", "uint16") else np.uint16
        copy_image(store.image(), file, store.metadata, dtype=dtype)
    shutil.rmtree(restoration.journal)


def _note_memory(folder: Path, outcome: Outcome) -> None:
    """Say, for good, that a task had to be done in smaller batches than planned."""
    with (folder / "notes.txt").open("a", encoding="utf-8") as file:
        file.write(
            f"task {outcome.number}: out of memory; its samples went through the network {outcome.batch} at a time, so "
            "its pixels may differ from those of another run by rounding\n"
        )


def _failure(failed: Sequence[Outcome], plan: Plan) -> RunError:
    listed = [f"  chunk at {plan.task(outcome.number).corner}: {outcome.error}" for outcome in failed[:_MOST_LISTED]]
    more = f"\n  and {len(failed) - _MOST_LISTED} more" if len(failed) > _MOST_LISTED else ""
    return RunError(
        f"{len(failed)} chunks could not be restored; all others that were tried are done and kept:\n"
        + "\n".join(listed)
        + f"{more}\nmend the cause and give the same command again"
    )


class _Counter:
    """Turns outcomes into progress."""

    def __init__(self, plan: Plan, progress: Callable[[Progress], None] | None, done: int) -> None:
        self.plan, self.progress = plan, progress
        self.done, self.pixels, self.seconds = done, 0, 0.0

    def add(self, outcome: Outcome, level: int) -> None:
        self.done += 1
        self.seconds += outcome.seconds
        if level == 0:
            self.pixels += int(np.prod(self.plan.task(outcome.number).size))
        if self.progress is not None:
            self.progress(Progress(self.done, self.plan.num_tasks, self.pixels / 1e6, self.seconds))
