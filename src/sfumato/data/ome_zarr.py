"""OME-Zarr 0.4 and 0.5, and plain Zarr arrays, local or at an address.

Of an OME-Zarr image the highest resolution is read, or another level of its pyramid. Names of axes are its own, in
capitals; a pixel size is an axis' scale together with its unit. Metadata is looked through before Zarr acts on it: only
codecs that turn bytes into bytes or numbers are let in (one of the others unpickles), and a dataset's name cannot point
out of its folder.
"""

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np
import zarr

from sfumato.data.image import (
    Array,
    Box,
    DamageError,
    Image,
    PixelSize,
    carry,
    check_axes,
    check_dtype,
    default_axes,
    fill_axes,
    reading,
)

__all__ = ["ZarrImage", "is_zarr", "open_ome_zarr"]

_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs")
_LONGEST_DOCUMENT = 2**24
_CODECS = {"bytes", "transpose", "gzip", "zstd", "blosc", "crc32c", "sharding_indexed"}
_CODECS_V2 = {"zlib", "gzip", "bz2", "lzma", "lz4", "zstd", "blosc", "delta", "shuffle", "bitround", "fixedscaleoffset"}
_NUMBERS = re.compile(r"[<>|][biufc]\d{1,2}|bool|(u?int|float|complex)\d{1,3}")
_BYTES_PER_CHUNK = 4096
"""What Zarr and we keep in memory for each chunk on the way, besides its pixels."""
_TYPES = {"time": "T", "channel": "C"}


class _Level(NamedTuple):
    """Which array of a store is the image, and what its metadata says of it."""

    name: str
    letters: Sequence[str] | None
    pixel_size: Mapping[str, PixelSize]
    metadata: Mapping[str, Any]
    format: str


