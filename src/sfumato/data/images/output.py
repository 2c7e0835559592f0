"""Write an image from many processes at once, block by block, safely even if some of them are killed.

A block is the content of one file: a shard, or a chunk if there are no shards. Only whole blocks are written, so no
process ever reads what another may be writing, and rewriting a block is harmless: the same pixels give the same bytes.

.. code-block:: python

    output = OutputImage.create("cells.zarr", shape=(2, 4096, 4096), dtype="float32", axes="CYX", num_levels=3)
    checksum = output.write(0, (0, 0, 1024), pixels)  # in this or any other process that opens "cells.zarr"
    output.write(1, (0, 0, 512), output.halve(1, (0, 0, 512), (1, 512, 512)))  # once what it covers is written
"""

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import zarr
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore, StorePath

from sfumato.data.images.image import Array, Image, PixelSize, check_pixel_size
from sfumato.data.images.ome_zarr import ZarrImage, open_ome_zarr
from sfumato.data.images.ome_zarr_writer import Version, create_ome_zarr, halve_pixels
from sfumato.data.images.storage import Storage, storage_at
from sfumato.system.errors import ImageError
from sfumato.system.marks import json_object

__all__ = ["OutputImage", "OutputLevel"]


@dataclass(frozen=True, kw_only=True)
class OutputLevel:
    """One resolution of an output image.

    Attributes:
        shape: Length of each axis.
        chunks: Pixels that are compressed together.
        block: Pixels that share a file and are written together: a shard or a chunk.
        steps: Number of pixels of the previous level per pixel, along each axis; all 1 for the first level.
        pixel_size: Pixel sizes by axis letter.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    block: tuple[int, ...]
    steps: tuple[int, ...]
    pixel_size: Mapping[str, PixelSize]


_NOTES = "notes"


class OutputImage:
    """An OME-Zarr image with its pyramid, filled block by block. Other processes open it by its path or address.

    Attributes:
        place: Path or address.
        axes: Letters in the order of storage.
        dtype: Type of the pixels.
        metadata: The metadata it was created with.
        levels: Its resolutions, finest first.
    """

    def __init__(self, place: str, storage: Storage, images: Sequence[ZarrImage], datasets: Sequence[Any]) -> None:
        self.place = place
        self.axes = images[0].axes
        self.dtype = images[0].dtype
        self.metadata = images[0].metadata
        self._storage = storage
        self._images = tuple(images)
        self._names = [str(dataset["path"]) for dataset in datasets]
        scales = [dataset["coordinateTransformations"][0]["scale"] for dataset in datasets]
        self.levels = tuple(
            OutputLevel(
                shape=image.shape,
                chunks=image.array.chunks,
                block=image.array.shards or image.array.chunks,
                steps=tuple(round(new / old) for new, old in zip(scale, before, strict=True)),
                pixel_size=image.pixel_size,
            )
            for image, scale, before in zip(images, scales, scales[:1] + scales, strict=False)
        )

    @classmethod
    def create(
        cls,
        place: str | os.PathLike[str],
        *,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
        axes: str,
        pixel_size: Mapping[str, PixelSize] | None = None,
        chunks: Sequence[int] | None = None,
        shards: Sequence[int] | None = None,
        num_levels: int = 1,
        version: Version = "0.5",
        metadata: Mapping[str, Any] | None = None,
    ) -> Self:
        """Create an image whose pixels are all 0, or open an identical one that was created before.

        A process killed on the way leaves either nothing under this name or the complete image.

        Args:
            place: A path, or an address such as ``s3://bucket/name.zarr`` (extra ``remote``).
            shape: Shape of the finest level.
            dtype: Type of the pixels.
            axes: Axes in OME-Zarr's order: T, then S or C, then Z, Y, X.
            pixel_size: Pixel sizes by axis letter.
            chunks: Pixels that are compressed together; about a million if None.
            shards: Pixels that share a file, multiples of ``chunks``; one file per chunk if None.
            num_levels: Number of pyramid levels.
            version: Version of OME-Zarr; only 0.5 has shards.
            metadata: JSON values. They are part of the image: an image with other metadata is a different image.

        Raises:
            ImageError: If something else exists at this place; it is left unchanged.
            StorageError: If the place cannot be written to.
        """
        name = os.fspath(place)
        sizes = dict(pixel_size or {})
        check_pixel_size(sizes, axes)
        documents: dict[str, Buffer] = {}
        create_ome_zarr(
            MemoryStore(documents),
            shape=tuple(shape),
            dtype=dtype,
            axes=axes,
            pixel_size=sizes,
            chunks=chunks,
            shards=shards,
            num_levels=num_levels,
            version=version,
            metadata=metadata,
            name=PurePath(name).name,
        )
        files = {key: value.to_bytes() for key, value in documents.items()}
        storage = storage_at(name)
        root = "zarr.json" if version == "0.5" else ".zgroup"
        if storage.get(root) is None:
            if not storage.is_free(files):
                raise ImageError(
                    f"{name} exists and is not an image of sfumato; expected a new name; choose one or remove it"
                )
            storage.create(files, root)
        differing = sorted(key for key, file in files.items() if _facts(storage.get(key)) != _facts(file))
        if differing:
            raise ImageError(
                f"{name} exists and differs from the image to be made, in {', '.join(differing)}; expected the same "
                "shape, type, chunks, pixel sizes and metadata; choose a new name, or remove it"
            )
        return cls._open(name, storage)

    @classmethod
    def open(cls, place: str | os.PathLike[str]) -> Self:
        """Open an image made by :meth:`create`, for writing and reading."""
        return cls._open(os.fspath(place), storage_at(place))

    @classmethod
    def _open(cls, name: str, storage: Storage) -> Self:
        where: Path | str = name if "://" in name else Path(name)
        finest = open_ome_zarr(where)
        attributes = _facts(storage.get("zarr.json")).get("attributes") or _facts(storage.get(".zattrs"))
        if "sfumato" not in attributes:
            raise ImageError(f"{name} was not made by sfumato; expected an image of its own; choose a new name")
        datasets = attributes.get("ome", attributes)["multiscales"][0]["datasets"]
        coarser = [open_ome_zarr(where, level=level) for level in range(1, len(datasets))]
        return cls(name, storage, [finest, *coarser], datasets)

    def image(self, level: int = 0) -> Image:
        """Return a level as a readable image."""
        self._check_level(level)
        return self._images[level]

    def write(self, level: int, corner: Sequence[int], pixels: Array) -> int:
        """Write whole blocks; when this returns, they are on disk.

        Args:
            level: Level of the pyramid.
            corner: First pixel, at a multiple of the level's ``block`` along each axis.
            pixels: Pixels in the type of the image; along each axis multiples of ``block``, or up to the image's edge.

        Returns:
            CRC-32 of the pixels as they will be read back; equals :meth:`checksum` of the region.

        Raises:
            ImageError: If these are not whole blocks of this image.
            StorageError: If the place cannot be written to; each block then has either its old or its new content.
        """
        box = self._box(level, corner, pixels.shape)
        facts = self.levels[level]
        whole = all(
            part.start % block == 0 and (part.stop % block == 0 or part.stop == length)
            for part, block, length in zip(box, facts.block, facts.shape, strict=True)
        )
        if not whole or pixels.dtype.newbyteorder("=") != self.dtype:
            raise ImageError(
                f"{self.place}: {pixels.dtype} of {pixels.shape} at {tuple(corner)} was given for level {level}; "
                f"expected {self.dtype} in whole blocks of {facts.block}, or up to the edge at {facts.shape}; align "
                "them"
            )
        self._storage.put(self._encode(level, box, pixels))
        return _crc(pixels)

    def read(self, level: int, corner: Sequence[int], size: Sequence[int]) -> Array:
        """Read any region of a level; pixels that were never written are 0."""
        box = self._box(level, corner, size)
        return self._images[level].read(dict(zip(self.axes, box, strict=True)))

    def checksum(self, level: int, corner: Sequence[int], size: Sequence[int]) -> int:
        """CRC-32 of the pixels stored in a region.

        Raises:
            ImageError: If the region is damaged and cannot be read.
        """
        return _crc(self.read(level, corner, size))

    def halve(self, level: int, corner: Sequence[int], size: Sequence[int]) -> Array:
        """Compute a region of a level from the previous level: each pixel is the mean of the pixels it covers.

        The result is a pure function of the stored pixels and is not written. Integers are rounded; NaN stays NaN.
        """
        box = self._box(level, corner, size)
        if level == 0:
            raise ImageError(f"{self.place}: level 0 was to be computed; expected a coarser one; write level 0 itself")
        steps, finer = self.levels[level].steps, self.levels[level - 1].shape
        start = [part.start * step for part, step in zip(box, steps, strict=True)]
        stop = [min(part.stop * step, most) for part, step, most in zip(box, steps, finer, strict=True)]
        below = self.read(level - 1, start, [end - first for first, end in zip(start, stop, strict=True)])
        return halve_pixels(below, steps)

    def note(self, text: str) -> None:
        """Add a sentence to the image's metadata, once; notes do not count when images are compared."""
        for name in ("zarr.json", ".zattrs"):
            content = json.loads(self._storage.get(name) or b"{}")
            told = content.get("attributes", content).get("sfumato")
            if told is None:
                continue
            notes = told.setdefault(_NOTES, [])
            if text not in notes:
                notes.append(text)
                self._storage.put({name: json.dumps(content, indent=2).encode()})
            self.metadata = {**self.metadata, _NOTES: notes}

    def remove_leftovers(self) -> None:
        """Remove unfinished files of killed processes; call this only while no process writes."""
        self._storage.remove_leftovers()

    def _encode(self, level: int, box: tuple[slice, ...], pixels: Array) -> dict[str, bytes]:
        """Encode blocks with Zarr in memory: writing in place would first read the old blocks, which may be damaged."""
        files: dict[str, Buffer] = {}
        metadata: Any = self._images[level].array.metadata
        # Blocks of zeros are written too, so that a missing file means never written or lost.
        config: Any = {"write_empty_chunks": True}
        zarr.Array(zarr.AsyncArray(metadata, StorePath(MemoryStore(files)), config))[box] = pixels
        return {f"{self._names[level]}/{key}": file.to_bytes() for key, file in files.items()}

    def _check_level(self, level: int) -> None:
        if not 0 <= level < len(self.levels):
            raise ImageError(f"{self.place} has no level {level}; expected 0 to {len(self.levels) - 1}; ask for these")

    def _box(self, level: int, corner: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
        """Return a checked region inside a level."""
        self._check_level(level)
        shape = self.levels[level].shape
        fits = len(corner) == len(size) == len(shape) and all(
            0 <= start < start + length <= most for start, length, most in zip(corner, size, shape, strict=True)
        )
        if not fits:
            raise ImageError(
                f"{self.place}: the region at {tuple(corner)} of size {tuple(size)} was asked of level {level}; "
                f"expected one inside its shape {shape} ({self.axes}), with at least one pixel; clip it"
            )
        return tuple(slice(start, start + length) for start, length in zip(corner, size, strict=True))


def _facts(document: bytes | None) -> dict[str, Any]:
    """Extract the metadata entries that identify an image; Zarr versions may write the rest differently."""
    content = json_object(document or b"")
    if isinstance(own := content.get("attributes", content).get("sfumato"), dict):
        own.pop(_NOTES, None)
    identifying = ("attributes", "shape", "dtype", "data_type", "chunks", "chunk_grid")
    return {key: content[key] for key in identifying if key in content} or content


def _crc(pixels: Array) -> int:
    stored = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder("<"))
    return zlib.crc32(stored.reshape(-1).view(np.uint8).data)
