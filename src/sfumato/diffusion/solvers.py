r"""Solvers: one step from a noise level to the next lower one; each is a short function with its own noise.

With :math:`a = \sqrt\gamma`, :math:`s = \sqrt{1-\gamma}` and half log-SNR :math:`l = \log(a/s)`, a step of
:math:`h = l_1 - l_0` is, per pixel,

.. math:: z_1 = \frac{s_1}{s_0} e^{-\eta^2 h} z_0 - a_1\, expm1(-(1+\eta^2) h)\, D + s_1 \sqrt{-expm1(-2\eta^2 h)}\, \xi

where D is the predicted clean image (``first_order``) or its extrapolation from the last two predictions (``2m``). A
step of any length is exact if the prediction stays at D throughout; the solver's error comes from its variation. The
schedule's drift is diagonal and known in closed form; only the network couples pixels.  [DPM-Solver++]

====================  =====  ==========================================================================
solver                eta    known as
====================  =====  ==========================================================================
first_order           0      DDIM
first_order           1      ancestral sampling, the posterior of [CVDM App. B.2]
2m                    0      DPM-Solver++(2M), the default
2m                    1      SDE-DPM-Solver++(2M)
gaussian              0      2m for what is left over by the exact denoiser of a Gaussian of std 1/2
first_order_gaussian  0      the same without a memory, what students of ``gaussian`` are taught
algorithm2            --     [CVDM Alg. 2]: the same mean, but noise of the larger variance beta_hat
====================  =====  ==========================================================================

For 0 < eta < 1 the family differs from DDIM's own interpolation.

``gaussian`` is for what is diffused by a model with a mean and a scale network: half of unit size at every pixel. With
:math:`\sigma = 1/2` the exact denoiser of such a Gaussian is :math:`D = G z`, :math:`G = a \sigma^2 / (a^2 \sigma^2 +
s^2)`. Writing :math:`D = G z + E` and :math:`w = \sqrt{\sigma^2 a^2 + s^2}`, the flow is linear in z and its integral
closed:

.. math:: z_1 = \frac{w_1}{w_0} z_0 + \frac{w_1}{\sigma} [asinh(\sigma e^{l_1}) - asinh(\sigma e^{l_0})]\, E

So a Gaussian posterior has its exact width after any number of steps; the solver's error comes from the variation of E.
As :math:`\sigma \to 0` it becomes ``2m``.

The last prediction ends a sample: for most solvers it is the sample. ``first_order_gaussian`` may end at a level with
much noise, where a prediction has lost the sample's width; there it goes on along the Gaussian's flow to no noise,
which leads from z to :math:`z\,\sigma / w`, and adds E, so that a single call has the width of a Gaussian posterior,
too.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

__all__ = [
    "SOLVERS",
    "WITHOUT_ETA",
    "Draw",
    "NoiseLevel",
    "Past",
    "Solver",
    "Step",
    "TaughtSolver",
    "algorithm2",
    "ended",
    "first_order",
    "first_order_gaussian",
    "gaussian",
    "remembered",
    "second_order",
]

Solver = Literal["2m", "first_order", "gaussian", "first_order_gaussian", "algorithm2"]
TaughtSolver = Literal["first_order", "first_order_gaussian"]
"""Solvers of students, which remember nothing from step to step."""

WITHOUT_ETA = ("gaussian", "first_order_gaussian", "algorithm2")
"""Solvers that no eta changes."""

_STD = 0.5
"""Standard deviation of what is diffused, where a scale network gives each pixel its own."""


class NoiseLevel(NamedTuple):
    """A noise level per pixel; stored as logarithms, because s spans many orders of magnitude."""

    log_gamma: Tensor
    log_s: Tensor
    half_log_snr: Tensor

    @classmethod
    def at(cls, log_gamma: Tensor) -> "NoiseLevel":
        """The level of a signal variance, given its logarithm."""
        log_s = (-torch.expm1(log_gamma)).log() / 2
        return cls(log_gamma, log_s, log_gamma / 2 - log_s)


class Past(NamedTuple):
    """What a second-order solver remembers of the previous step: see :func:`remembered`, and the step's length."""

    clean: Tensor
    h: Tensor


