r"""Intervals with a guarantee: find how far a predicted spread must be widened, from images with known truth.

A pixel with prediction m, spread w and truth y is covered by :math:`m \pm \lambda w` if its score
:math:`|y - m| / w \le \lambda`. The risk of an image is the fraction of its pixels that are not. Images are the
exchangeable unit, never pixels; with :math:`\hat R(\lambda)` the mean risk of n calibration images,

* conformal risk control takes the least :math:`\lambda` with :math:`(n \hat R(\lambda) + 1)/(n + 1) \le \alpha`: the
  expected risk of a further image is at most :math:`\alpha` [Angelopoulos et al., ICLR 2024, arXiv:2208.02814];
* RCPS takes the least :math:`\lambda` at which the hypothesis "risk above :math:`\alpha`" is rejected at
  :math:`\delta`: the expected risk is at most :math:`\alpha` for all but a share :math:`\delta` of calibration sets,
  by the p-value

.. math:: p = \min\big(e^{-n\,h(\min(\hat R, \alpha), \alpha)},\; e\,P(Bin(n, \alpha) \le \lceil n \hat R \rceil)\big),
          \qquad h(a, b) = a \ln\tfrac ab + (1 - a) \ln\tfrac{1-a}{1-b}

of Hoeffding and Bentkus [Bates et al., J. ACM 68, 43 (2021), arXiv:2101.02703]. With one pixel per image the first is
split conformal prediction.

With too few images for either, :func:`fit_spread` recalibrates the standard deviation s of the samples linearly,

.. math:: \sigma = a\,s + b, \qquad a, b \ge 0 \text{ minimising } \Big\langle \ln\sigma + \frac{(y - m)^2}{2\sigma^2}
          \Big\rangle

over the pixels of held-out images, each image counting equally, without a guarantee. The likelihood assumes Gaussian
errors; for other errors, :math:`\sigma` is still the root mean square error for a given predicted spread, if that is
linear in s.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "Scores",
    "fit_spread",
    "hoeffding_bentkus",
    "least_factor",
    "num_units_needed",
    "pooled_quantile",
    "rcps",
    "risk_control",
]

Floats = NDArray[np.float32]
_TOLERANCE = 1e-9
"""Tolerance for comparing levels: 1 - 0.9 is not exactly 0.1."""
_NUM_BINS, _LEAST = 256, 1e-12


class Scores:
    """Scores :math:`|y - m| / w` of calibration units, kept sorted.

    Args:
        units: The images of each independent unit, each an array of scores of any shape; 4 bytes per pixel are kept.
            Images of one unit, such as the channels of one field, count equally in its risk.

    Example:
        >>> scores = Scores([[np.array([0.5, 1.0, 1.5, 2.0])], [np.array([0.1, 0.2, 0.3, 0.4])]])
        >>> scores.risk(1.0)
        0.25
    """

    def __init__(self, units: Sequence[Sequence[NDArray[np.floating]]]) -> None:
        if not units or not all(unit and all(image.size for image in unit) for unit in units):
            raise ValueError("a unit without pixels was given; give at least one unit, each with at least one image")
        self._units: list[list[Floats]] = [
            [np.sort(image.astype(np.float32).ravel()) for image in unit] for unit in units
        ]
        if not all(np.isfinite(image[-1]) and image[0] >= 0 for unit in self._units for image in unit):
            raise ValueError(
                "scores must be finite and not negative; leave images with NaN out, and widen a spread of 0"
            )

    def __len__(self) -> int:
        return len(self._units)

    @property
    def largest(self) -> np.float32:
        """The score of the worst pixel; no pixel is missed beyond it."""
        return np.float32(max(image[-1] for unit in self._units for image in unit))

    def risks(self, factor: float | np.float32) -> NDArray[np.float64]:
        """Fraction of the pixels of each unit whose score exceeds a factor, shape (n)."""
        at = np.float32(factor)
        return np.array(
            [
                1 - sum(int(image.searchsorted(at, "right")) / image.size for image in unit) / len(unit)
                for unit in self._units
            ]
        )

    def risk(self, factor: float | np.float32) -> float:
        """Mean over units."""
        return float(self.risks(factor).mean())

    def only(self, chosen: Sequence[int]) -> "Scores":
        """A subset of the units; their pixels are shared, not copied."""
        part = object.__new__(Scores)
        part._units = [self._units[index] for index in chosen]
        return part


def num_units_needed(level: float, delta: float | None = None) -> int:
    r"""The least number of units for which a guarantee is possible.

    For risk control :math:`1/\alpha - 1`, for RCPS (with ``delta``) :math:`\ln\delta / \ln(1 - \alpha)`: fewer units
    are not enough evidence even if no pixel is missed.

    Example:
        >>> num_units_needed(0.9), num_units_needed(0.9, delta=0.1)
        (9, 22)
    """
    alpha = _alpha(level)
    if delta is None:
        return math.ceil(1 / alpha - 1 - _TOLERANCE)
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; give a probability between 0 and 1, such as 0.1")
    return math.ceil(math.log(delta) / math.log1p(-alpha) - _TOLERANCE)


def risk_control(scores: Scores, level: float) -> float:
    """The least factor whose intervals miss, on average over further images, at most 1 - level of the pixels.

    Raises:
        ValueError: If there are fewer units than :func:`num_units_needed`.
    """
    n, alpha = len(scores), _guaranteed_alpha(scores, level)
    return least_factor(scores, lambda risk: (n * risk + 1) / (n + 1) <= alpha + _TOLERANCE)


def rcps(scores: Scores, level: float, delta: float) -> float:
    """The least factor that keeps the risk at most 1 - level, except for a share delta of calibration sets.

    Raises:
        ValueError: If there are fewer units than :func:`num_units_needed`.
    """
    n, alpha = len(scores), _guaranteed_alpha(scores, level, delta)
    return least_factor(scores, lambda risk: hoeffding_bentkus(risk, n, alpha) <= delta + _TOLERANCE)


def pooled_quantile(scores: Scores, level: float) -> float:
    """The least factor that misses at most 1 - level of the given pixels; it guarantees nothing for others."""
    alpha = _alpha(level)
    return least_factor(scores, lambda risk: risk <= alpha + _TOLERANCE)


def least_factor(scores: Scores, is_allowed: Callable[[float], bool]) -> float:
    """The smallest factor whose risk is allowed; if a risk is allowed, every smaller one must be too.

    Found by bisection over 32-bit floats, so it is exact: the risk changes only at scores.
    """
    low, high = 0, int(scores.largest.view(np.uint32))  # bit patterns of positive floats are ordered like the floats
    while low < high:
        middle = (low + high) // 2
        if is_allowed(scores.risk(np.uint32(middle).view(np.float32))):
            high = middle
        else:
            low = middle + 1
    return float(np.uint32(low).view(np.float32))


def hoeffding_bentkus(risk: float, n: int, alpha: float) -> float:
    """P-value of the hypothesis that the expected risk is above alpha, given the mean risk of n units.

    Example:
        >>> round(hoeffding_bentkus(0.0, 22, 0.1), 3)
        0.098
    """
    a = min(risk, alpha)
    divergence = (a * math.log(a / alpha) if a > 0 else 0.0) + (1 - a) * math.log((1 - a) / (1 - alpha))
    hoeffding = math.exp(-n * divergence)
    bentkus = math.e * _binomial_cdf(math.ceil(n * risk - _TOLERANCE), n, alpha)
    return min(1.0, hoeffding, bentkus)


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
    return _maximum_likelihood(*map(torch.from_numpy, _binned(spread, squares, weight / weight.sum())))


def _binomial_cdf(k: int, n: int, p: float) -> float:
    """P(Bin(n, p) <= k), implemented here because scipy is an optional dependency."""
    if k >= n:
        return 1.0
    terms = (
        math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(p) + (n - i) * math.log1p(-p)
        for i in range(k + 1)
    )
    return min(1.0, math.fsum(map(math.exp, terms)))


def _alpha(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; give a coverage between 0 and 1, such as 0.9")
    return 1 - level


def _guaranteed_alpha(scores: Scores, level: float, delta: float | None = None) -> float:
    """The risk that is allowed at a level, if there are enough units to guarantee it."""
    needed = num_units_needed(level, delta)
    if len(scores) < needed:
        raise ValueError(
            f"{len(scores)} units are too few for a guarantee at level {level:g}; at least {needed} are needed"
        )
    return _alpha(level)


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
