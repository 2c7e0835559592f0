"""Read OME-Zarr 0.4 and 0.5 images and plain Zarr arrays, local or at an address.

The highest resolution of an OME-Zarr image is read, or another level of its pyramid. Axes keep their names, in
capitals; a pixel size is the scale of an axis together with its unit. The name of a dataset cannot point outside its
folder, and arrays are opened by :mod:`sfumato.data.images.zarr_array`, which checks them.
"""

import errno
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
from zarr.abc.store import Store
from zarr.storage import LocalStore

from sfumato.data.images.image import (
    DEFAULT_MEMORY_BUDGET,
    Array,
    Box,
    DamageError,
    Image,
    PixelSize,
    default_axes,
    fill_axes,
    reading,
)
from sfumato.data.images.zarr_array import CheckedArray, open_checked, store_at
from sfumato.data.images.zarr_documents import is_array, read_document

__all__ = ["ZarrImage", "is_zarr", "open_ome_zarr"]

_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs")
_TYPES = {"time": "T", "channel": "C"}


class _Level(NamedTuple):
    """The array of a store that holds the image, with its metadata."""

    name: str
    letters: Sequence[str] | None
    pixel_size: Mapping[str, PixelSize]
    metadata: Mapping[str, Any]
    format: str
    channel_names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ZarrImage(Image):
    """An array in a Zarr store; a region is read chunk by chunk.

    Attributes:
        array: The array; Zarr keeps no file handle and is safe with forks and threads.
        folder: Folder of its chunks, if local.
    """

    array: CheckedArray
    folder: str | None

    def _working_bytes(self, box: Box) -> int:
        return self.array.working_bytes(box)

    def _fetch(self, box: Box) -> Array:
        if self.folder is None:
            return self.array[box]
        files = self.array.shards or self.array.chunks  # pixels that share a file
        touched = [range(part.start // size, -(-part.stop // size)) for part, size in zip(box, files, strict=True)]
        present = [index for index in itertools.product(*touched) if self._exists(index)]
        if len(present) == math.prod(len(part) for part in touched):
            return self.array[box]
        # Zarr takes a millisecond to find that a chunk is missing, and a header may declare millions.
        result = np.full([part.stop - part.start for part in box], self.array.metadata.fill_value or 0, self.dtype)
        for index in present:
            spans = [
                slice(max(part.start, i * size), min(part.stop, (i + 1) * size))
                for part, size, i in zip(box, files, index, strict=True)
            ]
            place = tuple(slice(s.start - p.start, s.stop - p.start) for s, p in zip(spans, box, strict=True))
            result[place] = self.array[tuple(spans)]
        return result

    def _exists(self, index: tuple[int, ...]) -> bool:
        return Path(self.folder or "", self.array.metadata.encode_chunk_key(index)).is_file()


def is_zarr(folder: Path) -> bool:
    """Whether a folder is a Zarr array or group."""
    return any((folder / name).is_file() for name in _DOCUMENTS)


def open_ome_zarr(path: Path | str, *, memory_budget: int = DEFAULT_MEMORY_BUDGET, level: int = 0) -> ZarrImage:
    """Open an OME-Zarr image or a plain Zarr array, which has the last letters of ``STCZYX`` unless it names its axes.

    Args:
        path: A folder, or an address that Zarr can open (``https://``, ``s3://``).
        memory_budget: Bytes that one call of ``read`` may take.
        level: Level of its pyramid; 0 is the highest resolution.
    """
    with reading(path, "OME-Zarr"):
        store = store_at(path)
        found = _level(_attributes(store), level)
        array = open_checked(store, "" if found.name == "." else found.name)
        letters, ndim = found.letters or _dimension_names(array), len(array.shape)
        return ZarrImage(
            path=str(path),
            format=found.format,
            axes=default_axes(ndim) if letters is None else fill_axes(letters),
            shape=array.shape,
            dtype=array.dtype,
            pixel_size=found.pixel_size,
            metadata=found.metadata,
            memory_budget=memory_budget,
            channel_names=found.channel_names,
            array=array,
            folder=str(path / found.name) if isinstance(path, Path) else None,
        )


def _attributes(store: Store) -> dict[str, Any] | None:
    """Attributes of a group, or None for a single array."""
    document = read_document(store, "zarr.json")
    if is_array(document) or (not document and read_document(store, ".zarray")):
        return None
    if document:
        return dict(document.get("attributes", {}))
    if not isinstance(store, LocalStore) and not read_document(store, ".zgroup"):  # written last, so incomplete
        raise FileNotFoundError(errno.ENOENT, "no such file", None)
    return read_document(store, ".zattrs")


def _level(attributes: Mapping[str, Any] | None, number: int) -> _Level:
    """Find one resolution of the first image, or the single array."""
    if attributes is None:
        return _Level("", None, {}, {}, "Zarr")
    ome = attributes.get("ome", attributes)
    if not ome.get("multiscales"):
        raise DamageError(
            f"its metadata has {sorted(ome)[:9]}",
            expected="multiscales, that is, an image",
            advice="if it is a plate or a collection, open one image inside, such as path/0",
        )
    image = ome["multiscales"][0]
    datasets = image["datasets"]
    if not 0 <= number < len(datasets):
        raise DamageError(
            f"it has {len(datasets)} levels", expected=f"one of number {number}", advice="ask for another"
        )
    dataset = datasets[number]
    name = PurePosixPath(dataset["path"])
    if name.is_absolute() or ".." in PurePosixPath(unquote(str(name))).parts or "\\" in str(name):
        raise DamageError(f"its dataset is called {dataset['path']!r}", expected="a name inside the store")
    entries = [axis if isinstance(axis, dict) else {"name": axis} for axis in image.get("axes", [])]
    letters = [_letter(entry) for entry in entries]
    scale = np.ones(len(entries))
    for transform in [*dataset.get("coordinateTransformations", []), *(image.get("coordinateTransformations") or [])]:
        if transform.get("type") == "scale":
            scale = scale * np.asarray(transform["scale"], float)
    axes = fill_axes(letters)
    sizes = {a: PixelSize.known(float(s), entry.get("unit")) for a, s, entry in zip(axes, scale, entries, strict=True)}
    version = ome.get("version") or image.get("version") or "0.4"
    known = {axis: size for axis, size in sizes.items() if size is not None}
    notes = dict(attributes.get("sfumato", {}))
    return _Level(str(name), letters or None, known, notes, f"OME-Zarr {version}", _channel_names(ome, notes))


def _channel_names(ome: Mapping[str, Any], notes: Mapping[str, Any]) -> tuple[str, ...]:
    """Labels that viewers show, or the names that sfumato noted; empty if any is missing."""
    omero = ome.get("omero")
    channels = omero.get("channels") if isinstance(omero, dict) else None
    labels: Any = [channel.get("label") for channel in channels or () if isinstance(channel, dict)]
    names = labels or notes.get("channels")
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        return ()
    return tuple(names)


def _letter(entry: Mapping[str, Any]) -> str:
    """Axis letter of an entry in OME-Zarr's list of axes."""
    name = str(entry["name"]).upper()
    return name if name in tuple("STCZYX") else _TYPES.get(str(entry.get("type")), "?")


def _dimension_names(array: CheckedArray) -> list[str] | None:
    """Axis letters of a single array, if all its dimensions are named by such letters."""
    names = [str(name).upper() for name in getattr(array.metadata, "dimension_names", None) or ()]
    return names if names and all(name in tuple("STCZYX") for name in names) else None
