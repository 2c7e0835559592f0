"""Samples of regions of an image, such that each is the part of one sample of the whole."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from sfumato.diffusion.noise import NoiseField
from sfumato.models.intervals import Sampled
from sfumato.models.model_file import LoadedModel
from sfumato.restoration.frozen_norms import Statistics
from sfumato.restoration.in_memory import draw_blocks
from sfumato.restoration.layout import stride
from sfumato.restoration.measured import Measured

__all__ = ["RegionSampler"]


@dataclass
class RegionSampler:
    """Draws of regions of numbered frames.

    Attributes:
        measured: The frames.
        model: From :func:`sfumato.load`.
        sampled: How to draw.
        seed: Of all noise.
        chunk: Size of a region without its halo, one number per spatial axis.
        halo: Pixels beyond it, one number per spatial axis.
        first_image: Number of the first frame, for noise of its own.
        tile: Side of the tiles that networks see, or None for a whole region.
        on_call: As in :func:`~sfumato.restoration.in_memory.draw_blocks`.
    """

    measured: Measured
    model: LoadedModel
    sampled: Sampled
    seed: int
    chunk: tuple[int, ...]
    halo: tuple[int, ...]
    first_image: int = 0
    tile: int | None = None
    on_call: Callable[[int], None] | None = None
    _statistics: dict[tuple[int, int], Statistics] = field(default_factory=dict, init=False, repr=False)

    def draws(self, condition: Tensor, frame: int, corner: Sequence[int], batch: int) -> Iterator[Tensor]:
        """Blocks (n, C, *spatial) of draws of a region, still normalised; at most ``batch`` at a time."""
        return draw_blocks(
            condition,
            self.model,
            num_samples=self.sampled.num_samples,
            batch=batch,
            noise=NoiseField(self.seed, image=self.first_image + frame, origin=tuple(corner)),
            num_steps=self.sampled.num_steps,
            tile=self.tile,
            on_call=self.on_call,
        )

    @property
    def needs_statistics(self) -> bool:
        """Whether the networks would normalise every region of a frame by itself, so that seams would show."""
        sides = zip(self.measured.spatial, self.chunk, strict=True)
        return Statistics(self.model.model).are_needed and any(whole > part for whole, part in sides)

    def normalised_alike(self, frame: int, batch: int) -> contextlib.AbstractContextManager[None]:
        """Give all regions of a frame the statistics of one, where the network takes any."""
        if not self.needs_statistics:
            return contextlib.nullcontext()
        if (frame, batch) not in self._statistics:
            statistics = Statistics(self.model.model)
            corner, size = self._middle()
            condition = self.measured.condition(frame, corner, size)
            with statistics.recording():
                for _ in self.draws(condition, frame, corner, batch):
                    pass
            self._statistics = {(frame, batch): statistics}
        return self._statistics[frame, batch].applied()

    def _middle(self) -> tuple[list[int], list[int]]:
        """The region in the middle of a frame that is as large as a chunk with its halo."""
        spatial, grid = self.measured.spatial, stride(self.model.model)
        wanted = [c + 2 * h for c, h in zip(self.chunk, self.halo, strict=True)]
        size = [min(side, most) for side, most in zip(spatial, wanted, strict=True)]
        return [(side - s) // 2 // grid * grid for side, s in zip(spatial, size, strict=True)], size