@dataclass(frozen=True, kw_only=True)
class ZarrImage(Image):
    """An array in a Zarr store; a region is read chunk by chunk.

    Attributes:
        array: The open array; Zarr holds no handle and looks after forks and threads itself.
        folder: Where its chunks are, if on this machine.
    """

    array: zarr.Array[Any]
    folder: str | None

    def _working_bytes(self, box: Box) -> int:
        chunk = math.prod(self.array.chunks) * self.dtype.itemsize
        spans = [self._touched(part, size) for part, size in zip(box, self.array.chunks, strict=True)]
        touched = math.prod(span.stop - span.start for span in spans)
        at_once = int(zarr.config.get("async.concurrency"))
        sharded = 0 if self.array.shards is None else math.prod(part.stop - part.start for part in box)
        return touched * _BYTES_PER_CHUNK + 2 * min(touched, at_once) * chunk + sharded * self.dtype.itemsize

    def _fetch(self, box: Box) -> Array:
        if self.folder is None:
            return np.asarray(self.array[box])
        files = self._files()
        touched = [self._touched(part, size) for part, size in zip(box, files, strict=True)]
        present = [index for index in itertools.product(*touched) if self._exists(index)]
        if len(present) == math.prod(len(part) for part in touched):
            return np.asarray(self.array[box])
        # Zarr takes a millisecond to find that a chunk is missing, and a header may tell of millions.
        result = np.full([part.stop - part.start for part in box], self.array.fill_value or 0, self.dtype)
        for index in present:
            spans = [
                slice(max(part.start, i * size), min(part.stop, (i + 1) * size))
                for part, size, i in zip(box, files, index, strict=True)
            ]
            place = tuple(slice(s.start - p.start, s.stop - p.start) for s, p in zip(spans, box, strict=True))
            result[place] = self.array[tuple(spans)]
        return result

    def _files(self) -> tuple[int, ...]:
        """Shape of what one file holds."""
        return self.array.shards or self.array.chunks

    @staticmethod
    def _touched(part: slice, size: int) -> range:
        return range(part.start // size, -(-part.stop // size))

    def _exists(self, index: tuple[int, ...]) -> bool:
        return Path(self.folder or "", self.array.metadata.encode_chunk_key(index)).is_file()


def is_zarr(folder: Path) -> bool:
    """Whether a folder is a Zarr array or group."""
    return any((folder / name).is_file() for name in _DOCUMENTS)


def open_ome_zarr(path: Path | str, *, axes: str | None, memory_budget: int, level: int = 0) -> ZarrImage:
    """Open an OME-Zarr image or a plain Zarr array.

    Args:
        path: A folder, or an address that Zarr's stores know (``https://``, ``s3://``).
        axes: To overrule what the metadata says; plain arrays without names of axes have the last of ``STCZYX``.
        memory_budget: Bytes that one call of ``read`` may take.
        level: Of its pyramid; 0 is the highest resolution.
    """
    with reading(path, "OME-Zarr"):
        if isinstance(path, Path):
            found = _level(_local_attributes(path), level)
            folder = path / found.name
            array = zarr.open_array(folder, mode="r", zarr_format=_check_array(_local_document(folder)))
        else:
            found, folder = _level(_remote_attributes(path), level), None
            array = zarr.open_array(f"{path.rstrip('/')}/{found.name}".rstrip("/"), mode="r")
            _check_array(array.metadata.to_dict())
        letters = found.letters or _dimension_names(array)
        stored = default_axes(array.ndim) if letters is None else check_axes(fill_axes(letters), array.ndim)
        named = stored if axes is None else check_axes(axes, array.ndim)
        return ZarrImage(
            path=str(path),
            format=found.format,
            axes=named,
            shape=array.shape,
            dtype=check_dtype(array.dtype),
            pixel_size=carry(found.pixel_size, stored, named),
            metadata=found.metadata,
            memory_budget=memory_budget,
            array=array,
            folder=None if folder is None else str(folder),
        )


def _json(file: Path) -> dict[str, Any]:
    """A metadata document, or nothing if there is none."""
    if not file.is_file():
        return {}
    if file.stat().st_size > _LONGEST_DOCUMENT:
        raise DamageError(f"{file.name} has {file.stat().st_size:,} bytes", expected=f"at most {_LONGEST_DOCUMENT:,}")
    document = json.loads(file.read_bytes())
    if not isinstance(document, dict):
        raise DamageError(f"{file.name} holds a {type(document).__name__}", expected="a JSON object")
    return document


def _local_attributes(folder: Path) -> dict[str, Any] | None:
    """Attributes of a group, or None for an array by itself."""
    document = _json(folder / "zarr.json")
    if document.get("node_type") == "array" or (not document and (folder / ".zarray").is_file()):
        return None
    return dict(document.get("attributes", {})) if document else _json(folder / ".zattrs")


def _remote_attributes(address: str) -> dict[str, Any] | None:
    node = zarr.open(address, mode="r")
    return None if isinstance(node, zarr.Array) else dict(node.attrs)


def _level(attributes: Mapping[str, Any] | None, number: int) -> _Level:
    """A resolution of the first image, or the array by itself."""
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
    if name.is_absolute() or ".." in name.parts or "\\" in str(name):
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
    return _Level(str(name), letters or None, known, dict(attributes.get("sfumato", {})), f"OME-Zarr {version}")


def _letter(entry: Mapping[str, Any]) -> str:
    """Axis letter of an entry of OME-Zarr's list of axes."""
    name = str(entry["name"]).upper()
    return name if name in tuple("STCZYX") else _TYPES.get(str(entry.get("type")), "?")


def _dimension_names(array: zarr.Array[Any]) -> list[str] | None:
    """Axis letters of an array by itself, if all its dimensions have such names."""
    names = [str(name).upper() for name in getattr(array.metadata, "dimension_names", None) or ()]
    return names if names and all(name in tuple("STCZYX") for name in names) else None


def _local_document(folder: Path) -> dict[str, Any]:
    document = _json(folder / "zarr.json") or _json(folder / ".zarray")
    if "shape" not in document:
        raise DamageError(f"there is no Zarr array in {folder}", expected="the one that its metadata names")
    return document


def _check_array(document: Mapping[str, Any]) -> Literal[2, 3]:
    """Let in what is made of numbers, plain codecs and a sound grid; give back the version of Zarr."""
    version: Literal[2, 3] = 2 if document.get("zarr_format") == 2 else 3
    if version == 2:
        kinds = [document["compressor"], *(document.get("filters") or [])]
        names = {str(codec["id"]) for codec in kinds if codec is not None}
        unknown, dtype, chunks = names - _CODECS_V2, document["dtype"], document["chunks"]
    else:
        names = _codec_names(document["codecs"])
        grid = document["chunk_grid"]
        unknown, dtype, chunks = names - _CODECS, document["data_type"], grid["configuration"]["chunk_shape"]
    if unknown:
        raise DamageError(f"it is packed with {sorted(unknown)}", expected=f"only {sorted(_CODECS | _CODECS_V2)}")
    if not (isinstance(dtype, str) and _NUMBERS.fullmatch(dtype)):
        raise DamageError(f"its type is {dtype!r}", expected="a type of numbers")
    shape = document["shape"]
    if len(shape) != len(chunks) or not all(isinstance(n, int) and n > 0 for n in [*shape, *chunks]):
        raise DamageError(f"its shape is {shape} in chunks of {chunks}", expected="as many positive whole numbers")
    return version


def _codec_names(codecs: Sequence[Any]) -> set[str]:
    """Names of the codecs, also of those inside shards."""
    names: set[str] = set()
    for codec in codecs:
        name = codec if isinstance(codec, str) else codec["name"]
        inside = {} if isinstance(codec, str) else codec.get("configuration", {})
        names |= {str(name)} | _codec_names([*inside.get("codecs", []), *inside.get("index_codecs", [])])
    return names
