"""Make training batches: normalised patches of image pairs, as tensors, for a given global step."""

from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.data.normalize import Normalization
from sfumato.data.order import Order
from sfumato.data.sources import PairSource
from sfumato.system.errors import PairingError

__all__ = ["Batch", "PatchBatches", "check_patch_fits"]


class Batch(NamedTuple):
    """Part of a global batch."""

    condition: Tensor
    """Shape (b, K, *patch)."""
    target: Tensor
    """Shape (b, C, *patch)."""
    t: Tensor
    """Shape (b)."""
    samples: list[int]
    """Numbers of the samples in the source that the patches come from."""


@dataclass(frozen=True)
class PatchBatches:
    """Draw the patches of a global step, as a pure function of (seed, step, position in the global batch).

    Attributes:
        source: The samples.
        order: Decides which samples are drawn, where patches are cut and how they are turned.
        patch: Side of a patch in pixels.
        augment: Whether to flip and rotate patches.
        condition: Normalisation of conditions.
        target: Normalisation of targets.
    """

    source: PairSource
    order: Order
    _: KW_ONLY
    patch: int
    augment: bool
    condition: Normalization
    target: Normalization

    def __post_init__(self) -> None:
        check_patch_fits(self.source, self.patch)

    def __call__(self, step: int, positions: range) -> Batch:
        """Return the patches at the given positions of the global batch."""
        samples = self.order.samples(step, positions)
        sizes = np.array([self.source.spatial(int(sample)) for sample in samples], dtype=np.int64)
        corners = self.order.corners(step, sizes - self.patch + 1, positions)
        turns = self.order.flips(step, 8, positions) if self.augment else np.zeros(len(samples), dtype=np.int64)
        patches = [self._patch(*drawn) for drawn in zip(samples, corners, turns, strict=True)]
        condition, target = (torch.stack(side) for side in zip(*patches, strict=True))
        times = torch.from_numpy(self.order.times(step, positions)).float()
        return Batch(condition, target, times, samples.tolist())

    def _patch(self, sample: int, corner: NDArray[np.int64], turn: int) -> tuple[Tensor, Tensor]:
        sides = self.source.read(int(sample), corner.tolist(), [self.patch] * self.source.ndim)
        condition, target = (
            scaling.of_pixels(_turned(side, int(turn)), axis=0)
            for scaling, side in zip((self.condition, self.target), sides, strict=True)
        )
        if not (bool(condition.isfinite().all()) and bool(target.isfinite().all())):
            raise PairingError(
                f"{self.source.name(int(sample))} has NaN or infinite pixels near {corner.tolist()}; "
                "replace them or leave the image out"
            )
        return condition, target


def check_patch_fits(source: PairSource, patch: int) -> None:
    """Raise PairingError if a sample is smaller than a patch."""
    smallest = source.smallest()
    if min(size := source.spatial(smallest)) < patch:
        raise PairingError(
            f"{source.name(smallest)} has {size} pixels, less than the patch of {patch}; "
            f"set data.patch to {min(size)} or less, or leave the image out"
        )


def _turned(patch: NDArray[np.generic], turn: int) -> NDArray[np.generic]:
    """Apply one of the eight symmetries of the square to the last two axes."""
    patch = np.rot90(patch, turn % 4, axes=(-2, -1))
    return np.flip(patch, -1) if turn >= 4 else patch
