"""Zarr arrays of every layout read as they were written, and no chunk becomes longer than it should."""

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs import BZ2, LZ4, LZMA, Blosc, Delta, FixedScaleOffset, GZip, Shuffle, Zlib, Zstd
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.storage import MemoryStore

from sfumato.data.images.bounded_codecs import COMPRESSORS, decompress, encoded_bytes, zstd_bytes
from sfumato.data.images.image import DamageError
from sfumato.data.images.zarr_array import CheckedArray, open_checked, store_at
from sfumato.system.errors import ImageError

PIXELS = np.random.default_rng(0).integers(0, 1000, (40, 50)).astype("<i4")
ENCODERS = {
    "gzip": GZip(), "zlib": Zlib(), "bz2": BZ2(), "lzma": LZMA(), "zstd": Zstd(), "lz4": LZ4(), "blosc": Blosc(),
}  # fmt: skip


@pytest.mark.parametrize("codec", sorted(COMPRESSORS))
@pytest.mark.parametrize(
    "data", [b"x", bytes(10**5), np.random.default_rng(1).bytes(10**5)], ids=["1", "zeros", "noise"]
)
def test_what_was_compressed_comes_back_up_to_its_length(codec: str, data: bytes) -> None:
    packed = bytes(ENCODERS[codec].encode(data))
    assert bytes(decompress(codec, packed, len(data))) == data
    assert len(packed) <= encoded_bytes(len(data))
    with pytest.raises(DamageError):
        decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", ["gzip", "zlib", "bz2", "lzma", "zstd"])
def test_a_chunk_that_was_cut_off_is_damaged(codec: str) -> None:
    packed = bytes(ENCODERS[codec].encode(np.random.default_rng(1).bytes(1000)))
    with pytest.raises(DamageError, match="too early"):
        decompress(codec, packed[:-9], 1000)


def test_streams_and_frames_one_after_another_are_all_read() -> None:
    one, other = b"a" * 10, b"b" * 300
    assert decompress("gzip", gzip.compress(one) + gzip.compress(other) + bytes(7), 310) == one + other
    frames = bytes(Zstd().encode(one)) + b"\x50\x2a\x4d\x18\x02\0\0\0ab" + bytes(Zstd(checksum=True).encode(other))
    assert zstd_bytes(frames) == 310
    with pytest.raises(DamageError):
        decompress("zstd", frames, 309)


@pytest.mark.parametrize("length", [0, 1, 255, 256, 65_791, 65_792, 300_000])
def test_frames_tell_their_length(length: int) -> None:
    assert zstd_bytes(bytes(Zstd().encode(bytes(length)))) == length


LAYOUTS: dict[str, dict[str, Any]] = {
    "raw": {"compressors": None},
    "gzip": {"compressors": GzipCodec()},
    "blosc": {"compressors": BloscCodec()},
    "two compressors": {"compressors": [ZstdCodec(), GzipCodec()]},
    "checksum before": {"compressors": [Crc32cCodec(), ZstdCodec()]},
    "transposed": {"filters": [TransposeCodec(order=(1, 0))], "compressors": ZstdCodec()},
    "shards": {"shards": (20, 20)},
    "shards of gzip": {"shards": (20, 20), "compressors": GzipCodec()},
    "big-endian": {"serializer": BytesCodec(endian="big")},
    "version 2": {"zarr_format": 2, "compressors": Zlib()},
    "filters": {"zarr_format": 2, "filters": [Delta("<i4", "<i8"), Shuffle(8)], "compressors": LZ4()},
    "scaled": {"zarr_format": 2, "filters": [FixedScaleOffset(0, 1, "<i4", "<u2")], "compressors": BZ2()},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_of_every_layout_are_read(layout: str, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", shape=(40, 50), dtype="<i4", chunks=(10, 10), **LAYOUTS[layout])[...] = (
        PIXELS
    )
    array = open_checked(store_at(tmp_path / "a.zarr"))
    again = pickle.loads(pickle.dumps(array))
    for one in (array, again):
        assert isinstance(one, CheckedArray)
        np.testing.assert_array_equal(one[slice(0, 40), slice(0, 50)], PIXELS)
        np.testing.assert_array_equal(one.read([3, 17], [20, 30], memory_budget=10**6), PIXELS[3:23, 17:47])


@pytest.mark.parametrize("location", ["start", "end"])
def test_shards_within_shards_are_read(location: Any, tmp_path: Path) -> None:
    inner = ShardingCodec(chunk_shape=(5, 5), codecs=[BytesCodec(), ZstdCodec()])
    outer = ShardingCodec(chunk_shape=(10, 10), codecs=[inner], index_location=location)
    place = tmp_path / "a.zarr"
    zarr.create_array(place, shape=(40, 50), dtype="<i4", chunks=(20, 50), serializer=outer, compressors=None)[...] = (
        PIXELS
    )
    array = open_checked(store_at(place))
    np.testing.assert_array_equal(array[slice(3, 31), slice(7, 50)], PIXELS[3:31, 7:])


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_consolidated_metadata_is_not_believed(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "a.zarr", zarr_format=3)
    group.create_array("0", shape=(4, 4), dtype="<f4", chunks=(4, 4))[...] = 1
    zarr.consolidate_metadata(tmp_path / "a.zarr")
    file = tmp_path / "a.zarr/zarr.json"
    text = file.read_text()
    assert "zstd" in text
    file.write_text(text.replace("zstd", "pickle"))
    np.testing.assert_array_equal(open_checked(store_at(tmp_path / "a.zarr"), "0")[slice(0, 4), slice(0, 4)], 1)


def test_memory_is_asked_for_before_anything_is_read() -> None:
    store = MemoryStore()
    zarr.create_array(store, name="a", shape=(10**6, 10**6), dtype="<f4", chunks=(40_000, 40_000))
    array = open_checked(store, "a")
    with pytest.raises(ImageError, match="memory budget of 4,294,967,296"):
        array.read([0, 0], [1, 1], memory_budget=2**32)
    zarr.create_array(store, name="s", shape=(10**6, 10**6), dtype="<f4", chunks=(1, 1), shards=(50_000, 50_000))
    with pytest.raises(ImageError, match="memory budget"):
        open_checked(store, "s").read([0, 0], [1, 1], memory_budget=2**32)
