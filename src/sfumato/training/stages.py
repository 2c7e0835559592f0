"""The stages of a training: the mean network may learn alone first, then the rest learns what it leaves.

A stage is a pure function of the recipe and the step, so a resumed run is in the stage where it was stopped.
"""

import math
from dataclasses import dataclass

from sfumato.diffusion.model import Learns
from sfumato.models.recipe import TrainRecipe

__all__ = ["Stage", "stage_at"]


@dataclass(frozen=True)
class Stage:
    """Some steps in a row, with a learning rate that rises and falls over them.

    Attributes:
        learns: Networks that learn.
        first: First step.
        steps: Number of steps.
    """

    learns: Learns
    first: int
    steps: int

    def learning_rate(self, settings: TrainRecipe, step: int) -> float:
        """Learning rate of a step, counted from 0: a linear rise, then half a cosine down to 0 at the end."""
        warmup = settings.warmup if self.learns == "all" else min(settings.warmup, self.steps // 10)
        place = step - self.first
        if place < warmup:
            return settings.learning_rate * (place + 1) / warmup
        done = (place - warmup) / max(self.steps - warmup, 1)
        return settings.learning_rate * (1 + math.cos(math.pi * min(done, 1))) / 2

    def is_second_half(self, step: int) -> bool:
        """Whether a step is in the second half, where batch statistics are frozen."""
        return 2 * (step - self.first) >= self.steps


def stage_at(settings: TrainRecipe, step: int) -> Stage:
    """The stage of a step.

    Example:
        >>> settings = TrainRecipe(steps=100, mean_share=0.4)
        >>> [stage_at(settings, step).learns for step in (0, 39, 40)]
        ['mean', 'mean', 'rest']
    """
    alone = round(settings.mean_share * settings.steps)
    if not alone:
        return Stage("all", 0, settings.steps)
    return Stage("mean", 0, alone) if step < alone else Stage("rest", alone, settings.steps - alone)
