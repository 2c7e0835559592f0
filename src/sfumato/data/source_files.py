"""Record the files that samples are read from when work starts, and compare them when it is resumed.

Training and packing take hours to weeks, and meanwhile a file may be replaced by another of the same name. A record
holds the :class:`~sfumato.data.images.identity.Identity` of each file, as five numbers.
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
from sfumato.data.pairs import named

__all__ = ["FileRecord", "SourceFile", "files_of"]

_THREADS, _AT_A_TIME = 8, 64
_FACTS = 5
Result = TypeVar("Result")


class SourceFile(NamedTuple):
    """A file that samples are read from, and its role."""

    label: str
    """Its role and name, such as ``input cell3``."""
    path: str | Path


class _ReadsFiles(Protocol):
    def files(self) -> Iterator[SourceFile]: ...


def files_of(sources: Mapping[str, _ReadsFiles]) -> list[SourceFile]:
    """List the files of all sources, in the order of their samples, with labels such as ``train input cell3``."""
    return [
        SourceFile(f"{split} {file.label}", file.path) for split, source in sources.items() for file in source.files()
    ]


@dataclass(frozen=True)
class FileRecord:
    """The identities of files at one time.

    Attributes:
        total: Number of files; if only some are recorded, these are spread evenly over all.
        labels: Labels of the recorded files.
        facts: Size, two times and the two halves of the digest of each file, shape (files, 5).
    """

    total: int
    labels: list[str]
    facts: NDArray[np.uint64]

    @classmethod
    def of(cls, files: Sequence[SourceFile], *, most: int | None = None) -> Self:
        """Record files as they are now.

        Args:
            files: The files of all samples.
            most: Largest number of files to read; all if None.
        """
        number = len(files)
        chosen = files if most is None or number <= most else [files[place * number // most] for place in range(most)]
        rows = _of_each(identify, (file.path for file in chosen))
        facts = np.array([_row(identity) for identity in rows], np.uint64).reshape(-1, _FACTS)
        return cls(number, [file.label for file in chosen], facts)

    def differences(self, files: Sequence[SourceFile]) -> str:
        """Describe how files differ from the record, with names; empty if they do not. New times alone do not count."""
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
        found = [f"{kind}: {named(labels)}" for kind, labels in kinds.items() if labels]
        if not found and self.total != len(files):
            found.append(f"{self.total:,} files then and {len(files):,} now")
        if not found and is_complete and self.labels != [file.label for file in files]:
            found.append("the same files in another order")
        return "; ".join(found)

    def digest(self) -> str:
        """Digest of everything except the times."""
        digest = hashlib.sha256(str(self.total).encode())
        for label in self.labels:
            digest.update(label.encode() + b"\0")
        digest.update(np.ascontiguousarray(self.facts[:, [0, 3, 4]], "<u8").tobytes())
        return digest.hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
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
    """Apply ``work`` to each item in order, several at a time: a file system answers many requests as fast as one."""
    listed = list(items)
    parts = [listed[first : first + _AT_A_TIME] for first in range(0, len(listed), _AT_A_TIME)]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="files") as pool:
        done = pool.map(lambda part: [work(item) for item in part], parts)
        return list(itertools.chain.from_iterable(done))
