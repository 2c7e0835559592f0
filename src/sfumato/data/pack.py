"""Write any source of pairs to one packed store (:mod:`sfumato.data.packed`); an interrupted packing can be resumed."""

import hashlib
import itertools
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zarr

from sfumato.data.images.image import reading
from sfumato.data.images.zarr_array import open_checked
from sfumato.data.images.zarr_documents import read_document
from sfumato.data.pack_record import check_files, check_settings, description_of, record_files
from sfumato.data.packed import ATTRIBUTE, VERSION
from sfumato.data.shards import CODECS
from sfumato.data.source_files import SourceFile, files_of
from sfumato.data.sources import PairSource
from sfumato.data.tables import text_tables, write_tables
from sfumato.system.errors import ImageError, PairingError

__all__ = ["Packing", "pack"]

_CHUNK_SIDE = {2: 128, 3: 32}
"""Longest side of a chunk in pixels: a usual patch touches few chunks, and little is decoded in vain."""
_CHUNKS_PER_SHARD = 4096


class Packing(NamedTuple):
    """The result of a packing."""

    is_new: bool
    """Whether anything was written; if not, the store was complete."""
    note: str = ""
    """A note on what could not be checked, if anything."""


def pack(
    sources: Mapping[str, PairSource],
    path: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    shard_bytes: int = 2**26,
    progress: Callable[[int, int], None] | None = None,
) -> Packing:
    """Write sources to one store, each as the split that it is named after.

    Args:
        sources: Sources by the name of their split: `train` and optionally `validation` and `test`.
        path: Folder of the store to create, or of an interrupted packing of the same sources, which is resumed.
        settings: Other settings that the samples depend on, as JSON values; recorded, and compared when resuming.
        shard_bytes: Largest size of a file before compression.
        progress: Called with the number of shards written and their total.

    Raises:
        PairingError: If the folder holds something else, such as a store of other files, or if files change while they
            are packed.
        ImageError: If the store cannot be written.
    """
    files = files_of(sources)
    description = {**_describe(sources), "settings": dict(settings or {})}
    try:
        root, note = _open(Path(path), description, files)
        if root is None:
            return Packing(False, note)
        arrays = {split: _arrays(root, split, source, shard_bytes) for split, source in sources.items()}
        blocks = [(split, *block) for split in sources for block in _blocks(arrays[split][0])]
        for done, (split, file, corner) in enumerate(blocks):
            if not all((Path(path) / array.path / file).exists() for array in arrays[split]):
                _write(sources[split], arrays[split], corner)
            if progress is not None:
                progress(done + 1, len(blocks))
        _complete(Path(path), root, sources, files)
    except OSError as error:
        raise ImageError(
            f"cannot write the store {path}: {error.strerror or error}; expected a folder with space that may be "
            "written to; fix it and rerun the command, which resumes"
        ) from error
    return Packing(True, note)


def _describe(sources: Mapping[str, PairSource]) -> dict[str, Any]:
    """Describe the store, with a digest that identifies the sources of an interrupted packing."""
    digest = hashlib.sha256()
    for split, source in sources.items():
        facts = (split, source.ndim, source.condition_channels, source.target_channels, *map(str, source.dtypes))
        digest.update(repr(facts).encode())
        for sample in range(len(source)):
            digest.update(repr((source.name(sample), source.spatial(sample))).encode())
    splits = {
        split: {"samples": len(source), "smallest": source.smallest(), "factor": source.factor and list(source.factor)}
        for split, source in sources.items()
    }
    return {"version": VERSION, "complete": False, "digest": digest.hexdigest(), "splits": splits}


