r"""Linear recalibration of a standard deviation: simple, useful with few images, and without a guarantee.

.. math:: \sigma = a\,s + b, \qquad a, b \ge 0 \text{ minimising } \Big\langle \ln\sigma + \frac{(y - m)^2}{2\sigma^2}
          \Big\rangle

over the pixels of held-out images, each image counting equally. The likelihood assumes Gaussian errors; for other
errors, :math:`\sigma` is still the root mean square error for a given predicted spread, if that is linear in s.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["fit_spread"]

_NUM_BINS = 256
_LEAST = 1e-12


def fit_spread(spreads: Sequence[NDArray[np.floating]], errors: Sequence[NDArray[np.floating]]) -> tuple[float, float]:
    """Scale a and offset b of the standard deviation.

    Args:
        spreads: Predicted standard deviation of every pixel of each image.
        errors: Truth minus mean, of the same shapes.

    Raises:
        ValueError: If there is no pixel, or every error is 0.
    """
    spread = np.concatenate([image.ravel() for image in spreads]).astype(np.float64)
    squares = np.concatenate([image.ravel() for image in errors]).astype(np.float64) ** 2
    weight = np.concatenate([np.full(image.size, 1 / image.size) for image in spreads])
    if spread.size == 0 or not squares.any():
        raise ValueError("no pixel has an error, so no spread can be fitted; give images that were restored")
    predicted, actual, share = _binned(spread, squares, weight / weight.sum())
    return _maximum_likelihood(torch.from_numpy(predicted), torch.from_numpy(actual), torch.from_numpy(share))


def _binned(
    spread: NDArray[np.float64], squares: NDArray[np.float64], weight: NDArray[np.float64]
) -> list[NDArray[np.float64]]:
    """Mean spread, mean square error and weight of pixels with similar spread: all that the likelihood needs."""
    order = np.argsort(spread, kind="stable")
    total = np.cumsum(weight[order])
    bins = np.minimum((total / total[-1] * _NUM_BINS).astype(int), _NUM_BINS - 1)
    share = np.bincount(bins, weight[order], minlength=_NUM_BINS)
    kept = share > 0
    means = [
        np.bincount(bins, weight[order] * v[order], minlength=_NUM_BINS)[kept] / share[kept] for v in (spread, squares)
    ]
    return [*means, share[kept].astype(np.float64)]


def _maximum_likelihood(predicted: Tensor, actual: Tensor, share: Tensor) -> tuple[float, float]:
    scale = float((actual * share).sum().sqrt())
    level = max(float((predicted.square() * share).sum().sqrt()), _LEAST * scale)
    s, squares = predicted / level, actual / scale**2
    # As logarithms, both stay positive; the search starts where both terms have similar size.
    logs = torch.tensor([-0.5, -1.5], dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([logs], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-10)

    def loss() -> Tensor:
        search.zero_grad()
        a, b = logs.exp()
        sigma = a * s + b + _LEAST
        value: Tensor = (share * (sigma.log() + squares / (2 * sigma.square()))).sum()
        value.backward()
        return value

    search.step(loss)
    a, b = logs.detach().exp().tolist()
    return a * scale / level, b * scale
