"""Read Zeiss CZI files by region, through libCZI (extra ``microscopes``).

A scene is the rectangle around its tiles, joined as in a viewer; where there is no tile, pixels are 0. Pixel sizes,
times, names of scenes and of channels come from the XML in the file.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

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

__all__ = ["CziImage", "open_czi"]

_FORMAT, _LIBRARY = "Zeiss CZI", "pylibCZIrw.czi"
_DTYPES = {"Gray8": "u1", "Gray16": "u2", "Gray32Float": "f4", "Bgr24": "u1", "Bgr48": "u2", "Bgr96Float": "f4"}
_COLOURS = 3
_OUTER = "HRIVBTCZ"
"""Axes of libCZI beside Y and X: at most one of the first five may be longer than 1, and is then our S."""
_DIMENSIONS = "./Metadata/Information/Image/Dimensions"
_STEP_TOLERANCE = 0.05
"""Times whose steps differ by more than this share have no step worth telling."""


@dataclass(frozen=True, kw_only=True)
class CziImage(FramedImage):
    """One scene of a CZI file.

    Attributes:
        corner: Position (x, y) of the scene in the plane of the file.
        key: Number of the scene in the file; None if it has no scenes.
        planes: Axes of libCZI that frames run over, in the order of the image.
        is_colour: Whether each channel of the file is a picture of three colours, which are channels of the image.
    """

    corner: tuple[int, int]
    key: int | None
    planes: str
    is_colour: bool

    @contextmanager
    def _opened(self) -> Iterator[Read]:
        with library_of(self.path, _FORMAT, _LIBRARY).open_czi(self.path) as file:

            def read(place: tuple[int, ...], inner: tuple[slice, ...]) -> Array:
                rows, columns = inner[:2]
                left, top = self.corner[0] + columns.start, self.corner[1] + rows.start
                roi = (left, top, columns.stop - columns.start, rows.stop - rows.start)
                pixels = file.read(roi=roi, plane=dict(zip(self.planes, place, strict=True)), scene=self.key)
                # Colours are stored as blue, green, red.
                return np.asarray(pixels[..., ::-1][..., inner[2]] if self.is_colour else pixels[..., 0])

            yield read


def open_czi(path: Path, *, memory_budget: int, scene: str | int | None = None) -> Image:
    """Open a scene of a CZI file, by default the first."""
    library = library_of(path, _FORMAT, _LIBRARY)
    with reading(path, _FORMAT):
        with library.open_czi(str(path)) as file:
            text = file.raw_metadata
            box = file.total_bounding_box
            rectangles = file.scenes_bounding_rectangle_no_pyramid
            whole = file.total_bounding_rectangle_no_pyramid
            pixel_types = list(file.pixel_types.values())
        metadata = _parse(text)
        keys = sorted(rectangles)
        scenes = _scene_names(metadata, keys)
        number = find_scene(path, scenes, scene)
        key = keys[number] if keys else None
        rectangle = whole if key is None else rectangles[key]
        is_colour = _is_colour(pixel_types)
        lengths = {axis: box.get(axis, (0, 1))[1] - box.get(axis, (0, 1))[0] for axis in _OUTER}
        planes = "".join(axis for axis in _OUTER if lengths[axis] > 1)
        names = [*planes, "Y", "X", *("S" * is_colour)]
        if is_colour and "C" in planes:
            raise DamageError("it has several colour pictures as channels", expected="one", advice="split them in ZEN")
        shape = (*(lengths[axis] for axis in planes), rectangle.h, rectangle.w, *((_COLOURS,) * is_colour))
        return CziImage(
            path=str(path),
            format=_FORMAT,
            axes=letters_of(names),
            shape=shape,
            dtype=np.result_type(*(_DTYPES[kind] for kind in pixel_types)),
            pixel_size=_pixel_sizes(metadata),
            memory_budget=memory_budget,
            channel_names=_channel_names(metadata),
            scenes=scenes,
            scene=number,
            frame_ndim=2 + is_colour,
            corner=(rectangle.x, rectangle.y),
            key=key,
            planes=planes,
            is_colour=is_colour,
        )


def _parse(text: str) -> ElementTree.Element:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise DamageError("its XML defines entities", expected="plain XML")
    return ElementTree.fromstring(text)


def _is_colour(pixel_types: Sequence[str]) -> bool:
    unknown = sorted(set(pixel_types) - set(_DTYPES))
    colours = [kind.startswith("Bgr") for kind in pixel_types]
    if unknown or not pixel_types or len(set(colours)) > 1:
        raise DamageError(
            f"its pixels are of type {', '.join(pixel_types) or 'none'}",
            expected="grey or colour pixels, not both",
            advice="export the channels that you need from ZEN",
        )
    return colours[0]


def _scene_names(metadata: ElementTree.Element, keys: Sequence[int]) -> tuple[str, ...]:
    entries = metadata.findall(f"{_DIMENSIONS}/S/Scenes/Scene")
    named = {entry.attrib.get("Index"): entry.attrib.get("Name") for entry in entries}
    return tuple(named.get(str(key)) or f"scene {key}" for key in keys)


def _channel_names(metadata: ElementTree.Element) -> tuple[str, ...]:
    """Names that ZEN shows, or those of the acquisition."""
    for place in ("./Metadata/DisplaySetting/Channels/Channel", f"{_DIMENSIONS}/Channels/Channel"):
        if names := named_once([channel.attrib.get("Name") for channel in metadata.findall(place)]):
            return names
    return ()


def _pixel_sizes(metadata: ElementTree.Element) -> dict[str, PixelSize]:
    sizes: dict[str, PixelSize | None] = {"T": size_of(_time_step(metadata), "second")}
    for distance in metadata.findall("./Metadata/Scaling/Items/Distance"):
        metres = size_of(distance.findtext("Value"), "meter")
        if metres is not None:
            sizes[distance.attrib.get("Id", "")] = PixelSize(metres.to("micrometer"), "micrometer")
    return known(sizes)


def _time_step(metadata: ElementTree.Element) -> float | None:
    """Seconds between two times, as planned or as measured."""
    positions = metadata.find(f"{_DIMENSIONS}/T/Positions")
    if positions is None:
        return None
    if planned := positions.findtext("Interval/Increment"):
        return float(planned)
    steps = np.diff([float(time) for time in (positions.findtext("List/Offsets") or "").split()])
    is_even = len(steps) > 0 and np.ptp(steps) <= _STEP_TOLERANCE * abs(steps.mean())
    return float(steps.mean()) if is_even else None
