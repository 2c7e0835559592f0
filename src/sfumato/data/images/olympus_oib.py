"""Read Olympus OIB files frame by frame (extra ``microscopes``): each frame is a TIFF inside the file."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.data.images.image import Array, DamageError, Image, PixelSize, reading
from sfumato.data.images.vendor_image import (
    FramedImage,
    Read,
    find_scene,
    known,
    letters_of,
    library_of,
    named_once,
    size_of,
)

__all__ = ["OibImage", "open_oib"]

_FORMAT, _LIBRARY = "Olympus OIB", "oiffile"
_MOST_AXES = 9
_NO_DYE = ("", "None")


@dataclass(frozen=True, kw_only=True)
class OibImage(FramedImage):
    """The images of an OIB file.

    Attributes:
        members: Name of each frame's TIFF, the last axis running fastest.
    """

    members: tuple[str, ...]

    @contextmanager
    def _opened(self) -> Iterator[Read]:
        with library_of(self.path, _FORMAT, _LIBRARY).OifFile(self.path) as file:
            outer = self.shape[: -self.frame_ndim]

            def read(place: tuple[int, ...], inner: tuple[slice, ...]) -> Array:
                member = self.members[int(np.ravel_multi_index(place, outer)) if place else 0]
                return np.asarray(file.asarray(member)[inner])

            yield read


def open_oib(path: Path, *, memory_budget: int, scene: str | int | None = None) -> Image:
    """Open an OIB file, which has one scene."""
    library = library_of(path, _FORMAT, _LIBRARY)
    with reading(path, _FORMAT), library.OifFile(path) as file:
        if not file.series:
            raise DamageError("it has no images", expected="TIFFs inside")
        series = file.series[0]
        members = dict(zip(series.indices, series, strict=True))
        if len(members) != np.prod(series.shape) or (0,) * len(series.shape) not in members:
            raise DamageError(f"it has {len(members)} of the {np.prod(series.shape)} frames that it names")
        first = file.asarray(members[(0,) * len(series.shape)])
        # A single frame is still a series of length 1.
        outer = [axis for axis, length in zip(series.axes, series.shape, strict=True) if length > 1]
        inner = [axis for axis in file.axes if axis not in series.axes][-first.ndim :]
        settings = file.mainfile
        return OibImage(
            path=str(path),
            format=_FORMAT,
            axes=letters_of([*outer, *(inner if len(inner) == first.ndim else "YX")]),
            shape=(*(length for length in series.shape if length > 1), *first.shape),
            dtype=first.dtype,
            pixel_size=_pixel_sizes(settings),
            memory_budget=memory_budget,
            channel_names=_channel_names(settings),
            scene=find_scene(path, (), scene),
            frame_ndim=first.ndim,
            members=tuple(members[place] for place in np.ndindex(*series.shape)),
        )


def _channel_names(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Dyes or, if some have none, the names of the detectors."""
    channels = [value for key, value in settings.items() if _is_channel(key)]
    dyes = [str(channel.get("DyeName", "")) for channel in channels]
    named = named_once([None if dye in _NO_DYE else dye for dye in dyes])
    return named or named_once([str(channel.get("CH Name", "")) for channel in channels])


def _is_channel(key: str) -> bool:
    words = key.split()
    return len(words) == 3 and (words[0], words[2]) == ("Channel", "Parameters") and words[1].isdigit()


def _pixel_sizes(settings: Mapping[str, Any]) -> dict[str, PixelSize]:
    """Distances between the first and the last pixel, divided by their number less one."""
    sizes: dict[str, PixelSize | None] = {}
    for number in range(_MOST_AXES):
        axis = settings.get(f"Axis {number} Parameters Common", {})
        length = axis.get("MaxSize", 0)
        if axis.get("AxisCode") in tuple("TZYX") and length > 1:
            step = abs(float(axis["EndPosition"]) - float(axis["StartPosition"])) / (length - 1)
            sizes[axis["AxisCode"]] = size_of(step, str(axis.get("UnitName", "")))
    return {
        axis: PixelSize(size.to("micrometer"), "micrometer") if axis in "ZYX" else size
        for axis, size in known(sizes).items()
    }
