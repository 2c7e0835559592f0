"""Doing what is missing of a planned restoration, by whatever engine, with every finished chunk in the journal."""

import contextlib
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sfumato import __version__
from sfumato.baselines import Regression
from sfumato.data.convert import copy_image
from sfumato.data.output import OutputImage
from sfumato.data.storage import storage_at
from sfumato.errors import ImageError, RunError
from sfumato.restoration.engine import Engine, InProcess
from sfumato.restoration.job import Job, Output
from sfumato.restoration.journal import Journal, JournalInUseError, Writer
from sfumato.restoration.plan import Plan
from sfumato.restoration.planning import Restoration, Settings, plan_restoration
from sfumato.restoration.task import Outcome, checksum_of
from sfumato.uncertainty import SCHEDULE_NOTE

__all__ = ["Progress", "provenance", "restore_file", "run_restoration", "verify"]

_MOST_LISTED = 20
_FEW = 64
"""So many tasks of the pyramid are done here, whatever the engine."""


class Progress(NamedTuple):
    """How far a restoration is."""

    done: int
    """Chunks, the pyramid's too."""
    total: int
    megapixels: float
    """Restored by this call."""
    seconds: float
    """That its tasks took, summed over workers."""
    share: float = 0.0
    """Of the next chunk, if it is restored in this process."""


def restore_file(
    model: str | Path, source: str | Path, output: str | Path, settings: Settings | None = None
) -> list[str]:
    """Restore an image file of any size in this process; the same call goes on with what was begun.

    Args:
        model: Path of a model file.
        source: Anything that :func:`~sfumato.data.io.open_image` reads.
        output: Where the mean goes; see :func:`~sfumato.restoration.planning.plan_restoration`.
        settings: How to restore.

    Returns:
        The files, that of the mean first.

    Example:
        >>> restore_file("run/model.safetensors", "cells.tif", "restored.zarr")  # doctest: +SKIP
        ['restored.zarr', 'restored_std.zarr']
    """
    return run_restoration(plan_restoration(model, source, output, settings or Settings()))


def run_restoration(
    restoration: Restoration,
    *,
    engine: Engine | None = None,
    shard: tuple[int, int] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[str]:
    """Do what is missing of a restoration.

    Args:
        restoration: From :func:`plan_restoration`.
        engine: Who does the tasks; this process if not given.
        shard: (i, n): only every n-th task, from the i-th on, counted from 0. The shard that finds all others done
            builds the pyramid or the file.
        progress: Called after every task, and after every network call of this process.

    Returns:
        The files, or none of them as long as other shards have work left.

    Raises:
        RunError: If tasks failed, with the list of them, or another restoration has the output.
    """
    job, folder = restoration.job, restoration.journal
    _keep_job(restoration)
    journal = Journal(folder, job.plan.num_tasks)
    name = "main" if shard is None else f"shard-{shard[0]}-of-{shard[1]}"
    with journal.writer(name) as writer:
        _create_outputs(restoration)
        counted = _Counter(job, progress, int(journal.done().sum()))
        stages = [_Stage(restoration, journal, level, engine or InProcess()) for level in range(len(job.plan.stages))]
        stages[0].do(writer, counted, shard)
        if not stages[0].is_done():
            if shard is None:
                raise RunError("an engine left tasks undone without an error; give the same command again")
            return []
        try:
            # Several shards may find that all is done; one of them ends the work.
            with journal.writer("finish") as finisher:
                for stage in stages[1:]:
                    stage.do(finisher, counted)
                if not restoration.is_store:
                    _copy_out(restoration)
        except JournalInUseError:
            return []
    if not restoration.is_store:
        _discard(restoration.journal)
    return list(restoration.files)


class _Stage:
    """The tasks of one level."""

    def __init__(self, restoration: Restoration, journal: Journal, level: int, engine: Engine) -> None:
        self.job, self.folder = restoration.job, restoration.journal
        self.journal, self.level, self.engine = journal, level, engine
        self.numbers = self.job.plan.stages[level]

    def is_done(self) -> bool:
        """Whether every task is in the journal."""
        return bool(self.journal.done()[self.numbers.start : self.numbers.stop].all())

    def do(self, writer: Writer, counted: "_Counter", shard: tuple[int, int] | None = None) -> None:
        """Do what is missing, or a shard's part of it."""
        undone = ~self.journal.done()[self.numbers.start : self.numbers.stop]
        missing = [int(number) for number in np.flatnonzero(undone) + self.numbers.start]
        if shard is not None:
            missing = [number for number in missing if number % shard[1] == shard[0]]
        failed: list[Outcome] = []
        # To start workers for a few means of pixels would take longer than the means.
        engine = self.engine if self.level == 0 or len(missing) > _FEW else InProcess()
        for outcome in engine.run(self.job, missing, counted.call):
            if outcome.error is not None:
                failed.append(outcome)
                if outcome.fatal:
                    break
                continue
            writer.record(outcome.number, outcome.checksum)
            counted.add(outcome, self.level)
            if 0 < outcome.batch < self.job.batch:
                _note_memory(self.job, self.folder, outcome)
        if failed:
            raise _failure(failed, self.job.plan)


def verify(restoration: Restoration) -> list[int]:
    """Recorded tasks whose chunks are not what the journal says, or cannot be read; they count as missing from now on.

    Raises:
        RunError: If there is no journal, one of another job, or somebody is at work with it.
    """
    if not (restoration.journal / "job.json").exists():
        raise RunError(f"{restoration.journal} has no job; expected the journal of a restoration; restore it first")
    _keep_job(restoration)
    job, wrong = restoration.job, []
    journal = Journal(restoration.journal, job.plan.num_tasks)
    with journal.writer("verify") as writer:
        for number, checksums in journal.checksums():
            try:
                good = checksum_of(job, number) in checksums
            except ImageError:
                good = False
            if not good:
                wrong.append(number)
        # As often as they are recorded: two shards may have done the same.
        writer.take_back(np.repeat(np.array(wrong, np.int64), journal.times()[wrong]))
    return wrong


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
    if taken and not path.exists():  # else another shard has begun meanwhile
        raise ImageError(f"{taken[0]} exists already; expected a new name; choose one or remove it")
    try:
        restoration.journal.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"cannot make {restoration.journal}: {error.strerror}; expected a folder to write to; choose another"
        ) from error
    # Not by `durable.replacing`, which would take a file that another host is writing for a leftover.
    storage_at(restoration.journal).put({path.name: restoration.job.to_json().encode()})


