r"""Joint calibration: coverage of balls around random points, on projections of the images.

A posterior may be right for every pixel and still wrong about how pixels depend on each other. TARP takes a reference
point and counts how many samples are nearer to it than the truth is: that rank is uniform if the samples are right, and
over all reference points the converse holds too. [Lemos et al., Tests of Accuracy with Random Points, ICML 2023]

Images are projected first, since in many dimensions all distances are alike:

- ``random``: inner products with 64 random directions,
- ``local_means``: means over a grid of at most 64 cells,
- ``band_energies``: logarithms of the energy in 8 bands of spatial frequency, of the deviation from the pool's mean.

Each projection is standardised by the mean and standard deviation over the pool, and references are drawn from a unit
Gaussian there, the same ones for all images. This treats truth and samples alike, so ranks stay uniform, and it places
references where distances show both a shift and a change of width.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from sfumato.statistics.exchange_test import pool_ranks
from sfumato.statistics.rank_histogram import polynomials

__all__ = ["PROJECTIONS", "reference_ranks", "tarp_scores"]

_NUM_DIRECTIONS = 64
_NUM_CELLS = 64
_NUM_BANDS = 8


def _random(members: Tensor, generator: torch.Generator) -> Tensor:
    directions = torch.randn(_NUM_DIRECTIONS, members[0, 0].numel(), generator=generator).to(members)
    return members.flatten(2) @ directions.T


def _local_means(members: Tensor, generator: torch.Generator) -> Tensor:
    axes = members.ndim - 3
    cells = [min(size, round(_NUM_CELLS ** (1 / axes))) for size in members.shape[3:]]
    average: Callable[..., Tensor] = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[axes - 1]
    return average(members.flatten(0, 1), cells).reshape(*members.shape[:2], -1)


def _band_energies(members: Tensor, generator: torch.Generator) -> Tensor:
    axes = tuple(range(3, members.ndim))
    deviation = members - members.mean(0)
    energy = torch.fft.fftn(deviation, dim=axes).abs().square().flatten(3)
    grids = torch.meshgrid(*(torch.fft.fftfreq(size) for size in members.shape[3:]), indexing="ij")
    frequency = torch.stack(grids).square().sum(0).sqrt().flatten()
    band = (frequency * 2 * _NUM_BANDS).long().clamp(max=_NUM_BANDS - 1).to(members.device)
    bands = [energy[..., band == b].mean(-1) for b in range(_NUM_BANDS) if bool((band == b).any())]
    return torch.cat(bands, -1).clamp(min=torch.finfo(energy.dtype).tiny).log()


PROJECTIONS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "random": _random,
    "local_means": _local_means,
    "band_energies": _band_energies,
}
"""Projections by name: pools (N + 1, M, C, \\*spatial) to features (N + 1, M, d); a generator draws random ones."""


def reference_ranks(features: Tensor, generator: torch.Generator, *, num_references: int = 64) -> Tensor:
    r"""Ranks of each member's distance to reference points, among the distances of its pool.

    Args:
        features: Projections of a pool, shape (N + 1, M, d).
        generator: Draws the references, the same ones for all images, and orders ties.
        num_references: R.

    Returns:
        Integers from 0 to N, shape (N + 1, M, R). For the truths, member 0: how many samples are nearer.
    """
    spread = features.std(0)
    centred = features - features.mean(0)
    z = torch.where(spread > 0, centred / spread.where(spread > 0, 1.0), 0.0)
    references = torch.randn(num_references, z.shape[-1], generator=generator).to(z)
    # Terms common to a pool do not change ranks: |z - r|^2 = |z|^2 - 2 z.r + |r|^2.
    distance = z.square().sum(-1, keepdim=True) - 2 * z @ references.T
    return pool_ranks(distance, generator)


def tarp_scores(ranks: Tensor, *, degree: int = 2) -> Tensor:
    """Moments of each reference's ranks and of their mean over references, shape (N + 1, M, (R + sqrt R) degree).

    A shift shows at single references, in one direction or the other; a wrong width shows at all of them alike. So the
    mean over references gets as much weight as sqrt R of them.

    Args:
        ranks: From :func:`reference_ranks`, shape (N + 1, M, R).
        degree: Degree of the rank polynomials.
    """
    single = polynomials(len(ranks), degree).to(ranks.device)[ranks]
    mean = single.mean(2, keepdim=True).expand(-1, -1, math.isqrt(ranks.shape[-1]), -1)
    return torch.cat([single, mean], 2).flatten(2)