class Step(NamedTuple):
    """What a solver knows: two noise levels, the clean image predicted at the first, and the past (None at first)."""

    now: NoiseLevel
    after: NoiseLevel
    h: Tensor
    """Rise of the half log-SNR from ``now`` to ``after``."""
    clean: Tensor
    past: Past | None

    @classmethod
    def between(cls, now: NoiseLevel, after: NoiseLevel, clean: Tensor, past: Past | None) -> "Step":
        """The step from ``now`` to ``after``."""
        return cls(now, after, after.half_log_snr - now.half_log_snr, clean, past)


Draw = Callable[[], Tensor]
"""Returns unit noise of the state's shape; called only where noise is added."""


def first_order(state: Tensor, step: Step, eta: float, draw: Draw) -> Tensor:
    """The module's formula with D the predicted clean image."""
    mean = _mean(state, step, eta)
    return mean + step.after.log_s.exp() * (-torch.expm1(-2 * eta**2 * step.h)).sqrt() * draw() if eta > 0 else mean


def second_order(state: Tensor, step: Step, eta: float, draw: Draw) -> Tensor:
    """The module's formula with D extrapolated to the middle of the step; the first step has no past to use."""
    if step.past is not None:
        guess = step.clean + (step.clean - step.past.clean) * (step.h / (2 * step.past.h))
        step = step._replace(clean=guess)
    return first_order(state, step, eta, draw)


def gaussian(state: Tensor, step: Step, eta: float, draw: Draw) -> Tensor:
    """The step that is exact for a Gaussian of half unit size, E extrapolated as in ``2m``; it adds no noise."""
    rest = remembered("gaussian", state, step.now, step.clean)
    if step.past is not None:
        rest = rest + (rest - step.past.clean) * (step.h / (2 * step.past.h))
    now, after = (_width(level) for level in (step.now, step.after))
    angle = [(_STD * level.half_log_snr.exp()).asinh() for level in (step.now, step.after)]
    return after / now * state + after / _STD * (angle[1] - angle[0]) * rest


def first_order_gaussian(state: Tensor, step: Step, eta: float, draw: Draw) -> Tensor:
    """:func:`gaussian` with E as it is predicted."""
    return gaussian(state, step._replace(past=None), eta, draw)


def ended(solver: str, state: Tensor, level: NoiseLevel, clean: Tensor) -> Tensor:
    """The sample, from the last state, its level and the clean image predicted in it."""
    if solver != "first_order_gaussian":
        return clean
    return _STD / _width(level) * state + remembered("gaussian", state, level, clean)


def remembered(solver: str, state: Tensor, level: NoiseLevel, clean: Tensor) -> Tensor:
    """What is extrapolated from step to step: the prediction, or for ``gaussian`` what no Gaussian explains, E."""
    if solver != "gaussian":
        return clean
    return clean - (level.log_gamma / 2).exp() * (_STD / _width(level)) ** 2 * state


def _width(level: NoiseLevel) -> Tensor:
    """Standard deviation of a Gaussian of half unit size, diffused to a level."""
    return (_STD**2 * level.log_gamma.exp() - torch.expm1(level.log_gamma)).sqrt()


def algorithm2(state: Tensor, step: Step, eta: float, draw: Draw) -> Tensor:
    r"""The mean for eta = 1, with noise of variance :math:`\hat\beta = 1 - \gamma_0/\gamma_1`.  [CVDM Alg. 2]"""
    beta_hat = -torch.expm1(step.now.log_gamma - step.after.log_gamma)
    return _mean(state, step, eta=1.0) + beta_hat.sqrt() * draw()


SOLVERS: Mapping[str, Callable[[Tensor, Step, float, Draw], Tensor]] = {
    "2m": second_order,
    "first_order": first_order,
    "gaussian": gaussian,
    "first_order_gaussian": first_order_gaussian,
    "algorithm2": algorithm2,
}
"""Solvers by name: each takes the state, the step, eta and a source of noise, and returns the state after the step."""


def _mean(state: Tensor, step: Step, eta: float) -> Tensor:
    """The module's formula without its noise."""
    keep = (step.after.log_s - step.now.log_s - eta**2 * step.h).exp()
    pull = -(step.after.log_gamma / 2).exp() * torch.expm1(-(1 + eta**2) * step.h)
    return keep * state + pull * step.clean