def _create_outputs(restoration: Restoration) -> None:
    job = restoration.job
    if not restoration.is_store:
        (restoration.journal / "parts").mkdir(exist_ok=True)
    for output in job.outputs:
        OutputImage.create(
            output.place,
            shape=job.with_channels(job.plan.levels[0], job.channels),
            dtype=np.float32,
            axes=job.output_axes,
            pixel_size=restoration.pixel_size,
            chunks=job.with_channels(job.plan.chunk, job.channels),
            num_levels=len(job.plan.levels),
            version=job.ome_zarr,
            metadata=provenance(restoration, output),
        )


def provenance(restoration: Restoration, output: Output) -> dict[str, Any]:
    """What an image says of how it was restored."""
    job, settings = restoration.job, restoration.model.info.recipe.sample
    notes: dict[str, Any] = {"sfumato": __version__, "model_sha256": job.model_sha256, "seed": job.seed}
    if isinstance(restoration.model.model, Regression):
        return {**notes, "content": "regression"}
    notes |= {"samples": job.num_samples, "steps": job.num_steps, "solver": settings.solver, "eta": settings.eta}
    notes["last_noise"] = settings.last_noise
    found = restoration.correction
    if found is not None:
        notes |= {"intervals": found.label, "calibration": found.method}
    contents = {
        "mean": "mean",
        "std": "standard deviation",
        "low": "lower end of calibrated interval",
        "high": "upper end of calibrated interval",
        "schedule": SCHEDULE_NOTE,
        "quantile": f"quantile {output.level:g}",
        "sample": f"sample {output.number}",
    }
    if found is not None and found.method == "recalibrated":
        contents["std"] = "standard deviation, recalibrated"
    return {**notes, "content": contents[output.content]}


def _copy_out(restoration: Restoration) -> None:
    """Copy finished stores into files; a kill on the way leaves whole files and the rest to be copied again."""
    for output, file in zip(restoration.job.outputs, restoration.files, strict=True):
        if Path(file).exists():
            continue
        store = OutputImage.open(output.place)
        copy_image(store.image(), file, store.metadata, dtype=restoration.dtype_of(file))


def _discard(journal: Path) -> None:
    """Remove a journal whose images are in their files; nobody of this process may have it open.

    A kill, or a file server that keeps what another shard has open, may leave some of it. So it goes under another
    name first or, where that is refused, its records go before all else: what is left says nothing of chunks.
    """
    try:
        journal = journal.rename(journal.with_name(f".{uuid.uuid4().hex}.done"))
    except OSError:
        with contextlib.suppress(OSError):
            for file in [*journal.glob("*.records"), journal / "job.json"]:
                file.unlink()
    shutil.rmtree(journal, ignore_errors=True)


def _note_memory(job: Job, folder: Path, outcome: Outcome) -> None:
    """Say, for good and in the images too, that a task had to be done in smaller batches than planned."""
    for output in job.outputs:
        OutputImage.open(output.place).note(
            "memory ran out, so some chunks were restored in smaller batches than planned: they may differ from those "
            "of another run by rounding"
        )
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
    """Turns outcomes and network calls into progress."""

    def __init__(self, job: Job, progress: Callable[[Progress], None] | None, done: int) -> None:
        self.plan, self.progress = job.plan, progress
        self.calls, self.calls_of_task = 0, job.num_samples * job.num_steps
        self.done, self.pixels, self.seconds = done, 0, 0.0

    def add(self, outcome: Outcome, level: int) -> None:
        self.done += 1
        self.calls = 0
        self.seconds += outcome.seconds
        if level == 0:
            self.pixels += int(np.prod(self.plan.task(outcome.number).size))
        self._tell()

    def call(self, draws: int) -> None:
        self.calls += draws
        if (
            self.calls < self.calls_of_task
        ):  # the outcome tells of the last one; a chunk sampled for statistics has more
            self._tell()

    def _tell(self) -> None:
        if self.progress is not None:
            share = self.calls / self.calls_of_task
            self.progress(Progress(self.done, self.plan.num_tasks, self.pixels / 1e6, self.seconds, share))
