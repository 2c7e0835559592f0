"""What is known of an input: copies are the same, other content is another, and little of it is read."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from sfumato.data.images.identity import Identity, identify
from sfumato.data.images.io import write_image
from sfumato.system.errors import ImageError


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 300_000])
def test_every_byte_that_is_read_counts_and_a_copy_is_the_same(tmp_path: Path, size: int) -> None:
    file, copy = tmp_path / "a", tmp_path / "b"
    content = bytearray(np.random.default_rng(0).integers(0, 256, size, np.uint8).tobytes())
    file.write_bytes(content)
    before = identify(file)
    shutil.copy(file, copy)
    os.utime(copy, ns=(1, 1))
    assert before.is_still(file)
    assert before.is_still(copy)
    for place in (0, size // 2, size - 1) if 0 < size <= 65_536 else (0, size - 1) if size else ():
        content[place] ^= 1
        copy.write_bytes(content)
        assert not before.is_still(copy)
        content[place] ^= 1
    copy.write_bytes(bytes(content) + b"x")
    assert not before.is_still(copy)


def test_a_large_file_is_hashed_by_its_ends_and_its_middle(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as opened:
        opened.truncate(2**40)  # a hole: read whole, it would take an hour
    before = identify(file)
    with file.open("r+b") as opened:
        opened.seek(2**14)  # the first block of the middle
        opened.write(b"x")
    assert not before.is_still(file)


def test_equal_times_and_size_spare_the_hash_and_other_times_do_not(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"one")
    known = identify(file)
    assert Identity(known.size, known.times, "another").is_still(file)
    os.utime(file, ns=(1, 1))
    assert not Identity(known.size, known.times, "another").is_still(file)
    assert Identity.from_json(known.to_json()) == known


def test_chunks_of_a_store_count(tmp_path: Path) -> None:
    place = tmp_path / "a.zarr"
    image = np.random.default_rng(0).random((64, 64)).astype(np.float32)
    write_image(place, image, axes="YX")
    before = identify(place)
    assert before.is_still(place)
    assert identify(shutil.copytree(place, tmp_path / "b.zarr")) == before
    array = zarr.open_array(place / "0", mode="r+")
    array[0, 0] = 7
    assert not before.is_still(place)


@pytest.mark.parametrize("separator", [".", "/", ""])
def test_chunks_of_plain_arrays_of_both_versions_count(tmp_path: Path, separator: str) -> None:
    options: dict[str, Any] = {"shape": (9, 9), "chunks": (3, 3), "dtype": "u2"}
    if separator:
        options |= {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": separator}}
    made = zarr.create_array(tmp_path / "a.zarr", **options)
    made[...] = 1
    before = identify(tmp_path / "a.zarr")
    made[8, 8] = 2
    assert not before.is_still(tmp_path / "a.zarr")


def test_a_store_at_an_address_is_the_one_it_was_copied_from(tmp_path: Path, server: str, bucket: str) -> None:
    import s3fs

    place, address = tmp_path / "a.zarr", f"s3://{bucket}/a.zarr"
    write_image(place, np.random.default_rng(0).random((64, 64)).astype(np.float32), axes="YX")
    s3fs.S3FileSystem(endpoint_url=server).put(str(place), f"{bucket}/a.zarr", recursive=True)
    assert identify(place).is_still(address)
    s3fs.S3FileSystem(endpoint_url=server).pipe(f"{bucket}/a.zarr/0/c/0/0", b"other")
    assert not identify(place).is_still(address)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="cannot read"):
        identify(tmp_path / "missing.tif")
    with pytest.raises(ImageError, match="holds no image"):
        identify(tmp_path)
