"""Run the unfinished tasks of a restoration on any engine, and record every finished chunk in the journal."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sfumato.data.images.convert import copy_image
from sfumato.data.images.image import Image
from sfumato.data.images.output import OutputImage
from sfumato.data.images.whole_numbers import Scale, as_stored, scale_for
from sfumato.restoration.begun import begin, begun_output, check_job, check_stores, is_finished
from sfumato.restoration.engines import Engine, InProcess
from sfumato.restoration.job import Job, Plan
from sfumato.restoration.journal import Journal, JournalInUseError, Writer, discard
from sfumato.restoration.origin import check_origin, provenance
from sfumato.restoration.passed_through import beside_others
from sfumato.restoration.planning import Restoration, Settings, plan_restoration
from sfumato.restoration.task import Outcome, checksum_of, lend
from sfumato.restoration.watch import ReplacedInputError, Watch
from sfumato.system.errors import ImageError, RunError, SfumatoError

__all__ = ["Progress", "StoppedError", "listed", "restore_file", "run_restoration", "verify"]

_MOST_LISTED = 20
_FEW = 64
"""Up to this many pyramid tasks run in this process, whatever the engine."""


class StoppedError(RunError):
    """The output location or the model file is unusable, so whatever comes next would fail too."""


class Progress(NamedTuple):
    """How far a restoration is."""

    done: int
    """Finished chunks, including the pyramid's."""
    total: int
    megapixels: float
    """Restored by this call."""
    seconds: float
    """Seconds its tasks took, summed over workers."""
    share: float = 0.0
    """Finished fraction of the next chunk, if it is restored in this process."""


def restore_file(
    model: str | Path, source: str | Path, output: str | Path, settings: Settings | None = None
) -> list[str]:
    """Restore an image file of any size in this process; the same call resumes an unfinished restoration.

    Args:
        model: Path of a model file.
        source: Anything that :func:`~sfumato.data.images.io.open_image` reads.
        output: Where to write the mean; see :func:`~sfumato.restoration.planning.plan_restoration`.
        settings: How to restore.

    Returns:
        The files, the mean first.

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
    note: Callable[[str], None] | None = None,
) -> list[str]:
    """Run the unfinished tasks of a restoration; a finished one is left as it is.

    Args:
        restoration: From :func:`plan_restoration`.
        engine: Runs the tasks; by default this process.
        shard: (i, n): run only every n-th task, starting with the i-th, counted from 0. The shard that finds all others
            done builds the pyramid or the file.
        progress: Called after every task, and after every network call of this process.
        note: Called with a message about anything that an earlier version did not record and that cannot be checked.

    Returns:
        The files; an empty list while other shards have work left.

    Raises:
        RunError: If tasks failed (it lists them), or if the output belongs to another restoration.
        ReplacedInputError: If the input changed since the restoration was planned or started.
    """
    if is_finished(restoration, note):
        return list(restoration.files)
    job = restoration.job
    lend(restoration.model)
    is_resumed = begin(restoration)
    journal = Journal(restoration.journal, job.plan.num_tasks)
    name = "main" if shard is None else f"shard-{shard[0]}-of-{shard[1]}"
    with journal.writer(name) as writer:
        check_job(restoration, adopt=True)  # another command may have started at the same moment
        done = int(journal.done().sum())
        _create_outputs(restoration, is_resumed=is_resumed, is_recorded=done > 0)
        counted = _Counter(job, progress, done)
        stages = [_Stage(restoration, journal, level, engine or InProcess()) for level in range(len(job.plan.stages))]
        stages[0].do(writer, counted, shard)
        if stages[0].missing():
            if shard is None:
                raise RunError("an engine left tasks unfinished without an error; rerun the command")
            return []
        try:
            # Several shards may find that everything is done; only one of them finishes the work.
            with journal.writer("finish") as finisher:
                for stage in stages[1:]:
                    stage.do(finisher, counted)
                if restoration.is_store:
                    check_stores(restoration)
                else:
                    _copy_out(restoration)
        except JournalInUseError:
            return []
    if not restoration.is_store:
        discard(restoration.journal)
    return list(restoration.files)


class _Stage:
    """The tasks of one level."""

    def __init__(self, restoration: Restoration, journal: Journal, level: int, engine: Engine) -> None:
        self.job, self.folder = restoration.job, restoration.journal
        self.journal, self.level, self.engine = journal, level, engine
        self.numbers = self.job.plan.stages[level]

    def missing(self) -> list[int]:
        """Numbers of the tasks that the journal does not contain."""
        undone = ~self.journal.done()[self.numbers.start : self.numbers.stop]
        return [int(number) for number in np.flatnonzero(undone) + self.numbers.start]

    def do(self, writer: Writer, counted: "_Counter", shard: tuple[int, int] | None = None) -> None:
        """Run the missing tasks, or a shard's part of them."""
        missing = [number for number in self.missing() if shard is None or number % shard[1] == shard[0]]
        failed: list[Outcome] = []
        recorded: list[int] = []
        # Starting workers would take longer than averaging a few pixels here.
        engine = self.engine if self.level == 0 or len(missing) > _FEW else InProcess()
        for outcome in engine.run(self.job, missing, counted.call):
            if outcome.error is not None:
                failed.append(outcome)
                if outcome.is_fatal:
                    break
                continue
            writer.record(outcome.number, outcome.checksum)
            recorded.append(outcome.number)
            counted.add(outcome, self.level)
            if 0 < outcome.batch < self.job.batch:
                _note_memory(self.job, self.folder, outcome)
        if recorded and self.level == 0:
            self._confirm(writer, recorded)
        if failed:
            raise _failure(failed, self.job.plan)

    def _confirm(self, writer: Writer, recorded: Sequence[int]) -> None:
        """Check the input once more, and take back the chunks restored from it if it has changed."""
        try:
            Watch(self.job.source, self.job.source_identity)
        except ReplacedInputError:
            writer.take_back(recorded)
            raise


