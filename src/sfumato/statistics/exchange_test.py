r"""The null hypothesis of calibration, and an exact test of it.

The truth and the samples of image m form a pool of N + 1 members. If the samples come from the posterior, each member
is equally likely to be the truth, whatever the pool holds. So a score :math:`T_{mk}` is computed with each member k in
place of the truth, and the observed scores (k = 0) are compared with those of a random member of each image:

.. math:: S(k_1 \ldots k_M) = \sum_q \frac{\big(\sum_m T_{m k_m q} - \bar T_{mq}\big)^2}{\sum_m \mathrm{var}_k T_{mkq}}

Nothing is assumed about the posterior, or about the pixels of an image, which may depend on each other in any way.
"""

import torch
from torch import Tensor

__all__ = ["check", "exchange_test", "pool", "pool_ranks"]

_AT_ONCE = 2**22


def check(samples: Tensor, truths: Tensor, *, least: int = 2) -> None:
    """Raise ``ValueError`` unless samples (N, M, C, *spatial) and truths (M, C, *spatial) match."""
    if samples.shape[1:] != truths.shape or truths.ndim not in (3, 4, 5):
        raise ValueError(
            f"samples have shape {tuple(samples.shape)} and truths {tuple(truths.shape)}; give samples (N, M, C, "
            "*spatial) and truths (M, C, *spatial) with 1 to 3 spatial axes"
        )
    if truths.numel() == 0:
        raise ValueError(f"truths have shape {tuple(truths.shape)}, which holds nothing; give at least one image")
    if len(samples) < least:
        raise ValueError(f"got {len(samples)} samples per image; this needs at least {least}: draw more")
    if not bool(samples.isfinite().all()) or not bool(truths.isfinite().all()):
        raise ValueError("samples or truths hold values that are not finite; leave those images out")


def pool(samples: Tensor, truths: Tensor) -> Tensor:
    """Truth and samples of each image, the truth first, shape (N + 1, M, C, *spatial)."""
    dtype = torch.promote_types(torch.promote_types(samples.dtype, truths.dtype), torch.float32)
    return torch.cat([truths[None].to(dtype), samples.to(dtype)])


def pool_ranks(members: Tensor, generator: torch.Generator) -> Tensor:
    """Rank of every member of a pool, 0 to N; ties are broken at random, independently at each position.

    Args:
        members: Shape (N + 1, ...).
        generator: Orders ties, on the CPU; not used if there are none.

    Returns:
        Integers, shape (N + 1, ...): how many other members are smaller.
    """
    values = members.movedim(0, -1).contiguous()
    ordered, order = values.sort(-1)
    if bool((ordered[..., 1:] == ordered[..., :-1]).any()):
        shuffle = torch.rand(values.shape, generator=generator).to(values.device).argsort(-1)
        order = shuffle.gather(-1, values.gather(-1, shuffle).argsort(dim=-1, stable=True))
    places = torch.arange(values.shape[-1], device=values.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places).movedim(-1, 0)


def exchange_test(scores: Tensor, generator: torch.Generator, *, num_permutations: int = 999) -> float:
    r"""Probability of a statistic S as large as the observed one, if truths are exchangeable with the samples.

    With B random choices of members, of which G give a larger S than observed and E the same,

    .. math:: p = \frac{G + U (E + 1)}{B + 1}, \qquad U \sim \mathrm{Uniform}(0, 1)

    which is exactly uniform under the null, for any number of images and samples.

    Args:
        scores: :math:`T_{mkq}` with member k as the truth, of Q features, shape (N + 1, M, Q); the truth is k = 0.
        generator: Chooses the members and U, on the CPU.
        num_permutations: B.
    """
    num_members, num_images, num_features = scores.shape
    centred = (scores - scores.mean(0)).double().cpu()
    variance = centred.square().mean(0).sum(0)
    # A feature that is the same for all members, up to rounding, carries no information.
    tells = variance > 1e-18 * scores.double().cpu().square().mean(0).sum(0)
    centred = torch.where(tells, centred / variance.where(tells, 1.0).sqrt(), 0.0)
    chosen = torch.randint(num_members, (num_permutations, num_images), generator=generator)
    images = torch.arange(num_images)
    part = max(1, _AT_ONCE // (num_images * num_features))
    observed = centred[0].sum(0).square().sum()
    null = torch.cat([centred[members, images].sum(1).square().sum(1) for members in chosen.split(part)])
    # Sums of the same numbers may round differently.
    same = (null - observed).abs() <= 1e-12 * observed
    larger = (null > observed) & ~same
    chance = torch.rand((), generator=generator, dtype=torch.float64)
    return float((larger.sum() + chance * (same.sum() + 1)) / (num_permutations + 1))
