"""Run all exact tests on one set of images: rank the pools and compute the p-values."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sfumato.statistics.exchange_test import check, exchange_test, pool
from sfumato.statistics.rank_histogram import central_interval, coverage_scores, member_histograms, rank_scores
from sfumato.statistics.tarp import PROJECTIONS, reference_ranks, tarp_scores

__all__ = ["PoolRanks", "by_images", "p_values", "rank_pools"]

_AT_ONCE = 2**24
_TIES, _PROJECT, _REFER, _PERMUTE = range(4)


class PoolRanks(NamedTuple):
    """Ranks of all members of all pools."""

    histograms: Tensor
    """Histograms of ranks over pixels, shape (N + 1, M, N + 1): member, image, rank."""
    joint: dict[str, Tensor]
    """Ranks of distances to R references, shape (N + 1, M, R), by projection."""


def rank_pools(samples: Tensor, truths: Tensor, *, seed: int = 0) -> PoolRanks:
    r"""Rank the truths among their samples, and every sample among the others.

    Args:
        samples: Shape (N, M, C, \*spatial), N at least 2.
        truths: Shape (M, C, \*spatial).
        seed: Seed of ties, projections and references.
    """
    check(samples, truths)
    ties = _generator(seed, _TIES)
    histograms = by_images(lambda x, y: member_histograms(pool(x, y), ties), samples, truths, dim=1)
    joint = {}
    for place, (name, project) in enumerate(PROJECTIONS.items()):

        def features(x: Tensor, y: Tensor, project: Callable[..., Tensor] = project, place: int = place) -> Tensor:
            # A new generator each time, to get the same projections for every block of images.
            return project(pool(x, y), _generator(seed, _PROJECT, place))

        joint[name] = reference_ranks(
            by_images(features, samples, truths, dim=1).double(), _generator(seed, _REFER, place)
        )
    return PoolRanks(histograms, joint)


def p_values(ranks: PoolRanks, *, level: float = 0.9, seed: int = 0, num_permutations: int = 999) -> dict[str, float]:
    """Exact p-values of coverage, ranks and the joint coverage of each projection, by name.

    Each is uniform from 0 to 1 if the samples are right. They are not independent: before claiming that any of them is
    significant, adjust them with :func:`sfumato.statistics.significance.holm`.

    Args:
        ranks: From :func:`rank_pools`.
        level: Nominal level of the coverage.
        seed: Seed of the permutations.
        num_permutations: No p-value is below about 1 / (num_permutations + 1).
    """
    interval = central_interval(len(ranks.histograms) - 1, level)
    scores = {"coverage": coverage_scores(ranks.histograms, interval), "ranks": rank_scores(ranks.histograms)}
    scores |= {name: tarp_scores(distances) for name, distances in ranks.joint.items()}
    return {
        name: exchange_test(score, _generator(seed, _PERMUTE, place), num_permutations=num_permutations)
        for place, (name, score) in enumerate(scores.items())
    }


def by_images(function: Callable[[Tensor, Tensor], Tensor], samples: Tensor, truths: Tensor, *, dim: int = 0) -> Tensor:
    """Apply a function of samples and truths to blocks of images that fit into memory; join results along ``dim``."""
    part = max(1, _AT_ONCE // samples[:, 0].numel())
    dtype = torch.promote_types(torch.promote_types(samples.dtype, truths.dtype), torch.float32)
    blocks = zip(samples.split(part, 1), truths.split(part), strict=True)
    return torch.cat([function(x.to(dtype), y.to(dtype)) for x, y in blocks], dim)


def _generator(seed: int, *purpose: int) -> torch.Generator:
    """A separate random stream per purpose, none of which can coincide with a caller's samples of the same seed."""
    high, low = np.random.SeedSequence((seed, *purpose)).generate_state(2, np.uint32).tolist()
    return torch.Generator().manual_seed((high << 31) ^ low)
