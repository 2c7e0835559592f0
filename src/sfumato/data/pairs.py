"""Image pairs on disk: found by name or by a manifest, split by image, never by patch."""

import csv
import difflib
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from sfumato.data.view import View
from sfumato.errors import PairingError

__all__ = ["SPLITS", "Pair", "find_pairs", "read_manifest", "split_pairs"]

SPLITS = ("train", "validation", "test")


class Pair(NamedTuple):
    """Two files, or views of files, that show the same thing."""

    name: str
    condition: Path | View
    target: Path | View
    split: str = ""
    """One of train, validation and test, or empty where nobody said."""


def find_pairs(inputs: str | Path, targets: str | Path) -> list[Pair]:
    """Pair the images of two folders (or two files) by their names without suffix, folders inside included.

    Raises:
        PairingError: If a folder is missing or empty, or names stand on one side only.
    """
    conditions, sought = _images(Path(inputs), "inputs"), _images(Path(targets), "targets")
    if Path(inputs).is_file() and Path(targets).is_file():
        return [Pair(Path(inputs).name, Path(inputs), Path(targets))]
    lonely = sorted(conditions.keys() ^ sought.keys())
    if lonely:
        shown = ", ".join(repr(name) for name in lonely[:5]) + (", ..." if len(lonely) > 5 else "")
        near = difflib.get_close_matches(lonely[0], (conditions.keys() | sought.keys()) - {lonely[0]}, n=1)
        hint = f"; {lonely[0]!r} looks like {near[0]!r}" if near else ""
        raise PairingError(
            f"{len(lonely)} of {len(conditions)} inputs and {len(sought)} targets have no partner: {shown}{hint}; "
            "give both files of a pair the same name, or list the pairs in a manifest"
        )
    return [Pair(name, conditions[name], sought[name]) for name in sorted(conditions)]


def _images(folder: Path, role: str) -> dict[str, Path]:
    """Images below a folder by their name: its path without suffix, hidden files left out."""
    if folder.is_file():
        return {folder.name: folder}
    if not folder.is_dir():
        raise PairingError(f"the folder of {role}, {folder}, does not exist; give the path of a folder of images")
    found: dict[str, Path] = {}
    for path in _leaves(folder):
        name = path.relative_to(folder).as_posix()
        while Path(name).suffix:
            name = name.removesuffix(Path(name).suffix)
        if name in found:
            raise PairingError(
                f"{role} has two images called {name!r}: {found[name].name} and {path.name}; "
                "keep one of them, or list the pairs in a manifest"
            )
        found[name] = path
    if not found:
        raise PairingError(f"the folder of {role}, {folder}, holds no images; check the path")
    return found


_SUFFIXES = {".tif", ".tiff", ".png", ".jpg", ".jpeg", ".npy", ".mrc", ".zarr"}


def _leaves(folder: Path) -> Iterable[Path]:
    """Image files below a folder; a Zarr store counts as one."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.suffix.lower() in _SUFFIXES:
            yield path
        elif path.is_dir():
            yield from _leaves(path)


def read_manifest(path: str | Path) -> list[Pair]:
    """Read pairs from a CSV with the columns ``input``, ``target`` and, if wanted, ``split``.

    Paths are relative to the manifest's folder and cannot leave it.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise PairingError(f"the manifest {path} is no file; give the path of a CSV text file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets put a byte-order mark
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PairingError(f"cannot read the manifest {path}: {error}; give the path of a CSV text file") from error
    if not rows or not {"input", "target"} <= rows[0].keys():
        columns = ", ".join(rows[0]) if rows else "nothing"
        raise PairingError(f"the manifest {path} has {columns}; expected rows under the columns input,target[,split]")
    pairs = []
    for line, row in enumerate(rows, start=2):
        split = (row.get("split") or "").strip()
        if split and split not in SPLITS:
            raise PairingError(f"{path}, line {line}: split is {split!r}; choose one of {', '.join(SPLITS)}, or none")
        condition, target = (_inside(path, row[column], line) for column in ("input", "target"))
        pairs.append(Pair(row["input"], condition, target, split))
    return pairs


def _inside(manifest: Path, name: str | None, line: int) -> Path:
    if not name:
        raise PairingError(f"{manifest}, line {line}: a path is empty; give input and target on every line")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise PairingError(
            f"{manifest}, line {line}: {name!r} leaves the manifest's folder; give paths inside it, relative to it"
        )
    if not (found := manifest.parent / name).exists():
        raise PairingError(f"{manifest}, line {line}: {name!r} does not exist beside the manifest; check the name")
    return found


def split_pairs(pairs: Sequence[Pair], fraction: float, *, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Training and validation pairs: as the pairs say, or a share of the images by a hash of their names.

    Adding images moves few others from one side to the other. One image alone is kept for training.
    """
    if any(pair.split for pair in pairs):
        return [p for p in pairs if p.split == "train"], [p for p in pairs if p.split == "validation"]
    number = 0 if fraction == 0 or len(pairs) < 2 else min(max(1, round(fraction * len(pairs))), len(pairs) - 1)
    by_hash = sorted(pairs, key=lambda pair: hashlib.sha256(f"{seed}/{pair.name}".encode()).digest())
    kept = {pair.name for pair in by_hash[:number]}
    return [pair for pair in pairs if pair.name not in kept], [pair for pair in pairs if pair.name in kept]
