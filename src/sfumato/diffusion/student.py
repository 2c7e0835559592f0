r"""Students: models taught to take two steps of their teacher's sampler in one.  [Salimans & Ho 2022]

Without added noise a sample is a function of the first noise, so it can be taught. The teacher's two steps lead from z,
through the solver's extrapolations, to z''. One first-order step of length h leads there too if the clean image is
predicted to be

.. math:: \tilde x = \frac{z'' - (s''/s)\, z}{a'' (1 - e^{-h})}

which is what the student learns, pixel by pixel, so it holds for pixel-wise schedules. A teacher with the solver
``gaussian`` has students that take its steps, too, without a memory: then

.. math:: \tilde x = G z + \sigma\, \frac{z'' / w'' - z / w}{asinh(\sigma e^{l''}) - asinh(\sigma e^l)}

(:mod:`~sfumato.diffusion.solvers` has the letters), and where the posterior is a Gaussian, a student has nothing to
change. The last level has no step to take: there the sample is the teacher's. A student's levels are every second one
of its teacher's, and it is the teacher of the next student, with half as many calls.

The states z are those of the teacher's own samples, not diffused targets: samples of a teacher that is not perfect have
another distribution, and its student has to know its way there. Two calls of the teacher make a lesson, as with
diffused targets, and what a second-order solver remembers of the past is what it remembers when it draws.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sfumato.diffusion import losses
from sfumato.diffusion.gaussian import amplitudes
from sfumato.diffusion.losses import Losses
from sfumato.diffusion.model import CVDM, repeat_batch
from sfumato.diffusion.sampling import Denoiser
from sfumato.diffusion.schedule import Schedule
from sfumato.diffusion.solvers import SOLVERS, NoiseLevel, Past, Solver, Step, TaughtSolver, ended, remembered

__all__ = ["Lesson", "Student", "Teacher", "clean_of_step"]


class Lesson(NamedTuple):
    """What a student learns: the clean image to predict in a noisy one."""

    noisy: Tensor
    """The state before the long step, shape (B, C, *spatial)."""
    log_gamma: Tensor
    """Its level, broadcastable to it."""
    clean: Tensor
    """The prediction with which one step lands where the teacher's two do."""


class Teacher(NamedTuple):
    """A model that can be sampled, and how: with eta 0."""

    model: Denoiser
    levels: Sequence[float]
    """Fractions of log gamma at t = 1 at which it is called, an even number of them."""
    solver: Solver

    def lessons(self, end: Tensor, seen: Tensor, eps: Tensor, solver: TaughtSolver = "first_order") -> list[Lesson]:
        """Draw samples, and turn every two steps on the way into a lesson, one per level of the student.

        Args:
            end: Log gamma at t = 1, shape (B, C, *spatial); any axis may have length 1.
            seen: What the denoising network sees of the condition.
            eps: Where sampling starts, shape (B, C, *spatial).
            solver: Whose single steps the student takes: ``first_order`` or ``first_order_gaussian``.
        """
        levels = [NoiseLevel.at(end * fraction) for fraction in self.levels]
        state, past, lessons = eps, None, list[Lesson]()
        for now, middle, after in zip(levels[:-2:2], levels[1::2], levels[2::2], strict=False):
            halfway = self._walk(state, seen, now, middle, past)
            landed = self._walk(halfway.state, seen, middle, after, halfway.past)
            lessons.append(Lesson(state, now.log_gamma, clean_of_step(state, landed.state, now, after, solver)))
            state, past = landed.state, landed.past
        *_, now, last = levels
        reached = self._walk(state, seen, now, last, past).state
        drawn = ended(self.solver, reached, last, self.model.predict(reached, last.log_gamma, seen))
        clean = drawn - ended(solver, state, now, torch.zeros_like(state))
        return [*lessons, Lesson(state, now.log_gamma, clean)]

    def _walk(self, state: Tensor, seen: Tensor, now: NoiseLevel, after: NoiseLevel, past: Past | None) -> "_Walk":
        clean = self.model.predict(state, now.log_gamma, seen)
        step = Step.between(now, after, clean, past)
        known = Past(remembered(self.solver, state, now, clean), step.h)
        return _Walk(SOLVERS[self.solver](state, step, 0.0, _no_noise), known)


class _Walk(NamedTuple):
    """The state after a step, and what the next step remembers of it."""

    state: Tensor
    past: Past


def clean_of_step(
    state: Tensor, landed: Tensor, now: NoiseLevel, after: NoiseLevel, solver: TaughtSolver = "first_order"
) -> Tensor:
    """The prediction with which one step leads from ``state`` to ``landed``: a step is linear in both."""

    def step(state: Tensor, clean: Tensor) -> Tensor:
        return SOLVERS[solver](state, Step.between(now, after, clean, None), 0.0, _no_noise)

    nothing = torch.zeros_like(state)
    return (landed - step(state, nothing)) / step(nothing, torch.ones_like(state))


class Student(CVDM):
    """A :class:`~sfumato.diffusion.model.CVDM` that is called at few levels and at no others.

    Only its denoising network learns; everything read from the condition is the teacher's.

    Args:
        schedule: As for a CVDM.
        network: As for a CVDM.
        levels: Fractions of log gamma at t = 1 at which the network is called, from 1 downwards.
        solver: Whose single steps it takes: ``first_order`` or ``first_order_gaussian``.
        options: Other arguments of a CVDM; the objective is always ``min_snr``.
    """

    def __init__(
        self,
        schedule: Callable[[Tensor], Schedule],
        network: Callable[[Tensor], Tensor],
        *,
        levels: Sequence[float],
        solver: TaughtSolver = "first_order",
        **options: Any,
    ) -> None:
        super().__init__(schedule, network, **(options | {"objective": "min_snr"}))
        self.levels = tuple(levels)
        self.solver = solver
        self.teacher: Teacher | None = None
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.startswith("network."))

    def loss(self, condition: Tensor, target: Tensor, t: Tensor, eps: Tensor) -> Losses:
        """Error of the velocity that leads where the teacher's two steps lead, under the name ``diffusion``.

        The teacher samples as many images of the batch as give it about as many lessons as the batch has images.

        Args:
            condition: The measured image, shape (B, K, *spatial).
            target: Ignored, shape (B, C, *spatial): a student learns what its teacher draws.
            t: Ignored, shape (B): there is a lesson for every level.
            eps: Unit normal noise, where the samples start, shape of ``target``.
        """
        self._check_batch(condition, target, t, eps)
        eps = eps if self.colour is None else self.colour.of_patches(eps)
        if self.teacher is None:
            raise ValueError("a student has no loss without its teacher; set `teacher`, or train a CVDM")
        number = max(1, len(condition) // len(self.levels))
        with torch.no_grad():
            known = self.read(condition[:number])
            end = known.schedule.log_gamma(condition.new_ones(()))
            lessons = self.teacher.lessons(end, known.seen, eps[:number], self.solver)
        noisy, clean = (torch.cat(images) for images in zip(*((one.noisy, one.clean) for one in lessons), strict=True))
        log_gamma = torch.cat([one.log_gamma.expand_as(one.noisy) for one in lessons])
        error = clean - self.predict(noisy, log_gamma, repeat_batch(known.seen, len(lessons)))
        weight = self._weight(known.schedule, t, log_gamma)
        of_velocity = losses.diffusion(error / amplitudes(log_gamma)[1], weight, self._evened)
        return Losses.of_mean(torch.zeros_like(of_velocity))._replace(diffusion=of_velocity)


def _no_noise() -> Tensor:
    raise AssertionError("a step with eta 0 adds no noise")
