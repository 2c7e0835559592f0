"""Damaged image files: whatever is done to them, a reader gives pixels or an ImageError, quickly and in little memory.

    python benchmarks/fuzz_readers.py --files 20000 --check

Small valid files of every format are changed at random (bytes overwritten, put in, taken out, cut off; numbers in text
replaced) from a fixed seed, opened and read with a memory budget of 100 MB. What escapes is anything but an
``ImageError``, Python warnings included; the file that did it is kept if --keep names a folder.
"""

import argparse
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from bars import Bars
from sfumato.data.images.io import open_image
from sfumato.system.errors import ImageError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the valid files are test code
from io_samples import Sample, write_samples

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


def random_edits(source: random.Random) -> list[Edit]:
    """One to eight changes."""
    return [
        Edit(source.choice(KINDS), source.random(), source.random() < 0.5, source.randrange(256))
        for _ in range(source.choice((1, 1, 2, 3, 8)))
    ]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    parser.add_argument("--files", type=int, default=2000, help="how many damaged files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the files that broke a bar")
    arguments = parser.parse_args()
    source, bars, outcomes = random.Random(arguments.seed), Bars(), []
    with tempfile.TemporaryDirectory() as name:
        (folder := Path(name) / "valid").mkdir()
        samples = list(write_samples(folder).values())
        for number in range(arguments.files):
            (place := Path(name) / "damaged").mkdir()
            sample = samples[number % len(samples)]
            path = damage(sample, random_edits(source), place)
            outcome = try_file(path)
            outcomes.append(outcome)
            if outcome.escaped or outcome.seconds > MOST_SECONDS or outcome.peak_bytes > MOST_BYTES:
                print(f"{number} {path.name}: {outcome}", flush=True)
                if arguments.keep:
                    shutil.copytree(place, arguments.keep / str(number))
            shutil.rmtree(place)
    typed = sum(outcome.is_typed_error for outcome in outcomes)
    print(f"{len(outcomes)} damaged files, {typed} typed errors")
    bars.report("damaged files", len(outcomes), low=arguments.files)
    bars.report("anything else that escaped", sum(bool(outcome.escaped) for outcome in outcomes), high=0)
    bars.report("longest, seconds", max(outcome.seconds for outcome in outcomes), high=MOST_SECONDS)
    bars.report("highest memory of a file, bytes", max(outcome.peak_bytes for outcome in outcomes), high=MOST_BYTES)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
