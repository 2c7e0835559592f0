"""The stages of a training: the mean network may learn alone first, then the rest learns what it leaves.

A student has a stage for every halving of its teacher's calls.

A stage is a pure function of the recipe and the step, so a resumed run is in the stage where it was stopped.
"""

import math
from dataclasses import dataclass

from sfumato.diffusion.model import Learns
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
    """

    learns: Learns
    first: int
    steps: int
    calls: int | None = None

    def learning_rate(self, settings: TrainRecipe, step: int) -> float:
        """Learning rate of a step, counted from 0: a linear rise, then half a cosine down to 0 at the end."""
        warmup = settings.warmup if self.learns == "all" else min(settings.warmup, self.steps // 10)
        place, highest = step - self.first, settings.learning_rate * (_SCALE_SPEED if self.learns == "scale" else 1)
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
    alone = min(round(settings.mean_share * settings.steps), settings.steps - 1)  # a model needs all of its networks
    if not alone:
        return Stage("all", 0, settings.steps)
    if step < alone:
        return Stage("mean", 0, alone)
    # The last step is left to the rest.
    until = min(alone + round(settings.scale_share * settings.steps), settings.steps - 1)
    if step < until:
        return Stage("scale", alone, until - alone)
    return Stage("rest", until, settings.steps - until)


def stages_of(settings: TrainRecipe) -> list[Stage]:
    """All stages of a training, in order.

    Example:
        >>> [stage.learns for stage in stages_of(TrainRecipe(steps=100, mean_share=0.4))]
        ['mean', 'rest']
    """
    found = [stage_at(settings, 0)]
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
