r"""Draw the sample, patch and time at global step k and batch position i as pure functions of (seed, k, i).

A run therefore has no generator state to save, resumes to the bit from any step, and gives the same result on any
number of ranks. Every epoch visits each sample exactly once, in its own order: a permutation of {0, ..., n-1} computed
for single indices in constant memory, by a Feistel network over pairs (n = a b or a little less) with cycle walking
(Black & Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Order", "permute", "uniform"]

_ROUNDS = 6
_Words = NDArray[np.uint64]
_SAMPLE, _PATCH, _TIME, _FLIP = range(4)
"""Purpose of a random number: numbers for different purposes are independent."""


def _mix(words: _Words) -> _Words:
    """A bijection of 64-bit words that looks random (the finaliser of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _hash(*fields: int | _Words) -> _Words:
    """Hash several words to one 64-bit word, mixing them in turn."""
    state = np.zeros(1, dtype=np.uint64)
    for field in fields:
        word = np.asarray(field if isinstance(field, np.ndarray) else field & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
        state = _mix((state ^ word) + np.uint64(0x9E3779B97F4A7C15))
    return state


def uniform(*fields: int | _Words) -> NDArray[np.float64]:
    """Draw numbers in (0, 1) as a pure function of integers or arrays of integers.

    Example:
        >>> float(uniform(1, 2, 3)[0]) == float(uniform(1, 2, 3)[0])
        True
    """
    return (_hash(*fields) >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54


def permute(
    indices: NDArray[np.int64], size: int, *, seed: int, epoch: int | NDArray[np.int64] = 0
) -> NDArray[np.int64]:
    """Map each index by the permutation of {0, ..., size - 1} given by seed and epoch.

    Args:
        indices: Positions within an epoch, shape (M).
        size: Number of samples.
        seed: Any integer.
        epoch: Number of the epoch: one for all indices, or one per index.

    Example:
        >>> sorted(permute(np.arange(5), 5, seed=0).tolist())
        [0, 1, 2, 3, 4]
    """
    rows = math.isqrt(size - 1) + 1
    columns = -(-size // rows)
    keys = _hash(seed, _SAMPLE, np.broadcast_to(np.asarray(epoch, dtype=np.uint64), indices.shape))
    result = indices.astype(np.uint64)
    outside = np.arange(len(result))
    while len(outside):
        result[outside] = _feistel(result[outside], np.uint64(rows), np.uint64(columns), keys[outside])
        outside = outside[result[outside] >= size]
    return result.astype(np.int64)


def _feistel(values: _Words, rows: np.uint64, columns: np.uint64, keys: _Words) -> _Words:
    """A permutation of {0, ..., rows columns - 1}: each coordinate in turn is shifted by a hash of the other."""
    row, column = values // columns, values % columns
    for number in range(_ROUNDS):
        keys = keys + np.uint64(0x9E3779B97F4A7C15)
        if number % 2:
            column = (column + _mix(keys ^ row) % columns) % columns
        else:
            row = (row + _mix(keys ^ column) % rows) % rows
    return row * columns + column


@dataclass(frozen=True)
class Order:
    """The random draws of a training run.

    Attributes:
        seed: Seed of the run.
        num_samples: Number of samples.
        batch_size: Size of the global batch, over all ranks.
    """

    seed: int
    num_samples: int
    batch_size: int

    def samples(self, step: int, positions: range | None = None) -> NDArray[np.int64]:
        """Sample numbers at a step, for all positions of the global batch or a range of them, shape (b)."""
        places = step * self.batch_size + self._positions(positions)
        epochs, within = np.divmod(places, self.num_samples)
        return permute(within, self.num_samples, seed=self.seed, epoch=epochs)

    def times(self, step: int, positions: range | None = None) -> NDArray[np.float64]:
        """Stratified times in (0, 1): one shared shift, one stratum per position of the global batch, shape (b)."""
        shift = uniform(self.seed, _TIME, step)
        return (self._positions(positions) + shift) / self.batch_size

    def corners(self, step: int, limits: NDArray[np.int64], positions: range | None = None) -> NDArray[np.int64]:
        """Draw the first pixels of patches, uniformly over the positions where a patch fits.

        Args:
            step: Global step.
            limits: Number of positions along each axis, shape (b, axes): image size - patch size + 1.
            positions: Positions in the global batch.

        Returns:
            Corners, shape (b, axes).
        """
        where = self._positions(positions).astype(np.uint64)
        draws = [uniform(self.seed, _PATCH, step, axis, where) for axis in range(limits.shape[1])]
        return np.minimum((np.stack(draws, axis=1) * limits).astype(np.int64), limits - 1)

    def flips(self, step: int, number: int, positions: range | None = None) -> NDArray[np.int64]:
        """Draw which of ``number`` symmetries to apply to each patch, shape (b)."""
        where = self._positions(positions).astype(np.uint64)
        return np.asarray(uniform(self.seed, _FLIP, step, where) * number, dtype=np.int64)

    def _positions(self, positions: range | None) -> NDArray[np.int64]:
        chosen = range(self.batch_size) if positions is None else positions
        return np.arange(chosen.start, chosen.stop, dtype=np.int64)
