"""Write any source of pairs to one packed store (:mod:`sfumato.data.packed`); an interrupted packing can be resumed.

The files that a store is made of are recorded as tables in its group `files`. Packing into an existing store is refused
if files or settings differ, and the error names the differences. Each table is one raw chunk, which can be mapped into
memory.
"""

import hashlib
import itertools
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zarr
from numpy.typing import NDArray

from sfumato.data.images.image import DamageError, reading
from sfumato.data.images.zarr_array import open_checked, store_at
from sfumato.data.images.zarr_documents import read_document
from sfumato.data.packed import ATTRIBUTE, VERSION, description_of, read_whole
from sfumato.data.shards import CODECS
from sfumato.data.source_files import FileRecord, SourceFile, files_of
from sfumato.data.sources import PairSource
from sfumato.system.errors import ImageError, PairingError

__all__ = ["Packing", "pack"]

_CHUNK_SIDE = {2: 128, 3: 32}
"""Longest side of a chunk in pixels: a usual patch touches few chunks, and little is decoded in vain."""
_CHUNKS_PER_SHARD = 4096
_FILES = "files"
"""Group of the tables of files."""
_ADVICE = "choose another --out, or remove the store to pack it again"
_NOT_THESE = "exists and is not a store of these pairs; choose another name or remove it"
_UNKNOWN = "does not record the files it was made from (stores of version 0.1 do not)"


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
        _record_files(root, files)
        return root, ""
    held = description_of(path)
    if held is None:
        raise PairingError(f"{path} {_NOT_THESE}")
    is_known = _check_files(path, held, files)
    _check_settings(path, held, description["settings"])
    if held.get("digest") != description["digest"]:
        raise PairingError(f"{path} {_NOT_THESE}")
    if held.get("complete"):
        return None, "" if is_known else f"{path} {_UNKNOWN}, so it was not compared with these"
    root = zarr.open_group(path, mode="r+", use_consolidated=False)
    return root, "" if is_known else _begin_again(path, root, description, files)


def _begin_again(path: Path, root: zarr.Group, description: Mapping[str, Any], files: Sequence[SourceFile]) -> str:
    """Remove what an interrupted packing wrote from unrecorded files: others may share their names and sizes."""
    written = [path / split for split in description["splits"] if (path / split).exists()]
    for folder in written:
        shutil.rmtree(folder)
    root.attrs[ATTRIBUTE] = dict(description)
    _record_files(root, files)
    return f"{path} {_UNKNOWN}, so it was packed again from the start" if written else ""


def _complete(path: Path, root: zarr.Group, sources: Mapping[str, PairSource], files: Sequence[SourceFile]) -> None:
    """Mark the store as complete; if files were replaced meanwhile, remove its splits, which may mix old and new."""
    held = description_of(path) or {}
    try:
        _check_files(path, held, files)
    except PairingError:
        for split in sources:
            shutil.rmtree(path / split)
        raise
    root.attrs[ATTRIBUTE] = {**held, "complete": True}


def _arrays(root: zarr.Group, split: str, source: PairSource, shard_bytes: int) -> list[zarr.Array[Any]]:
    """Create or open the arrays of conditions and targets of a split, and write its tables."""
    group, number = root.require_group(split), len(source)
    sizes = np.array([source.spatial(sample) for sample in range(number)], "<i4")
    names = [source.name(sample) for sample in range(number)]
    _write_tables(group, {"sizes": sizes, **_text_tables("name", names)})
    largest = sizes.max(axis=0).tolist()
    sides = {"condition": source.condition_channels, "target": source.target_channels}
    pixel_bytes = max(k * dtype.itemsize for k, dtype in zip(sides.values(), source.dtypes, strict=True))
    chunk, (samples, *shard) = _cut(number, largest, pixel_bytes, shard_bytes)
    return [
        _array(group, name, dtype, shape=(number, k, *largest), chunks=(1, k, *chunk), shards=(samples, k, *shard))
        for (name, k), dtype in zip(sides.items(), source.dtypes, strict=True)
    ]


