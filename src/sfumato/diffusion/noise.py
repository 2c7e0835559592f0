r"""Stateless noise: unit normals as a pure function of seed, sample, image, step, channel and global coordinates.

.. math:: \xi = BoxMuller(Philox4x32_{10}(coordinates;\; key(seed, sample, image, step, channel)))

A result therefore does not depend on tiles, batches, workers or restarts: the noise of a crop is the crop of the noise.
Philox is the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). It is
implemented here in torch, since torch's own generator hides its counter and differs between devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.system.bounds import seed_of

__all__ = ["NoiseField", "philox"]

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LANES = 4

Words = tuple[Tensor, ...]


def philox(counter: Sequence[Tensor], key: Sequence[Tensor]) -> Words:
    """Philox4x32-10: four 32-bit words from a counter of four and a key of two, all int64 tensors that broadcast.

    Example:
        >>> zero = torch.zeros((), dtype=torch.int64)
        >>> hex(philox([zero] * 4, [zero] * 2)[0])
        '0x6627e8d5'
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # Products of 32-bit words wrap around in int64, but their bits are right; the masks drop copies of the sign.
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = (product1 >> 32) & _WORD ^ c1 ^ k0, (product0 >> 32) & _WORD ^ c3 ^ k1
        c1, c3 = product1 & _WORD, product0 & _WORD
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


@dataclass(frozen=True)
class NoiseField:
    """Unit normal noise over an unbounded image, addressed by where it is used.

    Attributes:
        seed: Any non-negative integer of up to 64 bits.
        sample: Number of the first posterior sample, so that more can be drawn in later calls.
        image: Number of the first image of a batch, so that a batch can be split.
        origin: Global coordinates of the first pixel, one per spatial axis; all 0 if empty.

    Example:
        >>> whole = NoiseField(seed=1)(0, torch.Size([1, 1, 1, 8, 8]))
        >>> part = NoiseField(seed=1, origin=(2, 3))(0, torch.Size([1, 1, 1, 4, 4]))
        >>> torch.equal(part, whole[..., 2:6, 3:7])
        True
    """

    seed: int
    sample: int = 0
    image: int = 0
    origin: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", seed_of(self.seed))

    def __call__(
        self,
        step: int | Tensor,
        shape: torch.Size,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Noise for one sampling step.

        Args:
            step: Number of the step, or a tensor that holds it; step 0 is the initial state.
            shape: (N, B, C, *spatial), with one to three spatial axes.
            dtype: Of the result.
            device: Of the result.
        """
        spatial = shape[3:]
        origin = self.origin or (0,) * len(spatial)
        if not 1 <= len(spatial) <= 3 or len(origin) != len(spatial):
            raise ValueError(
                f"shape is {tuple(shape)} and origin {origin}; expected (N, B, C, *spatial) with one to three "
                "spatial axes and as many origin coordinates"
            )
        key = self._keys(step, shape, device)
        # One Philox block serves four neighbours along the last axis.
        # Rounded up without negative numbers, whose quotients an exported graph rounds towards 0.
        start, stop = origin[-1] // _LANES, (origin[-1] + spatial[-1] + _LANES - 1) // _LANES
        ends = [(o, o + size) for o, size in zip(origin[:-1], spatial[:-1], strict=True)]
        axes = [
            _axis(first, last, place, len(spatial), device)
            for place, (first, last) in enumerate([*ends, (start, stop)])
        ]
        absent = torch.zeros((), dtype=torch.int64, device=device)
        counter = [*reversed(axes), *[absent] * (_LANES - len(axes))]
        # Half precision could not hold the words: uniform numbers of 0 would give infinite normals.
        normals = _box_muller(philox(counter, key), torch.float64 if dtype == torch.float64 else torch.float32)
        return normals.flatten(-2).narrow(-1, origin[-1] - start * _LANES, spatial[-1]).to(dtype)

    def _keys(self, step: int | Tensor, shape: torch.Size, device: torch.device | str | None) -> Words:
        """One key per (sample, image, channel), from a first pass of Philox under the seed."""
        samples, images, channels = (
            _axis(first, first + size, place, len(shape), device)
            for place, (first, size) in enumerate(zip((self.sample, self.image, 0), shape[:3], strict=True))
        )
        seed = [torch.tensor(word, device=device) for word in (self.seed & _WORD, (self.seed >> 32) & _WORD)]
        return philox([samples, images, torch.as_tensor(step, device=device), channels], seed)[:2]


def _axis(start: int, stop: int, place: int, ndim: int, device: torch.device | str | None) -> Tensor:
    """The numbers of one axis as a tensor that broadcasts along the others."""
    numbers = torch.arange(start, stop, dtype=torch.int64, device=device) & _WORD
    return numbers.reshape([-1 if axis == place else 1 for axis in range(ndim)])


def _box_muller(words: Words, dtype: torch.dtype) -> Tensor:
    """Four normals from four words, stacked along a new last axis."""
    normals = []
    for radial, angular in (words[:2], words[2:]):
        radius = (-2 * _uniform(radial, dtype).log()).sqrt()
        angle = 2 * torch.pi * _uniform(angular, dtype)
        normals += [radius * angle.cos(), radius * angle.sin()]
    return torch.stack(normals, dim=-1)


def _uniform(words: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers in (0, 1], never 0: a word and a half, over 2**32."""
    return words.to(dtype) * 2.0**-32 + 2.0**-33
