"""Check whether a job's input is still the planned one, cheaply enough to do it after every chunk."""

import contextlib
from pathlib import Path

from sfumato.data.images.identity import Identity, stored_at
from sfumato.system.errors import RunError

__all__ = ["ReplacedInputError", "Watch"]

_DOCUMENTS = ("zarr.json", ".zgroup", ".zarray", ".zattrs")
"""Metadata files of a store; they are rewritten when it is replaced."""


class ReplacedInputError(RunError):
    """The input is no longer the one that a restoration was planned or started with."""


class Watch:
    """Watches one input. It is hashed again only if its file system entry has changed.

    Changes made in place inside a store, or at an address, are found only by :meth:`check_content`.

    Args:
        source: Path or address of the input.
        planned: The identity it must have.

    Raises:
        ReplacedInputError: If it has changed.
    """

    def __init__(self, source: str, planned: Identity) -> None:
        self._source, self._planned = source, planned
        self.check_content()

    def check(self) -> None:
        """Check whether its entry has changed and, if so, whether its content has."""
        if _entry(self._source) != self._seen:
            self.check_content()

    def check_content(self) -> None:
        """Check whether its content has changed."""
        self._seen = _entry(self._source)  # first: a change during the check shows in the next one
        if not self._planned.is_still(self._source):
            raise ReplacedInputError(
                f"{self._source} was replaced or changed while it was restored; expected the image that was planned; "
                "nothing of the new one was kept: put the original back and rerun the same command, or remove the "
                "unfinished output and restore the new one"
            )


def _entry(source: str) -> list[tuple[int, ...]]:
    """File system metadata of a file, or of a store's metadata files; empty for an address."""
    if "://" in source:
        return []
    place = Path(stored_at(source))
    found: list[tuple[int, ...]] = []
    for file in [place / name for name in _DOCUMENTS] if place.is_dir() else [place]:
        with contextlib.suppress(OSError):
            facts = file.stat()
            found.append((facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns))
    return found
