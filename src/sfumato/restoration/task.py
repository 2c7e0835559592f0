"""One task of a job, in whatever process: read a region, sample it, write a chunk. Doing it twice changes nothing."""

import functools
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.data.images.output import OutputImage
from sfumato.data.normalize import Normalization
from sfumato.diffusion.posterior import Posterior
from sfumato.diffusion.regression import Regression
from sfumato.models.intervals import Correction
from sfumato.models.model_file import LoadedModel, load
from sfumato.restoration.hint import schedule_map
from sfumato.restoration.in_memory import regress
from sfumato.restoration.intervals import Content, correction_for, sampled_by, summary
from sfumato.restoration.job import Job, Output
from sfumato.restoration.measured import Measured
from sfumato.restoration.plan import Task
from sfumato.restoration.regions import RegionSampler
from sfumato.restoration.watch import ReplacedInputError, Watch
from sfumato.system.errors import ModelFileError, SfumatoError, StorageError

__all__ = ["Outcome", "checksum_of", "run_task"]


class Outcome(NamedTuple):
    """What became of a task."""

    number: int
    checksum: int
    """Of all that it wrote."""
    seconds: float
    error: SfumatoError | None = None
    """Why it failed."""
    batch: int = 0
    """Samples that went through the network together: fewer than planned if memory ran out."""

    @property
    def is_fatal(self) -> bool:
        """Whether others would fail for the same reason."""
        return isinstance(self.error, (StorageError, ModelFileError, ReplacedInputError))


def run_task(
    job: Job,
    number: int,
    device: str = "cpu",
    on_call: Callable[[int], None] | None = None,
    *,
    errand: str = "",
) -> Outcome:
    """Do one task; when this returns without an error, all that it wrote is durable.

    Args:
        job: What to do.
        number: Which part of it.
        device: Where the model should be.
        on_call: As in :func:`~sfumato.restoration.in_memory.draw_blocks`.
        errand: Names the tasks that share an open source. Between two errands the same file may have changed.
    """
    started = time.monotonic()
    try:
        opened = _open(job, device, errand)
        opened.regions.on_call = on_call
        task = job.plan.task(number)
        if task.level:
            checksum, batch = opened.halve(task), job.batch
        else:
            checksum, batch = opened.restore(task)
    except SfumatoError as error:
        return Outcome(number, 0, time.monotonic() - started, error)
    return Outcome(number, checksum, time.monotonic() - started, batch=batch)


def checksum_of(job: Job, number: int) -> int:
    """Of what is stored of a task's chunks; equal to its outcome's if nothing has changed since.

    Raises:
        ImageError: If a chunk cannot be read.
    """
    task = job.plan.task(number)
    corner, size = job.with_channels(task.corner, 0), job.with_channels(task.size, job.channels)
    return _joined([output.checksum(task.level, corner, size) for output in _outputs(job)])


@functools.lru_cache(maxsize=2)
def _outputs(job: Job) -> list[OutputImage]:
    return [OutputImage.open(output.place) for output in job.outputs]


@functools.lru_cache(maxsize=2)
def _open(job: Job, device: str, errand: str) -> "_Opened":
    """Once per process and errand, for many tasks."""
    return _Opened(job, device)


@functools.lru_cache(maxsize=1)
def _model(path: str, sha256: str, device: str) -> LoadedModel:
    """Once per process, for many jobs: those of a folder of images share it.

    Raises:
        ModelFileError: If the file is another than the one that was planned with.
    """
    model = load(path, device=device)
    if model.sha256 != sha256:
        raise ModelFileError(
            f"{path} has the hash {model.sha256[:12]}, but the job was planned with {sha256[:12]}; give every worker "
            "the same file"
        )
    return model


