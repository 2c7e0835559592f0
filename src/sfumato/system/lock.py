"""Lock a file or a folder for one process; the system releases the lock however the process ends."""

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from sfumato.system.atomic_files import advice_on
from sfumato.system.errors import RunError

__all__ = ["held_alone", "lock_file"]

_NAME = ".lock"
_FAR_BYTE = 2**30
"""Windows makes locked bytes unreadable: locking a byte beyond the end of the file keeps its text readable."""
_BUSY = (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)
_UNKNOWN = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextlib.contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of an existing folder until the block ends or this process is killed.

    The lock is on a file in the folder, which is removed at the end. On a file system without locks a note is printed.

    Raises:
        RunError: If another process holds the lock, or the folder cannot be written to.
    """
    try:
        file = _locked(folder / _NAME)
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror or error}; {advice_on(error)}") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows cannot remove an open file: the next holder does
            (folder / _NAME).unlink()
        file.close()


def lock_file(file: IO[bytes]) -> bool:
    """Lock an open file until it is closed; returns False if its file system has no locks.

    Raises:
        BlockingIOError: If another process has locked it.
    """
    try:
        _lock(file)
    except OSError as error:
        if error.errno in _BUSY:
            raise BlockingIOError(error.errno, error.strerror) from error
        if error.errno not in _UNKNOWN:
            raise
        return False
    return True


def _locked(path: Path) -> IO[bytes]:
    while True:
        file = path.open("a+b")
        try:
            has_locks = lock_file(file)
        except BlockingIOError as error:
            raise _busy(path, file) from error
        except OSError:
            file.close()
            raise
        if not has_locks:
            print(
                f"note: the file system of {path.parent} has no locks; do not start a second training there meanwhile",
                file=sys.stderr,
                flush=True,
            )
        if _is_still(path, file):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
            file.flush()
            return file
        file.close()  # the last holder removed the file meanwhile, so this lock protects nothing


def _is_still(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _busy(path: Path, file: IO[bytes]) -> RunError:
    with file:
        file.seek(0)
        holder = file.read(200).decode(errors="replace")
    return RunError(
        f"{path.parent} is in use by another training ({holder or 'which has just started'}); expected one at a time; "
        "wait for it or stop it, or choose another --out"
    )


if os.name == "nt":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        file.seek(_FAR_BYTE)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]

else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
