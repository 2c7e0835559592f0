r"""Proper scores of posterior samples, and their predicted against their actual error; one number per image.

.. math:: CRPS = \frac1N\sum_k |x_k - y| - \frac{1}{2N(N-1)}\sum_{k,l} |x_k - x_l|

The factor N - 1 makes the score fair: its expectation does not depend on the number of samples, so methods with
different numbers can be compared. The energy score is the same with the norm of whole images instead of the absolute
value.
[Gneiting & Raftery, J. Am. Stat. Assoc. 102, 359 (2007); Ferro, Q. J. R. Meteorol. Soc. 140, 1917 (2014)]

Reliability: is the error large where a large error is predicted? Pixels are sorted into bins by their predicted
standard deviation; in each bin, the predicted root mean square error is compared with the actual one. The standard
deviation of a few samples is itself noisy, and bins chosen by it collect the pixels where it happens to be small or
large: even exact samples would look unreliable. So the first half of the samples chooses the bin, and the second half,
of size n, predicts the error of its own mean:

.. math:: E\,[\tfrac{n+1}{n}\,\mathrm{var}_k x_k \mid \mathrm{bin}] = E\,[(\bar x - y)^2 \mid \mathrm{bin}]

which holds in every bin if the samples are right.
"""

import torch
from torch import Tensor

from sfumato.statistics.exchange_test import check

__all__ = ["crps", "energy_score", "reliability", "spread_and_error"]


def crps(samples: Tensor, truths: Tensor) -> Tensor:
    r"""Fair continuous ranked probability score, the mean over the pixels of each image, in its units.

    The double sum is computed by sorting: :math:`\sum_{k,l} |x_k - x_l| = 2 \sum_i (2i - N - 1)\, x_{(i)}`.

    Args:
        samples: Shape (N, M, C, \*spatial), N at least 2.
        truths: Shape (M, C, \*spatial).

    Returns:
        Shape (M); lower is better.

    Example:
        >>> crps(torch.tensor([[[[0.0]]], [[[2.0]]]]), torch.tensor([[[1.0]]])).item()
        0.0
    """
    check(samples, truths)
    n = len(samples)
    error = samples - truths
    weights = (2 * torch.arange(1, n + 1, device=error.device) - n - 1).to(error) / (n * (n - 1))
    spread = torch.tensordot(weights, error.sort(0).values, dims=1)
    score: Tensor = error.abs().mean(0) - spread
    return score.flatten(1).mean(1)


def energy_score(samples: Tensor, truths: Tensor) -> Tensor:
    r"""Fair energy score of whole images, with the norm :math:`|v| = (\sum_i v_i^2 / D)^{1/2}` over their D values.

    Args:
        samples: Shape (N, M, C, \*spatial), N at least 2.
        truths: Shape (M, C, \*spatial).

    Returns:
        Shape (M), in the units of the images; lower is better.
    """
    check(samples, truths)
    n = len(samples)
    draws = samples.flatten(2).transpose(0, 1)
    to_truth = torch.linalg.vector_norm(draws - truths.flatten(1)[:, None], dim=-1).mean(1)
    between = torch.cdist(draws, draws, compute_mode="donot_use_mm_for_euclid_dist").sum((1, 2)) / (2 * n * (n - 1))
    score: Tensor = (to_truth - between) / draws.shape[-1] ** 0.5
    return score


def spread_and_error(samples: Tensor, truths: Tensor) -> tuple[Tensor, Tensor]:
    r"""Predicted and actual mean square error of the samples' mean, each (M).

    .. math:: \frac{N+1}{N} \langle \mathrm{var}_k\, x_k \rangle, \qquad \langle (\bar x - y)^2 \rangle

    with the unbiased variance. Their expectations are equal if the samples are right, for any N: the truth is one more
    sample, and the mean of N samples has its own error.

    Args:
        samples: Shape (N, M, C, \*spatial), N at least 2.
        truths: Shape (M, C, \*spatial).
    """
    check(samples, truths)
    predicted, actual = _square_errors(samples, truths)
    return predicted.mean(1), actual.mean(1)


def reliability(samples: Tensor, truths: Tensor, *, num_bins: int = 10) -> tuple[Tensor, Tensor, Tensor]:
    r"""Predicted and actual square errors of each image, by bins of predicted standard deviation.

    Args:
        samples: Shape (N, M, C, \*spatial), N at least 4.
        truths: Shape (M, C, \*spatial).
        num_bins: Number of bins, with equal numbers of pixels over all images.

    Returns:
        Sums of predicted square errors, sums of actual ones and numbers of pixels, float64, each (M, num_bins). Means
        over images come from sums over the first axis.
    """
    check(samples, truths, least=4)
    if num_bins < 1:
        raise ValueError(f"num_bins is {num_bins}; give at least 1")
    first, second = samples[: len(samples) // 2], samples[len(samples) // 2 :]
    chosen_by = first.var(0).flatten(1)
    # Counted, not compared with edges, so that bins are equally full even if many values are equal.
    place = torch.empty_like(chosen_by, dtype=torch.int64).flatten()
    place[chosen_by.flatten().argsort(stable=True)] = torch.arange(place.numel(), device=place.device)
    bins = (place * num_bins // place.numel()).view_as(chosen_by)
    predicted, actual = (errors.double() for errors in _square_errors(second, truths))
    empty = predicted.new_zeros(len(truths), num_bins)
    return (
        empty.scatter_add(1, bins, predicted),
        empty.scatter_add(1, bins, actual),
        empty.scatter_add(1, bins, torch.ones_like(predicted)),
    )


def _square_errors(samples: Tensor, truths: Tensor) -> tuple[Tensor, Tensor]:
    """Predicted and actual square error of the samples' mean at each pixel, each (M, pixels)."""
    n = len(samples)
    predicted = samples.var(0) * ((n + 1) / n)
    return predicted.flatten(1), (samples.mean(0) - truths).square().flatten(1)
