r"""Summarise a stream of posterior samples: mean, standard deviation and quantiles without keeping all samples.

Means and squares are merged block by block (Chan, Golub & LeVeque 1983). A quantile needs only the samples between it
and the nearer end: 4 + 4 samples for a 90% interval of 64.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Self

import torch
from torch import Tensor

from sfumato.system.bounds import whole

__all__ = ["Posterior"]


class Posterior:
    r"""Mean, standard deviation and quantiles of a stream of samples.

    The quantile at level q is the order statistic at position :math:`q (N + 1)`, interpolated, so that a further sample
    falls between two quantiles with the probability their levels state: :math:`E\,[coverage\ of\ (x_{(i)}, x_{(j)})] =
    (j - i)/(N + 1)`. Levels beyond the first and last sample give those samples.

    Args:
        num_samples: N, the total number of samples that will be added; determines what must be kept for the quantiles.
        quantiles: Levels between 0 and 1.

    Example:
        >>> posterior = Posterior(4, quantiles=[0.2, 0.8]).add(torch.tensor([[3.0], [1.0], [2.0], [4.0]]))
        >>> posterior.mean.item(), posterior.quantile(0.2).item(), posterior.quantile(0.8).item()
        (2.5, 1.0, 4.0)
    """

    def __init__(self, num_samples: int, *, quantiles: Sequence[float] = ()) -> None:
        if not all(0 < level < 1 for level in quantiles):
            raise ValueError(f"quantiles are {list(quantiles)}; give levels between 0 and 1")
        self.num_samples = num_samples = whole("num_samples", num_samples)
        self.quantiles = tuple(quantiles)
        self.count = 0
        self._mean: Tensor | None = None
        self._squares: Tensor | None = None
        positions = [self._position(level) for level in quantiles]
        middle = (num_samples - 1) / 2
        self._num_low = max((math.ceil(p) + 1 for p in positions if p <= middle), default=0)
        self._num_high = max((num_samples - math.floor(p) for p in positions if p > middle), default=0)
        self._low: Tensor | None = None
        self._high: Tensor | None = None

    @classmethod
    def of(cls, blocks: Iterable[Tensor], num_samples: int, *, quantiles: Sequence[float] = ()) -> Self:
        """Summarise blocks of samples, each (n, ...), ``num_samples`` in total, with one block in memory at a time."""
        posterior = cls(num_samples, quantiles=quantiles)
        for block in blocks:
            posterior.add(block)
        return posterior

    def add(self, samples: Tensor) -> Self:
        """Add a block of samples, shape (n, ...); all blocks must have the same pixels."""
        if not isinstance(samples, Tensor) or not samples.is_floating_point() or samples.ndim < 1:
            raise ValueError(
                f"samples are {getattr(samples, 'dtype', type(samples).__name__)}; expected a floating-point tensor of "
                "shape (n, ...); convert them with torch.as_tensor(samples).float()"
            )
        if self._mean is not None and samples.shape[1:] != self._mean.shape:
            raise ValueError(
                f"samples have shape {tuple(samples.shape)} and those before (n, {str(tuple(self._mean.shape))[1:]}; "
                "add samples of the same pixels"
            )
        added = len(samples)
        if added == 0 or self.count + added > self.num_samples:
            raise ValueError(
                f"got {added} samples after {self.count} of {self.num_samples}; add at least one, at most the announced"
            )
        mean = samples.mean(0)
        squares = (samples - mean).square().sum(0)
        if self._mean is None or self._squares is None:
            self._mean, self._squares = mean, squares
        else:
            total, shift = self.count + added, mean - self._mean
            self._squares = self._squares + squares + shift.square() * (self.count * added / total)
            self._mean = self._mean + shift * (added / total)
        self.count += added
        self._low = _extremes(self._low, samples, self._num_low, largest=False)
        self._high = _extremes(self._high, samples, self._num_high, largest=True)
        return self

    @property
    def mean(self) -> Tensor:
        """Mean of the samples so far, shape (...)."""
        if self._mean is None:
            raise ValueError("no samples yet; add some first")
        return self._mean

    @property
    def std(self) -> Tensor:
        """Standard deviation of the samples so far, from the unbiased variance, shape (...)."""
        if self._squares is None or self.count < 2:
            raise ValueError(f"a standard deviation needs two samples, got {self.count}; add more first")
        return (self._squares / (self.count - 1)).sqrt()

    def quantile(self, level: float) -> Tensor:
        """The quantile at one of the announced levels, after all samples are added, shape (...)."""
        if level not in self.quantiles:
            raise ValueError(f"level {level} was not announced; Posterior(..., quantiles={[*self.quantiles, level]})")
        if self.count != self.num_samples:
            raise ValueError(f"got {self.count} of {self.num_samples} samples; add the others first")
        position = self._position(level)
        below, above = math.floor(position), math.ceil(position)
        return torch.lerp(self._order_statistic(below), self._order_statistic(above), position - below)

    def _position(self, level: float) -> float:
        """Zero-based position of a level among the sorted samples."""
        return min(max(level * (self.num_samples + 1) - 1, 0.0), self.num_samples - 1.0)

    def _order_statistic(self, index: int) -> Tensor:
        if self._low is not None and index < len(self._low):
            return self._low[index]
        assert self._high is not None
        return self._high[self.num_samples - 1 - index]


def _extremes(kept: Tensor | None, samples: Tensor, number: int, *, largest: bool) -> Tensor | None:
    """The ``number`` smallest or largest values seen so far, sorted from the outside in, shape (number, ...)."""
    if number == 0:
        return None
    pool = samples if kept is None else torch.cat([kept, samples])
    return pool.topk(min(number, len(pool)), dim=0, largest=largest).values
