"""Read Nikon ND2 files frame by frame (extra ``microscopes``); stage positions are scenes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.data.images.image import Array, Image, PixelSize, reading
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

__all__ = ["Nd2Image", "open_nd2"]

_FORMAT, _LIBRARY = "Nikon ND2", "nd2"
_FRAME = "CYXS"
"""Axes within a frame; S are the colours of a pixel."""


@dataclass(frozen=True, kw_only=True)
class Nd2Image(FramedImage):
    """One position of an ND2 file.

    Attributes:
        loops: Length of each loop of the file, positions included, slowest first.
        position: Index of the loop over positions; None if there is none.
    """

    loops: tuple[int, ...]
    position: int | None

    @contextmanager
    def _opened(self) -> Iterator[Read]:
        with library_of(self.path, _FORMAT, _LIBRARY).ND2File(self.path) as file:

            def read(place: tuple[int, ...], inner: tuple[slice, ...]) -> Array:
                at = list(place)
                if self.position is not None:
                    at.insert(self.position, self.scene)
                frame = file.read_frame(int(np.ravel_multi_index(at, self.loops)) if at else 0)
                return np.asarray(frame.reshape(self.shape[-self.frame_ndim :])[inner])

            yield read


def open_nd2(path: Path, *, memory_budget: int, scene: str | int | None = None) -> Image:
    """Open a position of an ND2 file, by default the first."""
    library = library_of(path, _FORMAT, _LIBRARY)
    with reading(path, _FORMAT), library.ND2File(path) as file:
        sizes = dict(file.sizes)
        scenes = _position_names(file, sizes.get("P", 0))
        loops = [axis for axis in sizes if axis not in _FRAME]
        kept = [axis for axis in sizes if axis != "P"]
        return Nd2Image(
            path=str(path),
            format=_FORMAT,
            axes=letters_of(kept),
            shape=tuple(sizes[axis] for axis in kept),
            dtype=file.dtype,
            pixel_size=_pixel_sizes(file),
            memory_budget=memory_budget,
            channel_names=named_once([channel.channel.name for channel in file.metadata.channels or []]),
            scenes=scenes,
            scene=find_scene(path, scenes, scene),
            frame_ndim=sum(axis in _FRAME for axis in kept),
            loops=tuple(sizes[axis] for axis in loops),
            position=loops.index("P") if "P" in loops else None,
        )


def _position_names(file: Any, number: int) -> tuple[str, ...]:
    points = next((loop.parameters.points for loop in file.experiment if loop.type == "XYPosLoop"), ())
    names = [point.name for point in points] + [None] * number
    return tuple(name or f"position {place}" for place, name in enumerate(names[:number]))


def _pixel_sizes(file: Any) -> dict[str, PixelSize]:
    """Sizes of calibrated axes, and the time between two frames as measured or as planned."""
    sizes: dict[str, PixelSize | None] = {}
    for channel in (file.metadata.channels or [])[:1]:
        volume = channel.volume
        for axis, size, is_calibrated in zip("XYZ", volume.axesCalibration, volume.axesCalibrated, strict=True):
            sizes[axis] = size_of(size, "micrometer") if is_calibrated else None
    for loop in file.experiment:
        if loop.type == "TimeLoop":
            measured = loop.parameters.periodDiff.avg
            sizes["T"] = size_of(measured or loop.parameters.periodMs, "millisecond")
    return known(sizes)
