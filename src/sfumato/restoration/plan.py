"""The plan of a restoration: which task writes which chunk, and what it must see to do so.

A plan is arithmetic on a few numbers. No list of tasks is kept, so one of 10^6 costs as much as one of ten.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Plan", "Task"]


class Task(NamedTuple):
    """One chunk of one frame at one resolution; places are in pixels of that resolution."""

    number: int
    level: int
    """0 is restored; each further level halves the one before."""
    frame: int
    corner: tuple[int, ...]
    """First pixel that is written, one number per spatial axis."""
    size: tuple[int, ...]
    seen_corner: tuple[int, ...]
    """First pixel that is read: the chunk with its halo, as far as the image goes."""
    seen_size: tuple[int, ...]

    @property
    def inner(self) -> tuple[slice, ...]:
        """Where the chunk lies in what is seen."""
        starts = (c - s for c, s in zip(self.corner, self.seen_corner, strict=True))
        return tuple(slice(start, start + size) for start, size in zip(starts, self.size, strict=True))


@dataclass(frozen=True)
class Plan:
    """Chunks of all frames, level by level.

    Attributes:
        num_frames: Images that are restored one by one.
        levels: Spatial size of each level; the first is the restored image.
        chunk: Size of what a task writes, one number per spatial axis.
        halo: Pixels beyond a chunk that the networks see on every side.

    Example:
        >>> plan = Plan(num_frames=1, levels=((100, 100),), chunk=(64, 64), halo=16)
        >>> plan.num_tasks, plan.task(1).corner, plan.task(1).seen_corner, plan.task(1).seen_size
        (4, (0, 64), (0, 48), (80, 52))
    """

    num_frames: int
    levels: tuple[tuple[int, ...], ...]
    chunk: tuple[int, ...]
    halo: int

    @property
    def num_tasks(self) -> int:
        """Tasks of all levels."""
        return self.stages[-1].stop

    @property
    def stages(self) -> list[range]:
        """Numbers of the tasks of each level; a level needs all of the one before."""
        stages, start = [], 0
        for level in range(len(self.levels)):
            stop = start + self.num_frames * math.prod(self._counts(level))
            stages.append(range(start, stop))
            start = stop
        return stages

    def task(self, number: int) -> Task:
        """The task of a number."""
        level, stage = next((i, stage) for i, stage in enumerate(self.stages) if number in stage)
        frame, place = divmod(number - stage.start, math.prod(self._counts(level)))
        corner = []
        for count, chunk in zip(reversed(self._counts(level)), reversed(self.chunk), strict=True):
            place, along = divmod(place, count)
            corner.append(along * chunk)
        corner.reverse()
        whole, halo = self.levels[level], self.halo if level == 0 else 0
        size = tuple(min(chunk, w - c) for chunk, w, c in zip(self.chunk, whole, corner, strict=True))
        start = tuple(max(0, c - halo) for c in corner)
        stop = tuple(min(w, c + s + halo) for w, c, s in zip(whole, corner, size, strict=True))
        seen = tuple(b - a for a, b in zip(start, stop, strict=True))
        return Task(number, level, frame, tuple(corner), size, start, seen)

    def pixels(self, stage: int) -> int:
        """Pixels that the tasks of a stage write."""
        return self.num_frames * math.prod(self.levels[stage])

    def _counts(self, level: int) -> list[int]:
        """Chunks along each axis."""
        return [-(-whole // chunk) for whole, chunk in zip(self.levels[level], self.chunk, strict=True)]
