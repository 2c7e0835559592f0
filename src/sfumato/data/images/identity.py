"""Which file an input was when work on it began: its size, its times, and a hash of a bounded part of its content.

Work that is resumed compares them, so that what is half done is never completed with another image of the same name. A
hash of whole files would read terabytes; this one reads at most 64 kilobytes of a file (its head, its tail and blocks
strided over the middle), and of a Zarr store its documents and as much of chunks that are spread over its grid. Another
image differs there; a file of the same size in which somebody changed a few bytes elsewhere is not told apart.
"""

import hashlib
import itertools
import json
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from sfumato.system.errors import ImageError

__all__ = ["Identity", "identify", "stored_at"]

_END, _BLOCK, _NUM_BLOCKS = 2**14, 2**12, 8
_NUM_CHUNKS = 16
_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs")


@dataclass(frozen=True)
class Identity:
    """What a file was.

    Attributes:
        size: In bytes; of a Zarr store, that of what was hashed.
        times: When its content and its entry were last changed, in nanoseconds; of a Zarr store, nothing.
        digest: Of the bounded part of its content.
    """

    size: int
    times: tuple[int, ...]
    digest: str

    def is_still(self, place: str | os.PathLike[str]) -> bool:
        """Whether a place holds the same content; hashed again only if its times are others, as after a copy.

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
        """As names and values that JSON can hold."""
        return {**asdict(self), "times": list(self.times)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """The reverse of :meth:`to_json`."""
        return cls(int(values["size"]), tuple(int(time) for time in values["times"]), str(values["digest"]))


def identify(place: str | os.PathLike[str]) -> Identity:
    """What a file, a Zarr store or the store at an address is now; of an array in an npz archive, the archive.

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
    """The file or store that an image is in: of an array in an npz archive, the archive."""
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
    """Size and head of a file, its tail and some of its middle; all of a short one."""
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
    """Documents of a Zarr store, of its groups and first array, and parts of that array's chunks."""
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
        array = _json(documents["zarr.json"]) if documents["zarr.json"] else _json(documents[".zarray"])
        if "shape" in array:
            break
        attributes = array.get("attributes") or _json(documents[".zattrs"])
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


def _json(document: bytes | None) -> dict[str, Any]:
    try:
        values = json.loads(document or b"{}")
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _first_dataset(attributes: dict[str, Any]) -> str | None:
    """Where the first array of an OME-Zarr image is."""
    try:
        path = attributes.get("ome", attributes)["multiscales"][0]["datasets"][0]["path"]
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    return path if isinstance(path, str) and ".." not in path.split("/") and not path.startswith("/") else None


def _chunk_keys(array: dict[str, Any]) -> Iterator[str]:
    """Keys of chunks that are spread over the grid, however large it is."""
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
        return  # whoever opens it says what is wrong with it
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
