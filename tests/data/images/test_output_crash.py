"""Processes that write to one image at once, are killed, or find the disk full or read-only."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sfumato.data.images.output import OutputImage
from sfumato.system.errors import StorageError

SIDE, NUM_BLOCKS = 256, 16
SHAPE = (SIDE, SIDE * NUM_BLOCKS)
WORKER = f"""
import resource, sys
import numpy as np
from sfumato.data.images.output import OutputImage
from sfumato.system.errors import StorageError

place, first, step, limit = sys.argv[1], *map(int, sys.argv[2:])
output = OutputImage.open(place)
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
print("ready", flush=True)
sys.stdin.readline()
try:
    for block in range(first, {NUM_BLOCKS}, step):
        pixels = np.random.default_rng(block).random(({SIDE}, {SIDE}), np.float32)
        print(block, output.write(0, (0, block * {SIDE}), pixels), flush=True)
except StorageError as error:
    print(error)
"""


def create(place: Path, *, sharded: bool = True) -> OutputImage:
    shards = (SIDE, SIDE) if sharded else None
    return OutputImage.create(
        place, shape=SHAPE, dtype="float32", axes="YX", chunks=(64, 64), shards=shards, num_levels=2
    )


def worker(place: Path, first: int = 0, step: int = 1, limit: int = 0) -> subprocess.Popen[str]:
    """A process that is ready to write every ``step``-th block."""
    command = [sys.executable, "-c", WORKER, str(place), str(first), str(step), str(limit)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def start(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def finished(process: subprocess.Popen[str]) -> dict[int, int]:
    """Checksums that a process told of, by block."""
    told, _ = process.communicate("go\n", timeout=120)
    return {int(line.split()[0]): int(line.split()[1]) for line in told.splitlines()}


def expected(block: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(block).random((SIDE, SIDE), np.float32)


def test_processes_write_different_blocks_of_one_image(tmp_path: Path) -> None:
    output = create(tmp_path / "out.zarr")
    first, second = worker(tmp_path / "out.zarr", 0, 2), worker(tmp_path / "out.zarr", 1, 2)
    start(first)
    checksums = finished(second) | finished(first)
    assert sorted(checksums) == list(range(NUM_BLOCKS))
    for block, checksum in checksums.items():
        np.testing.assert_array_equal(output.read(0, (0, block * SIDE), (SIDE, SIDE)), expected(block))
        assert output.checksum(0, (0, block * SIDE), (SIDE, SIDE)) == checksum


@pytest.mark.parametrize("sharded", [True, False])
def test_a_killed_process_leaves_whole_blocks(sharded: bool, tmp_path: Path) -> None:
    output = create(tmp_path / "out.zarr", sharded=sharded)
    files = tmp_path / "out.zarr" / "0" / "c"
    for attempt in range(4):
        process = worker(tmp_path / "out.zarr")
        start(process)
        assert process.stdin is not None
        assert process.stdout is not None
        told = [process.stdout.readline().split() for _ in range(attempt + 1)]
        time.sleep(0.002 * attempt)
        process.send_signal(signal.SIGKILL)
        told += [line.split() for line in process.stdout.read().splitlines()]
        process.wait()
        process.stdin.close()
        process.stdout.close()
        for entry in told:
            if len(entry) == 2:
                block, checksum = map(int, entry)
                assert output.checksum(0, (0, block * SIDE), (SIDE, SIDE)) == checksum
        side = SIDE if sharded else 64
        for file in files.rglob("*"):
            if file.is_file() and not file.name.endswith(".unfinished"):
                row, column = (int(part) * side for part in file.relative_to(files).parts)
                whole = expected(column // SIDE)[row : row + side, column % SIDE : column % SIDE + side]
                np.testing.assert_array_equal(output.read(0, (row, column), (side, side)), whole)
    (files / "0" / f".0.{'0' * 32}.unfinished").write_bytes(b"half")
    (tmp_path / f".out.zarr.{'0' * 32}.unfinished").mkdir()
    checksums = finished(worker(tmp_path / "out.zarr"))
    output.remove_leftovers()
    assert [path for path in tmp_path.rglob("*") if "unfinished" in path.name] == []
    assert all(output.checksum(0, (0, b * SIDE), (SIDE, SIDE)) == checksum for b, checksum in checksums.items())


CREATOR = """
import sys
from sfumato.data.images.output import OutputImage
print("ready", flush=True)
for number in range(1000):
    OutputImage.create(f"{sys.argv[1]}/{number}.zarr", shape=(300, 300), dtype="uint8", axes="YX", num_levels=3)
"""


def test_a_process_killed_while_creating_leaves_nothing_or_all(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", CREATOR, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.5)
    process.kill()
    process.wait()
    process.stdout.close()
    made = sorted(tmp_path.glob("*.zarr"))
    assert made
    for place in made:
        assert len(OutputImage.open(place).levels) == 3
    for number in range(len(made) + 1):
        OutputImage.create(tmp_path / f"{number}.zarr", shape=(300, 300), dtype="uint8", axes="YX", num_levels=3)


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    output = create(tmp_path / "out.zarr")
    output.write(0, (0, 0), expected(99))
    told, _ = worker(tmp_path / "out.zarr", limit=10_000).communicate("go\n", timeout=120)
    assert "File too large" in told
    assert "what was written before is safe; raise the limit" in told
    np.testing.assert_array_equal(output.read(0, (0, 0), (SIDE, SIDE)), expected(99))
    assert list((tmp_path / "out.zarr" / "0" / "c" / "0").iterdir()) == [tmp_path / "out.zarr/0/c/0/0"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="tmpfs is Linux's")
def test_a_full_disk(small_disk: Path) -> None:
    output = create(small_disk / "out.zarr")
    written = 3  # of a quarter of a megabyte each
    for block in range(written):
        output.write(0, (0, block * SIDE), expected(block))
    with pytest.raises(StorageError, match=r"No space left on device; .* free some space"):
        output.write(0, (0, written * SIDE), np.concatenate([expected(3), expected(4)], 1))
    for block in range(written):
        np.testing.assert_array_equal(output.read(0, (0, block * SIDE), (SIDE, SIDE)), expected(block))
    # There is room for one of the two, whichever came first; each is there as given, or not at all.
    late = [output.read(0, (0, block * SIDE), (SIDE, SIDE)) for block in (3, 4)]
    there = [bool(pixels.any()) for pixels in late]
    assert not all(there)
    for block, pixels, is_there in zip((3, 4), late, there, strict=True):
        np.testing.assert_array_equal(pixels, expected(block) if is_there else 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="tmpfs is Linux's")
def test_a_disk_that_turns_read_only(small_disk: Path) -> None:
    output = create(small_disk / "out.zarr")
    output.write(0, (0, 0), expected(0))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StorageError, match=r"Read-only file system; .* make it writable again"):
        output.write(0, (0, SIDE), expected(1))
    with pytest.raises(StorageError, match="Read-only file system"):
        create(small_disk / "new.zarr")
    np.testing.assert_array_equal(output.read(0, (0, 0), (SIDE, SIDE)), expected(0))


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write to any folder")
def test_a_folder_that_may_not_be_written_to(tmp_path: Path) -> None:
    output = create(tmp_path / "out.zarr")
    folder = tmp_path / "out.zarr" / "0"
    folder.chmod(0o500)
    try:
        with pytest.raises(StorageError, match=r"Permission denied; .* make it writable again"):
            output.write(0, (0, 0), expected(0))
    finally:
        folder.chmod(0o700)
