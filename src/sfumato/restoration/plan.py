"""The plan of a restoration: which task writes which chunk, and which region it needs to see.

A plan is arithmetic on a few numbers. No list of tasks is kept, so a plan of 10^6 tasks costs as much as one of ten.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Plan", "Task"]


class Task(NamedTuple):
    """One chunk of one level; positions are in pixels of that level, one number per axis."""

    number: int
    level: int
    """Level 0 is restored; each further level halves the one before."""
    corner: tuple[int, ...]
    """First pixel to write."""
    size: tuple[int, ...]
    seen_corner: tuple[int, ...]
    """First pixel to read: the chunk with its halo, clipped to the image."""
    seen_size: tuple[int, ...]

    @property
    def inner(self) -> tuple[slice, ...]:
        """Position of the chunk within the region that is seen."""
        starts = (c - s for c, s in zip(self.corner, self.seen_corner, strict=True))
        return tuple(slice(start, start + size) for start, size in zip(starts, self.size, strict=True))


@dataclass(frozen=True)
class Plan:
    """The chunks of an image and its pyramid, level by level. Axes that enumerate frames have chunks of 1 and no halo.

    Attributes:
        levels: Size of each level, one number per axis; the first is restored.
        chunk: Size of the region that a task writes.
        halo: Pixels beyond a chunk that the networks see on both sides.

    Example:
        >>> plan = Plan(levels=((100, 100),), chunk=(64, 64), halo=(16, 16))
        >>> plan.num_tasks, plan.task(1).corner, plan.task(1).seen_corner, plan.task(1).seen_size
        (4, (0, 64), (0, 48), (80, 52))
    """

    levels: tuple[tuple[int, ...], ...]
    chunk: tuple[int, ...]
    halo: tuple[int, ...]

    @property
    def num_tasks(self) -> int:
        """Number of tasks of all levels."""
        return self.stages[-1].stop

    @property
    def stages(self) -> list[range]:
        """Task numbers of each level; a level needs all tasks of the one before."""
        stages, start = [], 0
        for level in range(len(self.levels)):
            stop = start + math.prod(self._counts(level))
            stages.append(range(start, stop))
            start = stop
        return stages

    def task(self, number: int) -> Task:
        """The task with a given number.

        Raises:
            IndexError: If the plan has no such task.
        """
        if not 0 <= number < self.num_tasks:
            raise IndexError(f"task {number} was asked of a plan of {self.num_tasks}")
        level, stage = next((level, stage) for level, stage in enumerate(self.stages) if number in stage)
        place, backwards = number - stage.start, []
        for count, chunk in zip(reversed(self._counts(level)), reversed(self.chunk), strict=True):
            place, along = divmod(place, count)
            backwards.append(along * chunk)
        corner, whole = tuple(reversed(backwards)), self.levels[level]
        halo = self.halo if level == 0 else (0,) * len(whole)
        size = tuple(min(chunk, w - c) for chunk, w, c in zip(self.chunk, whole, corner, strict=True))
        start = tuple(max(0, c - h) for c, h in zip(corner, halo, strict=True))
        stop = tuple(min(w, c + s + h) for w, c, s, h in zip(whole, corner, size, halo, strict=True))
        return Task(number, level, corner, size, start, tuple(b - a for a, b in zip(start, stop, strict=True)))

    def _counts(self, level: int) -> list[int]:
        """Number of chunks along each axis."""
        return [-(-whole // chunk) for whole, chunk in zip(self.levels[level], self.chunk, strict=True)]