def verify(restoration: Restoration, note: Callable[[str], None] | None = None) -> list[int]:
    """Find recorded tasks whose chunks differ from the journal or cannot be read; they count as missing from now on.

    Args:
        restoration: From :func:`plan_restoration`.
        note: Called with a message about anything that an earlier version did not record and that cannot be checked.

    Raises:
        RunError: If there is no journal, if it belongs to another job or input, or if it is in use.
    """
    if not (restoration.journal / "job.json").exists():
        raise RunError(f"{restoration.journal} has no job; expected the journal of a restoration; restore it first")
    check_job(restoration, note)
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
        # Once per record: two shards may have done the same task.
        writer.take_back(np.repeat(np.array(wrong, np.int64), journal.times()[wrong]))
    return wrong


def _create_outputs(restoration: Restoration, *, is_resumed: bool = False, is_recorded: bool = False) -> None:
    job = restoration.job
    if not restoration.is_store:
        (restoration.journal / "parts").mkdir(exist_ok=True)
    for number, output in enumerate(job.outputs):
        # An earlier version may have started it, and recorded less.
        begun = begun_output(restoration, number, is_recorded=is_recorded) if is_resumed else None
        OutputImage.create(
            output.place,
            shape=job.with_channels(job.plan.levels[0], job.channels),
            dtype=np.float32,
            axes=job.output_axes,
            pixel_size=restoration.measured.pixel_size,
            chunks=job.with_channels(job.plan.chunk, job.channels),
            num_levels=len(job.plan.levels),
            version=job.ome_zarr,
            metadata=begun or provenance(restoration, output),
        )


def _copy_out(restoration: Restoration) -> None:
    """Copy finished stores into files; after a kill, complete files remain and the rest is copied again."""
    stores = [OutputImage.open(output.place) for output in restoration.job.outputs]
    images = [store.image() for store in stores]
    if restoration.passes_through:
        job, choice = restoration.job, restoration.measured.choice
        images[0] = beside_others(images[0], job.source, axes=job.source_axes, choice=choice)
    scales = _scales(restoration, images) if restoration.is_scaled else [None] * len(stores)
    for store, image, file, scale in zip(stores, images, restoration.files, scales, strict=True):
        if Path(file).exists():
            check_origin(Path(file), store.metadata)  # someone may have put another file there meanwhile
            continue
        stored = image if scale is None else as_stored(image, scale)
        notes = store.metadata if scale is None else {**store.metadata, **scale._asdict()}
        copy_image(stored, file, notes, dtype=restoration.dtype_of(file))


def _scales(restoration: Restoration, images: Sequence[Image]) -> list[Scale]:
    """The scale of each output: one for all that can be compared with the mean, one for what shows uncertainty."""
    is_spread = [output.content in ("std", "schedule") for output in restoration.job.outputs]
    chosen = {
        kind: scale_for(image for image, other in zip(images, is_spread, strict=True) if other == kind)
        for kind in set(is_spread)
    }
    return [chosen[kind] for kind in is_spread]


def _note_memory(job: Job, folder: Path, outcome: Outcome) -> None:
    """Record, in the journal and in the images, that a task needed smaller batches than planned."""
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


def _failure(failed: Sequence[Outcome], plan: Plan) -> SfumatoError:
    fatal = failed[-1].error if failed[-1].is_fatal else None
    if isinstance(fatal, ReplacedInputError):
        return fatal
    kind = RunError if fatal is None else StoppedError
    return kind(
        f"{len(failed)} chunks could not be restored; all others that were tried are done and kept:\n"
        + listed(f"chunk at {plan.task(outcome.number).corner}: {outcome.error}" for outcome in failed)
        + "\nfix the cause and rerun the same command"
    )


def listed(faults: Iterable[str]) -> str:
    """The first faults, one per line, and how many more there are."""
    lines = [f"  {fault}" for fault in faults]
    more = [f"  and {len(lines) - _MOST_LISTED} more"] if len(lines) > _MOST_LISTED else []
    return "\n".join([*lines[:_MOST_LISTED], *more])


class _Counter:
    """Turns outcomes and network calls into progress."""

    def __init__(self, job: Job, progress: Callable[[Progress], None] | None, done: int) -> None:
        self.plan, self.progress = job.plan, progress
        self.calls, self.calls_of_task = 0, max(1, job.num_samples * job.num_steps)
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
        # The outcome reports the last call; a chunk sampled for statistics has more.
        if self.calls < self.calls_of_task:
            self._tell()

    def _tell(self) -> None:
        if self.progress is not None:
            share = self.calls / self.calls_of_task
            self.progress(Progress(self.done, self.plan.num_tasks, self.pixels / 1e6, self.seconds, share))
