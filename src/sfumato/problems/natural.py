"""Super-resolution of natural images: pairs of downsampled and original photographs.  [CVDM App. L]

The condition is the photograph downsampled by 4 or 8, with antialiasing, and upsampled again by bicubic interpolation;
the target is the photograph. Both are computed for the whole square, and patches are cut out of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sfumato.data.frames import region, upsample_tensor
from sfumato.data.pixel_hash import PairHashes
from sfumato.data.sources import PairSource
from sfumato.problems.photographs import PhotographPairs, Photographs, open_photographs
from sfumato.problems.request import Request, parameters

__all__ = ["DownsampledPairs", "NaturalSettings", "coarsen", "open_natural"]

Array = NDArray[np.generic]


@dataclass(frozen=True, kw_only=True)
class NaturalSettings:
    """Parameters of the problem.

    Attributes:
        factor: Downsampling factor of the condition; the paper's 64 to 256 pixels correspond to 4.
        side_px: Side of the squares that photographs are resized to.
    """

    factor: int = 4
    side_px: int = 256

    def __post_init__(self) -> None:
        if self.factor < 2 or self.side_px < 1 or self.side_px % self.factor:
            raise ValueError(
                f"factor is {self.factor} and side_px {self.side_px}; give a factor of 2 or more, such as 4 or 8, "
                "that divides the side"
            )


def coarsen(image: Tensor, factor: int) -> Tensor:
    """Downsample an image (..., C, H, W) by ``factor``, a divisor of its sides, and upsample it to its own grid again.

    Example:
        >>> coarsen(torch.ones(1, 3, 16, 16), 4).shape
        torch.Size([1, 3, 16, 16])
    """
    flat = image.reshape(-1, *image.shape[-3:])
    small = F.interpolate(flat, size=[side // factor for side in image.shape[-2:]], mode="bicubic", antialias=True)
    return upsample_tensor(small.clamp(0, 1), (factor, factor)).reshape(image.shape)


class DownsampledPairs(PhotographPairs):
    """Coarse and fine photographs in colour.

    Args:
        photographs: Photographs with 3 channels.
        factor: Downsampling factor of the conditions.
    """

    condition_channels = target_channels = 3

    def __init__(self, photographs: Photographs, factor: int) -> None:
        super().__init__(photographs)
        self.factor = (factor, factor)

    def read(self, sample: int, corner: Sequence[int], size: Sequence[int]) -> tuple[Array, Array]:
        """Read condition and target, both (3, *size), from 0 to 1."""
        target = self.photographs.read(sample)
        condition = coarsen(torch.from_numpy(target), self.factor[0]).numpy()
        return region(condition, corner, size), region(target, corner, size)

    def hashes(self, sample: int) -> PairHashes:
        """Hash of the photograph, which is the target and determines the condition."""
        found = self.photographs.hash(sample)
        return PairHashes(found, found)


def open_natural(request: Request) -> dict[str, PairSource]:
    """Open the photographs of a folder, in ImageNet's layout or any other, by split."""
    settings = parameters(NaturalSettings, request.forward)
    options = {"side_px": settings.side_px, "channels": 3, "cache_bytes": request.cache_bytes}
    found = open_photographs(request, **options)
    return {split: DownsampledPairs(photographs, settings.factor) for split, photographs in found.items()}
