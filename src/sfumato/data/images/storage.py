"""Put the files of a store durably into a folder or at an address.

Both identify files by keys such as ``0/c/3/7``. A file appears whole or not at all, and is safe once ``put`` returns,
even if the machine crashes. Zarr's own store for folders renames files into place but does not flush them, so a chunk
that a journal lists as done could be empty after a power cut; that is why folders are written here. Addresses go
through Zarr's ``FsspecStore``: object stores write whole objects and confirm when they have them.
"""

import asyncio
import contextlib
import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore

from sfumato.system.atomic_files import advice_on, sync_folder
from sfumato.system.errors import ImageError, SfumatoError, StorageError

__all__ = ["Address", "Folder", "Storage", "fsspec_store", "storage_at"]

_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{32}\.unfinished")
_QUOTE_LENGTH = 300
_PLAIN = {"headers": {"Accept-Encoding": "identity"}, "auto_decompress": False}
"""Disable HTTP compression: a compressing server could send any length in a few bytes."""


class Storage(Protocol):
    """The common interface of folders and addresses."""

    def get(self, key: str) -> bytes | None:
        """Content of a file, or None if there is none."""

    def ends(self, key: str, length: int) -> tuple[int, bytes, bytes] | None:
        """Size of a file, with its first and last ``length`` bytes, or None if there is none; nothing else is read."""

    def put(self, files: Mapping[str, bytes]) -> None:
        """Write files, each whole or not at all; when this returns they are safe."""

    def create(self, files: Mapping[str, bytes], last: str) -> None:
        """Write the first files of a new store; the file ``last`` exists only if all others do.

        If a store already exists, or another process creates it meanwhile, nothing happens.
        """

    def is_free(self, expected: Mapping[str, bytes]) -> bool:
        """Whether there is nothing, or only files that an interrupted ``create`` could have left."""

    def remove_leftovers(self) -> None:
        """Remove unfinished files of killed processes; call this only while no process writes."""


def storage_at(place: str | os.PathLike[str]) -> Storage:
    """Return the storage at a path or at an address such as ``s3://bucket/name.zarr``."""
    name = os.fspath(place)
    return Address(name) if "://" in name else Folder(Path(name))


