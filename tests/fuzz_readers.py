"""Damaged image files: whatever is done to them, a reader gives pixels or an ImageError, quickly and in little memory.

Small valid files of every format are changed (bytes overwritten, put in, taken out, cut off; numbers in text replaced),
then opened and read with a memory budget of 100 MB. Anything but an ``ImageError`` counts as escaped, Python warnings
included.
"""

import re
import resource
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from io_samples import Sample
from sfumato.data.images.io import open_image
from sfumato.system.errors import ImageError

__all__ = ["KINDS", "MOST_BYTES", "MOST_SECONDS", "Edit", "Outcome", "damage", "peak_memory", "try_file"]

BUDGET = 100_000_000
MOST_SECONDS, MOST_BYTES = 2.0, 500_000_000
GIVE_UP_SECONDS = 20
HEAD = 512
"""Bytes at the start of a file, where headers are, that get half of the changes."""
KINDS = ("byte", "byte", "byte", "word", "word", "digit", "digit", "number", "insert", "delete", "truncate")
"""What can be done to a file; those that shift what comes after soon break a chain of offsets, so they are rarer."""
WORDS = [
    (value % 2**32).to_bytes(4, order) for value in (0, 1, -1, 255, 2**31, 2**31 - 1) for order in ("little", "big")
]
NUMBERS = [
    b"0",
    b"-1",
    b"1",
    b"3",
    b"65536",
    b"999999",
    b"4294967296",
    b"99999999999999999999",
    b"1e309",
    b"null",
    b"{}",
]


@dataclass(frozen=True)
class Edit:
    """One change of a file.

    Attributes:
        kind: One of ``KINDS``.
        place: Where, as a fraction.
        head: Whether of the first bytes only, or of the whole file.
        choice: Which byte, word, number or length.
    """

    kind: str
    place: float
    head: bool
    choice: int

    def __call__(self, content: bytes) -> bytes:
        """The changed file."""
        if self.kind in ("number", "digit"):
            runs = list(re.finditer(rb"\d+", content))
            if not runs:
                return content
            run = runs[int(self.place * len(runs))]
            digits = str(self.choice).encode() * len(run[0])
            new = NUMBERS[self.choice % len(NUMBERS)] if self.kind == "number" else digits[: len(run[0])]
            return content[: run.start()] + new + content[run.end() :]
        at = int(self.place * (min(len(content), HEAD) if self.head else len(content)))
        if self.kind == "truncate":
            return content[:at]
        some = WORDS[self.choice % len(WORDS)] if self.kind == "word" else bytes([self.choice % 256])
        length = {"byte": 1, "word": 4, "insert": 0, "delete": 1 + self.choice % 8}[self.kind]
        return content[:at] + (b"" if self.kind == "delete" else some) + content[at + length :]


def damage(sample: Sample, edits: list[Edit], folder: Path) -> Path:
    """Write a changed copy of a sample; of a store, each change meets one file."""
    copy = folder / sample.path.name
    if sample.path.is_dir():
        shutil.copytree(sample.path, copy)
        files = sorted(file for file in copy.rglob("*") if file.is_file())
        for edit in edits:
            file = files[edit.choice % len(files)]
            file.write_bytes(edit(file.read_bytes()))
        return copy
    content = sample.path.read_bytes()
    for edit in edits:
        content = edit(content)
    copy.write_bytes(content)
    return copy


@dataclass(frozen=True)
class Outcome:
    """What reading a damaged file came to."""

    is_typed_error: bool
    seconds: float
    peak_bytes: int
    escaped: str


class Hung(BaseException):
    """A reader does not come back; not an Exception, so that no reader can take it for its own."""


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise Hung(f"no result after {seconds} s")

    former = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def peak_memory(*, reset: bool = False) -> int:
    """Highest memory of this process in bytes, since the last reset where the system (Linux) has one."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    match = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    assert match is not None
    return int(match[1]) * 1024


def try_file(path: Path) -> Outcome:
    """Open and read a file, whole and a corner of it."""
    before, start = peak_memory(reset=True), time.perf_counter()
    is_typed_error, escaped = False, ""
    with warnings.catch_warnings(record=True) as caught, alarm(GIVE_UP_SECONDS):
        warnings.simplefilter("always")
        try:
            image = open_image(path, memory_budget=BUDGET)
            image.read({axis: slice(0, 1) for axis in image.axes})
            image.read()
        except ImageError:
            is_typed_error = True
        except (Exception, Hung) as error:
            escaped = f"{type(error).__name__}: {error}"
    escaped = escaped or "".join(f"warning {entry.message}" for entry in caught[:1])
    return Outcome(is_typed_error, time.perf_counter() - start, peak_memory() - before, escaped)
