"""Write the channels that were not restored beside those that were, untouched, so that a file stays complete."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.data.images.choice import Choice
from sfumato.data.images.image import AXES, Array, Box, Image, arrange
from sfumato.restoration.conditions import Measured
from sfumato.system.errors import ImageError

__all__ = ["beside_others", "check_passing", "restored_of"]

_FORMATS = (".tif", ".tiff", ".npy")
"""Files with channels that are written when all pixels are known."""
_MARK = "passed_through"


def check_passing(place: str, measured: Measured, num_restored: int) -> None:
    """Refuse to pass channels through where they have no place beside the restored ones.

    Args:
        place: Where the mean is written.
        measured: The image to restore.
        num_restored: Number of restored channels.

    Raises:
        ImageError: If the format, the channels or the grids do not fit.
    """
    chosen = measured.choice.channels
    if Path(place).suffix.lower() not in _FORMATS:
        raise ImageError(
            f"the output is {place}, with further channels passed through; expected {', '.join(_FORMATS)}; rename it"
        )
    if not chosen or len(chosen) != num_restored:
        raise ImageError(
            f"{measured.name}: {len(chosen)} of its channels are chosen and {num_restored} restored; expected as many, "
            "and others to pass through; choose them with --channel, or leave out --pass-through"
        )
    if not measured.is_on_source_grid:
        raise ImageError(
            f"{measured.name} is restored on a finer grid, on which its other channels have no pixels; expected one "
            "grid; leave out --pass-through"
        )


def beside_others(restored: Image, source: str, *, axes: str | None, choice: Choice) -> Image:
    """The source with the chosen channels replaced by their restored images.

    Args:
        restored: The restored channels, with the other axes of the source.
        source: Path or address of the source.
        axes: Axes of the source, if it does not state them.
        choice: What was restored of it, in numbers.
    """
    whole = replace(choice, channels=()).open(source, axes=axes)
    letters = "".join(axis for axis in AXES if axis in whole.axes)
    lengths = dict(zip(whole.axes, whole.shape, strict=True))
    return _Beside(
        path=restored.path,
        format=restored.format,
        axes=letters,
        shape=tuple(lengths[axis] for axis in letters),
        dtype=restored.dtype,
        pixel_size=restored.pixel_size,
        metadata=restored.metadata,
        channel_names=whole.channel_names,
        restored=restored,
        whole=whole,
        chosen=tuple(int(number) for number in choice.channels),
    )


def restored_of(image: Image, notes: Mapping[str, Any]) -> Image:
    """The restored channels of an image that has others beside them; any other image is returned unchanged.

    Args:
        image: The image.
        notes: What is noted of it, from :func:`~sfumato.data.images.sidecar.origin_of`.
    """
    numbers: Sequence[int] = notes.get("chosen", {}).get("channels", ()) if notes.get(_MARK) is True else ()
    return Choice(tuple(numbers)).of(image)


@dataclass(frozen=True, kw_only=True)
class _Beside(Image):
    restored: Image
    whole: Image
    chosen: tuple[int, ...]

    def _working_bytes(self, box: Box) -> int:
        size: int = math.prod(part.stop - part.start for part in box)
        return size * (self.dtype.itemsize + self.whole.dtype.itemsize)

    def _fetch(self, box: Box) -> Array:
        spans, along = dict(zip(self.axes, box, strict=True)), self.axes.index("C")
        parts = []
        for number in range(spans["C"].start, spans["C"].stop):
            image, place = self.whole, number
            if number in self.chosen:
                image, place = self.restored, self.chosen.index(number)
            region = {axis: span for axis, span in spans.items() if axis in image.axes}
            region |= {"C": slice(place, place + 1)} if "C" in image.axes else {}
            parts.append(arrange(image.read(region), image.axes, self.axes).astype(self.dtype, copy=False))
        return np.concatenate(parts, along)
