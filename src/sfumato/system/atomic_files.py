"""Write files whole or not at all, so that they survive a crash of the machine once they exist."""

import contextlib
import errno
import glob
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sfumato.system.errors import RunError

__all__ = ["advice_on", "replace_bytes", "replace_text", "replacing", "sync_folder"]


@contextlib.contextmanager
def replacing(path: Path, *, num_bytes: int, untouched: str) -> Iterator[BinaryIO]:
    """Open a new file for writing, which replaces the file at ``path`` when the block ends without an error.

    Until then the file has a temporary name beside it, ending in `.tmp-` and the number of this process; the file is
    flushed to the disk before it is renamed, and the folder afterwards. Temporary files of killed processes are removed
    by the next process that writes a file of the same name, ignoring numbers in the name.

    Args:
        path: Path of the file.
        num_bytes: Size the file will have, for the message of a failure.
        untouched: What a failure leaves unchanged, for the same message.

    Raises:
        RunError: If it cannot be written, for example because the disk is full; ``path`` is then unchanged.
    """
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        _remove_leftovers(path)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        _remove(temporary)
        raise _cannot_write(path, num_bytes, error, untouched) from error
    except BaseException:
        _remove(temporary)
        raise


def replace_text(path: Path, text: str, *, untouched: str) -> None:
    """Write a whole text file, in UTF-8, with :func:`replacing`."""
    replace_bytes(path, text.encode(), untouched=untouched)


def replace_bytes(path: Path, content: bytes, *, untouched: str) -> None:
    """Write a whole file with :func:`replacing`."""
    with replacing(path, num_bytes=len(content), untouched=untouched) as file:
        file.write(content)


def sync_folder(folder: Path) -> None:
    """Flush a folder to the disk, where the system can, so that new names in it survive a crash."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def advice_on(error: OSError) -> str:
    """Advice for a file that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space or raise the quota, then rerun the command"
    if error.errno == errno.EFBIG:
        return "raise the limit on the size of a file (ulimit -f) or use another disk, then rerun the command"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "make it writable again, or choose a folder that you may write to, then rerun the command"
    return "choose a folder that exists and that you may write to"


def _cannot_write(path: Path, num_bytes: int, error: OSError, untouched: str) -> RunError:
    free = "an unknown number"
    with contextlib.suppress(OSError):
        free = str(shutil.disk_usage(path.parent).free)
    return RunError(
        f"cannot write {path}: {error.strerror or error}; it needs {num_bytes} bytes and the disk has {free} free. "
        f"{untouched}; {advice_on(error)}"
    )


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of ended processes that have the same name, apart from numbers in it."""
    name = re.sub(r"\d+", "*", glob.escape(path.name))
    for leftover in path.parent.glob(f"{name}.tmp-*"):
        owner = re.fullmatch(r"\d{1,9}", leftover.name.rpartition("-")[2])
        if owner and not _is_running(int(owner.group())):
            _remove(leftover)


def _is_running(process: int) -> bool:
    """Whether another process on this machine has this number."""
    if process == os.getpid():
        return False
    if os.name == "nt":  # os.kill would end the process there
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