class Folder:
    """A folder on a local or shared file system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lasting: set[Path] = set()
        """Folders whose own names this object has flushed."""

    def get(self, key: str) -> bytes | None:
        """Content of a file, or None if there is none."""
        with _writing(self.path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return self._file(key).read_bytes()
        return None

    def ends(self, key: str, length: int) -> tuple[int, bytes, bytes] | None:
        """Size of a file, with its first and last ``length`` bytes, or None if there is none."""
        with (
            _writing(self.path),
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            self._file(key).open("rb") as file,
        ):
            size = os.fstat(file.fileno()).st_size
            head = file.read(length)
            file.seek(max(0, size - length))
            return size, head, file.read(length)
        return None

    def put(self, files: Mapping[str, bytes]) -> None:
        """Write files, each to a temporary name that is flushed and then renamed; then flush the folders.

        The folder itself is not created: if it is gone, it was removed while being written to.
        """
        if not self.path.is_dir():
            raise StorageError(
                f"{self.path} is gone; expected the folder that was being written to; it was removed or renamed "
                "meanwhile: put it back, or start again in a new one"
            )
        with _writing(self.path):
            for key, content in files.items():
                file = self._file(key)
                self._make(file.parent)
                _put(file, content)
            for folder in {self._file(key).parent for key in files}:
                self._sync(folder)

    def create(self, files: Mapping[str, bytes], last: str) -> None:
        """Write the files to a temporary folder and rename it."""
        unfinished = _unfinished(self.path)
        with _writing(self.path):
            try:
                unfinished.mkdir()
                Folder(unfinished).put(files)
                unfinished.rename(self.path)
                sync_folder(self.path.parent)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)

    def is_free(self, expected: Mapping[str, bytes]) -> bool:
        """Whether the path does not exist or is an empty folder."""
        if not self.path.parent.is_dir():
            raise StorageError(
                f"{self.path.parent} is not a folder; expected one to make {self.path.name} in; make it first"
            )
        return not os.path.lexists(self.path) or (self.path.is_dir() and not any(self.path.iterdir()))

    def remove_leftovers(self) -> None:
        """Remove unfinished files inside, and unfinished folders of this name beside it."""
        with _writing(self.path):
            for folder, _, names in os.walk(self.path):
                for name in names:
                    if _LEFTOVER.fullmatch(name):
                        Path(folder, name).unlink(missing_ok=True)
            for beside in self.path.parent.iterdir():
                if _LEFTOVER.fullmatch(beside.name) and beside.name.startswith(f".{self.path.name}."):
                    shutil.rmtree(beside, ignore_errors=True)

    def _file(self, key: str) -> Path:
        parts = key.split("/")
        if not all(parts) or {".", ".."} & set(parts):
            raise ImageError(f"{self.path} was asked for {key!r}; expected a name inside it; the store is damaged")
        return self.path.joinpath(*parts)

    def _make(self, folder: Path) -> None:
        """Create a folder inside this one, but never this one itself."""
        if folder == self.path or folder.is_dir():
            return
        self._make(folder.parent)
        folder.mkdir(exist_ok=True)

    def _sync(self, folder: Path) -> None:
        """Flush a folder and, once, its own name: the process that created it may have been killed before doing so."""
        sync_folder(folder)
        if folder != self.path and folder not in self._lasting:
            self._sync(folder.parent)
            self._lasting.add(folder)


class Address:
    """An address that fsspec supports: an object store, or ``memory://`` in this process."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._store = fsspec_store(self.address)

    def get(self, key: str) -> bytes | None:
        """Content of a file, or None if there is none."""
        with _writing(self.address):
            buffer = sync(self._store.get(key, default_buffer_prototype()))
            return None if buffer is None else buffer.to_bytes()

    def ends(self, key: str, length: int) -> tuple[int, bytes, bytes] | None:
        """Size of an object, with its first and last ``length`` bytes, or None if there is none."""

        async def part(start: int, stop: int) -> bytes:
            buffer = await self._store.get(key, default_buffer_prototype(), RangeByteRequest(start, stop))
            return b"" if buffer is None else buffer.to_bytes()

        with _writing(self.address):
            try:
                size = sync(self._store.getsize(key))
            except FileNotFoundError:
                return None
            if size == 0:
                return 0, b"", b""
            return size, sync(part(0, min(length, size))), sync(part(max(0, size - length), size))

    def put(self, files: Mapping[str, bytes]) -> None:
        """Put all objects concurrently."""

        async def put_all() -> None:
            make = default_buffer_prototype().buffer.from_bytes
            await asyncio.gather(*(self._store.set(key, make(content)) for key, content in files.items()))

        with _writing(self.address):
            sync(put_all())

    def create(self, files: Mapping[str, bytes], last: str) -> None:
        """Put all objects, and last the one that makes them a store."""
        self.put({key: content for key, content in files.items() if key != last})
        self.put({last: files[last]})

    def is_free(self, expected: Mapping[str, bytes]) -> bool:
        """Whether every existing object is one that an interrupted ``create`` would have put, with the same content."""

        async def is_free() -> bool:
            async for key in self._store.list():
                if key not in expected:
                    return False
            return True

        with _writing(self.address):
            known = sync(is_free())
        return known and all(self.get(key) in (None, content) for key, content in expected.items())

    def remove_leftovers(self) -> None:
        """Do nothing: an object that was not put completely does not exist."""


def _put(file: Path, content: bytes) -> None:
    """Write a temporary file beside the target, flush it and rename it."""
    # Two processes may do the same task, so the temporary name must be unique.
    unfinished = _unfinished(file)
    try:
        with unfinished.open("xb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        unfinished.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.unfinished")


def fsspec_store(address: str, *, read_only: bool = False) -> FsspecStore:
    """Open Zarr's store at an address.

    Raises:
        ImageError: If this kind of address is unknown, or its libraries are missing.
    """
    if ".." in address.split("/"):
        raise ImageError(f"the address is {address!r}; expected one without '..'; spell it out")
    options = {"client_kwargs": _PLAIN} if address.startswith(("http://", "https://")) else {}
    try:
        return FsspecStore.from_url(address, options, read_only=read_only)
    except ImportError as error:
        raise ImageError(
            f"{address} cannot be reached: {error}; expected the libraries of its kind of address; install them with "
            "pip install 'sfumato[remote]'"
        ) from error
    except Exception as error:
        raise ImageError(
            f"{address} cannot be reached: {error}; expected an address such as s3://bucket/name.zarr; check it"
        ) from error


@contextlib.contextmanager
def _writing(place: Any) -> Iterator[None]:
    """Turn any exception of the system or a library inside this context into a :class:`StorageError`."""
    try:
        yield
    except SfumatoError:
        raise
    except OSError as error:
        raise StorageError(
            f"cannot write to {place}: {error.strerror or error}; expected a place with space that may be written to; "
            f"what was written before is safe; {advice_on(error)}"
        ) from error
    except Exception as error:
        quoted = f"{type(error).__name__}: {error}"[:_QUOTE_LENGTH]
        raise StorageError(
            f"cannot reach {place}: {quoted}; expected a place that answers and may be written to; check the address, "
            "the network and your credentials, then rerun the command"
        ) from error
