r"""Sampling grids: the noise levels at which the network is called, from pure noise downwards.

A grid is a list of fractions of log gamma at t = 1. It depends only on constants of the model, so it is the same for
all images.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from sfumato.diffusion.schedule import Schedule
from sfumato.diffusion.warp import Warp, inverse_softplus
from sfumato.system.errors import ModelFileError, RecipeError

__all__ = ["LAST_NOISE", "SamplingGrid", "check_taught", "grid_of", "log_snr_grid", "uniform_grid"]

SamplingGrid = Literal["log_snr", "uniform"]

LAST_NOISE = 1e-6
"""-log gamma of the last network call at the reference rate: 0.1% of the data's scale, for exact denoisers."""


def grid_of(
    schedule: Schedule,
    like: Tensor,
    num_steps: int,
    grid: SamplingGrid = "log_snr",
    last_noise: float = LAST_NOISE,
    *,
    taught: Sequence[float] | None = None,
) -> list[float]:
    """Fractions of log gamma at t = 1 at which the network is called, from 1 downwards: the same for any image.

    Args:
        schedule: Bound to any condition.
        like: A tensor with the dtype and device to use.
        num_steps: Number of fractions.
        grid: As in :func:`sfumato.sample`.
        last_noise: As in :func:`sfumato.sample`.
        taught: Levels of a :class:`~sfumato.diffusion.student.Student`, which is called at these.
    """
    if taught is not None:
        return list(taught)
    if grid == "log_snr":
        return log_snr_grid(num_steps, schedule.reference_rate, last_noise)
    return uniform_grid(num_steps, schedule.warp, like)


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


def check_taught(
    levels: Sequence[float], num_steps: int, solver: str, eta: float, *, taught_solver: str = "first_order"
) -> None:
    """Refuse to sample a student in any way but the one that it was taught.

    Args:
        levels: Its levels.
        num_steps: As in :func:`sfumato.sample`.
        solver: As in :func:`sfumato.sample`.
        eta: As in :func:`sfumato.sample`.
        taught_solver: The solver that it was taught.

    Raises:
        RecipeError: If another number of calls, solver or eta was asked for.
    """
    if (num_steps, solver, eta) != (len(levels), taught_solver, 0):
        raise RecipeError(
            f"{num_steps} network calls of the solver {solver} with eta {eta:g} were asked for, but this model is a "
            f"student: it was taught {len(levels)} calls of {taught_solver} with eta 0 and no others; use these, or "
            "sample its teacher"
        )


def _softplus(value: float) -> float:
    """log(1 + exp(value)) without overflow for large values."""
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))
