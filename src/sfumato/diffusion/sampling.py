r"""Samplers: from pure noise to draws of the posterior, in a few network calls.

With :math:`a = \sqrt\gamma`, :math:`s = \sqrt{1-\gamma}` and half log-SNR :math:`l = \log(a/s)`, a step of
:math:`h = l_1 - l_0` is, per pixel,

.. math:: z_1 = \frac{s_1}{s_0} e^{-\eta^2 h} z_0 - a_1\, expm1(-(1+\eta^2) h)\, D + s_1 \sqrt{-expm1(-2\eta^2 h)}\, \xi

where D is the predicted clean image (``first_order``) or its extrapolation from the last two predictions (``2m``). The
step is exact if the prediction stays at D all through it, whatever its length; what varies is the solver's error.
The schedule's drift is diagonal and known in closed form; only the network couples pixels.  [DPM-Solver++]

=============  =====  ==========================================================================
solver         eta    known as
=============  =====  ==========================================================================
first_order    0      DDIM
first_order    1      ancestral sampling, the posterior of [CVDM App. B.2]
2m             0      DPM-Solver++(2M), the default
2m             1      SDE-DPM-Solver++(2M)
algorithm2     --     [CVDM Alg. 2]: the same mean, but noise of the larger variance beta_hat
=============  =====  ==========================================================================

For 0 < eta < 1 the family differs from DDIM's own interpolation.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, Protocol, get_args

import torch
from torch import Tensor, nn

from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.schedule import Schedule
from sfumato.diffusion.warp import Warp, inverse_softplus
from sfumato.system.bounds import whole
from sfumato.system.errors import ImageError, ModelFileError

__all__ = [
    "LAST_NOISE",
    "Denoiser",
    "Grid",
    "Level",
    "Noise",
    "Solver",
    "grid_of",
    "log_snr_grid",
    "sample",
    "step_mean",
    "uniform_grid",
]

Solver = Literal["2m", "first_order", "algorithm2"]
Grid = Literal["log_snr", "uniform"]

LAST_NOISE = 1e-6
"""-log gamma of the last network call at the reference rate: 0.1% of the data's scale, for exact denoisers."""