def _open(path: Path, description: Mapping[str, Any], files: Sequence[SourceFile]) -> tuple[zarr.Group | None, str]:
    """Open the store to write to (None if it is already complete), with a note on what could not be checked."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        root = zarr.create_group(path, zarr_format=3, attributes={ATTRIBUTE: dict(description)})
        record_files(root, files)
        return root, ""
    held = description_of(path)
    if held is None:
        raise PairingError(f"{path} {_NOT_THESE}")
    is_known = check_files(path, held, files)
    check_settings(path, held, description["settings"])
    if held.get("digest") != description["digest"]:
        raise PairingError(f"{path} {_NOT_THESE}")
    if held.get("complete"):
        return None, "" if is_known else f"{path} {_UNKNOWN}, so it was not compared with these"
    root = zarr.open_group(path, mode="r+", use_consolidated=False)
    return root, "" if is_known else _begin_again(path, root, description, files)


_NOT_THESE = "exists and is not a store of these pairs; choose another name or remove it"
_UNKNOWN = "does not say of which files it was made, as stores of version 0.1 do not"


def _begin_again(path: Path, root: zarr.Group, description: Mapping[str, Any], files: Sequence[SourceFile]) -> str:
    """Remove what an interrupted packing wrote from unrecorded files: others may share their names and sizes."""
    written = [path / split for split in description["splits"] if (path / split).exists()]
    for folder in written:
        shutil.rmtree(folder)
    root.attrs[ATTRIBUTE] = dict(description)
    record_files(root, files)
    return f"{path} {_UNKNOWN}, so its packing began again" if written else ""


def _complete(path: Path, root: zarr.Group, sources: Mapping[str, PairSource], files: Sequence[SourceFile]) -> None:
    """Mark the store as complete; if files were replaced meanwhile, remove its splits, which may mix old and new."""
    held = description_of(path) or {}
    try:
        check_files(path, held, files)
    except PairingError:
        for split in sources:
            shutil.rmtree(path / split)
        raise
    root.attrs[ATTRIBUTE] = {**held, "complete": True}


def _arrays(root: zarr.Group, split: str, source: PairSource, shard_bytes: int) -> list[zarr.Array[Any]]:
    """Create or open the arrays of conditions and targets of a split, and write its tables."""
    group = root.require_group(split)
    sizes = np.array([source.spatial(sample) for sample in range(len(source))], "<i4")
    names = [source.name(sample) for sample in range(len(source))]
    write_tables(group, {"sizes": sizes, **text_tables("name", names)})
    largest = tuple(int(length) for length in sizes.max(axis=0))
    channels = (source.condition_channels, source.target_channels)
    pixel_bytes = max(number * dtype.itemsize for number, dtype in zip(channels, source.dtypes, strict=True))
    chunk, shard = _cut(len(source), largest, pixel_bytes, shard_bytes)
    return [
        _array(group, name, (len(source), number, *largest), dtype, (1, number, *chunk), (shard[0], number, *shard[1:]))
        for name, number, dtype in zip(("condition", "target"), channels, source.dtypes, strict=True)
    ]


def _array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    chunks: tuple[int, ...],
    shards: tuple[int, ...],
) -> zarr.Array[Any]:
    place = f"{group.path}/{name}"
    with reading(place, "packed"):
        held = open_checked(group.store, place) if read_document(group.store, f"{place}/zarr.json") else None
    if held is not None:
        return zarr.Array(zarr.AsyncArray(held.metadata, group.store_path / name, {"write_empty_chunks": True}))
    return group.create_array(
        name,
        shape=shape,
        dtype=dtype.newbyteorder("="),
        chunks=chunks,
        shards=shards,
        serializer=CODECS[0],
        compressors=CODECS[1:],
        filters=None,
        config={"write_empty_chunks": True},  # so that a missing file is an error and is never read as zeros
    )


def _cut(number: int, spatial: tuple[int, ...], pixel_bytes: int, shard_bytes: int) -> tuple[list[int], list[int]]:
    """Choose the chunk (pixels) and the shard (samples and pixels): many small samples, or part of a large one."""
    side = _CHUNK_SIDE[len(spatial)]
    counts = [-(-length // side) for length in spatial]
    chunk = [-(-length // count) for length, count in zip(spatial, counts, strict=True)]
    most = max(1, min(_CHUNKS_PER_SHARD, shard_bytes // (math.prod(chunk) * pixel_bytes)))
    while math.prod(counts) > most:
        longest = int(np.argmax(counts))
        counts[longest] = -(-counts[longest] // 2)
    samples = min(number, max(1, most // math.prod(counts)))
    return chunk, [samples, *(length * count for length, count in zip(chunk, counts, strict=True))]


def _blocks(array: zarr.Array[Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the file and the first element of each shard."""
    assert array.shards is not None
    counts = [-(-length // size) for length, size in zip(array.shape, array.shards, strict=True)]
    for place in itertools.product(*map(range, counts)):
        yield "c/" + "/".join(map(str, place)), tuple(i * n for i, n in zip(place, array.shards, strict=True))


def _write(source: PairSource, arrays: Sequence[zarr.Array[Any]], corner: tuple[int, ...]) -> None:
    """Fill one shard of conditions and one of targets; pixels outside a sample stay zero."""
    boxes, blocks = [], []
    for array in arrays:
        assert array.shards is not None
        ends = [min(start + n, full) for start, n, full in zip(corner, array.shards, array.shape, strict=True)]
        boxes.append(tuple(slice(start, end) for start, end in zip(corner, ends, strict=True)))
        blocks.append(np.zeros([span.stop - span.start for span in boxes[-1]], array.dtype))
    samples, _, *spans = boxes[0]
    for row, sample in enumerate(range(samples.start, samples.stop)):
        size = [min(s.stop, n) - s.start for s, n in zip(spans, source.spatial(sample), strict=True)]
        if min(size) > 0:
            place: tuple[Any, ...] = (row, slice(None), *(slice(length) for length in size))
            for block, pixels in zip(blocks, source.read(sample, corner[2:], size), strict=True):
                block[place] = pixels
    for array, box, block in zip(arrays, boxes, blocks, strict=True):
        array[box] = block
