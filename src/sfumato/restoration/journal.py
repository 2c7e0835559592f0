"""The journal of a restoration: which chunks are done, each with the checksum of its pixels.

A record has 16 bytes. It is appended and flushed to disk after the chunk itself is durable. Each process writes its own
file, so no two processes append to the same one; together these files are the journal. A record cut short by a kill
does not count. A lost chunk is taken back by a record too: what counts is how often a task was done and taken back.
"""

import contextlib
import itertools
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.system.atomic_files import advice_on
from sfumato.system.errors import RunError
from sfumato.system.lock import lock_file

__all__ = ["Journal", "JournalInUseError", "Writer", "discard", "foreign_files"]

_OWN = re.compile(r"job\.json|notes\.txt|parts|[\w-]+\.records|\.job\.json\.[0-9a-f]{32}\.unfinished")
"""Files in the folder of a journal."""

_RECORD = np.dtype([("task", "<u8"), ("checksum", "<u4"), ("seal", "<u4")])
"""The seal is a checksum of the record."""

_TAKEN_BACK = np.uint64(1 << 63)
"""Added to the number of a task that has to be rerun."""


class JournalInUseError(RunError):
    """Another process has this writer's file open."""


class Journal:
    """The finished tasks of one restoration.

    Args:
        folder: Folder with the files of all writers.
        num_tasks: Number of tasks in the plan.
    """

    def __init__(self, folder: Path, num_tasks: int) -> None:
        self.folder, self.num_tasks = folder, num_tasks

    def done(self) -> NDArray[np.bool_]:
        """Whether each task is recorded as done, by any writer."""
        return self.times() > 0

    def times(self) -> NDArray[np.int32]:
        """How often each task was done and not taken back."""
        times = np.zeros(self.num_tasks, np.int32)
        for records in self._all():
            np.add.at(times, _tasks(records), np.where(_is_taken_back(records), -1, 1))
        return times

    def checksums(self) -> Iterator[tuple[int, set[int]]]:
        """Every finished task, with all checksums ever recorded for it.

        The files of different writers have no common order, so if a task was done twice, its current chunk may be
        either.
        """
        found = [np.zeros(0, np.uint64)]
        for records in self._all():
            kept = records[~_is_taken_back(records)]
            found.append(kept["task"] << np.uint64(32) | kept["checksum"].astype(np.uint64))
        done = self.done()
        for task, group in itertools.groupby(np.unique(np.concatenate(found)).tolist(), key=lambda both: both >> 32):
            if done[task]:
                yield task, {both & 0xFFFFFFFF for both in group}

    @contextlib.contextmanager
    def writer(self, name: str = "main") -> Iterator["Writer"]:
        """Open one writer's file for appending; no one else may have it open.

        Raises:
            JournalInUseError: If another process has it open.
            RunError: If it cannot be opened.
        """
        if not re.fullmatch(r"[\w-]+", name):
            raise RunError(f"a writer of the journal is called {name!r}; expected letters, digits and dashes")
        path = self.folder / f"{name}.records"
        try:
            file = path.open("ab", buffering=0)  # a buffered file, when closed, would retry what a full disk refused
        except OSError as error:
            raise RunError(
                f"cannot open the journal {path}: {error.strerror}; expected a folder to write to; {advice_on(error)}"
            ) from error
        with file:
            try:
                lock_file(file)
            except BlockingIOError as error:
                raise JournalInUseError(
                    f"{path} is in use by another process; one restoration writes one output at a time; wait for it, "
                    "or give every job of an array its own --shard"
                ) from error
            whole = _read(path, self.num_tasks).nbytes
            file.truncate(whole)  # a record cut short would shift all that follow
            yield Writer(file)

    def _all(self) -> Iterator[NDArray[np.void]]:
        for path in sorted(self.folder.glob("*.records")):
            yield _read(path, self.num_tasks)


class Writer:
    """Appends records; created by :meth:`Journal.writer`."""

    def __init__(self, file: FileIO) -> None:
        self._file = file

    def record(self, task: int | Sequence[int], checksum: int | Sequence[int]) -> None:
        """Record that one or more tasks are done; the record is durable on return."""
        self._append(np.asarray(task, np.uint64), checksum)

    def take_back(self, tasks: Sequence[int] | NDArray[np.int64]) -> None:
        """Take back one record of each of these tasks; a task without remaining records has to be rerun."""
        self._append(np.asarray(tasks, np.uint64) | _TAKEN_BACK, 0)

    def _append(self, tasks: NDArray[np.uint64], checksum: int | Sequence[int]) -> None:
        records = np.zeros(np.size(tasks), _RECORD)
        records["task"], records["checksum"] = tasks, checksum
        records["seal"] = _seals(records)
        try:
            left = records.tobytes()
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RunError(
                f"cannot write to the journal {self._file.name}: {error.strerror}; expected a disk with room; "
                f"{advice_on(error)}"
            ) from error
        if os.fstat(self._file.fileno()).st_nlink == 0:
            raise RunError(
                f"the journal {self._file.name} was removed while it was written to; expected it to stay until all is "
                "restored; remove the output too, and start again"
            )


def foreign_files(folder: Path) -> list[Path]:
    """Files in a journal's folder that do not belong to the journal."""
    return sorted(path for path in folder.iterdir() if not _OWN.fullmatch(path.name)) if folder.is_dir() else []


def discard(folder: Path) -> None:
    """Remove a journal whose images are complete; this process must not have it open.

    A kill, or a file server that keeps files another shard has open, may leave some of it behind. So the folder is
    renamed first or, where that is refused, its records are removed before anything else: what remains then claims no
    chunks. Files that someone else put there stay where they are.
    """
    with contextlib.suppress(OSError):
        if not foreign_files(folder):
            folder = folder.rename(folder.with_name(f".{uuid.uuid4().hex}.done"))
    with contextlib.suppress(OSError):
        foreign = set(foreign_files(folder))
        for path in sorted(folder.iterdir(), key=lambda path: path.is_dir()):
            if path.is_dir() and path not in foreign:
                shutil.rmtree(path, ignore_errors=True)
            elif path not in foreign:
                path.unlink()
        folder.rmdir()


def _read(path: Path, num_tasks: int) -> NDArray[np.void]:
    """The complete records at the start of a file."""
    content = path.read_bytes()
    records = np.frombuffer(content[: len(content) // _RECORD.itemsize * _RECORD.itemsize], _RECORD)
    good = (records["seal"] == _seals(records)) & (_tasks(records) < num_tasks)
    if not good[:-1].all():
        raise RunError(
            f"{path} is damaged at record {int(good.argmin())} of {len(records)}; expected records of this "
            "restoration; remove the output and its journal, and restore again"
        )
    return records if good.all() else records[:-1]


def _tasks(records: NDArray[np.void]) -> NDArray[np.uint64]:
    return np.asarray(records["task"] & ~_TAKEN_BACK)


def _is_taken_back(records: NDArray[np.void]) -> NDArray[np.bool_]:
    return np.asarray(records["task"] >= _TAKEN_BACK)


def _seals(records: NDArray[np.void]) -> NDArray[np.uint32]:
    """A checksum that a torn or foreign record does not have (Fibonacci hashing of its fields)."""
    mixed = records["task"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (records["checksum"].astype(np.uint64) + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
    return (mixed >> np.uint64(32)).astype(np.uint32)
