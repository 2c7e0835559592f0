"""Parse the OME-XML of an OME-TIFF: which page holds which plane, and the pixel sizes."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from sfumato.data.images.image import DamageError, PixelSize

__all__ = ["OmeImage", "is_ome", "parse_ome"]


@dataclass(frozen=True)
class OmeImage:
    """The first image described by an OME-XML.

    Attributes:
        outer: Axes over which the pages run, slowest first: an order of T, C, Z.
        sizes: Lengths of these axes; C excludes the samples that share a page.
        pages: Page of each plane, in the order of ``outer``.
        pixel_size: Pixel sizes by axis letter.
        metadata: Metadata from sfumato, if it wrote the file.
        channel_names: Names of the channels, if each has one.
    """

    outer: str
    sizes: tuple[int, ...]
    pages: tuple[int, ...]
    pixel_size: Mapping[str, PixelSize]
    metadata: Mapping[str, Any]
    channel_names: tuple[str, ...]


def is_ome(description: str) -> bool:
    """Whether the description of a TIFF's first page is OME-XML."""
    return description.rstrip()[-4:] == "OME>"


def parse_ome(text: str, num_pages: int) -> OmeImage:
    """Read the first image of an OME-XML.

    Args:
        text: The XML.
        num_pages: Number of pages in the file; no plane may lie beyond them.

    Raises:
        DamageError: If planes are missing, in other files, or more numerous than the pages.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise DamageError("its OME-XML defines entities", expected="plain OME-XML")
    root = ElementTree.fromstring(text)
    image = next(_children(root, "Image"), None)
    pixels = None if image is None else next(_children(image, "Pixels"), None)
    if image is None or pixels is None:
        raise DamageError(
            "its OME-XML holds no image",
            expected="one with pixels",
            advice="if it is one file of a set, join the set into a single OME-TIFF or OME-Zarr",
        )
    order = pixels.attrib["DimensionOrder"]
    if sorted(order) != sorted("XYZCT") or not order.startswith("XY"):
        raise DamageError(f"its OME-XML has the dimension order {order!r}", expected="XY and then Z, C, T in any order")
    outer = order[:1:-1]
    channels = list(_children(pixels, "Channel"))
    samples = int(channels[0].attrib.get("SamplesPerPixel", 1)) if channels else 1
    names = tuple(channel.attrib.get("Name", "") for channel in channels)
    sizes = tuple(int(pixels.attrib[f"Size{axis}"]) // (samples if axis == "C" else 1) for axis in outer)
    pages = _planes(root, pixels, outer, sizes, num_pages)
    return OmeImage(outer, sizes, pages, _pixel_sizes(pixels), _metadata(image), names if all(names) else ())


def _children(element: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    """Children by name, in any version of OME's namespace."""
    return (child for child in element if child.tag.rpartition("}")[2] == name)


def _planes(
    root: ElementTree.Element, pixels: ElementTree.Element, outer: str, sizes: tuple[int, ...], num_pages: int
) -> tuple[int, ...]:
    """Page of each plane."""
    planes = math.prod(sizes)
    others = _other_files(root, pixels)
    if others or not 0 < planes <= num_pages:
        elsewhere = f", and names the files {others[:3]}" if others else ""
        raise DamageError(
            f"its OME-XML declares {planes:,} planes ({outer} = {sizes}) while it has {num_pages:,} pages{elsewhere}",
            expected="a page for each plane in this very file",
            advice="copy it again, or join a set of files into one",
        )
    pages: list[int | None] = [None] * planes
    blocks, given = list(_children(pixels, "TiffData")), 0
    for block in blocks:
        first = 0
        for axis, size in zip(outer, sizes, strict=True):
            first = first * size + int(block.attrib.get(f"First{axis}", 0))
        page = int(block.attrib.get("IFD", 0))
        count = int(block.attrib.get("PlaneCount", 1 if "IFD" in block.attrib else planes - first))
        given += min(count, planes - first, num_pages - page)
        if first < 0 or page < 0 or given > planes:
            raise DamageError("its OME-XML gives planes before the first, or more than once", expected="each once")
        for step in range(min(count, planes - first, num_pages - page)):
            pages[first + step] = page + step
    if not blocks:
        pages = list(range(planes))
    found = tuple(page for page in pages if page is not None)
    if len(found) < planes:
        raise DamageError(f"its OME-XML gives pages to {len(found):,} of {planes:,} planes", expected="one for each")
    return found


def _other_files(root: ElementTree.Element, pixels: ElementTree.Element) -> list[str]:
    """Names of the files of a set, if the image is spread over several."""
    uuids = [uuid for block in _children(pixels, "TiffData") for uuid in _children(block, "UUID")]
    identities = {(uuid.text or "").strip() for uuid in uuids} | {root.attrib.get("UUID", "").strip()} - {""}
    names = sorted({uuid.attrib.get("FileName", "unnamed") for uuid in uuids})
    return names if len(identities - {""}) > 1 else []


def _pixel_sizes(pixels: ElementTree.Element) -> dict[str, PixelSize]:
    names = {axis: (f"PhysicalSize{axis}", "\u00b5m") for axis in "XYZ"} | {"T": ("TimeIncrement", "s")}
    sizes: dict[str, PixelSize] = {}
    for axis, (name, default) in names.items():
        if name in pixels.attrib:
            size = PixelSize.known(float(pixels.attrib[name]), pixels.attrib.get(f"{name}Unit", default))
            sizes |= {axis: size} if size is not None else {}
    return sizes


def _metadata(image: ElementTree.Element) -> dict[str, Any]:
    """Metadata that sfumato wrote to the description, as JSON under its name."""
    description = next(_children(image, "Description"), None)
    text = "" if description is None else (description.text or "")
    if not text.startswith('{"sfumato": '):
        return {}
    return dict(json.loads(text)["sfumato"])
