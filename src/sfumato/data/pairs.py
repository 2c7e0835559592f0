"""Find image pairs on disk by name or from a manifest, split them by image, and group those that are not independent.

Pairs are never split by patch. Frames of a file, channels of a field and light levels of a cell are not independent.
"""

import difflib
import hashlib
import re
from collections.abc import Collection, Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

from sfumato.data.images.file_names import IMAGE_SUFFIXES, image_stem, take_apart
from sfumato.data.images.links import file_key, first_repeat
from sfumato.data.images.view import View
from sfumato.data.manifest import SPLITS, read_rows
from sfumato.system.errors import PairingError, RecipeError

__all__ = ["SPLITS", "Pair", "Units", "file_of", "find_pairs", "find_units", "named", "read_manifest", "split_pairs"]

_MOST_NAMES = 5
"""Most names shown in a message."""
_NUMBER = re.compile(r"(?<=.)[_-]\d+$")


def named(names: Sequence[str]) -> str:
    """List up to five names.

    Example:
        >>> named(["a", "b"]), named([*"abcdefg"])
        ('a, b', 'a, b, c, d, e and 2 more')
    """
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


class Pair(NamedTuple):
    """Two files, or views of files, that show the same thing."""

    name: str
    condition: Path | View
    target: Path | View
    split: str = ""
    """One of train, validation and test, or empty if not specified."""
    drawn_by: str = ""
    """Text that decides its split if none is specified; its name if empty."""


def find_pairs(inputs: str | Path, targets: str | Path) -> list[Pair]:
    """Pair the images of two folders (or two files) by their names without suffix, including subfolders.

    Raises:
        PairingError: If a folder is missing or empty, a name exists on one side only, or two names lead to one file.
    """
    conditions, sought = _images(Path(inputs), "inputs"), _images(Path(targets), "targets")
    if Path(inputs).is_file() and Path(targets).is_file():
        _check_two_files(Path(inputs), Path(targets))
        return [Pair(Path(inputs).name, Path(inputs), Path(targets))]
    if conditions.keys() != sought.keys():
        raise _unpaired(conditions.keys(), sought.keys())
    for name in conditions:
        _check_two_files(conditions[name], sought[name])
    pairs = [Pair(name, conditions[name], sought[name], drawn_by=_before_dots(name)) for name in conditions]
    return sorted(pairs, key=lambda pair: (pair.drawn_by, pair.name))


def _unpaired(inputs: AbstractSet[str], targets: AbstractSet[str]) -> PairingError:
    """Make the error for names without a partner, with a likely partner for one of them."""
    lonely = sorted(inputs ^ targets)
    quoted = named([repr(name) for name in lonely])
    hints = (_looks_like(name, inputs, targets) for name in lonely[:_MOST_NAMES])
    return PairingError(
        f"of {len(inputs)} inputs and {len(targets)} targets, {len(lonely)} images have no partner: {quoted}"
        f"{next(filter(None, hints), '')}; give both files of a pair the same name, or list the pairs in a manifest"
    )


def _looks_like(name: str, inputs: AbstractSet[str], targets: AbstractSet[str]) -> str:
    """Suggest a file in the other folder that also lacks a partner and has nearly this name."""
    role, other, free = (
        ("input", "target", targets - inputs) if name in inputs else ("target", "input", inputs - targets)
    )
    near = difflib.get_close_matches(name, free, n=1)
    return f"; the {role} {name!r} looks like the {other} {near[0]!r}" if near else ""


def _check_two_files(condition: Path, target: Path) -> None:
    """Refuse a pair of one file with itself: a model trained on it would only copy."""
    if file_key(condition) == file_key(target):
        raise PairingError(
            f"the input {condition} and the target {target} are the same file; expected two images of one field; check "
            "the folders and the links in them"
        )


def _before_dots(name: str) -> str:
    """Return a name up to its first dot, as in version 0.1, so that its runs keep their splits and orders."""
    while Path(name).suffix:
        name = name.removesuffix(Path(name).suffix)
    return name


