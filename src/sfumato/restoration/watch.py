"""Whether the input of a job is still the planned one, asked so cheaply that it can be asked after every chunk."""

import contextlib
from pathlib import Path

from sfumato.data.images.identity import Identity, stored_at
from sfumato.system.errors import RunError

__all__ = ["ReplacedInputError", "Watch"]

_DOCUMENTS = ("zarr.json", ".zgroup", ".zarray", ".zattrs")
"""Of a store; they are written again when it is replaced."""


class ReplacedInputError(RunError):
    """An input is no more the one that a restoration was planned or begun with."""


class Watch:
    """Looks after one input. It is hashed again only if its entry in the file system has changed.

    What somebody changes inside a store in place, or at an address, is found by :meth:`check_content` alone.

    Args:
        source: Path or address of the input.
        planned: What it must be.

    Raises:
        ReplacedInputError: If it is another one.
    """

    def __init__(self, source: str, planned: Identity) -> None:
        self._source, self._planned = source, planned
        self.check_content()

    def check(self) -> None:
        """Look whether its entry has changed and, if so, whether its content has."""
        if _entry(self._source) != self._seen:
            self.check_content()

    def check_content(self) -> None:
        """Look whether its content has changed."""
        self._seen = _entry(self._source)  # first: what changes during the look shows in the next
        if not self._planned.is_still(self._source):
            raise ReplacedInputError(
                f"{self._source} was replaced or changed while it was restored; expected the image that was planned; "
                "nothing of the new one was kept: put the former one back and rerun the same command, or remove what "
                "is half done and restore the new one"
            )


def _entry(source: str) -> list[tuple[int, ...]]:
    """What the file system says of a file, or of the documents of a store; of an address, nothing."""
    if "://" in source:
        return []
    place = Path(stored_at(source))
    found: list[tuple[int, ...]] = []
    for file in [place / name for name in _DOCUMENTS] if place.is_dir() else [place]:
        with contextlib.suppress(OSError):
            facts = file.stat()
            found.append((facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns))
    return found