class Noise(Protocol):
    """Unit normal noise for a numbered step; :class:`~sfumato.diffusion.noise.NoiseField` is one."""

    def __call__(self, step: int, shape: torch.Size, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Noise of the given shape; step 0 is the initial state."""
        ...


class Denoiser(Protocol):
    """What can be sampled from; :class:`~sfumato.diffusion.model.CVDM` is one."""

    target_channels: int
    scale: float

    @property
    def schedule(self) -> Callable[[Tensor], Schedule]:
        """Binds the schedule to a condition."""
        ...

    def center(self, condition: Tensor) -> Tensor | None:
        """What is added back after sampling."""
        ...

    def predict(self, noisy: Tensor, log_gamma: Tensor, condition: Tensor, center: Tensor | None) -> Tensor:
        """The clean image in ``noisy``."""
        ...


@torch.no_grad()
def sample(
    model: Denoiser,
    condition: Tensor,
    *,
    num_samples: int,
    num_steps: int = 32,
    solver: Solver = "2m",
    eta: float = 0.0,
    seed: int | Noise,
    clamp: tuple[float, float] | None = None,
    initial: Tensor | None = None,
    grid: Grid = "log_snr",
    last_noise: float = LAST_NOISE,
    progress: Callable[[int], None] | None = None,
) -> Tensor:
    """Draw from the posterior of the target given the condition.

    The rate network (and the mean network) runs once, the denoising network ``num_steps`` times. A model in training
    mode is put into evaluation mode meanwhile: a draw depends on nothing random but ``seed``.

    Args:
        model: A trained model.
        condition: What was measured, floating point, finite, shape (B, K, *spatial).
        num_samples: N draws per image; they go through the network together.
        num_steps: Network calls per draw.
        solver: See the table above.
        eta: Amount of noise added on the way, from 0 (none: the draw is a function of its initial state) to 1.
        seed: A number, or a :class:`~sfumato.diffusion.noise.NoiseField` to place the condition in a larger image,
            sample set or batch, or any function with its signature.
        clamp: Lowest and highest value of the clean prediction, in units of what is diffused; give the data's range
            with a margin, or None.
        initial: State at t = 1 in place of noise, shape (N, B, C, *spatial).
        grid: ``log_snr``, uniform in the log-SNR of a pixel at the reference rate, or ``uniform`` in t, the paper's.
        last_noise: Of the ``log_snr`` grid: -log gamma of the last network call at the reference rate, which is the
            variance of its noise. A network that was never trained on so little noise leaves it in the draws.
        progress: Called after every network call with ``num_samples``; what it raises ends the sampling.

    Returns:
        Draws of shape (N, B, C, *spatial).

    Raises:
        ValueError: If an argument is not as above.
        ModelFileError: If the schedule does not fall from t = 0 to t = 1, or from step to step of a uniform grid.

    Example:
        >>> from sfumato import CVDM, LearnedSchedule
        >>> from sfumato.nn import UNet
        >>> model = CVDM(LearnedSchedule(UNet(1, 1, base=4)), UNet(3, 1, base=4))
        >>> sample(model, torch.zeros(2, 1, 16, 16), num_samples=3, num_steps=4, seed=0).shape
        torch.Size([3, 2, 1, 16, 16])
    """
    _check_settings(num_samples, num_steps, solver, eta, grid, clamp)
    _check_model(model)
    _check_condition(condition)
    shape = torch.Size([num_samples, len(condition), model.target_channels, *condition.shape[2:]])
    _check_initial(condition, initial, shape)
    with _evaluating(model):
        schedule, center = model.schedule(condition), model.center(condition)
        end, fractions = _path(schedule, condition, num_steps, grid, last_noise)
        noise = seed if callable(seed) else NoiseField(seed)

        def draw(step: int) -> Tensor:
            return noise(step, shape, dtype=condition.dtype, device=condition.device)

        repeated = _repeat(condition, num_samples)
        repeated_center = None if center is None else _repeat(center, num_samples)
        state = draw(0) if initial is None else initial
        now, past = Level.at(end * fractions[0]), None
        for step in range(num_steps):
            log_gamma = _repeat(now.log_gamma, num_samples) if len(end) > 1 else now.log_gamma
            clean = model.predict(state.flatten(0, 1), log_gamma, repeated, repeated_center).view(shape)
            if clamp is not None:
                clean = clean.clamp(*clamp)
            if progress is not None:
                progress(num_samples)
            if step == num_steps - 1:
                break
            after = Level.at(end * fractions[step + 1])
            h = after.half_log_snr - now.half_log_snr
            guess = clean
            if solver == "2m" and past is not None:
                guess = clean + (clean - past.clean) * (h / (2 * past.h))
            state = step_mean(state, guess, now, after, h, 1.0 if solver == "algorithm2" else eta)
            if solver == "algorithm2":
                state = state + (-torch.expm1(now.log_gamma - after.log_gamma)).sqrt() * draw(step + 1)
            elif eta > 0:
                state = state + after.log_s.exp() * (-torch.expm1(-2 * eta**2 * h)).sqrt() * draw(step + 1)
            now, past = after, _Past(clean, h)
    clean = model.scale * clean
    return clean if center is None else center + clean


@contextlib.contextmanager
def _evaluating(model: Denoiser) -> Iterator[None]:
    """Put every layer into evaluation mode, which turns dropout off, and give each its own mode back."""
    layers = [layer for layer in model.modules() if layer.training] if isinstance(model, nn.Module) else []
    try:
        for layer in layers:
            layer.training = False
        yield
    finally:
        for layer in layers:
            layer.training = True


class Level(NamedTuple):
    """A noise level per pixel; logarithms, because s spans many orders of magnitude."""

    log_gamma: Tensor
    log_s: Tensor
    half_log_snr: Tensor

    @classmethod
    def at(cls, log_gamma: Tensor) -> "Level":
        """The level of a signal variance, given its logarithm."""
        log_s = (-torch.expm1(log_gamma)).log() / 2
        return cls(log_gamma, log_s, log_gamma / 2 - log_s)


class _Past(NamedTuple):
    """What the two-step solver remembers of its last step."""

    clean: Tensor
    h: Tensor


def _path(
    schedule: Schedule, condition: Tensor, num_steps: int, grid: Grid, last_noise: float
) -> tuple[Tensor, list[float]]:
    """Log gamma at t = 1 and the fractions of it at which the network is asked."""
    end = schedule.log_gamma(condition.new_ones(()))
    if not bool((end < 0).all()):
        raise ModelFileError(
            f"log gamma(1) reaches {float(end.max()):.3g}, but noise must remove signal; the schedule is broken (a "
            "PaperSchedule can be): train it further or use LearnedSchedule"
        )
    return end, grid_of(schedule, condition, num_steps, grid, last_noise)


def grid_of(
    schedule: Schedule, like: Tensor, num_steps: int, grid: Grid = "log_snr", last_noise: float = LAST_NOISE
) -> list[float]:
    """Fractions of log gamma at t = 1 at which the network is asked, from 1 downwards: the same for any image.

    Args:
        schedule: Bound to any condition.
        like: A tensor of the type and on the device to compute on.
        num_steps: How many.
        grid: As in :func:`sample`.
        last_noise: As there.
    """
    if grid == "log_snr":
        return log_snr_grid(num_steps, schedule.reference_rate, last_noise)
    return uniform_grid(num_steps, schedule.warp, like)


def step_mean(state: Tensor, clean: Tensor, now: Level, after: Level, h: Tensor, eta: float) -> Tensor:
    """The step of the module's formula without its noise."""
    keep = (after.log_s - now.log_s - eta**2 * h).exp()
    pull = -(after.log_gamma / 2).exp() * torch.expm1(-(1 + eta**2) * h)
    return keep * state + pull * clean


def log_snr_grid(num_steps: int, reference_rate: float, last_noise: float = LAST_NOISE) -> list[float]:
    r"""Values of :math:`\rho`, from 1 downwards, whose log-SNR at the reference rate is uniform.

    With rate L: :math:`l_i` uniform from :math:`L\rho = L` to :math:`L\rho` = ``last_noise`` and
    :math:`\rho_i = log1p(e^{-2 l_i}) / L`. The grid depends on a constant of the model, never on the image or the tile.
    """
    if not 0 < last_noise < reference_rate < math.inf:
        raise ValueError(
            f"reference_rate is {reference_rate} and last_noise is {last_noise:g}; give a last noise above 0, and a "
            f"finite rate above {last_noise:g}, the grid's end"
        )
    first, last = inverse_softplus(reference_rate), inverse_softplus(last_noise)  # -2 l: minus the log-SNR
    gaps = max(num_steps - 1, 1)
    levels = [first + (last - first) * step / gaps for step in range(num_steps)]
    return [1.0, *(_softplus(level) / reference_rate for level in levels[1:])]


def uniform_grid(num_steps: int, warp: Warp, like: Tensor) -> list[float]:
    r"""Values of :math:`\rho(t)/\rho(1)` at t = 1, 1 - 1/T, ..., 1/T, the paper's discretisation.  [CVDM Sec. 3.1]

    Raises:
        ModelFileError: If rho does not rise from each of these times to the next.
    """
    t = 1 - torch.arange(num_steps, dtype=like.dtype, device=like.device) / num_steps
    rho: list[float] = warp(t).rho.tolist()
    falls = [before > after for before, after in itertools.pairwise([*rho, 0.0])]
    if not all(falls):
        low, high = (1 - (falls.index(False) + later) / num_steps for later in (1, 0))
        raise ModelFileError(
            f"rho does not rise from t = {low:.3g} to {high:.3g}, so no noise would be removed on the way back; the "
            "schedule is not monotone (a PaperSchedule need not be): use grid='log_snr', train it further or use "
            "LearnedSchedule"
        )
    return [value / rho[0] for value in rho]


def _softplus(value: float) -> float:
    """log(1 + exp(value)), which large values do not overflow."""
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))


