"""Files and stores of strangers: none runs, hangs, takes all memory or writes markup into what we write."""

import bz2
import csv
import gzip
import http.server
import json
import lzma
import os
import signal
import struct
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import zarr
from numcodecs import CRC32C, Blosc

import sfumato
from attack.attacking import FEW, image, refuses, run, write_model
from sfumato.data.normalize import Normalization
from sfumato.models.build import build_model
from sfumato.models.model_file import ModelInfo, save_model
from sfumato.models.recipe import parse
from sfumato.system.errors import ImageError, ModelFileError

MEGABYTE = 2**20
BOMB = 128 * MEGABYTE
"""What a chunk of a few kilobytes becomes; enough to be seen, little enough to be survived."""
MOST = 64 * MEGABYTE
"""What refusing it may take."""


class Web(NamedTuple):
    """A web server of a folder, and what was asked of it."""

    address: str
    folder: Path
    asked: list[str]
    gzipped: dict[str, bytes]

    def chunks(self, array: str) -> list[str]:
        """What was asked of an array, its documents left out."""
        inside = [path for path in self.asked if f"/{array}/" in path]
        return [path for path in inside if not path.endswith(("zarr.json", ".zarray", ".zattrs", ".zgroup"))]


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    folder = tmp_path / "web"
    folder.mkdir()
    asked: list[str] = []
    gzipped: dict[str, bytes] = {}

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path not in gzipped:
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(gzipped[self.path])))
            self.end_headers()
            self.wfile.write(gzipped[self.path])

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Web(f"http://127.0.0.1:{server.server_port}", folder, asked, gzipped)
        server.shutdown()
        thread.join()


@pytest.fixture
def in_time() -> Iterator[None]:
    """What waits for a pipe for ever ends after three seconds."""

    def stop(*_: object) -> None:
        raise TimeoutError("it hangs")

    former = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 3)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, former)


