r"""Ranks of truths among their samples: uniform from 0 to N if the samples are right.

A histogram that is high at both ends means that the samples are too narrow, one high in the middle that they are too
wide, and a slope that they are biased. The coverage of the interval between two order statistics is a sum of its bins,
so its expectation is known exactly:

.. math:: E\,[x_{(i)} \le y \le x_{(j)}] = \frac{j - i}{N + 1}

A coverage must be compared with this, not with the nominal level.
"""

import torch
from torch import Tensor

from sfumato.statistics.exchange_test import pool_ranks

__all__ = ["central_interval", "coverage_scores", "member_histograms", "polynomials", "rank_scores"]


def member_histograms(members: Tensor, generator: torch.Generator) -> Tensor:
    r"""How often each member of an image's pool takes each rank, over the pixels of the image.

    Args:
        members: Shape (N + 1, M, C, \*spatial), from :func:`sfumato.statistics.exchange_test.pool`.
        generator: Orders ties.

    Returns:
        Fractions, float64, shape (N + 1, M, N + 1): member, image, rank. Member 0 has the rank histograms of the
        truths.
    """
    number, images = members.shape[:2]
    ranks = pool_ranks(members, generator).reshape(number * images, -1)
    row = torch.arange(number * images, device=ranks.device)[:, None] * number
    counts = torch.bincount((ranks + row).flatten(), minlength=number * images * number)
    return counts.reshape(number, images, number).double() / ranks.shape[1]


def central_interval(num_samples: int, level: float) -> tuple[int, int]:
    """Order statistics i < j, counted from 1, of the central interval whose expected coverage is nearest to a level.

    Its expected coverage is (j - i)/(N + 1), with i at least 1.

    Example:
        >>> central_interval(19, 0.9), central_interval(9, 0.9)
        ((1, 19), (1, 9))
    """
    if num_samples < 2:
        raise ValueError(f"an interval between draws needs two of them, got {num_samples}; draw more")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; give one between 0 and 1")
    outside = round((1 - level) / 2 * (num_samples + 1))
    i = min(max(outside, 1), num_samples // 2)
    return i, num_samples + 1 - i


def coverage_scores(histograms: Tensor, interval: tuple[int, int]) -> Tensor:
    """Fraction of pixels inside the interval between two order statistics, with each member as the truth.

    Args:
        histograms: From :func:`member_histograms`, shape (N + 1, M, N + 1).
        interval: i and j, counted from 1.

    Returns:
        Shape (N + 1, M, 1); member 0 has the coverage of the truths.
    """
    i, j = interval
    # With r samples below it, a truth is in [x_(i), x_(j)] if i <= r < j.
    return histograms[..., i:j].sum(-1, keepdim=True)


def polynomials(num_ranks: int, degree: int) -> Tensor:
    """Polynomials of degree 1 to ``degree`` that are orthonormal over the ranks and have mean 0, (num_ranks, degree).

    Tests on them are powerful against smooth departures: slope, width, skewness, weight of the tails.  [Neyman 1937]
    """
    place = torch.linspace(-1, 1, num_ranks, dtype=torch.float64)
    basis, _ = torch.linalg.qr(place[:, None] ** torch.arange(min(degree, num_ranks - 1) + 1))
    table: Tensor = basis[:, 1:] * num_ranks**0.5
    return table


def rank_scores(histograms: Tensor, *, degree: int = 4) -> Tensor:
    """Moments of the rank histogram with each member as the truth, shape (N + 1, M, degree); see :func:`polynomials`.

    Args:
        histograms: From :func:`member_histograms`, shape (N + 1, M, N + 1).
        degree: Number of moments; at most N are used.
    """
    return histograms @ polynomials(histograms.shape[-1], degree).to(histograms)
