"""Read Leica LIF files (extra ``microscopes``); its series are scenes.

The pixels of a series lie in one block, which is read through a memory map. Colour pictures are read frame by frame.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.data.images.image import Array, DamageError, Image, PixelSize, reading
from sfumato.data.images.raw_image import RawImage
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

__all__ = ["LifColourImage", "open_lif"]

_FORMAT, _LIBRARY = "Leica LIF", "liffile"
_DESCRIPTION = "./Data/Image/ImageDescription"
_DIMENSIONS = {"1": "X", "2": "Y", "3": "Z", "4": "T"}
"""Leica's numbers of the axes that have a size."""


@dataclass(frozen=True, kw_only=True)
class LifColourImage(FramedImage):
    """One series of colour pictures.

    Attributes:
        dims: Leica's names of the axes that frames run over.
    """

    dims: tuple[str, ...]

    @contextmanager
    def _opened(self) -> Iterator[Read]:
        with library_of(self.path, _FORMAT, _LIBRARY).LifFile(self.path) as file:
            series = file.images[self.scene]

            def read(place: tuple[int, ...], inner: tuple[slice, ...]) -> Array:
                return np.asarray(series.frame(**dict(zip(self.dims, place, strict=True)))[inner])

            yield read


def open_lif(path: Path, *, memory_budget: int, scene: str | int | None = None) -> Image:
    """Open a series of a LIF file, by default the first."""
    library = library_of(path, _FORMAT, _LIBRARY)
    with reading(path, _FORMAT), library.LifFile(path) as file:
        all_series = list(file.images)
        if not all_series:
            raise DamageError("it has no image", expected="at least one series")
        short, full = [series.name for series in all_series], tuple(series.path for series in all_series)
        scenes = tuple(short) if len(set(short)) == len(short) else full
        number = find_scene(path, scenes, scene)
        series = all_series[number]
        facts: dict[str, Any] = {
            "path": str(path),
            "format": _FORMAT,
            "axes": letters_of(series.dims),
            "shape": series.shape,
            "dtype": series.dtype,
            "pixel_size": _pixel_sizes(series),
            "memory_budget": memory_budget,
            "channel_names": _channel_names(series),
            "scenes": scenes,
            "scene": number,
        }
        if "S" in series.dims:
            ndim = len(series.frames.frame_dims)
            return LifColourImage(**facts, frame_ndim=ndim, dims=tuple(series.dims[:-ndim]))
        return RawImage(**facts, offset=series.memory_block.offset, stored=series.dtype)


def _channel_names(series: Any) -> tuple[str, ...]:
    """Dyes or, if the file names none, the colours in which channels are shown."""
    channels = series.xml_element.findall(f"{_DESCRIPTION}/Channels/ChannelDescription")
    dyes = [
        next((p.findtext("Value") for p in channel.findall("ChannelProperty") if p.findtext("Key") == "DyeName"), None)
        for channel in channels
    ]
    return named_once(dyes) or named_once([channel.attrib.get("LUTName") for channel in channels])


def _pixel_sizes(series: Any) -> dict[str, PixelSize]:
    """Distances between the first and the last pixel, divided by their number less one."""
    sizes: dict[str, PixelSize | None] = {}
    for dimension in series.xml_element.findall(f"{_DESCRIPTION}/Dimensions/DimensionDescription"):
        axis, number = _DIMENSIONS.get(dimension.attrib["DimID"]), int(dimension.attrib["NumberOfElements"])
        if axis is not None and number > 1:
            step = size_of(abs(float(dimension.attrib["Length"])) / (number - 1), dimension.attrib.get("Unit", ""))
            is_length = step is not None and step.unit == "meter"
            sizes[axis] = PixelSize(step.to("micrometer"), "micrometer") if step and is_length else step
    return known(sizes)
