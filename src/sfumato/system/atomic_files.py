"""Files that are written whole or not at all, and that survive a crash of the machine once they are there."""

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
    """A new file to write to, which takes the place of the one at ``path`` when the block ends well.

    Until then it stands beside it under a temporary name, ending in `.tmp-` and the number of this process; it is
    flushed to the disk before it is renamed, and the folder after. What a killed process left under such a name is
    removed by the next one that writes a file of that name, whatever the numbers in it.

    Args:
        path: Where the file will be.
        num_bytes: How many bytes it will have, for the message of a failure.
        untouched: What a failure leaves as it was, for the same.

    Raises:
        RunError: If it cannot be written, for example because the disk is full; ``path`` is then as before.
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
    """Write a whole text file, in UTF-8, by :func:`replacing`."""
    replace_bytes(path, text.encode(), untouched=untouched)


def replace_bytes(path: Path, content: bytes, *, untouched: str) -> None:
    """Write a whole file by :func:`replacing`."""
    with replacing(path, num_bytes=len(content), untouched=untouched) as file:
        file.write(content)


def sync_folder(folder: Path) -> None:
    """Make a new name as durable as its file, where the system can."""
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
    """What to do about a file that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space or raise the quota, then give the same command again"
    if error.errno == errno.EFBIG:
        return "raise the limit on the size of a file (ulimit -f) or use another disk, then give the command again"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "make it writable again, or choose a folder that you may write to, then give the same command again"
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
    """Remove temporary files of processes that are no more, of the same name apart from its numbers."""
    name = re.sub(r"\d+", "*", glob.escape(path.name))
    for leftover in path.parent.glob(f"{name}.tmp-*"):
        owner = re.fullmatch(r"\d{1,9}", leftover.name.rpartition("-")[2])
        if owner and not _is_running(int(owner.group())):
            _remove(leftover)


def _is_running(process: int) -> bool:
    """Whether another process of this machine has that number."""
    if process == os.getpid():
        return False
    if os.name == "nt":  # where to ask would be to end it
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
