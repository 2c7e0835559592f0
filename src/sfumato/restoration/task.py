"""Run one task of a job in any process: read a region, sample it, write a chunk. Rerunning it changes nothing."""

import functools
import time
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.data.images.choice import WHOLE
from sfumato.data.images.output import OutputImage
from sfumato.models.model_file import LoadedModel, load
from sfumato.restoration.conditions import Measured
from sfumato.restoration.job import Job, Task
from sfumato.restoration.regions import Regions
from sfumato.restoration.restorer import Restorer
from sfumato.restoration.watch import ReplacedInputError, Watch
from sfumato.system.device import AUTO, usable_device
from sfumato.system.errors import ModelFileError, SfumatoError, StorageError

__all__ = ["Outcome", "checksum_of", "lend", "run_task"]


_MESSAGES_WITHOUT_MEMORY = ("can't allocate memory", "bad_alloc", "could not create a")
"""The last is oneDNN's, which creates a primitive or a memory object for a convolution and does not say what failed."""


class Outcome(NamedTuple):
    """The outcome of a task."""

    number: int
    checksum: int
    """Checksum of everything it wrote."""
    seconds: float
    error: SfumatoError | None = None
    """Why it failed."""
    batch: int = 0
    """Samples per network call: fewer than planned if memory ran out."""

    @property
    def is_fatal(self) -> bool:
        """Whether other tasks would fail for the same reason."""
        return isinstance(self.error, (StorageError, ModelFileError, ReplacedInputError))


def run_task(
    job: Job,
    number: int,
    device: str = AUTO,
    on_call: Callable[[int], None] | None = None,
    *,
    errand: str = "",
) -> Outcome:
    """Run one task; when it returns without an error, everything it wrote is durable.

    Args:
        job: The job.
        number: Number of the task.
        device: Device for the model.
        on_call: As in :meth:`~sfumato.restoration.restorer.Restorer.draws`.
        errand: Names the tasks that share an open source. The file may have changed between two errands.
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
    """Checksum of the stored chunks of a task; it equals the outcome's if nothing has changed since.

    Raises:
        ImageError: If a chunk cannot be read.
    """
    task = job.plan.task(number)
    return _joined([output.checksum(task.level, *job.box(task)) for output in _outputs(job)])


@functools.lru_cache(maxsize=2)
def _outputs(job: Job) -> list[OutputImage]:
    return [OutputImage.open(output.place) for output in job.outputs]


@functools.lru_cache(maxsize=2)
def _open(job: Job, device: str, errand: str) -> "_Opened":
    """The open job, once per process and errand, for many tasks."""
    return _Opened(job, device)


_models: dict[str, LoadedModel] = {}
"""The last model of this process, by hash: the jobs of a folder of images share it."""


def lend(model: LoadedModel) -> None:
    """Let the tasks of this process use a model that is already loaded."""
    _models.clear()
    _models[model.sha256] = model


def _model(path: str, sha256: str, device: str) -> LoadedModel:
    """The model of a job; loaded if it is not in memory.

    Raises:
        ModelFileError: If the file is not the one that the job was planned with.
    """
    held = _models.get(sha256)
    place = torch.empty(0, device=usable_device(device)).device  # `cuda` stands for one of the GPUs
    if held is not None and next(held.model.parameters()).device == place:
        return held
    model = load(path, device=device)
    if model.sha256 != sha256:
        raise ModelFileError(
            f"{path} has the hash {model.sha256[:12]}, but the job was planned with {sha256[:12]}; give every worker "
            "the same file"
        )
    lend(model)
    return model


class _Opened:
    def __init__(self, job: Job, device: str) -> None:
        self.job = job
        model = _model(job.model, job.model_sha256, device)
        self.watch = Watch(job.source, job.source_identity)
        self.measured = Measured(
            job.source,
            model,
            axes=job.source_axes,
            on_target_grid=job.source_on_target_grid,
            choice=job.source_choice or WHOLE,
        )
        self.outputs = _outputs(job)
        ndim = len(self.measured.axes)
        self.regions = Regions(
            Restorer.of_job(model, job),
            self.measured,
            job.seed,
            chunk=job.plan.chunk[-ndim:],
            halo=job.plan.halo[-ndim:],
            first_image=job.first_image,
        )

    def restore(self, task: Task) -> tuple[int, int]:
        """Write the chunks of a task; return their checksum and the number of samples per network call."""
        batch = self.job.batch
        while True:
            try:
                images = self.regions.restore(self._frame(task), task, self.job.outputs, batch)
                written = [self._write(*each, task) for each in zip(self.outputs, images, strict=True)]
                self.watch.check()  # a chunk is recorded only if it was read from the planned input
                return _joined(written), batch
            except (MemoryError, RuntimeError) as error:
                if batch == 1 or not _is_out_of_memory(error):
                    raise
                batch = max(1, batch // 2)

    def halve(self, task: Task) -> int:
        """Write the chunks of a task, computed from the level before."""
        corner, size = self.job.box(task)
        return _joined(
            [output.write(task.level, corner, output.halve(task.level, corner, size)) for output in self.outputs]
        )

    def _frame(self, task: Task) -> int:
        """Number of a task's frame in the source, whose axes may be ordered differently from the output's."""
        if not self.measured.frame_axes:
            return 0
        along = dict(zip(self.job.axes, task.corner, strict=True))
        return int(np.ravel_multi_index([along[axis] for axis in self.measured.frame_axes], self.measured.frame_shape))

    def _write(self, output: OutputImage, pixels: NDArray[np.float32], task: Task) -> int:
        """Write (C, *spatial); frame axes have length 1 in a chunk, so C may stand before or between them."""
        corner, size = self.job.box(task)
        return output.write(0, corner, np.ascontiguousarray(pixels.reshape(size)))


def _joined(checksums: Sequence[int]) -> int:
    """Combine several checksums, in their order."""
    return zlib.crc32(b"".join(value.to_bytes(4, "little") for value in checksums))


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, or may have: CUDA raises its own error, libraries on a CPU have only messages."""
    own = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return own or any(message in str(error) for message in _MESSAGES_WITHOUT_MEMORY)