def peak_of(action: Callable[[], Any]) -> int:
    """Bytes that it allocates at most."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Stores


def old_array(folder: Path, chunk: bytes = b"harmless", **changes: Any) -> Path:
    """An array of Zarr 2 in one chunk."""
    described = {
        "zarr_format": 2, "shape": [32, 32], "chunks": [32, 32], "dtype": "<f4", "order": "C", "fill_value": 0,
        "compressor": None, "filters": None, **changes,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".zarray").write_text(json.dumps(described))
    (folder / ".".join("0" * len(described["shape"]))).write_bytes(chunk)
    return folder


def packed(folder: Path) -> Path:
    """A packed store with two pairs for training and two for testing."""
    rows = [["input", "target", "split"]]
    for number, split in enumerate(["train", "train", "test", "test"]):
        for side in ("low", "high"):
            image(folder / side / f"{number}.tif", seed=number)
        rows.append([f"low/{number}.tif", f"high/{number}.tif", split])
    (folder / "pairs.csv").write_text("\n".join(map(",".join, rows)))
    assert run("pack", "--manifest", folder / "pairs.csv", "--out", folder / "pairs.zarr").code == 0
    return folder / "pairs.zarr"


def replace_inputs(store: Path, **changes: Any) -> None:
    """Put another array in the place of the inputs for testing."""
    folder = store / "test/condition"
    for file in sorted(folder.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    old_array(folder, **{"shape": [2, 1, 32, 32], "chunks": [2, 1, 32, 32], **changes})


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "pickle": ({"dtype": "|O", "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]}, "pickle"),
    "objects": ({"dtype": "|O", "filters": [{"id": "vlen-utf8"}]}, "vlen-utf8"),
    "text": ({"dtype": "<U4"}, "a type of numbers"),
    "unlisted codec": ({"filters": [{"id": "fletcher32"}]}, "fletcher32"),
    "chunk of 6 GB": ({"chunks": [1, 1, 40_000, 40_000]}, "memory budget"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_packed_store_on_the_web_is_checked_before_any_chunk_is_fetched(
    kind: str, model: Path, web: Web, tmp_path: Path
) -> None:
    changes, words = HOSTILE[kind]
    replace_inputs(packed(web.folder), **changes)
    address = f"{web.address}/pairs.zarr"
    refuses(run("evaluate", f"m={model}", "--store", address, *FEW, "--out", tmp_path / "out"), words)
    assert web.asked
    assert web.chunks("condition") == []


@pytest.mark.parametrize("kind", ["pickle", "unlisted codec", "chunk of 6 GB"])
def test_a_packed_store_on_s3_is_checked_before_any_chunk_is_fetched(
    kind: str, model: Path, server: str, bucket: str, tmp_path: Path
) -> None:
    import s3fs

    changes, words = HOSTILE[kind]
    store = packed(tmp_path / "pairs")
    replace_inputs(store, **changes)
    (store / "test/condition/0.0.0.0").unlink()  # whoever looks for it finds nothing, and takes it for black pixels
    s3fs.S3FileSystem(endpoint_url=server).put(str(store), f"{bucket}/pairs.zarr", recursive=True)
    address = f"s3://{bucket}/pairs.zarr"
    refuses(run("evaluate", f"m={model}", "--store", address, *FEW, "--out", tmp_path / "out"), words)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.guard
def test_an_image_on_the_web_is_checked_before_any_chunk_is_fetched(
    kind: str, model: Path, web: Web, tmp_path: Path
) -> None:
    changes, words = HOSTILE[kind]
    shape = {"chunks": changes["chunks"][2:]} if "chunks" in changes else {}
    old_array(web.folder / "a.zarr", **{**changes, **shape})
    refuses(run("restore", model, f"{web.address}/a.zarr", tmp_path / "out.tif", *FEW), words)
    # A sound document lets the ends of a chunk be hashed, by which a resume knows its input; nothing is decoded.
    assert web.chunks("a.zarr") == [] or kind == "chunk of 6 GB"


def test_a_document_on_the_web_has_a_limited_length(model: Path, web: Web, tmp_path: Path) -> None:
    store = packed(web.folder)
    document = json.loads((store / "test/condition/zarr.json").read_text())
    document["attributes"] = {"padding": "x" * 20 * MEGABYTE}
    (store / "test/condition/zarr.json").write_text(json.dumps(document))
    ran = run("evaluate", f"m={model}", "--store", f"{web.address}/pairs.zarr", *FEW, "--out", tmp_path / "out")
    refuses(ran, "more than 16,777,216 bytes")


def test_a_document_that_a_server_has_compressed_does_not_grow(model: Path, web: Web, tmp_path: Path) -> None:
    web.gzipped["/a.zarr/zarr.json"] = gzip.compress(b'{"padding": "' + b"x" * BOMB + b'"}')
    ran = None

    def restore() -> None:
        nonlocal ran
        ran = run("restore", model, f"{web.address}/a.zarr", tmp_path / "out.tif", *FEW)

    assert peak_of(restore) < MOST
    assert ran is not None
    refuses(ran, "could not be read")


def test_a_name_on_the_web_does_not_leave_its_store(model: Path, web: Web, tmp_path: Path) -> None:
    zarr.create_array(web.folder / "secret.zarr", data=np.ones((32, 32), np.float32))
    datasets = [{"path": "%2e%2e/secret.zarr", "coordinateTransformations": [{"type": "scale", "scale": [1, 1]}]}]
    axes = [{"name": name, "type": "space"} for name in "yx"]
    scales = {"multiscales": [{"axes": axes, "datasets": datasets}], "version": "0.5"}
    zarr.create_group(web.folder / "a.zarr", zarr_format=3, attributes={"ome": scales})
    refuses(run("restore", model, f"{web.address}/a.zarr", tmp_path / "out.tif", *FEW), "inside the store")
    assert not [path for path in web.asked if "secret" in path]


# Chunks that become longer than they may


def zstd_without_size(length: int) -> bytes:
    """Zeros in blocks of one repeated byte, in a frame that does not say how long it is."""
    block = 2**17
    numbers = [1 << 1 | block << 3] * (length // block)
    numbers[-1] |= 1
    return b"\x28\xb5\x2f\xfd\x00\x38" + b"".join(struct.pack("<I", number)[:3] + b"\0" for number in numbers)


ZEROS = bytes(BOMB)
BOMBS: dict[str, Callable[[], tuple[dict[str, Any], bytes]]] = {
    "gzip": lambda: ({"id": "gzip", "level": 1}, gzip.compress(ZEROS, 1)),
    "gzip in many parts": lambda: ({"id": "gzip", "level": 1}, gzip.compress(bytes(MEGABYTE)) * 128),
    "zlib": lambda: ({"id": "zlib", "level": 1}, zlib.compress(ZEROS, 1)),
    "bz2": lambda: ({"id": "bz2", "level": 9}, bz2.compress(bytes(MEGABYTE)) * 128),
    "lzma": lambda: ({"id": "lzma"}, lzma.compress(bytes(MEGABYTE), preset=0) * 128),
    "zstd": lambda: ({"id": "zstd", "level": 1}, zstd_without_size(BOMB)),
    "lz4": lambda: ({"id": "lz4", "acceleration": 1}, struct.pack("<i", BOMB) + b"\x10abcd"),
    "blosc": lambda: ({"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 0}, Blosc("zstd").encode(ZEROS)),
}


@pytest.mark.parametrize("codec", BOMBS)
def test_a_chunk_does_not_become_longer_than_it_is_said_to_be(codec: str, tmp_path: Path) -> None:
    compressor, chunk = BOMBS[codec]()
    assert len(chunk) < MEGABYTE
    place = old_array(tmp_path / "a.zarr", chunk, compressor=compressor, chunks=[1024, 1024])
    opened = sfumato.data.images.io.open_image(place)

    def read() -> None:
        with pytest.raises(ImageError, match="could not be read"):
            opened.read()

    assert peak_of(read) < MOST


def test_a_chunk_on_the_web_does_not_become_longer_than_it_is_said_to_be(model: Path, web: Web, tmp_path: Path) -> None:
    store = packed(web.folder)
    compressor, chunk = BOMBS["gzip"]()
    replace_inputs(store, compressor=compressor, chunks=[2, 1, 1024, 1024])
    (store / "test/condition/0.0.0.0").write_bytes(chunk)
    ran = None

    def evaluate() -> None:
        nonlocal ran
        address = f"{web.address}/pairs.zarr"
        ran = run("evaluate", f"m={model}", "--store", address, *FEW, "--out", tmp_path / "out")

    assert peak_of(evaluate) < MOST
    assert ran is not None
    refuses(ran, "could not be read")


def test_a_shard_whose_table_names_one_long_piece_many_times_is_not_read_many_times(tmp_path: Path) -> None:
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(64, 64), dtype="uint8", chunks=(2, 2), shards=(64, 64), compressors=None
    )
    array[...] = 1
    shard = tmp_path / "a.zarr/c/0/0"
    index = np.tile(np.array([0, 2**18], "<u8"), 32 * 32).tobytes()
    checksum = bytes(CRC32C(location="end").encode(np.frombuffer(index, np.uint8)))[-4:]
    shard.write_bytes(bytes(2**18) + index + checksum)

    def read() -> None:
        with pytest.raises(ImageError, match="could not be read"):
            sfumato.data.images.io.open_image(tmp_path / "a.zarr").read({"Y": slice(0, 60)})

    assert peak_of(read) < MOST


def test_an_image_of_a_packed_store_stops_at_the_memory_budget(model: Path, tmp_path: Path) -> None:
    store = packed(tmp_path / "pairs")
    for side in ("condition", "target"):
        file = store / "test" / side / "zarr.json"
        document = json.loads(file.read_text())
        document["shape"] = [2, 1, 60_000, 60_000]
        file.write_text(json.dumps(document))
    np.full((2, 2), 60_000, "<i4").tofile(store / "test/sizes/c/0/0")
    for shard in (store / "test").rglob("c/0/0/0/0"):
        shard.unlink()  # so that the old way ends too
    ran = run("evaluate", f"m={model}", "--store", store, *FEW, "--out", tmp_path / "out")
    refuses(ran, "memory budget")


# Pipes


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """A pipe that somebody holds open, so that whoever reads from it waits."""
    os.mkfifo(tmp_path / "pipe.tif")
    handle = os.open(tmp_path / "pipe.tif", os.O_RDWR)
    yield tmp_path / "pipe.tif"
    os.close(handle)


@pytest.mark.usefixtures("in_time")
def test_a_pipe_is_no_image(model: Path, pipe: Path, tmp_path: Path) -> None:
    refuses(run("restore", model, pipe, tmp_path / "out.tif", *FEW), "a pipe, a socket or a device")


@pytest.mark.usefixtures("in_time")
def test_a_pipe_is_no_recipe(pipe: Path, tmp_path: Path) -> None:
    refuses(run("train", pipe, "--out", tmp_path / "run"), "is not a file")


@pytest.mark.usefixtures("in_time")
def test_a_pipe_is_no_manifest(model: Path, pipe: Path, tmp_path: Path) -> None:
    refuses(run("evaluate", f"m={model}", "--manifest", pipe, "--out", tmp_path / "out"), "is not a file")


@pytest.mark.guard
@pytest.mark.usefixtures("in_time")
def test_a_pipe_is_no_model(pipe: Path, tmp_path: Path) -> None:
    refuses(run("restore", pipe, image(tmp_path / "a.tif"), tmp_path / "out.tif"), "is not a file")


# Recipes and model files


def test_a_recipe_of_aliases_is_quoted_in_few_words(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1]", *(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 4)}]" for n in range(9))]
    (tmp_path / "recipe.yaml").write_text("\n".join([*lines, "name: *a9"]))
    ran = run("train", tmp_path / "recipe.yaml", "--out", tmp_path / "run")
    refuses(ran, "aliases")
    assert len(ran.text) < 2000


def test_a_long_value_is_quoted_in_few_words(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(f"train: {{steps: {'x' * 50_000}}}")
    ran = run("train", tmp_path / "recipe.yaml", "--out", tmp_path / "run")
    refuses(ran, "train.steps")
    assert len(ran.text) < 2000


def test_a_number_of_thousands_of_digits_is_refused_with_words(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(f"train: {{steps: {'9' * 5000}}}")
    refuses(run("train", tmp_path / "recipe.yaml", "--out", tmp_path / "run"), "recipe.yaml")


def upsampling(path: Path, ndim: int, factor: tuple[int, ...]) -> Path:
    """A model file that says it upsamples so much."""
    recipe = parse(f"model: {{base: 4, rate_base: 2, num_scales: 2, ndim: {ndim}}}", source="test")
    scaling = Normalization(offset=(10.0,), scale=(3.0,))
    info = ModelInfo(recipe, 1, 1, scaling, scaling, {}, {})
    object.__setattr__(info, "factor", factor)
    save_model(path, build_model(recipe.model, 1, 1).state_dict(), info)
    return path


def test_a_model_does_not_make_262144_voxels_of_one(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="factor"):
        sfumato.load(upsampling(tmp_path / "model.safetensors", 3, (64, 64, 64)))


def test_upsampling_stops_at_the_memory_budget(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    model = sfumato.load(upsampling(tmp_path / "model.safetensors", 2, (64, 64)))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    former = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 4 * 2**30, former[1]))  # so that the old way ends too
    try:
        with pytest.raises(ImageError, match="memory budget"):
            sfumato.restore(np.ones((512, 512), np.float32), model, num_samples=2, num_steps=2)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, former)


# Markup and formulas

SCRIPT = "<script>alert(1)</script>|`[x](http://evil)"


def test_names_become_neither_markup_nor_formulas(model: Path, tmp_path: Path) -> None:
    for side in ("low", "high"):
        for number in range(2):
            image(tmp_path / side / f"=HYPERLINK({number}).tif", seed=number)
    named = f"{SCRIPT}={model}"
    places = ("--inputs", tmp_path / "low", "--targets", tmp_path / "high")
    assert run("evaluate", named, *places, *FEW, "--out", tmp_path / "out").code == 0
    table = (tmp_path / "out/table.md").read_text()
    assert "<script" not in table
    assert "](http" not in table
    assert {line.count("|") for line in table.splitlines() if line.startswith("|")} == {3}
    with (tmp_path / "out/scores.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row[:2]]
    assert not [cell for cell in cells if cell.startswith("=")]
    assert any("HYPERLINK" in cell for cell in cells)
    assert "<script" not in (tmp_path / "out/report.html").read_text()


def test_a_card_holds_no_markup_of_the_model(tmp_path: Path) -> None:
    recipe = f"name: {json.dumps(SCRIPT)}\nproblem: {json.dumps(SCRIPT)}\nforward: {{{json.dumps(SCRIPT)}: 1}}"
    model = write_model(tmp_path / "model.safetensors", recipe=recipe)
    ran = run("export", model, "--hub", tmp_path / "hub", "--licence", "CC-BY-4.0", "--author", "A. Author")
    assert ran.code == 0, ran.text
    _, _, card = (tmp_path / "hub/README.md").read_text().removeprefix("---").partition("\n---\n")
    assert "alert(1)" in card
    assert "<script" not in card
    assert "](http" not in card
