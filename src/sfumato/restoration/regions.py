"""Restore regions of an image so that each is part of one sample of the whole."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sfumato.diffusion.noise import NoiseField
from sfumato.models.reach import stride
from sfumato.restoration.conditions import Measured
from sfumato.restoration.frozen_norms import Statistics
from sfumato.restoration.job import Task
from sfumato.restoration.layout import middle
from sfumato.restoration.outputs import Output
from sfumato.restoration.restorer import Restorer

__all__ = ["Regions"]


@dataclass
class Regions:
    """Regions of numbered frames.

    Attributes:
        restorer: The model and how it draws samples.
        measured: The frames.
        seed: Seed of all noise.
        chunk: Size of a region without its halo, one number per spatial axis.
        halo: Pixels beyond it, one number per spatial axis.
        first_image: Number of the first frame, which gives each frame its own noise.
        on_call: As in :meth:`~sfumato.restoration.restorer.Restorer.draws`.
    """

    restorer: Restorer
    measured: Measured
    seed: int
    chunk: tuple[int, ...]
    halo: tuple[int, ...]
    first_image: int = 0
    on_call: Callable[[int], None] | None = None
    _statistics: dict[tuple[int, int], Statistics] = field(default_factory=dict, init=False, repr=False)

    def restore(self, frame: int, task: Task, outputs: Sequence[Output], batch: int) -> list[NDArray[np.float32]]:
        """Restored images (C, *spatial) of a chunk, one for each output, in the units of the targets.

        Args:
            frame: Number of the frame.
            task: Where the chunk is and which region is seen around it; its last axes are the spatial ones.
            outputs: The images to compute.
            batch: Samples that go through the network together.
        """
        ndim = len(self.chunk)
        corner, inner = task.seen_corner[-ndim:], task.inner[-ndim:]
        return self.restorer.summarise(
            self.measured.condition(frame, corner, task.seen_size[-ndim:]),
            self._noise(frame, corner),
            outputs,
            full_scale=self.measured.full_scale,
            inner=(..., *inner),
            alike=partial(self._alike, frame, batch),
            batch=batch,
            on_call=self.on_call,
        )

    @property
    def needs_statistics(self) -> bool:
        """Whether the networks would normalise each region of a frame separately, so that seams would show."""
        sides = zip(self.measured.spatial, self.chunk, strict=True)
        model = self.restorer.model.model
        has_layers = model.draws_samples and Statistics(model).are_needed
        return has_layers and any(whole > part for whole, part in sides)

    def _noise(self, frame: int, corner: Sequence[int]) -> NoiseField:
        return NoiseField(self.seed, image=self.first_image + frame, origin=tuple(corner))

    def _alike(self, frame: int, batch: int) -> contextlib.AbstractContextManager[None]:
        """Give all regions of a frame the statistics of one region, if the network uses any."""
        if not self.needs_statistics:
            return contextlib.nullcontext()
        if (frame, batch) not in self._statistics:
            statistics = Statistics(self.restorer.model.model)
            seen = [c + 2 * h for c, h in zip(self.chunk, self.halo, strict=True)]
            corner, size = middle(self.measured.spatial, seen, stride(self.restorer.model.model))
            condition, noise = self.measured.condition(frame, corner, size), self._noise(frame, corner)
            with statistics.recording():
                self.restorer.draw(condition, noise, batch=batch, on_call=self.on_call)
            self._statistics = {(frame, batch): statistics}
        return self._statistics[frame, batch].applied()
