"""The section of a recipe that `sfumato distill` writes: whose student a model is, and what it was taught."""

import itertools
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from sfumato.diffusion.sampling_grid import check_taught
from sfumato.diffusion.solvers import TaughtSolver
from sfumato.models.recipe_section import Positive, Section

__all__ = ["StudentRecipe"]

_MOST_CALLS = 1024


class StudentRecipe(Section):
    """Whose student the model is; the file's other sections say the rest. Such a model is sampled as taught."""

    teacher: str = Field(pattern="^[0-9a-f]{64}$")
    """SHA-256 of the teacher's model file."""
    teacher_calls: Positive = Field(le=_MOST_CALLS)
    """Network calls of the teacher, halved again and again until those of the student are left."""
    teacher_solver: Literal["2m", "first_order", "gaussian", "first_order_gaussian"]
    """Solver of the teacher, with eta 0."""
    solver: TaughtSolver = "first_order"
    """Solver whose single steps the student was taught."""
    levels: tuple[float, ...] = Field(min_length=1, max_length=_MOST_CALLS)
    """Fractions of log gamma at t = 1 at which the student's network is called, from 1 downwards."""

    @property
    def calls(self) -> int:
        """Network calls of the student."""
        return len(self.levels)

    @property
    def halvings(self) -> int:
        """How often the calls were halved."""
        return (self.teacher_calls // self.calls).bit_length() - 1

    def check(self, num_steps: int, solver: str, eta: float) -> None:
        """Refuse other ways to sample than the one that was taught; see :func:`check_taught`."""
        check_taught(self.levels, num_steps, solver, eta, taught_solver=self.solver)

    @field_validator("levels")
    @classmethod
    def _fall(cls, levels: tuple[float, ...]) -> tuple[float, ...]:
        if levels[0] != 1 or any(after >= now for now, after in itertools.pairwise([*levels, 0.0])):
            raise ValueError(f"levels are {levels!r:.200}; give 1 first, then falling numbers above 0")
        return levels

    @model_validator(mode="after")
    def _is_halved(self) -> Self:
        if self.halvings < 1 or self.calls * 2**self.halvings != self.teacher_calls:
            raise ValueError(
                f"the student has {self.calls} calls and its teacher {self.teacher_calls}; give the teacher's number "
                "halved once or more, such as 4 for 32"
            )
        return self
