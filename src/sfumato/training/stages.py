"""The stages of a training: the mean network may learn alone first, then the rest learns what it leaves.

A student has a stage for every halving of its teacher's calls.

A run that was finished and then extended has the same stages again in what was added.

A stage is a pure function of the recipe and the step, so a resumed run is in the stage where it was stopped.
"""

import bisect
import math
from dataclasses import dataclass

from sfumato.diffusion.reading import Learns
from sfumato.models.recipe import TrainRecipe
from sfumato.models.student_recipe import StudentRecipe

__all__ = ["Stage", "stage_at", "stages_of"]

_SCALE_SPEED = 5.0
"""Learning rate of a stage in which the scale learns alone, relative to the others: it is a small network."""


@dataclass(frozen=True)
class Stage:
    """Some steps in a row, with a learning rate that rises and falls over them.

    Attributes:
        learns: Networks that learn.
        first: First step.
        steps: Number of steps.
        calls: Network calls of the student that is taught; None in any other training.
        speed: Highest learning rate relative to the recipe's.
        is_added: Whether the run was finished before, and then extended.
    """

    learns: Learns
    first: int
    steps: int
    calls: int | None = None
    speed: float = 1.0
    is_added: bool = False

    def learning_rate(self, settings: TrainRecipe, step: int) -> float:
        """Learning rate of a step, counted from 0: a linear rise, then half a cosine down to 0 at the end."""
        is_whole = self.learns == "all" and not self.is_added
        warmup = settings.warmup if is_whole else min(settings.warmup, self.steps // 10)
        speed = self.speed * (_SCALE_SPEED if self.learns == "scale" else 1)
        place, highest = step - self.first, settings.learning_rate * speed
        if place < warmup:
            return highest * (place + 1) / warmup
        done = (place - warmup) / max(self.steps - warmup, 1)
        return highest * (1 + math.cos(math.pi * min(done, 1))) / 2

    def freezes_statistics(self, step: int) -> bool:
        """Whether batch statistics are frozen: in the second half, and in a student, who keeps its teacher's."""
        return self.calls is not None or 2 * (step - self.first) >= self.steps


def stage_at(settings: TrainRecipe, step: int, student: StudentRecipe | None = None) -> Stage:
    """The stage of a step.

    Example:
        >>> settings = TrainRecipe(steps=100, mean_share=0.4)
        >>> [stage_at(settings, step).learns for step in (0, 39, 40)]
        ['mean', 'mean', 'rest']
        >>> stage_at(TrainRecipe(steps=1, mean_share=0.75), 0).learns
        'all'
    """
    if student is not None:
        return _halving(settings.steps, step, student)
    ends = [*settings.extended_at, settings.steps]
    number = min(bisect.bisect_right(ends, step), len(ends) - 1)
    part = range(ends[number - 1] if number else 0, ends[number])
    learns, inner = _part_of(settings, len(part), step - part.start)
    # As high as at this step of a run that had been given all of these steps at once.
    speed = (1 + math.cos(math.pi * part.start / part.stop)) / 2
    return Stage(learns, part.start + inner.start, len(inner), speed=speed, is_added=part.start > 0)


def _part_of(settings: TrainRecipe, steps: int, step: int) -> tuple[Learns, range]:
    """What learns at a step of a run that is not extended, and the steps in which it does."""
    alone = min(round(settings.mean_share * steps), steps - 1)  # a model needs all of its networks
    if not alone:
        return "all", range(steps)
    if step < alone:
        return "mean", range(alone)
    # The last step is left to the rest.
    until = min(alone + round(settings.scale_share * steps), steps - 1)
    if step < until:
        return "scale", range(alone, until)
    return "rest", range(until, steps)


def stages_of(settings: TrainRecipe) -> list[Stage]:
    """All stages of a training, in order; of an extended one, those of the steps that were added last.

    Example:
        >>> [stage.learns for stage in stages_of(TrainRecipe(steps=100, mean_share=0.4))]
        ['mean', 'rest']
    """
    found = [stage_at(settings, settings.extended_at[-1] if settings.extended_at else 0)]
    while (after := found[-1].first + found[-1].steps) < settings.steps:
        found.append(stage_at(settings, after))
    return found


def _halving(steps: int, step: int, student: StudentRecipe) -> Stage:
    """The stage of a step in which a student of half the calls is taught; all take equally long."""
    number = student.halvings
    borders = [steps * place // number for place in range(number + 1)]
    place = max(place for place in range(number) if borders[place] <= step or not place)
    calls = student.teacher_calls // 2 ** (place + 1)
    return Stage("rest", borders[place], borders[place + 1] - borders[place], calls)
