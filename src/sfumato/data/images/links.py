"""Find out whether paths lead to the same file through symbolic or hard links."""

from collections.abc import Hashable, Iterable
from pathlib import Path

__all__ = ["file_key", "first_repeat"]


def file_key(path: Path) -> Hashable:
    """Return a key that is equal for all names of one file or folder."""
    try:
        facts = path.stat()
    except OSError:
        return path  # reported when the file is opened
    return (facts.st_dev, facts.st_ino) if facts.st_ino else path.resolve()


def first_repeat(paths: Iterable[Path]) -> tuple[Path, Path] | None:
    """Find the first path that leads to the same file as an earlier one; returns the earlier and this path, or None."""
    seen: dict[Hashable, Path] = {}
    for path in paths:
        earlier = seen.setdefault(file_key(path), path)
        if earlier is not path:
            return earlier, path
    return None
