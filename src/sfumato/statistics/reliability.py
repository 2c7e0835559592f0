r"""Reliability: is the error large where a large error is predicted?

Pixels are sorted into bins by their predicted standard deviation; in each bin, the predicted root mean square error is
compared with the actual one. The standard deviation of a few samples is itself noisy, and bins chosen by it collect the
pixels where it happens to be small or large: even exact samples would look unreliable. So the first half of the samples
chooses the bin, and the second half, of size n, predicts the error of its own mean:

.. math:: E\,[\tfrac{n+1}{n}\,\mathrm{var}_k x_k \mid \mathrm{bin}] = E\,[(\bar x - y)^2 \mid \mathrm{bin}]

which holds in every bin if the samples are right.
"""

import torch
from torch import Tensor

from sfumato.statistics.exchange_test import check

__all__ = ["reliability"]


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
    n = len(second)
    chosen_by = first.var(0).flatten(1)
    # Counted, not compared with edges, so that bins are equally full even if many values are equal.
    place = torch.empty_like(chosen_by, dtype=torch.int64).flatten()
    place[chosen_by.flatten().argsort(stable=True)] = torch.arange(place.numel(), device=place.device)
    bins = (place * num_bins // place.numel()).view_as(chosen_by)
    predicted = second.var(0).flatten(1).double() * ((n + 1) / n)
    actual = (second.mean(0) - truths).flatten(1).double().square()
    empty = predicted.new_zeros(len(truths), num_bins)
    return (
        empty.scatter_add(1, bins, predicted),
        empty.scatter_add(1, bins, actual),
        empty.scatter_add(1, bins, torch.ones_like(predicted)),
    )
