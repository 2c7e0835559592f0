"""Images whose pixels lie in one block of their file, which is read through a memory map."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sfumato.data.images.image import Array, Box, Image
from sfumato.system.errors import ImageError

__all__ = ["RawImage"]

_SMALL = 2**18
"""Images up to this many bytes are faster to read whole than to map."""


@dataclass(frozen=True, kw_only=True)
class RawImage(Image):
    """An image whose pixels lie in one block of its file; regions are read through a memory map, small images whole.

    Attributes:
        offset: Start of the block, in bytes.
        stored: Type of the pixels in the file, with its byte order.
        fortran: Whether the first axis runs fastest.
    """

    offset: int
    stored: np.dtype[Any]
    fortran: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        held, expected = Path(self.path).stat().st_size, self.offset + math.prod(self.shape) * self.stored.itemsize
        if self.offset < 0 or held < expected:
            raise ImageError(
                f"{self.path} has {held:,} bytes but its {self.format} header declares {expected:,}: shape "
                f"{self.shape} of {self.stored.name} from byte {self.offset}; expected the whole image; copy it again"
            )

    def _fetch(self, box: Box) -> Array:
        order: Literal["C", "F"] = "F" if self.fortran else "C"
        if self.nbytes <= _SMALL:
            flat = np.fromfile(self.path, self.stored, math.prod(self.shape), offset=self.offset)
            block: Array = flat.reshape(self.shape, order=order)
        else:
            block = np.memmap(self.path, self.stored, "r", self.offset, self.shape, order)
        return np.array(block[box], dtype=self.dtype, order="C")
