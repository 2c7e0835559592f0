"""A record of files tells which of them are others now, in the words of their labels."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import zarr

from sfumato.data.source_files import FileRecord, SourceFile, files_of


@pytest.fixture
def files(tmp_path: Path) -> list[SourceFile]:
    made = []
    for number in range(8):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(bytes([number]) * 100)
        made.append(SourceFile(f"train input {number}", path))
    return made


def read_back(record: FileRecord) -> FileRecord:
    return FileRecord.from_json(json.loads(json.dumps(record.to_json())))


def test_the_same_files_have_no_differences(files: list[SourceFile]) -> None:
    record = FileRecord.of(files)
    for file in files[:4]:
        os.utime(file.path, ns=(1, 1))
    assert read_back(record).differences(files) == ""
    assert read_back(record).digest() == record.digest()


def test_times_are_no_part_of_the_digest_and_content_is(files: list[SourceFile]) -> None:
    before = FileRecord.of(files).digest()
    os.utime(files[0].path, ns=(1, 1))
    assert FileRecord.of(files).digest() == before
    Path(files[0].path).write_bytes(b"x" * 100)
    assert FileRecord.of(files).digest() != before


def test_differences_are_named(files: list[SourceFile]) -> None:
    record = FileRecord.of(files[:-1])
    Path(files[2].path).write_bytes(b"x" * 100)
    assert record.differences(files[1:]) == ("replaced: train input 2; missing: train input 0; added: train input 7")


def test_only_a_few_are_named(files: list[SourceFile]) -> None:
    assert FileRecord.of(files).differences([]) == (
        "missing: train input 0, train input 1, train input 2, train input 3, train input 4 and 3 more"
    )


def test_another_order_is_a_difference(files: list[SourceFile]) -> None:
    """Samples are numbered by it, and a run draws them by their numbers."""
    assert FileRecord.of(files).differences(files[::-1]) == "the same files in another order"


def test_of_many_files_some_are_recorded(files: list[SourceFile]) -> None:
    record = read_back(FileRecord.of(files, most=4))
    assert record.labels == [f"train input {number}" for number in (0, 2, 4, 6)]
    assert record.differences(files) == ""
    assert record.differences(files[:-1]) == "8 files then and 7 now"
    Path(files[1].path).write_bytes(b"x" * 100)
    assert record.differences(files) == ""
    Path(files[4].path).write_bytes(b"x" * 100)
    assert record.differences(files) == "replaced: train input 4"


def test_a_zarr_store_is_a_file_too(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "image.zarr", shape=(8, 8), chunks=(4, 4), dtype="u2")
    array[...] = np.arange(64, dtype=np.uint16).reshape(8, 8)
    file = [SourceFile("train input image", tmp_path / "image.zarr")]
    record = read_back(FileRecord.of(file))
    assert record.differences(file) == ""
    array[0, 0] = 9
    assert record.differences(file) == "replaced: train input image"


def test_labels_say_the_split(files: list[SourceFile]) -> None:
    class Source:
        def files(self) -> "list[SourceFile]":
            return [SourceFile("input a", "a.tif")]

    found = files_of({"train": Source(), "validation": Source()})  # type: ignore[dict-item]
    assert found == [("train input a", "a.tif"), ("validation input a", "a.tif")]
