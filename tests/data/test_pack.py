"""The packed store gives back what its source has, survives a kill, and says what is wrong with a damaged one."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file
from typer.testing import CliRunner

from memory_pairs import Memory
from pair_folders import TINY, make_pairs
from sfumato.cli import app
from sfumato.data.pack import pack
from sfumato.data.packed import PackedPairs, packed_splits
from sfumato.data.pairs import find_pairs
from sfumato.data.sources import FilePairs, PairSource
from sfumato.system.errors import SfumatoError
from warm_processes import start_function

Array = NDArray[np.generic]


def sizes(ndim: int, longest: int) -> st.SearchStrategy[list[tuple[int, ...]]]:
    return st.lists(st.tuples(*[st.integers(1, longest)] * ndim), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None)
@given(
    spatial=sizes(2, 300) | sizes(3, 70),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    dtypes=st.tuples(*[st.sampled_from(["u1", "u2", "i2", "f4", "f8"])] * 2),
    seed=st.integers(0, 99),
)
def test_a_store_gives_back_its_source(
    spatial: list[tuple[int, ...]],
    channels: tuple[int, int],
    dtypes: tuple[str, str],
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path, generator = tmp_path_factory.mktemp("store") / "pairs.zarr", np.random.default_rng(seed)
    sides = [
        [(255 * generator.random((number, *size))).astype(dtype) for size in spatial]
        for number, dtype in zip(channels, dtypes, strict=True)
    ]
    source = Memory(sides[0], sides[1])
    pack({"train": source}, path)
    for address in (path, f"file://{path}"):
        packed: PairSource = PackedPairs(address)
        assert (len(packed), packed.ndim, packed.dtypes) == (len(source), source.ndim, source.dtypes)
        assert (packed.condition_channels, packed.target_channels) == channels
        assert min(packed.spatial(packed.smallest())) == min(map(min, spatial))
        for sample, size in enumerate(spatial):
            assert packed.name(sample) == source.name(sample)
            assert packed.spatial(sample) == size
            corner = [int(generator.integers(length)) for length in size]
            part = [int(generator.integers(1, n - c + 1)) for n, c in zip(size, corner, strict=True)]
            for box in ([0] * len(size), size), (corner, part):
                for got, expected in zip(packed.read(sample, *box), source.read(sample, *box), strict=True):
                    assert got.dtype == expected.dtype
                    np.testing.assert_array_equal(got, expected)


def test_a_sample_larger_than_a_shard(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 9, (1, 900, 820), dtype=np.uint8)
    pack({"train": Memory([image], [image])}, tmp_path / "store", shard_bytes=2**17)
    assert len([file for file in (tmp_path / "store/train/target/c").rglob("*") if file.is_file()]) > 1
    packed = PackedPairs(tmp_path / "store")
    for corner in ([0, 0], [890, 810], [448, 407]):
        np.testing.assert_array_equal(
            packed.read(0, corner, [10, 10])[1], image[:, corner[0] :, corner[1] :][:, :10, :10]
        )


def test_small_samples_share_few_files(tmp_path: Path) -> None:
    images = [np.full((1, 8, 8), value % 256, np.uint8) for value in range(5000)]
    pack({"train": Memory(images, images)}, tmp_path / "store")
    assert len([file for file in (tmp_path / "store").rglob("*") if file.is_file()]) < 20
    packed = PackedPairs(tmp_path / "store")
    for sample in (0, 4095, 4096, 4999):
        assert packed.read(sample, [3, 3], [1, 1])[0].item() == sample % 256


def settings_for(*more: str) -> list[str]:
    return [part for setting in [*TINY, *more] for part in ("--set", setting)]


def test_training_from_a_store_equals_training_from_files(tmp_path: Path) -> None:
    low, high = make_pairs(tmp_path)
    folders = ["--inputs", low, "--targets", high]
    packed = CliRunner().invoke(app, ["pack", *folders, "--out", str(tmp_path / "store.zarr")])
    assert packed.exit_code == 0, packed.output
    assert "5 train, 1 validation" in packed.stderr
    steps = settings_for("train.steps=4")
    for source, out in ((folders, "files"), (["--store", str(tmp_path / "store.zarr")], "packed")):
        done = CliRunner().invoke(app, ["train", *source, "--out", str(tmp_path / out), *steps])
        assert done.exit_code == 0, done.output
    files, packed_ones = (
        load_file(tmp_path / out / "checkpoints/step-00000004.safetensors") for out in ("files", "packed")
    )
    assert files.keys() == packed_ones.keys()
    for name, values in files.items():
        np.testing.assert_array_equal(values, packed_ones[name], err_msg=name)
    logs = [
        [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in file.read_text().splitlines()]
        for file in (tmp_path / out / "metrics.jsonl" for out in ("files", "packed"))
    ]
    assert logs[0] == logs[1]


def pack_files(low: str, high: str, out: Path) -> None:
    pack({"train": FilePairs(find_pairs(low, high))}, out, shard_bytes=2**16)


def test_a_killed_packing_goes_on(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path, number=3, shape=(600, 800))
    whole, killed = tmp_path / "whole.zarr", tmp_path / "killed.zarr"
    pack_files(*folders, whole)
    process = start_function(pack_files, *folders, killed)
    deadline = time.monotonic() + 120
    while not (killed / "train/target/c/0/0/2").exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    process.join()
    with pytest.raises(SfumatoError, match="give the same `sfumato pack` command"):
        PackedPairs(killed)
    done = [file for file in (killed / "train/target/c").rglob("*") if file.is_file() and file.name.isdecimal()]
    times = {file: file.stat().st_mtime_ns for file in done}
    pack_files(*folders, killed)
    assert times
    assert all(file.stat().st_mtime_ns == before for file, before in times.items()), "a shard was packed twice"
    files = {file.relative_to(whole) for file in whole.rglob("*") if file.is_file()}
    assert len(files) > len(times) + 20
    for file in files:
        assert (whole / file).read_bytes() == (killed / file).read_bytes(), file


@pytest.fixture
def store(tmp_path: Path) -> Path:
    images = [np.random.default_rng(n).integers(0, 99, (1, 40, 40), dtype=np.uint16) for n in range(4)]
    pack({"train": Memory(images, images)}, tmp_path / "store")
    return tmp_path / "store"


def edit(file: Path, change: Callable[[Any], object]) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def described(change: Callable[[Any], object]) -> Callable[[Path], object]:
    return lambda store: edit(store / "zarr.json", lambda d: change(d["attributes"]["sfumato_pairs"]))


def array(change: Callable[[Any], object]) -> Callable[[Path], object]:
    return lambda store: edit(store / "train/target/zarr.json", change)


def shard(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def damage(store: Path) -> None:
        file = store / "train/target/c/0/0/0/0"
        file.write_bytes(change(file.read_bytes()))

    return damage


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "not there": (lambda s: s.rename(s.with_name("moved")), "does not exist"),
    "another group": (lambda s: edit(s / "zarr.json", lambda d: d.update(attributes={})), "no description of pairs"),
    "no JSON": (lambda s: (s / "zarr.json").write_text("{"), "could not be read"),
    "newer": (described(lambda d: d.update(version=9)), "upgrade sfumato"),
    "not complete": (described(lambda d: d.update(complete=False)), "not complete"),
    "no train": (described(lambda d: d.update(splits={"test": d["splits"]["train"]})), "not 'train'"),
    "split that leaves the store": (described(lambda d: d["splits"].update({"../x": {}})), "expected plain words"),
    "lying smallest": (described(lambda d: d["splits"]["train"].update(smallest=4)), "smallest sample is number 4"),
    "array missing": (lambda s: (s / "train/target/zarr.json").unlink(), "does not exist"),
    "foreign codec": (
        array(lambda d: d["codecs"][0]["configuration"]["codecs"].append({"name": "crc32c"})),
        "coded in another way",
    ),
    "chunks do not divide shards": (
        array(lambda d: d["codecs"][0]["configuration"].update(chunk_shape=[1, 1, 39, 40])),
        "in shards of",
    ),
    "a chunk of 100 gigapixels": (
        array(
            lambda d: (
                d["codecs"][0]["configuration"].update(chunk_shape=[1, 1, 10**6, 10**5]),
                d["chunk_grid"]["configuration"].update(chunk_shape=[1, 1, 10**6, 10**5]),
            )
        ),
        "expected at most 268,435,456 bytes",
    ),
    "fewer samples": (array(lambda d: d.update(shape=[3, 1, 40, 40])), "expected equal ones"),
    "strings": (array(lambda d: d.update(data_type="string")), "a type of numbers"),
    "table cut off": (lambda s: (s / "train/sizes/c/0/0").write_bytes(b""), "could not be read"),
    "table packed": (
        lambda s: edit(
            s / "train/sizes/zarr.json", lambda d: d["codecs"].append({"name": "gzip", "configuration": {"level": 1}})
        ),
        "expected a raw one",
    ),
    "shard lost": (lambda s: (s / "train/target/c/0/0/0/0").unlink(), "does not exist"),
    "shard empty": (shard(lambda b: b""), "has 0 bytes"),
    "shard cut off": (shard(lambda b: b[: len(b) // 2]), "packed"),
    "bit flipped in a chunk": (shard(lambda b: b[:50] + bytes([b[50] ^ 1]) + b[51:]), "could not be read"),
    "index points outside": (shard(lambda b: b[:-68] + (2**40).to_bytes(8, "little") + b[-60:]), "end after its"),
}


def read_all(store: Path) -> None:
    packed = PackedPairs(store)
    for sample in range(len(packed)):
        packed.read(sample, [0, 0], [40, 40])


@pytest.mark.parametrize("case", BAD)
def test_damaged_stores_raise_typed_errors(case: str, store: Path) -> None:
    damage, message = BAD[case]
    damage(store)
    with pytest.raises(SfumatoError, match=message):
        read_all(store)


def test_a_store_of_other_pairs_is_left_alone(store: Path) -> None:
    before = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
    image = np.zeros((1, 8, 8), np.uint8)
    with pytest.raises(SfumatoError, match="not a store of these pairs"):
        pack({"train": Memory([image], [image])}, store)
    assert before == {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}


def test_packing_twice_changes_nothing(store: Path) -> None:
    assert packed_splits(store) == ["train"]
    images = [np.random.default_rng(n).integers(0, 99, (1, 40, 40), dtype=np.uint16) for n in range(4)]
    times = {file: file.stat().st_mtime_ns for file in store.rglob("*")}
    pack({"train": Memory(images, images)}, store)
    assert times == {file: file.stat().st_mtime_ns for file in store.rglob("*")}


def test_a_file_that_is_replaced_meanwhile_leaves_no_mixed_store(tmp_path: Path) -> None:
    """Even if it is put back before the next packing: shards that were made of it are gone."""
    low, high = make_pairs(tmp_path, number=3)
    sources = {"train": FilePairs(find_pairs(low, high), cache_bytes=0)}
    place, other = tmp_path / "low/image2.tif", tmp_path / "low/image0.tif"
    before = place.read_bytes()

    def replace(done: int, total: int) -> None:
        assert total == 3
        place.write_bytes(other.read_bytes())

    with pytest.raises(SfumatoError, match="replaced: train input image2"):
        pack(sources, tmp_path / "store", shard_bytes=2**12, progress=replace)
    place.write_bytes(before)
    assert pack(sources, tmp_path / "store", shard_bytes=2**12).is_new
    packed = PackedPairs(tmp_path / "store")
    np.testing.assert_array_equal(packed.read(2, [0, 0], [24, 32])[0], sources["train"].read(2, [0, 0], [24, 32])[0])
    assert not pack(sources, tmp_path / "store").is_new


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    image = np.zeros((1, 8, 8), np.uint8)
    with pytest.raises(SfumatoError, match="cannot write the store"):
        pack({"train": Memory([image], [image])}, tmp_path / "file" / "store")


def test_files_of_several_types_are_packed_in_one_that_holds_them(tmp_path: Path) -> None:
    low, high = make_pairs(tmp_path, number=2)
    np.save(tmp_path / "low/more.npy", np.full((24, 32), 200, np.uint8))
    np.save(tmp_path / "high/more.npy", np.full((24, 32), 60_000, np.uint16))
    pack({"train": FilePairs(find_pairs(low, high))}, tmp_path / "store")
    packed = PackedPairs(tmp_path / "store")
    assert packed.dtypes == (np.dtype("f4"), np.dtype("f4"))
    assert packed.read(2, [0, 0], [1, 1])[1].item() == 60_000
