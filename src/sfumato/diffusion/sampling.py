"""Sample the posterior: from pure noise to samples, in a few network calls.

One loop runs over the noise levels of a :mod:`~sfumato.diffusion.sampling_grid`; the steps between them are taken by
:mod:`~sfumato.diffusion.solvers`.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, get_args

import torch
from torch import Tensor, nn

from sfumato.diffusion.colour import noise_for
from sfumato.diffusion.known import Known
from sfumato.diffusion.model import repeat_batch
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.sampling_grid import LAST_NOISE, SamplingGrid, check_taught, grid_of
from sfumato.diffusion.schedule import Schedule
from sfumato.diffusion.solvers import SOLVERS, WITHOUT_ETA, NoiseLevel, Past, Solver, Step, ended, remembered
from sfumato.system.bounds import whole
from sfumato.system.errors import ImageError, ModelFileError

__all__ = ["Denoiser", "Noise", "sample"]


class Noise(Protocol):
    """Unit normal noise for a numbered step; :class:`~sfumato.diffusion.noise.NoiseField` is one."""

    def __call__(self, step: int, shape: torch.Size, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Noise of the given shape; step 0 is the initial state."""
        ...


class Denoiser(Protocol):
    """A model that can be sampled; :class:`~sfumato.diffusion.model.CVDM` is one."""

    target_channels: int

    def read(self, condition: Tensor) -> Known:
        """What is known before noise is drawn."""
        ...

    def predict(self, noisy: Tensor, log_gamma: Tensor, seen: Tensor) -> Tensor:
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
    grid: SamplingGrid = "log_snr",
    last_noise: float = LAST_NOISE,
    progress: Callable[[int], None] | None = None,
    known: Known | None = None,
) -> Tensor:
    """Sample the posterior of the target given the condition.

    The rate network (and the mean network) runs once, the denoising network ``num_steps`` times. A model in training
    mode is put into evaluation mode meanwhile: nothing random but ``seed`` affects a sample.

    Args:
        model: A trained model.
        condition: The measured image, floating point, finite, shape (B, K, *spatial).
        num_samples: N samples per image; they go through the network together.
        num_steps: Network calls per sample.
        solver: See the table of :mod:`~sfumato.diffusion.solvers`.
        eta: Amount of noise added at each step, from 0 (none: the sample is a function of its initial state) to 1.
        seed: A number, or a :class:`~sfumato.diffusion.noise.NoiseField` to place the condition in a larger image,
            sample set or batch, or any function with its signature; a model with coloured noise colours that of the
            first two.
        clamp: Lowest and highest value of the clean prediction, in units of what is diffused; give the range of the
            data with a margin, or None.
        initial: State at t = 1 to use instead of noise, shape (N, B, C, *spatial).
        grid: ``log_snr``, uniform in the log-SNR of a pixel at the reference rate, or ``uniform`` in t, the paper's.
        last_noise: For the ``log_snr`` grid: -log gamma of the last network call at the reference rate, which is its
            noise variance. A network that was never trained on so little noise leaves it in the samples.
        progress: Called after every network call with ``num_samples``; an exception it raises ends the sampling.
        known: What ``model.read(condition)`` gave, if that was done before.

    Returns:
        Samples of shape (N, B, C, *spatial).

    Raises:
        ValueError: If an argument is not as described, or not what a student was taught.
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
    taught: Sequence[float] | None = getattr(model, "levels", None)
    if taught is not None:
        check_taught(taught, num_steps, solver, eta, taught_solver=getattr(model, "solver", "first_order"))
    _check_condition(condition)
    shape = torch.Size([num_samples, len(condition), model.target_channels, *condition.shape[2:]])
    _check_initial(condition, initial, shape)
    noise = seed if callable(seed) else NoiseField(seed)
    if isinstance(noise, NoiseField):
        noise = noise_for(model, noise)
    draw = functools.partial(noise, shape=shape, dtype=condition.dtype, device=condition.device)
    with _evaluating(model):
        known = known or model.read(condition)
        end = _end(known.schedule, condition)
        fractions = grid_of(known.schedule, condition, num_steps, grid, last_noise, taught=taught)
        seen = repeat_batch(known.seen, num_samples)

        def predict(state: Tensor, level: NoiseLevel) -> Tensor:
            log_gamma = repeat_batch(level.log_gamma, num_samples) if len(end) > 1 else level.log_gamma
            clean = model.predict(state.flatten(0, 1), log_gamma, seen).view(shape)
            if progress is not None:
                progress(num_samples)
            return clean if clamp is None else clean.clamp(*clamp)

        state = draw(0) if initial is None else initial
        now, past = NoiseLevel.at(end * fractions[0]), None
        for number, fraction in enumerate(fractions[1:], start=1):
            clean = predict(state, now)
            step = Step.between(now, NoiseLevel.at(end * fraction), clean, past)
            past = Past(remembered(solver, state, now, clean), step.h)
            state = SOLVERS[solver](state, step, eta, functools.partial(draw, number))
            now = step.after
        return known.target(ended(solver, state, now, predict(state, now)))


@contextlib.contextmanager
def _evaluating(model: Denoiser) -> Iterator[None]:
    """Put every layer into evaluation mode, which disables dropout, and restore each layer's own mode afterwards."""
    layers = [layer for layer in model.modules() if layer.training] if isinstance(model, nn.Module) else []
    try:
        for layer in layers:
            layer.training = False
        yield
    finally:
        for layer in layers:
            layer.training = True


def _end(schedule: Schedule, like: Tensor) -> Tensor:
    """Log gamma at t = 1."""
    end = schedule.log_gamma(like.new_ones(()))
    if not bool((end < 0).all()):
        raise ModelFileError(
            f"log gamma(1) reaches {float(end.max()):.3g}, but noise must remove signal; the schedule is broken (a "
            "PaperSchedule can be): train it further or use LearnedSchedule"
        )
    return end


def _check_settings(
    num_samples: int, num_steps: int, solver: str, eta: float, grid: str, clamp: tuple[float, float] | None
) -> None:
    whole("num_samples", num_samples)
    whole("num_steps", num_steps)
    if solver not in SOLVERS:
        raise ValueError(f"solver is {solver!r}; choose one of {', '.join(SOLVERS)}")
    if grid not in get_args(SamplingGrid):
        raise ValueError(f"grid is {grid!r}; choose one of {', '.join(get_args(SamplingGrid))}")
    if not 0 <= eta <= 1:
        raise ValueError(f"eta is {eta}; give a number from 0 (no added noise) to 1 (ancestral)")
    if solver in WITHOUT_ETA and eta:
        raise ValueError(f"eta is {eta}, but {solver} takes none; leave eta at 0, or choose 2m or first_order")
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
