"""Cells: one training each, of a contender on a problem for some minutes with a seed."""

from dataclasses import dataclass

from sfumato.models.recipe import Recipe
from yardstick.contenders import CONTENDERS, REPEATED
from yardstick.problems import PROBLEMS, Places, recipe_for

__all__ = ["Cell", "cells", "recipe_of"]

_SHORT = 30.0
"""Below these minutes, a contender has its small network."""
_QUICK = 4.0
"""Below these, a small network has the patches with which steps are quick."""


@dataclass(frozen=True)
class Cell:
    """One training: what, on which problem, for how long, with which seed."""

    problem: str
    contender: str
    minutes: float
    seed: int

    @property
    def name(self) -> str:
        """On the command line and as a folder."""
        return f"{self.problem}/{self.contender}/{self.minutes:g}/{self.seed}"

    @property
    def size(self) -> str:
        """Whether the contender has its `full` network here, its `small` one, or that one with `quick` steps."""
        contender = CONTENDERS[self.contender]
        if not (contender.small or contender.presets) or self.minutes >= _SHORT:
            return "full"
        return "quick" if self.minutes < _QUICK and PROBLEMS[self.problem].quick else "small"

    @classmethod
    def named(cls, name: str) -> "Cell":
        """The cell of a name."""
        try:
            problem, contender, minutes, seed = name.split("/")
            found = cls(problem, contender, float(minutes), int(seed))
        except ValueError as error:
            raise ValueError(f"{name!r} names no cell; expected problem/contender/minutes/seed") from error
        if contender not in CONTENDERS or problem not in CONTENDERS[contender].problems:
            raise ValueError(f"nobody called {contender!r} competes on {problem!r}; see per_minute.py --list")
        return found


def recipe_of(cell: Cell, places: Places) -> Recipe:
    """The recipe of a cell, without its number of steps."""
    contender = CONTENDERS[cell.contender]
    short = contender.small if cell.size != "full" else ()
    quick = PROBLEMS[cell.problem].quick if cell.size == "quick" else ()
    preset = contender.presets[cell.size == "full"] if contender.presets else None
    own = (contender.of or {}).get(cell.problem, ())
    settings = (*quick, *contender.settings, *own, *short, f"train.seed={cell.seed}", f"name={cell.contender}")
    return recipe_for(cell.problem, places, settings, preset=preset)


def cells() -> list[Cell]:
    """All cells: first seeds and short trainings first, so that a comparison is there early."""
    found = [
        Cell(problem, name, minutes, seed)
        for name, contender in CONTENDERS.items()
        for problem in contender.problems
        for minutes in contender.budgets
        for seed in range(contender.seeds if minutes in REPEATED else 1)
    ]
    return sorted(found, key=lambda cell: (cell.seed, cell.minutes))