def _array(group: zarr.Group, name: str, dtype: np.dtype[Any], **layout: Any) -> zarr.Array[Any]:
    """Create an array, or open the one of an interrupted packing."""
    config: Any = {"write_empty_chunks": True}  # so that a missing file is an error and is never read as zeros
    place = f"{group.path}/{name}"
    with reading(place, "packed"):
        held = open_checked(group.store, place) if read_document(group.store, f"{place}/zarr.json") else None
    if held is not None:
        return zarr.Array(zarr.AsyncArray(held.metadata, group.store_path / name, config))
    codecs: dict[str, Any] = {"serializer": CODECS[0], "compressors": CODECS[1:], "filters": None}
    return group.create_array(name, dtype=dtype.newbyteorder("="), **layout, **codecs, config=config)


def _cut(number: int, spatial: Sequence[int], pixel_bytes: int, shard_bytes: int) -> tuple[list[int], list[int]]:
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


def _record_files(root: zarr.Group, files: Sequence[SourceFile]) -> None:
    """Write the tables of files, then their digest; tables without a digest are ignored."""
    record = FileRecord.of(files)
    if files:
        tables = {"facts": record.facts, **_text_tables("label", record.labels)}
        _write_tables(root.require_group(_FILES), tables)
    said: Any = root.attrs.asdict()[ATTRIBUTE]
    root.attrs[ATTRIBUTE] = {**said, "files": record.digest()}


def _check_files(path: Path, held: Mapping[str, Any], files: Sequence[SourceFile]) -> bool:
    """Check that a store was made from these files; returns False if the store has no record of its files.

    Args:
        path: The store.
        held: The description of the store.
        files: The files to pack.

    Raises:
        PairingError: If the recorded files differ; the message names them.
    """
    record = _held(path, held.get("files"))
    differences = record.differences(files) if record is not None else ""
    if differences:
        raise PairingError(
            f"{path} is a store of other files ({differences}); expected the same ones; put them back, {_ADVICE}"
        )
    return record is not None


def _check_settings(path: Path, held: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Check that a store was packed with these settings; stores of version 0.1 have no record of them.

    Raises:
        PairingError: If a setting differs.
    """
    before = held.get("settings")
    if not isinstance(before, dict):
        return
    for name in sorted(before.keys() | settings.keys()):
        if before.get(name) != settings.get(name):
            raise PairingError(
                f"{path} was packed with {name} {before.get(name)!r}, and now it is {settings.get(name)!r}; "
                f"expected the same; give it as it was, {_ADVICE}"
            )


def _held(path: Path, digest: Any) -> FileRecord | None:
    """Read the file record of a store; None for stores of version 0.1 and for incomplete records."""
    nothing = FileRecord.of([])
    if digest == nothing.digest():
        return nothing
    try:
        store = store_at(path)
        names = ("facts", "label_ends", "label_text")
        facts, ends, text = (read_whole(open_checked(store, f"{_FILES}/{name}")) for name in names)
        labels = _read_texts(ends, text)
        record = FileRecord(len(labels), labels, facts)
        return record if digest is not None and record.digest() == digest else None
    except (DamageError, KeyError, ValueError, TypeError, IndexError):
        return None


def _write_tables(group: zarr.Group, tables: Mapping[str, NDArray[Any]]) -> None:
    """Write each table as an array of its name, replacing an existing one."""
    for name, values in tables.items():
        raw: dict[str, Any] = {"chunks": values.shape, "compressors": None, "filters": None, "overwrite": True}
        group.create_array(name, shape=values.shape, dtype=values.dtype, **raw)[...] = values


def _text_tables(what: str, texts: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Encode texts as two tables: all texts in UTF-8, and the end of each."""
    coded = [text.encode() for text in texts]
    return {
        f"{what}_ends": np.cumsum([len(text) for text in coded], dtype="<i8"),
        f"{what}_text": np.frombuffer(b"".join(coded) or b"\0", "u1"),
    }


def _read_texts(ends: NDArray[Any], text: NDArray[Any]) -> list[str]:
    """The reverse of ``_text_tables``.

    Example:
        >>> _read_texts(*_text_tables("name", ["a", "", "b c"]).values())
        ['a', '', 'b c']
    """
    whole, last = text.tobytes(), ends.tolist()
    return [whole[start:end].decode() for start, end in zip([0, *last], last, strict=False)]
