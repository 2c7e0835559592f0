"""Restore an open image part by part into memory, for viewers that show progress and can stop the work.

A part is restored like a chunk of a file, so a field of an image equals the same field of the restored whole, except
for what the halo leaves out.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.data.images.image import DEFAULT_MEMORY_BUDGET
from sfumato.models.model_file import LoadedModel
from sfumato.models.reach import stride
from sfumato.restoration.conditions import Measured
from sfumato.restoration.intervals import check_fast
from sfumato.restoration.job import Plan, Task
from sfumato.restoration.layout import choose_layout
from sfumato.restoration.outputs import Output
from sfumato.restoration.regions import Regions
from sfumato.restoration.restorer import Index, Restorer
from sfumato.system.errors import ImageError

__all__ = ["FieldOfView", "Parts"]

_CHUNK = {2: 512, 3: 64}
"""Side of a part: small, so that network calls are short and stopping is quick."""
_MEMORY = 2**28

Images = dict[str, NDArray[np.float32]]


class FieldOfView(NamedTuple):
    """A region of some frames, on the target grid."""

    frames: tuple[int, ...]
    corner: tuple[int, ...]
    size: tuple[int, ...]


class Parts:
    """A restoration in memory, of a whole image or of a field.

    Args:
        measured: The image to restore.
        model: From :func:`sfumato.load`.
        num_samples: Samples per frame; by default as in the model's calibration, or 16.
        num_steps: Network calls per sample; by default as in the model's calibration, or the recipe's.
        seed: The same seed gives the same samples.
        field: The field to restore, in one part; by default the whole image.
        keep_samples: Whether to return all samples too.
        fast: Draw no samples, as in :func:`sfumato.restore`.
        memory_budget: Bytes that the results may take.

    Attributes:
        sampled: How the samples are drawn, if any.
        measured: The image.
        regions: How parts of it are restored.
        batch: Samples that go through the network together.
        field: The part that is restored.
        contents: Names of the images: ``mean``, ``std`` (not of a regression), ``low`` and ``high`` (calibrated
            models), ``samples``.
        label: What the interval guarantees.

    Raises:
        ImageError: If the image does not fit the model, or its results do not fit into memory.
    """

    def __init__(
        self,
        measured: Measured,
        model: LoadedModel,
        *,
        num_samples: int | None = None,
        num_steps: int | None = None,
        seed: int = 0,
        field: FieldOfView | None = None,
        keep_samples: bool = False,
        fast: bool = False,
        memory_budget: int = DEFAULT_MEMORY_BUDGET,
    ) -> None:
        restorer = Restorer.of(model, num_samples, num_steps, fast=fast)
        if fast:
            check_fast({"keep_samples": keep_samples})
        self.measured, self._model = measured, model
        self.sampled, self.label = restorer.sampled, restorer.label
        whole = FieldOfView(tuple(range(measured.num_frames)), (0,) * len(measured.spatial), measured.spatial)
        self.field = field or whole
        self._outputs = restorer.available("samples")
        self.contents = tuple(output.content for output in self._outputs)
        if keep_samples and restorer.draws_samples:
            self.contents = (*self.contents, "samples")
            self._outputs += [Output("sample", "", number=number) for number in range(self.sampled.num_samples)]
        needed = 4 * sum(math.prod(self._shape(content)) for content in self.contents)
        if needed > memory_budget:
            raise ImageError(
                f"the results of {measured.name} take {needed / 2**30:.1f} GiB; expected at most "
                f"{memory_budget / 2**30:.1f} GiB; restore the file with `sfumato restore`, which writes to disk, or "
                "keep no samples"
            )
        grid = stride(model.model)
        layout = choose_layout(
            model,
            measured.spatial,
            self.sampled.num_samples,
            self.sampled.num_steps,
            chunk=_CHUNK[len(measured.spatial)] if field is None else -(-max(field.size) // grid) * grid,
            memory=_MEMORY,
        )
        self.batch = layout.batch
        chunk = layout.chunk if field is None else field.size
        restorer = replace(restorer, tile=layout.tile, sampling_halo=layout.sampling_halo)
        self.regions = Regions(restorer, measured, seed, chunk=chunk, halo=(layout.halo,) * len(chunk))

    @property
    def num_calls(self) -> int:
        """Total that ``on_call`` counts up to: network calls times the samples in each."""
        regions = len(self._tasks()) + int(self.regions.needs_statistics)
        return len(self.field.frames) * regions * self.regions.restorer.num_calls

    def restore(self, on_call: Callable[[int], None] | None = None) -> Images:
        """Compute all results: samples of shape (N, frames, C, *size), all others (frames, C, *size).

        Args:
            on_call: Called after every network call with the number of samples in it; an exception it raises ends the
                work.
        """
        self.regions = replace(self.regions, on_call=on_call)
        results = {content: np.empty(self._shape(content), np.float32) for content in self.contents}
        for place, frame in enumerate(self.field.frames):
            for task in self._tasks():
                starts = [c - f for c, f in zip(task.corner, self.field.corner, strict=True)]
                where: Index = (..., *(slice(c, c + s) for c, s in zip(starts, task.size, strict=True)))
                images = self.regions.restore(frame, task, self._outputs, self.batch)
                for output, image in zip(self._outputs, images, strict=True):
                    if output.content == "sample":
                        results["samples"][output.number, place, *where] = image
                    else:
                        results[output.content][place, *where] = image
        return results

    def _shape(self, content: str) -> tuple[int, ...]:
        lead = (self.sampled.num_samples,) if content == "samples" else ()
        return (*lead, len(self.field.frames), self._model.info.target_channels, *self.field.size)

    def _tasks(self) -> list[Task]:
        spatial, halo, field = self.measured.spatial, self.regions.halo, self.field
        if field.size == spatial:
            plan = Plan((spatial,), self.regions.chunk, halo)
            return [plan.task(number) for number in range(plan.num_tasks)]
        # It sees a region that starts on the networks' grid, as chunks of the whole image do.
        return [Task.within(spatial, field.corner, field.size, halo, stride(self._model.model))]