def _images(folder: Path, role: str) -> dict[str, Path]:
    """Find the images below a folder by name (relative path without suffix), skipping hidden files."""
    if folder.is_file():
        return {folder.name: folder}
    if not folder.is_dir():
        raise PairingError(f"the folder of {role}, {folder}, does not exist; give the path of a folder of images")
    found: dict[str, Path] = {}
    leaves = list(_leaves(folder, {}))
    if (repeated := first_repeat(leaves)) is not None:
        raise _reached_twice(*repeated)
    for path in leaves:
        name = path.relative_to(folder).with_name(image_stem(path)).as_posix()
        if name in found:
            raise PairingError(
                f"{role} has two images called {name!r}: {found[name].name} and {path.name}; "
                "keep one of them, or list the pairs in a manifest"
            )
        found[name] = path
    if not found:
        raise PairingError(f"the folder of {role}, {folder}, holds no images; check the path")
    return found


def _leaves(folder: Path, seen: dict[Hashable, Path]) -> Iterable[Path]:
    """Yield the image files below a folder; a Zarr store counts as one file."""
    earlier = seen.setdefault(file_key(folder), folder)
    if earlier is not folder:
        raise _reached_twice(earlier, folder)
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.suffix.lower() in IMAGE_SUFFIXES:
            yield path
        elif path.is_dir():
            yield from _leaves(path, seen)


def _reached_twice(earlier: Path, path: Path) -> PairingError:
    return PairingError(
        f"{earlier} and {path} are the same, by a link; expected every image once; remove the link, or list the pairs "
        "in a manifest"
    )


def read_manifest(path: str | Path) -> list[Pair]:
    """Read pairs from a CSV with the columns ``input``, ``target`` and optionally ``split``.

    Paths are relative to the manifest's folder and must stay inside it.

    Raises:
        PairingError: If the manifest is not a list of pairs, each once and in one split; see
            :mod:`sfumato.data.manifest`.
    """
    return [Pair(row.name, row.input, row.target, row.split) for row in read_rows(Path(path))]


def split_pairs(pairs: Sequence[Pair], fraction: float, *, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Split pairs into training and validation: as they specify, or by a hash of their names.

    Adding images moves few others from one split to the other. A single image is used for training.
    """
    if any(pair.split for pair in pairs):
        return [p for p in pairs if p.split == "train"], [p for p in pairs if p.split == "validation"]
    number = 0 if fraction == 0 or len(pairs) < 2 else min(max(1, round(fraction * len(pairs))), len(pairs) - 1)

    def place(pair: Pair) -> list[bytes]:
        names = (pair.drawn_by or pair.name, pair.name)
        return [hashlib.sha256(f"{seed}/{name}".encode()).digest() for name in names]

    by_hash = sorted(pairs, key=place)
    kept = {pair.name for pair in by_hash[:number]}
    return [pair for pair in pairs if pair.name not in kept], [pair for pair in pairs if pair.name in kept]


def file_of(sample: str) -> str:
    """Name of a sample without the number of its frame.

    Example:
        >>> file_of("stack.tif[3]"), file_of("single.tif")
        ('stack.tif', 'single.tif')
    """
    return re.sub(r"\[\d+\]$", "", sample)


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
    files = [file_of(name) for name in images]
    groups = _groups({*files, *map(file_of, among)})
    if groups is None:
        several = len(images) > len(set(files))
        reason = "frames of one file count as one" if several else "names form no groups with the same last numbers"
        return Units(files, f"each file is one, {reason} (--unit overrules)")
    group_of, endings = groups
    shown = ", ".join(endings[:3]) + (", ..." if len(endings) > 3 else "")
    names = [group_of[file] for file in files]
    return Units(names, f"files whose names differ only in {shown} at the end count as one (--unit overrules)")


def _groups(files: Collection[str]) -> tuple[dict[str, str], list[str]] | None:
    """Names without their last number, by file, and these numbers, if all files form groups with the same numbers."""
    names, endings = {}, dict[str, set[str]]()
    for file in files:
        stem = take_apart(file)[0]
        name = names[file] = _NUMBER.sub("", stem)
        endings.setdefault(name, set()).add(stem.removeprefix(name))
    found = list(endings.values())
    alike = len(found) >= 2 and len(found[0]) >= 2 and all(other == found[0] for other in found)
    return (names, sorted(found[0], key=lambda ending: int(ending[1:]))) if alike else None


def _matched(images: Sequence[str], pattern: str) -> list[str]:
    try:
        matches = [re.search(pattern, name) for name in images]
    except re.error as error:
        raise RecipeError(f"the unit is {pattern!r}, which is not a regular expression: {error}; fix it") from error
    return [
        name if match is None else match[min(1, len(match.groups()))]
        for name, match in zip(images, matches, strict=True)
    ]
