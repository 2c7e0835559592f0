"""Of which files samples are made: recorded when work on them begins, compared when it is resumed.

A training and a packing take hours to weeks, and meanwhile an image of the same name may become another one. What a
record holds of each file is its :class:`~sfumato.data.images.identity.Identity`, as five numbers.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.data.images.identity import Identity, identify

__all__ = ["FileRecord", "SourceFile", "files_of"]

_THREADS, _AT_A_TIME = 8, 64
_MOST_NAMED = 5
_FACTS = 5
Result = TypeVar("Result")


class SourceFile(NamedTuple):
    """A file that samples are read from, and what it is to them."""

    label: str
    """Its role and name, such as ``input cell3``."""
    path: str | Path


class _ReadsFiles(Protocol):
    def files(self) -> Iterator[SourceFile]: ...


def files_of(sources: Mapping[str, _ReadsFiles]) -> list[SourceFile]:
    """The files of sources by split, in the order of their samples, labelled such as ``train input cell3``."""
    return [
        SourceFile(f"{split} {file.label}", file.path) for split, source in sources.items() for file in source.files()
    ]


@dataclass(frozen=True)
class FileRecord:
    """What files were.

    Attributes:
        total: How many there were; if more than were recorded, these are spread evenly over them.
        labels: Of those that were recorded.
        facts: Size, two times and the two halves of the digest of each, shape (files, 5).
    """

    total: int
    labels: list[str]
    facts: NDArray[np.uint64]

    @classmethod
    def of(cls, files: Sequence[SourceFile], *, most: int | None = None) -> Self:
        """What files are now.

        Args:
            files: Of all samples.
            most: How many of them are read; all if not given.
        """
        number = len(files)
        chosen = files if most is None or number <= most else [files[place * number // most] for place in range(most)]
        rows = _of_each(identify, (file.path for file in chosen))
        facts = np.array([_row(identity) for identity in rows], np.uint64).reshape(-1, _FACTS)
        return cls(number, [file.label for file in chosen], facts)

    def differences(self, files: Sequence[SourceFile]) -> str:
        """In what files are not those of the record, with names; empty if they are. New times alone do not count."""
        now = {file.label: file.path for file in files}
        there = [place for place, label in enumerate(self.labels) if label in now]
        pairs = ((_identity(self.facts[place]), now[self.labels[place]]) for place in there)
        still = _of_each(lambda pair: pair[0].is_still(pair[1]), pairs)
        is_complete = self.total == len(self.labels)
        kinds = {
            "replaced": [self.labels[place] for place, same in zip(there, still, strict=True) if not same],
            "missing": [label for label in self.labels if label not in now],
            "added": sorted(now.keys() - set(self.labels)) if is_complete else [],
        }
        found = [f"{kind}: {_named(labels)}" for kind, labels in kinds.items() if labels]
        if not found and self.total != len(files):
            found.append(f"{self.total:,} files then and {len(files):,} now")
        if not found and is_complete and self.labels != [file.label for file in files]:
            found.append("the same files in another order")
        return "; ".join(found)

    def digest(self) -> str:
        """Of all but the times."""
        digest = hashlib.sha256(str(self.total).encode())
        for label in self.labels:
            digest.update(label.encode() + b"\0")
        digest.update(np.ascontiguousarray(self.facts[:, [0, 3, 4]], "<u8").tobytes())
        return digest.hexdigest()

    def to_json(self) -> dict[str, Any]:
        """As names and values that JSON can hold."""
        rows = zip(self.labels, self.facts.tolist(), strict=True)
        return {"version": 1, "total": self.total, "files": [[label, *facts] for label, facts in rows]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """The reverse of :meth:`to_json`."""
        rows = values["files"]
        facts = np.array([row[1:] for row in rows], np.uint64).reshape(-1, _FACTS)
        return cls(int(values["total"]), [str(row[0]) for row in rows], facts)


def _row(identity: Identity) -> list[int]:
    high, low = (int(identity.digest[half], 16) for half in (slice(16), slice(16, None)))
    return [identity.size, *(identity.times or (0, 0)), high, low]


def _identity(facts: NDArray[np.uint64]) -> Identity:
    size, *times, high, low = (int(value) for value in facts)
    return Identity(size, tuple(times) if any(times) else (), f"{high:016x}{low:016x}")


def _of_each(work: Callable[[Any], Result], items: Iterable[Any]) -> list[Result]:
    """What ``work`` gives of each, in turn, several at a time: a file system answers many as fast as one."""
    listed = list(items)
    parts = [listed[first : first + _AT_A_TIME] for first in range(0, len(listed), _AT_A_TIME)]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="files") as pool:
        done = pool.map(lambda part: [work(item) for item in part], parts)
        return list(itertools.chain.from_iterable(done))


def _named(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - _MOST_NAMED:,} more" if len(labels) > _MOST_NAMED else ""
    return ", ".join(labels[:_MOST_NAMED]) + more