def _repeat(images: Tensor, num_samples: int) -> Tensor:
    """Stack ``num_samples`` copies of a batch along the batch axis, in the order of ``state.flatten(0, 1)``."""
    return images.repeat(num_samples, *[1] * (images.ndim - 1))


def _check_settings(
    num_samples: int, num_steps: int, solver: str, eta: float, grid: str, clamp: tuple[float, float] | None
) -> None:
    whole("num_samples", num_samples)
    whole("num_steps", num_steps)
    if solver not in get_args(Solver):
        raise ValueError(f"solver is {solver!r}; choose one of {', '.join(get_args(Solver))}")
    if grid not in get_args(Grid):
        raise ValueError(f"grid is {grid!r}; choose one of {', '.join(get_args(Grid))}")
    if not 0 <= eta <= 1:
        raise ValueError(f"eta is {eta}; give a number from 0 (no added noise) to 1 (ancestral)")
    if solver == "algorithm2" and eta:
        raise ValueError(f"eta is {eta}, but algorithm2 has its own noise; leave eta at 0")
    if clamp is not None and not clamp[0] < clamp[1]:
        raise ValueError(f"clamp is {clamp}; give the lowest value first, then a higher one")


def _check_model(model: Denoiser) -> None:
    if not hasattr(model, "predict"):
        raise ModelFileError(
            f"the model is a {type(model).__name__}, which predicts nothing; expected a CVDM; give the `model` of what "
            "sfumato.load returns"
        )


def _check_condition(condition: Tensor) -> None:
    if not isinstance(condition, Tensor) or not condition.is_floating_point():
        kind = getattr(condition, "dtype", type(condition).__name__)
        raise ImageError(
            f"condition is {kind}; normalise it as in training, to a tensor of floating point, or give the image to "
            "sfumato.restore"
        )
    if condition.ndim < 3 or condition.numel() == 0:
        raise ImageError(f"condition has shape {tuple(condition.shape)}; expected (B, K, *spatial) with pixels in it")
    if not bool(condition.isfinite().all()):
        raise ImageError("condition has NaN or infinite pixels; replace them or leave the image out")


def _check_initial(condition: Tensor, initial: Tensor | None, shape: torch.Size) -> None:
    if initial is not None and (initial.shape, initial.dtype) != (shape, condition.dtype):
        raise ValueError(
            f"initial has shape {tuple(initial.shape)} and is {initial.dtype}; expected {tuple(shape)}, which is "
            f"(num_samples, B, C, *spatial), and {condition.dtype} as the condition"
        )
