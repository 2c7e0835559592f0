"""The plan of a restoration: which task writes which chunk, and what it must see to do so.

A plan is arithmetic on a few numbers. No list of tasks is kept, so one of 10^6 costs as much as one of ten.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Plan", "Task"]


class Task(NamedTuple):
    """One chunk of one level; places are in pixels of that level, one number per axis."""

    number: int
    level: int
    """0 is restored; each further level halves the one before."""
    corner: tuple[int, ...]
    """First pixel that is written."""
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
    """The chunks of an image and its pyramid, level by level. Axes along which frames lie have chunks of 1 and no halo.

    Attributes:
        levels: Size of each level, one number per axis; the first is what is restored.
        chunk: Size of what a task writes.
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
        """Tasks of all levels."""
        return self.stages[-1].stop

    @property
    def stages(self) -> list[range]:
        """Numbers of the tasks of each level; a level needs all of the one before."""
        stages, start = [], 0
        for level in range(len(self.levels)):
            stop = start + math.prod(self._counts(level))
            stages.append(range(start, stop))
            start = stop
        return stages

    def task(self, number: int) -> Task:
        """The task of a number.

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
        """Chunks along each axis."""
        return [-(-whole // chunk) for whole, chunk in zip(self.levels[level], self.chunk, strict=True)]
