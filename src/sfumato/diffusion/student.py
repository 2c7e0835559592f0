r"""Students: models taught to take two steps of their teacher's sampler in one.  [Salimans & Ho 2022]

Without added noise a sample is a function of the first noise, so it can be taught. The teacher's two steps lead from z,
through the solver's extrapolations, to z''. One first-order step of length h leads there too if the clean image is
predicted to be

.. math:: \tilde x = \frac{z'' - (s''/s)\, z}{a'' (1 - e^{-h})}

which is what the student learns, pixel by pixel, so it holds for pixel-wise schedules. The last level has no step to
take: there the target is the teacher's final image. A student's levels are every second one of its teacher's, and it is
the teacher of the next student, with half as many calls.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sfumato.diffusion import losses
from sfumato.diffusion.gaussian import amplitudes, diffuse
from sfumato.diffusion.losses import Losses
from sfumato.diffusion.model import CVDM
from sfumato.diffusion.sampling import Denoiser
from sfumato.diffusion.schedule import Schedule
from sfumato.diffusion.solvers import SOLVERS, NoiseLevel, Past, Solver, Step, remembered

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

    def lesson(self, end: Tensor, seen: Tensor, diffused: Tensor, t: Tensor, eps: Tensor) -> Lesson:
        """Take two steps from noisy images, one level per image.

        At the first level the state is pure noise, as in sampling. A second-order solver needs a prediction of the past
        that diffused images lack: they are diffused to the level before, from which one step leads to the first.

        Args:
            end: Log gamma at t = 1, shape (B, C, *spatial); any axis may have length 1.
            seen: What the denoising network sees of the condition.
            diffused: What is diffused, shape (B, C, *spatial).
            t: Numbers in [0, 1] that choose the level, shape (B).
            eps: Unit normal noise, shape of ``diffused``.
        """
        number = len(self.levels) // 2
        first = 2 * (t * number).long().clamp(max=number - 1)
        is_start, is_last = (_per_image(first == place, diffused) for place in (0, 2 * number - 2))
        fractions = torch.tensor(self.levels, dtype=end.dtype, device=end.device)
        before, now, middle, after = (
            NoiseLevel.at(end * _per_image(fractions[(first + ahead).clamp(0, 2 * number - 1)], diffused))
            for ahead in (-1, 0, 1, 2)
        )
        state, past = torch.where(is_start, eps, diffuse(diffused, eps, now.log_gamma)), None
        if self.solver != "first_order":
            start = torch.where(is_start, eps, diffuse(diffused, eps, before.log_gamma))
            walked = self._walk(start, seen, before, now, None)
            state = torch.where(is_start, eps, walked.state)
            past = walked.past._replace(h=torch.where(is_start, math.inf, walked.past.h))  # nothing is extrapolated
        halfway = self._walk(state, seen, now, middle, past)
        landed = self._walk(halfway.state, seen, middle, after, halfway.past)
        clean = torch.where(is_last, landed.clean, clean_of_step(state, landed.state, now, after))
        return Lesson(state, now.log_gamma, clean)

    def _walk(self, state: Tensor, seen: Tensor, now: NoiseLevel, after: NoiseLevel, past: Past | None) -> "_Walk":
        clean = self.model.predict(state, now.log_gamma, seen)
        step = Step.between(now, after, clean, past)
        known = Past(remembered(self.solver, state, now, clean), step.h)
        return _Walk(SOLVERS[self.solver](state, step, 0.0, _no_noise), clean, known)


class _Walk(NamedTuple):
    """The state after a step, and the prediction that led to it."""

    state: Tensor
    clean: Tensor
    past: Past


def clean_of_step(state: Tensor, landed: Tensor, now: NoiseLevel, after: NoiseLevel) -> Tensor:
    r"""The prediction with which one first-order step leads from ``state`` to ``landed``: the module's formula."""
    kept = (after.log_s - now.log_s).exp() * state
    return (landed - kept) / -((after.log_gamma / 2).exp() * torch.expm1(now.half_log_snr - after.half_log_snr))


class Student(CVDM):
    """A :class:`~sfumato.diffusion.model.CVDM` that is called at few levels and at no others.

    Only its denoising network learns; everything read from the condition is the teacher's.

    Args:
        schedule: As for a CVDM.
        network: As for a CVDM.
        levels: Fractions of log gamma at t = 1 at which the network is called, from 1 downwards.
        options: Other arguments of a CVDM; the objective is always ``min_snr``.
    """

    def __init__(
        self,
        schedule: Callable[[Tensor], Schedule],
        network: Callable[[Tensor], Tensor],
        *,
        levels: Sequence[float],
        **options: Any,
    ) -> None:
        super().__init__(schedule, network, **(options | {"objective": "min_snr"}))
        self.levels = tuple(levels)
        self.teacher: Teacher | None = None
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.startswith("network."))

    def loss(self, condition: Tensor, target: Tensor, t: Tensor, eps: Tensor) -> Losses:
        """Error of the velocity that leads where the teacher's two steps lead, under the name ``diffusion``.

        Args:
            condition: The measured image, shape (B, K, *spatial).
            target: The image that is diffused to where the teacher starts, shape (B, C, *spatial).
            t: Numbers in [0, 1] that choose the level, shape (B).
            eps: Unit normal noise, shape of ``target``.
        """
        self._check_batch(condition, target, t, eps)
        if self.teacher is None:
            raise ValueError("a student has no loss without its teacher; set `teacher`, or train a CVDM")
        with torch.no_grad():
            known = self.read(condition)
            end = known.schedule.log_gamma(condition.new_ones(()))
            lesson = self.teacher.lesson(end, known.seen, known.diffused(target), t, eps)
        error = lesson.clean - self.predict(lesson.noisy, lesson.log_gamma, known.seen)
        weight = self._weight(known.schedule, t, lesson.log_gamma)
        of_velocity = losses.diffusion(error / amplitudes(lesson.log_gamma)[1], weight)
        return Losses.of_mean(torch.zeros_like(of_velocity))._replace(diffusion=of_velocity)


def _per_image(values: Tensor, images: Tensor) -> Tensor:
    """Values (B) in a shape that broadcasts to images (B, C, *spatial)."""
    return values.view(-1, *[1] * (images.ndim - 1))


def _no_noise() -> Tensor:
    raise AssertionError("a step with eta 0 adds no noise")
