"""Which paths lead to one file: links, symbolic or hard, give it several names."""

from collections.abc import Hashable, Iterable
from pathlib import Path

__all__ = ["file_key", "first_repeat"]


def file_key(path: Path) -> Hashable:
    """What a path leads to: equal for all names of one file or folder."""
    try:
        facts = path.stat()
    except OSError:
        return path  # whoever opens it says what is wrong with it
    return (facts.st_dev, facts.st_ino) if facts.st_ino else path.resolve()


def first_repeat(paths: Iterable[Path]) -> tuple[Path, Path] | None:
    """The first path that leads to the same file as an earlier one: the earlier one and it, or None."""
    seen: dict[Hashable, Path] = {}
    for path in paths:
        earlier = seen.setdefault(file_key(path), path)
        if earlier is not path:
            return earlier, path
    return None
