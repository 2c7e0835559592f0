"""Identify an input file by its size, its times and a hash of a bounded part of its content.

Resumed work compares identities, so that half-done work is never completed with another image of the same name. Hashing
whole files would read terabytes; this hash reads at most 64 kilobytes of a file (its head, its tail and blocks strided
over the middle). For a Zarr store it reads the documents and as much from chunks spread over the grid. Another image
differs there, but a file of the same size in which a few bytes were changed elsewhere is not noticed.
"""

import hashlib
import itertools
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from sfumato.system.errors import ImageError
from sfumato.system.marks import json_object

__all__ = ["Identity", "identify", "stored_at"]

_END, _BLOCK, _NUM_BLOCKS = 2**14, 2**12, 8
_NUM_CHUNKS = 16
_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs")


@dataclass(frozen=True)
class Identity:
    """The identity of a file at one time.

    Attributes:
        size: Size in bytes; for a Zarr store, the number of bytes hashed.
        times: Times of the last change of its content and of its directory entry, in nanoseconds; empty for a Zarr
            store.
        digest: Hash of the bounded part of its content.
    """

    size: int
    times: tuple[int, ...]
    digest: str

    def is_still(self, place: str | os.PathLike[str]) -> bool:
        """Whether a path or address still holds this content; it is hashed only if its times differ, as after a copy.

        Raises:
            ImageError: If it cannot be read.
        """
        name = stored_at(place)
        if self.times and "://" not in name:
            facts = _stat(name)
            if stat.S_ISREG(facts.st_mode) and facts.st_size != self.size:
                return False
            if stat.S_ISREG(facts.st_mode) and _times(facts) == self.times:
                return True
        now = identify(name)
        return (now.size, now.digest) == (self.size, self.digest)

    def to_json(self) -> dict[str, Any]:
        """Return the identity as JSON values."""
        return {**asdict(self), "times": list(self.times)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """The reverse of :meth:`to_json`."""
        return cls(int(values["size"]), tuple(int(time) for time in values["times"]), str(values["digest"]))


def identify(place: str | os.PathLike[str]) -> Identity:
    """Identify a file, a Zarr store or the store at an address; for an array in an npz archive, the archive.

    Raises:
        ImageError: If it cannot be read.
    """
    name = stored_at(place)
    if "://" in name:
        return _of_parts(_store_parts(name))
    facts = _stat(name)
    if stat.S_ISDIR(facts.st_mode):
        return _of_parts(_store_parts(name))
    try:
        with open(name, "rb") as file:  # noqa: PTH123  a Path of each costs as much as reading it
            return Identity(facts.st_size, _times(facts), _of_parts(_file_parts(file, facts.st_size)).digest)
    except OSError as error:
        raise _unreadable(name, error) from error


def stored_at(place: str | os.PathLike[str]) -> str:
    """Return the file or store that holds an image; for an array in an npz archive, the archive."""
    name = os.fspath(place)
    archive = os.path.dirname(name)  # noqa: PTH120  as above: this runs for each of thousands of files
    return archive if archive.endswith(".npz") and "://" not in name and Path(archive).is_file() else name


def _of_parts(parts: Iterator[bytes]) -> Identity:
    digest, size = hashlib.blake2b(digest_size=16), 0
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
        size += len(part)
    return Identity(size, (), digest.hexdigest())


def _file_parts(file: Any, size: int) -> Iterator[bytes]:
    """Yield the size, head, blocks of the middle and tail of a file; all of a short file."""
    yield size.to_bytes(8, "little")
    if size <= 2 * _END + _NUM_BLOCKS * _BLOCK:
        yield file.read(size)
        return
    yield file.read(_END)
    stride = (size - 2 * _END) // _NUM_BLOCKS
    for number in range(_NUM_BLOCKS):
        file.seek(_END + number * stride)
        yield file.read(_BLOCK)
    file.seek(size - _END)
    yield file.read(_END)


def _store_parts(name: str) -> Iterator[bytes]:
    """Yield the documents of a Zarr store's groups and first array, and parts of that array's chunks."""
    from sfumato.data.images.storage import storage_at  # imports zarr, which takes half a second; most images are files

    storage, folder = storage_at(name), ""
    found = False
    while True:
        documents = {key: storage.get(f"{folder}{key}") for key in _DOCUMENTS}
        for key, content in documents.items():
            if content is not None:
                found = True
                yield f"{folder}{key}".encode()
                yield content
        array = json_object(documents["zarr.json"] or documents[".zarray"] or b"")
        if "shape" in array:
            break
        attributes = array.get("attributes") or json_object(documents[".zattrs"] or b"")
        path = _first_dataset(attributes)
        if path is None or folder:
            if not found:
                raise ImageError(f"{name} holds no image; expected a file or a Zarr store; check its name")
            return
        folder = f"{path}/"
    for key in _chunk_keys(array):
        chunk = storage.ends(f"{folder}{key}", _BLOCK)
        if chunk is not None:
            size, head, tail = chunk
            yield key.encode()
            yield size.to_bytes(8, "little") + head + tail


def _first_dataset(attributes: dict[str, Any]) -> str | None:
    """Path of the first array of an OME-Zarr image."""
    try:
        path = attributes.get("ome", attributes)["multiscales"][0]["datasets"][0]["path"]
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    return path if isinstance(path, str) and ".." not in path.split("/") and not path.startswith("/") else None


def _chunk_keys(array: dict[str, Any]) -> Iterator[str]:
    """Yield keys of chunks spread over the grid, whatever its size."""
    try:
        is_second = array.get("zarr_format") == 2
        chunks = array["chunks"] if is_second else array["chunk_grid"]["configuration"]["chunk_shape"]
        counts = [-(-int(length) // int(size)) for length, size in zip(array["shape"], chunks, strict=True)]
        encoding = array.get("chunk_key_encoding", {})
        separator = array.get("dimension_separator", ".") if is_second else encoding.get("configuration", {}).get(
            "separator", "/" if encoding.get("name") == "default" else "."
        )  # fmt: skip
        prefix = [] if is_second or encoding.get("name") != "default" else ["c"]
        total = math.prod(counts)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError):
        return  # reported when the store is opened
    step = max(1, total // _NUM_CHUNKS)
    for number in itertools.islice(range(0, total, step), _NUM_CHUNKS):
        place, backwards = number, []
        for count in reversed(counts):
            place, along = divmod(place, count)
            backwards.append(str(along))
        yield separator.join([*prefix, *reversed(backwards)])


def _stat(name: str) -> os.stat_result:
    try:
        return os.stat(name)  # noqa: PTH116
    except OSError as error:
        raise _unreadable(name, error) from error


def _times(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_mtime_ns, facts.st_ctime_ns


def _unreadable(name: str, error: OSError) -> ImageError:
    return ImageError(f"cannot read {name}: {error.strerror or error}; expected an image that is there; check its name")
