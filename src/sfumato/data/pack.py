"""Writing any source of pairs into one packed store (:mod:`sfumato.data.packed`); stopped, it goes on where it was."""

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from sfumato.data.frames import PairSource
from sfumato.data.packed import ATTRIBUTE, VERSION
from sfumato.data.shards import CODECS
from sfumato.data.zarr_array import open_checked, store_at
from sfumato.data.zarr_documents import read_document
from sfumato.errors import ImageError, PairingError

__all__ = ["pack"]

_CHUNK_SIDE = {2: 128, 3: 32}
"""Longest side of a chunk in pixels: a patch of usual size touches few, and little is decoded in vain."""
_CHUNKS_PER_SHARD = 4096


def pack(
    sources: Mapping[str, PairSource],
    path: str | Path,
    *,
    shard_bytes: int = 2**26,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write sources into one store, each as a split of its name.

    Args:
        sources: By the name of their split, `train` and, if wanted, `validation` and `test`.
        path: Folder of the store to make, or one of the same sources whose packing was stopped.
        shard_bytes: Size of a file before compression, at most.
        progress: Called with the number of shards written and their total.

    Raises:
        PairingError: If the folder holds something else.
        ImageError: If it cannot be written.
    """
    description = _describe(sources)
    try:
        root = _open(Path(path), description)
        if root is None:
            return
        arrays = {split: _arrays(root, split, source, shard_bytes) for split, source in sources.items()}
        blocks = [(split, *block) for split in sources for block in _blocks(arrays[split][0])]
        for done, (split, file, corner) in enumerate(blocks):
            if not all((Path(path) / array.path / file).exists() for array in arrays[split]):
                _write(sources[split], arrays[split], corner)
            if progress is not None:
                progress(done + 1, len(blocks))
        root.attrs[ATTRIBUTE] = {**description, "complete": True}
    except OSError as error:
        raise ImageError(
            f"cannot write the store {path}: {error.strerror or error}; expected a folder with space that may be "
            "written to; mend it and give the same command, which goes on where it was"
        ) from error


def _describe(sources: Mapping[str, PairSource]) -> dict[str, Any]:
    """What the store says of itself, with a digest by which an interrupted packing knows its own."""
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


def _open(path: Path, description: Mapping[str, Any]) -> zarr.Group | None:
    """The store to write to, or None if it is there and complete."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return zarr.create_group(path, zarr_format=3, attributes={ATTRIBUTE: dict(description)})
    held: Any = None
    if (path / "zarr.json").is_file():
        held = read_document(store_at(path), "zarr.json").get("attributes", {}).get(ATTRIBUTE)
    if not isinstance(held, dict) or held.get("digest") != description["digest"]:
        raise PairingError(f"{path} exists and is not a store of these pairs; choose another name or remove it")
    return None if held.get("complete") else zarr.open_group(path, mode="r+", use_consolidated=False)


def _arrays(root: zarr.Group, split: str, source: PairSource, shard_bytes: int) -> list[zarr.Array[Any]]:
    """Conditions and targets of a split, with its tables written."""
    group = root.require_group(split)
    sizes = np.array([source.spatial(sample) for sample in range(len(source))], "<i4")
    names = [source.name(sample).encode() for sample in range(len(source))]
    tables: dict[str, NDArray[Any]] = {
        "sizes": sizes,
        "name_ends": np.cumsum([len(name) for name in names], dtype="<i8"),
        "name_text": np.frombuffer(b"".join(names) or b"\0", "u1"),
    }
    for name, values in tables.items():
        raw: dict[str, Any] = {"chunks": values.shape, "compressors": None, "filters": None, "overwrite": True}
        group.create_array(name, shape=values.shape, dtype=values.dtype, **raw)[...] = values
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
    if read_document(group.store, f"{group.path}/{name}/zarr.json"):
        held = open_checked(group.store, f"{group.path}/{name}")
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
        config={"write_empty_chunks": True},  # so that a missing file is a loss, and never read as zeros
    )


def _cut(number: int, spatial: tuple[int, ...], pixel_bytes: int, shard_bytes: int) -> tuple[list[int], list[int]]:
    """Chunk in pixels, shard in samples and pixels: of many small samples, or a part of a large one."""
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
    """File and first element of each shard."""
    assert array.shards is not None
    counts = [-(-length // size) for length, size in zip(array.shape, array.shards, strict=True)]
    for place in itertools.product(*map(range, counts)):
        yield "c/" + "/".join(map(str, place)), tuple(i * n for i, n in zip(place, array.shards, strict=True))


def _write(source: PairSource, arrays: Sequence[zarr.Array[Any]], corner: tuple[int, ...]) -> None:
    """Fill one shard of conditions and one of targets; what lies outside a sample stays zero."""
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
