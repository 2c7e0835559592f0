"""Group images that are not independent: frames of a file, channels of a field, light levels of a cell."""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from sfumato.data.images.file_names import take_apart
from sfumato.system.errors import RecipeError

__all__ = ["Units", "find_units"]

_FRAME = re.compile(r"\[\d+\]$")
_NUMBER = re.compile(r"(?<=.)[_-]\d+$")


class Units(NamedTuple):
    """Independent units of a set of images."""

    names: list[str]
    """The unit of every image."""
    why: str
    """How the units were found, in a few words."""

    @property
    def line(self) -> str:
        """One line for the user: how many units there are, and why."""
        return f"{len(set(self.names))} independent units of {len(self.names)} images: {self.why}"


def find_units(images: Sequence[str], pattern: str | None = None, *, among: Sequence[str] = ()) -> Units:
    """Find the independent unit that each image belongs to.

    Without a pattern, the frames of a file are one unit, because planes and time points of one field are not
    independent. Files whose names differ only in a last number, such as 085_0 and 085_1, are also one unit, if all
    names form such groups: at least two groups of at least two files each, all with the same last numbers. A plain
    count, from img_1 to img_50, is a single group, so each of its files is a unit.

    Args:
        images: Names of the images.
        pattern: Regular expression. Images for which its first group (or, without groups, the whole match) is the same
            are one unit. An image that it does not match is a unit of its own.
        among: Names of the whole set, if only some of its images are used: groups are formed in the whole set.

    Raises:
        RecipeError: If the pattern is not a valid regular expression.

    Example:
        >>> find_units(["069_0.npy", "069_1.npy", "070_0.npy", "070_1.npy"]).names
        ['069', '069', '070', '070']
        >>> find_units(["stack.tif[0]", "stack.tif[1]", "single.tif"]).names
        ['stack.tif', 'stack.tif', 'single.tif']
        >>> find_units(["a1.tif", "a2.tif", "b1.tif"], "^.")
        Units(names=['a', 'a', 'b'], why="by the pattern '^.'")
    """
    if pattern is not None:
        return Units(_matched(images, pattern), f"by the pattern {pattern!r}")
    files = [_FRAME.sub("", name) for name in images]
    groups = _groups({_FRAME.sub("", name) for name in [*images, *among]})
    if groups is None:
        several = len(images) > len(set(files))
        reason = "frames of one file count as one" if several else "names form no groups with the same last numbers"
        return Units(files, f"each file is one, {reason} (--unit overrules)")
    names, endings = [groups.names[file] for file in files], groups.endings
    shown = ", ".join(endings[:3]) + (", ..." if len(endings) > 3 else "")
    return Units(names, f"files whose names differ only in {shown} at the end count as one (--unit overrules)")


class _Groups(NamedTuple):
    names: dict[str, str]
    endings: list[str]


def _groups(files: Collection[str]) -> _Groups | None:
    """Names without their last number, by file, and these numbers, if all files form groups with the same numbers."""
    names, endings = {}, dict[str, set[str]]()
    for file in files:
        stem = take_apart(file)[0]
        name = names[file] = _NUMBER.sub("", stem)
        endings.setdefault(name, set()).add(stem.removeprefix(name))
    found = list(endings.values())
    alike = len(found) >= 2 and len(found[0]) >= 2 and all(other == found[0] for other in found)
    return _Groups(names, sorted(found[0], key=lambda ending: int(ending[1:]))) if alike else None


def _matched(images: Sequence[str], pattern: str) -> list[str]:
    try:
        matches = [re.search(pattern, name) for name in images]
    except re.error as error:
        raise RecipeError(f"the unit is {pattern!r}, which is not a regular expression: {error}; fix it") from error
    return [
        name if match is None else match[min(1, len(match.groups()))]
        for name, match in zip(images, matches, strict=True)
    ]
