"""View part of an image file as an image of its own: indices of some axes, a crop, the mean over axes, binning.

Integer pictures can also be viewed as shares of the largest value of their type: 255 in a byte becomes 1.

For example, the mean of raw structured-illumination frames is a widefield image, and a file that holds condition and
target as channels becomes a pair, without writing any new file.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.data.images.image import Array, Box, Image
from sfumato.data.images.io import open_image
from sfumato.system.errors import ImageError

__all__ = ["View", "as_shares", "brightest"]


@dataclass(frozen=True)
class View:
    """Part of an image file.

    Attributes:
        path: The file.
        axes: Its axes, if the file does not specify them.
        pick: Index along each axis that the view drops.
        crop: First and last (exclusive) index along each axis that is cropped.
        average: Axes over which the mean is taken, such as ``Z``; axes that the file lacks are ignored.
        bin: Side in pixels of the blocks along Y and X that are averaged to one pixel; a remainder at the border is
            left out.

    Example:
        >>> import tempfile
        >>> from sfumato.data.images.io import write_image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "raw.tif")
        ...     write_image(path, np.arange(8, dtype=np.uint16).reshape(2, 2, 2), axes="ZYX")
        ...     View(path, average="Z").open().read().tolist()
        [[2.0, 3.0], [4.0, 5.0]]
    """

    path: Path
    axes: str | None = None
    pick: Mapping[str, int] = field(default_factory=dict)
    crop: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    average: str = ""
    bin: int = 1

    def open(self) -> Image:
        """Open the view as an image; only the file's header is read.

        Raises:
            ImageError: If the file cannot be opened, or lacks an axis or index that the view asks for.
        """
        whole = open_image(self.path, axes=self.axes)
        lengths = dict(zip(whole.axes, whole.shape, strict=True))
        spans = {axis: (index, index + 1) for axis, index in self.pick.items()} | dict(self.crop)
        wrong = {axis: span for axis, span in spans.items() if not 0 <= span[0] < span[1] <= lengths.get(axis, 0)}
        if wrong:
            raise ImageError(
                f"{self.path} has axes {whole.axes} of {whole.shape}, and {wrong} of them is asked for; expected axes "
                "and places that are there; check that it is the right file"
            )
        lengths |= {axis: last - first for axis, (first, last) in self.crop.items()}
        kept = [axis for axis in whole.axes if axis not in self.pick and axis not in self.average]
        computes = self.bin > 1 or bool(set(self.average) & set(whole.axes))
        return _Viewed(
            path=whole.path,
            format=whole.format,
            axes="".join(kept),
            shape=tuple(lengths[axis] // (self.bin if axis in "YX" else 1) for axis in kept),
            dtype=np.dtype(np.float32) if computes else whole.dtype,
            pixel_size={
                axis: type(size)(size.value * (self.bin if axis in "YX" else 1), size.unit)
                for axis, size in whole.pixel_size.items()
            },
            memory_budget=whole.memory_budget,
            whole=whole,
            view=self,
        )


def brightest(dtype: np.dtype[Any]) -> float:
    """Largest value of an integer type; 1 for other types, whose values already are shares.

    Example:
        >>> brightest(np.dtype(np.uint8)), brightest(np.dtype(np.float32))
        (255.0, 1.0)
    """
    return float(np.iinfo(dtype.name).max) if dtype.kind in "iu" else 1.0


def as_shares(image: Image) -> Image:
    """Scale an image of integers so that its largest possible value is 1; other images are returned unchanged.

    Example:
        >>> from sfumato.data.images.pixels import ArrayImage
        >>> picture = ArrayImage.of(np.array([[0, 255]], np.uint8), axes="YX", name="two")
        >>> as_shares(picture).read().tolist()
        [[0.0, 1.0]]
    """
    if image.dtype.kind not in "iu":
        return image
    return _Shares(
        path=image.path,
        format=image.format,
        axes=image.axes,
        shape=image.shape,
        dtype=np.dtype(np.float32),
        pixel_size=image.pixel_size,
        memory_budget=image.memory_budget,
        channel_names=image.channel_names,
        whole=image,
    )


@dataclass(frozen=True, kw_only=True)
class _Viewed(Image):
    whole: Image
    view: View

    def _working_bytes(self, box: Box) -> int:
        behind = math.prod(
            n for axis, n in zip(self.whole.axes, self.whole.shape, strict=True) if axis not in self.axes
        )
        return int(math.prod(part.stop - part.start for part in box)) * self.view.bin**2 * behind * 8

    def _fetch(self, box: Box) -> Array:
        factors = [self.view.bin if axis in "YX" else 1 for axis in self.axes]
        region: dict[str, slice | int] = {
            axis: slice(first + part.start * factor, first + part.stop * factor)
            for axis, part, factor in zip(self.axes, box, factors, strict=True)
            for first, _ in [self.view.crop.get(axis, (0, 0))]
        }
        pixels = self.whole.read({**region, **self.view.pick})
        axes = [axis for axis in self.whole.axes if axis not in self.view.pick]
        over = tuple(place for place, axis in enumerate(axes) if axis in self.view.average)
        if over:
            pixels = pixels.mean(over, dtype=np.float64)
        if self.view.bin > 1:
            size = [n for part, f in zip(box, factors, strict=True) for n in (part.stop - part.start, f)]
            pixels = pixels.reshape(size).mean(tuple(range(1, len(size), 2)), dtype=np.float64)
        return pixels


@dataclass(frozen=True, kw_only=True)
class _Shares(Image):
    whole: Image

    def _working_bytes(self, box: Box) -> int:
        return self.whole._working_bytes(box)

    def _fetch(self, box: Box) -> Array:
        whole = self.whole.read(dict(zip(self.axes, box, strict=True)))
        return np.asarray(whole, np.float32) / np.float32(brightest(self.whole.dtype))