class _Opened:
    def __init__(self, job: Job, device: str) -> None:
        self.job = job
        self.model = _model(job.model, job.model_sha256, device)
        self.watch = Watch(job.source, job.source_identity)
        self.measured = Measured(job.source, self.model, axes=job.source_axes, on_target_grid=job.source_on_target_grid)
        self.outputs = _outputs(job)
        ndim = len(self.measured.axes)
        self.regions = RegionSampler(
            self.measured,
            self.model,
            sampled_by(self.model, job.num_samples, job.num_steps),
            job.seed,
            chunk=job.plan.chunk[-ndim:],
            halo=job.plan.halo[-ndim:],
            first_image=job.first_image,
            tile=job.tile,
        )

    def restore(self, task: Task) -> tuple[int, int]:
        """Write the chunks of a task; its checksum, and how many samples went through the network together."""
        batch = self.job.batch
        while True:
            try:
                written = [
                    self._write(place, task, pixels)
                    for place, pixels in zip(self.outputs, self._restored(task, batch), strict=True)
                ]
                self.watch.check()  # what was written is recorded only if it was read from the planned input
                return _joined(written), batch
            except (MemoryError, RuntimeError) as error:
                if batch == 1 or not _is_out_of_memory(error):
                    raise
                batch = max(1, batch // 2)

    def halve(self, task: Task) -> int:
        """Write the chunks of a task from those of the level before."""
        corner, size = self.job.with_channels(task.corner, 0), self.job.with_channels(task.size, self.job.channels)
        return _joined(
            [output.write(task.level, corner, output.halve(task.level, corner, size)) for output in self.outputs]
        )

    def _restored(self, task: Task, batch: int) -> Iterator[NDArray[np.float32]]:
        """Images of the chunk, shape (C, *spatial), one for each output of the job."""
        job, model = self.job, self.model
        ndim = len(self.measured.axes)
        frame = self._frame(task.corner[:-ndim])
        corner = task.seen_corner[-ndim:]
        condition = self.measured.condition(frame, corner, task.seen_size[-ndim:])
        inner: tuple[Any, ...] = (..., *task.inner[-ndim:])
        target = model.info.target
        if isinstance(model.model, Regression):
            yield self.measured.in_units(target.invert(regress(condition, model, tile=job.tile)[inner], axis=0))
            return
        levels = [output.level for output in job.outputs if output.content == "quantile"]
        posterior = Posterior(job.num_samples, quantiles=levels)
        kept: list[Tensor] = []
        with self.regions.normalised_alike(frame, batch):
            for block in self.regions.draws(condition, frame, corner, batch):
                posterior.add(block[inner])
                if any(output.content == "sample" for output in job.outputs):
                    kept.extend(block[inner])
        found = correction_for(model, self.regions.sampled)
        for output in job.outputs:
            if output.content == "schedule":
                with self.regions.normalised_alike(frame, batch):  # anew: the rate network's calls come first again
                    yield schedule_map(condition, model, tile=job.tile)[inner].numpy()
                continue
            yield self.measured.in_units(_image(output, posterior, kept, target, found))

    def _frame(self, place: Sequence[int]) -> int:
        """Number of a frame in the source, whose axes may have another order than the output's."""
        if not self.measured.frame_axes:
            return 0
        along = dict(zip(self.job.axes, place, strict=False))
        return int(np.ravel_multi_index([along[axis] for axis in self.measured.frame_axes], self.measured.frame_shape))

    def _write(self, output: OutputImage, task: Task, pixels: NDArray[np.float32]) -> int:
        """Write (C, *spatial); axes of frames have length 1 in a chunk, so C may stand before or between them."""
        size = self.job.with_channels(task.size, self.job.channels)
        return output.write(0, self.job.with_channels(task.corner, 0), np.ascontiguousarray(pixels.reshape(size)))


def _image(
    output: Output, posterior: Posterior, kept: list[Tensor], target: Normalization, found: Correction | None
) -> Tensor:
    if output.content == "quantile":
        return target.invert(posterior.quantile(output.level), axis=0)
    if output.content == "sample":
        return target.invert(kept[output.number], axis=0)
    return summary(cast(Content, output.content), posterior, target, found)


def _joined(checksums: Sequence[int]) -> int:
    """One checksum of several, in their order."""
    return zlib.crc32(b"".join(value.to_bytes(4, "little") for value in checksums))


def _is_out_of_memory(error: BaseException) -> bool:
    """CUDA has an error of its own; the CPU's allocator only a text."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)
