"""Files as microscopes write them: whole and by region, as the makers' own libraries see them.

The genuine files are in `vendor_formats` of SFUMATO_DATA; what stands here of each is in the README there.
"""

import os
import pickle
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tifffile
from typer.testing import CliRunner

from fuzz_readers import KINDS, MOST_BYTES, MOST_SECONDS, Edit, try_file
from sfumato.cli import app
from sfumato.data.images.image import Image
from sfumato.data.images.io import open_image, write_image
from sfumato.restoration.folder import FailedImagesError, restore_folder
from sfumato.restoration.planning import Settings
from sfumato.restoration.run import restore_file
from sfumato.system.errors import ImageError, UnknownFormatError
from untrained_models import write_model

DATA = os.environ.get("SFUMATO_DATA")
LIBRARIES = {".czi": "pylibCZIrw", ".nd2": "nd2", ".lif": "liffile", ".oib": "oiffile"}
STARTS = {
    ".czi": ("Zeiss CZI", b"ZISRAWFILE"),
    ".nd2": ("Nikon ND2", b"\xda\xce\xbe\x0a"),
    ".lif": ("Leica LIF", b"\x70\0\0\0\x10\0\0\0\x2a"),
    ".oib": ("Olympus OIB", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
}
NUM_DAMAGED = 25


class Vendor(NamedTuple):
    """A file, and what is known of it."""

    name: str
    axes: str
    shape: tuple[int, ...]
    dtype: str
    total: int
    """Sum of the pixels in ``part``."""
    part: Mapping[str, int] = {}
    pixel_um: Mapping[str, float] = {}
    channels: tuple[str, ...] = ()
    scenes: int = 0
    scene: int | None = None


T0_C0_Z0 = {"T": 0, "C": 0, "Z": 0}
FOUR = ("AF647", "AF568", "AF488", "DAPI")
FINE = {"X": 0.62048, "Y": 0.62048}
OBLIQUE = {"X": 0.14028, "Z": 0.14028}
FILES = [
    Vendor("0T-4C-0Z-7pos.czi", "CYX", (4, 32, 32), "uint16", 274984, {}, FINE, FOUR, 7),
    Vendor("3T-4C-3Z-2pos.czi", "TCZYX", (3, 4, 3, 32, 32), "uint16", 2481761, {}, FINE | {"Z": 2.54}, FOUR, 2),
    Vendor("3T-4C-3Z-2pos.czi", "TCZYX", (3, 4, 3, 32, 32), "uint16", 2477556, {}, FINE | {"Z": 2.54}, FOUR, 2, 1),
    Vendor("0T-4C-5Z.czi", "CZYX", (4, 5, 32, 32), "uint16", 68269, {"C": 0, "Z": 0}, FINE | {"Z": 1.0}, FOUR, 1),
    Vendor(
        "CellDivision_T3_Z5_CH2_X240_Y170.czi",
        "TCZYX",
        (3, 2, 5, 170, 240),
        "uint16",
        8951607,
        T0_C0_Z0,
        {"X": 0.09058, "Y": 0.09058, "Z": 0.32},
        ("LED555", "LED470"),
    ),
    Vendor("DAPI_GFP.czi", "CYX", (2, 640, 640), "uint8", 8488476, {"C": 0}, {}, ("DAPI", "GFP")),
    Vendor(
        "cluster.nd2",
        "TZCYX",
        (3, 10, 2, 31, 38),
        "uint16",
        4832891,
        {},
        {"X": 0.1678, "Y": 0.1678, "Z": 0.5},
        ("5-FAM/pH 9.0", "FM 4-64/2% CHAPS"),
    ),
    Vendor("ND2_dims_rgb.nd2", "YXC", (64, 64, 3), "uint8", 1733502, {}, {"X": 0.3429, "Y": 0.3429}),
    Vendor("xz-example.lif", "TCZX", (20, 2, 128, 128), "uint8", 5529504, {}, OBLIQUE, ("Green", "Red"), 3),
    Vendor(
        "xz-example.lif",
        "YCZX",
        (23, 2, 128, 128),
        "uint8",
        4624148,
        {},
        OBLIQUE | {"Y": 0.22906},
        ("Green", "Red"),
        3,
        1,
    ),
    Vendor(
        "xz-example.lif",
        "CZX",
        (2, 512, 512),
        "uint8",
        4310826,
        {},
        {"X": 0.1027, "Z": 0.1027},
        ("Green", "Red"),
        3,
        2,
    ),
    Vendor("test.oib", "CYX", (3, 256, 256), "uint16", 22899363, {}, {"X": 0.177, "Y": 0.177}, ("CH1", "CH2", "TD1")),
    Vendor(
        "toxo.dv",
        "CZYX",
        (2, 17, 128, 128),
        "uint16",
        150923438,
        {},
        {"X": 0.13262, "Y": 0.13262, "Z": 0.3},
    ),
]
genuine = pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.name}-{file.scene or 0}")


def place_of(file: Vendor) -> Path:
    """Path of a file, whose test is skipped without it or without its library."""
    if DATA is None:
        pytest.skip("set SFUMATO_DATA to the folder of image sets")
    path = Path(DATA) / "vendor_formats" / file.name
    if path.suffix in LIBRARIES:
        pytest.importorskip(LIBRARIES[path.suffix], reason="pip install 'sfumato[microscopes]'")
    return path


def opened(file: Vendor) -> Image:
    return open_image(place_of(file), scene=file.scene)


@genuine
def test_a_genuine_file_is_as_described(file: Vendor) -> None:
    image = opened(file)
    assert (image.axes, image.shape, image.dtype.name) == (file.axes, file.shape, file.dtype)
    sizes = {axis: size.to("micrometer") for axis, size in image.pixel_size.items() if axis != "T"}
    assert sizes == pytest.approx(dict(file.pixel_um), rel=1e-3)
    assert (image.channel_names, len(image.scenes), image.scene) == (file.channels, file.scenes, file.scene or 0)
    pixels = image.read(file.part)
    assert pixels.sum(dtype=np.uint64) == file.total
    assert pixels.dtype == image.dtype
    assert pixels.flags["C_CONTIGUOUS"]


@genuine
def test_regions_of_a_genuine_file_are_parts_of_it(file: Vendor) -> None:
    image = opened(file)
    whole, rng = image.read(), random.Random(0)
    for _ in range(5):
        starts = [rng.randrange(length) for length in image.shape]
        box = tuple(slice(a, rng.randint(a + 1, n)) for a, n in zip(starts, image.shape, strict=True))
        assert np.array_equal(image.read(dict(zip(image.axes, box, strict=True))), whole[box])
    assert whole.min() < whole.max()


@genuine
def test_a_genuine_file_opens_again_in_another_process(file: Vendor) -> None:
    image = opened(file)
    code = "import pickle, sys; print(int(pickle.load(sys.stdin.buffer).read().sum()))"
    found = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(image), capture_output=True, check=True)
    assert int(found.stdout) == int(image.read().sum())


@genuine
def test_more_than_the_memory_budget_is_not_read(file: Vendor) -> None:
    image = open_image(place_of(file), scene=file.scene, memory_budget=100)
    with pytest.raises(ImageError, match="expected at most the memory budget of 100"):
        image.read()


def test_times_have_a_distance() -> None:
    times = {file.name: file for file in FILES if file.scene is None}
    assert opened(times["CellDivision_T3_Z5_CH2_X240_Y170.czi"]).pixel_size["T"].to("second") == pytest.approx(60.075)
    assert opened(times["xz-example.lif"]).pixel_size["T"].to("second") == pytest.approx(10.07 / 19)


def test_scenes_have_names_and_numbers() -> None:
    path = place_of(FILES[1])
    by_name, by_number = open_image(path, scene="P1"), open_image(path, scene="1")
    assert by_name.scenes == ("P5", "P1")
    assert by_name.scene == by_number.scene == 1
    assert np.array_equal(by_name.read(), by_number.read())
    for wanted in ("P7", "2", -1):
        with pytest.raises(ImageError, match=r"has the scenes 0 \(P5\), 1 \(P1\), and .* was asked for"):
            open_image(path, scene=wanted)


def test_a_file_of_one_scene_has_no_second(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 4)))
    assert open_image(tmp_path / "a.npy", scene=0).scenes == ()
    with pytest.raises(ImageError, match="has one scene, and 1 was asked for"):
        open_image(tmp_path / "a.npy", scene=1)


def test_a_series_is_restored_on_one_channel_by_workers(tmp_path: Path) -> None:
    """Three times, five planes, two channels: the second alone becomes an OME-TIFF that names it."""
    file = next(file for file in FILES if file.name.startswith("CellDivision"))
    model, source = write_model(tmp_path / "model.safetensors", scale=3000.0), str(place_of(file))
    chosen = ["--channel", "LED470", "--samples", "2", "--steps", "2", "--chunk", "256"]
    command = ["restore", str(model), source, str(tmp_path / "one.ome.tif"), *chosen, "--workers", "1"]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0, found.output
    restored = open_image(tmp_path / "one.ome.tif")
    assert (restored.axes, restored.shape, restored.channel_names) == ("TZYX", (3, 5, 170, 240), ("LED470",))
    assert restored.pixel_size["Z"].to("micrometer") == pytest.approx(0.32)
    with tifffile.TiffFile(tmp_path / "one.ome.tif") as tiff:
        assert 'Name="LED470"' in str(tiff.ome_metadata)
        assert "LED555" not in str(tiff.ome_metadata)
    # The same pixels as from a file that has this channel alone.
    write_image(tmp_path / "alone.tif", open_image(source).read({"C": 1}), axes="TZYX")
    alone = Settings(num_samples=2, num_steps=2, chunk=256)
    same = restore_file(model, tmp_path / "alone.tif", tmp_path / "same.tif", alone)
    assert np.allclose(restored.read(), open_image(same[0]).read(), rtol=1e-4, atol=0.1)


@pytest.mark.parametrize("suffix", LIBRARIES)
def test_without_the_extra_its_name_is_said(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, LIBRARIES[suffix], None)
    maker, start = STARTS[suffix]
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / f"cells{suffix}"
    path.write_bytes(start + bytes(2000))
    expected = f"is a {maker} file; .* {LIBRARIES[suffix]}, .* pip install 'sfumato\\[microscopes\\]'"
    with pytest.raises(ImageError, match=expected):
        open_image(path)
    with pytest.raises((ImageError, FailedImagesError), match=expected):
        restore_folder(write_model(tmp_path / "model.safetensors"), tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("suffix", LIBRARIES)
def test_a_name_alone_makes_no_vendor_file(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"cells{suffix}"
    path.write_bytes(b"plain text")
    with pytest.raises(UnknownFormatError, match="which no known format does"):
        open_image(path)


# What its library leaves open in a damaged file is closed when the error is dropped.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("file", [file for file in FILES if file.scene is None], ids=lambda file: file.name)
def test_damaged_vendor_files(file: Vendor, tmp_path: Path) -> None:
    path, rng = place_of(file), random.Random(file.name)
    content, refused = path.read_bytes(), 0
    for _ in range(NUM_DAMAGED):
        damaged = content
        for _ in range(rng.randint(1, 6)):
            damaged = Edit(rng.choice(KINDS), rng.random(), rng.random() < 0.5, rng.randrange(256))(damaged)
        copy = tmp_path / file.name
        copy.write_bytes(damaged)
        outcome = try_file(copy)
        assert outcome.escaped.startswith("warning unclosed file") or not outcome.escaped
        assert outcome.seconds < MOST_SECONDS
        assert outcome.peak_bytes < MOST_BYTES
        refused += outcome.is_typed_error
    assert 0 < refused <= NUM_DAMAGED


def test_colours_of_a_czi_are_red_green_blue(tmp_path: Path) -> None:
    czi = pytest.importorskip("pylibCZIrw.czi", reason="pip install 'sfumato[microscopes]'")
    red_green_blue = np.random.default_rng(0).integers(0, 255, (20, 30, 3)).astype(np.uint8)
    with czi.create_czi(str(tmp_path / "colour.czi")) as file:
        file.write(np.ascontiguousarray(red_green_blue[..., ::-1]), plane={"C": 0, "Z": 0, "T": 0})
    image = open_image(tmp_path / "colour.czi")
    assert (image.axes, image.shape) == ("YXC", (20, 30, 3))
    assert np.array_equal(image.read(), red_green_blue)
    part = {"C": slice(0, 1), "Y": slice(3, 9), "X": slice(5, 6)}
    assert np.array_equal(image.read(part), red_green_blue[3:9, 5:6, :1])


def test_tiles_of_a_czi_are_joined_and_what_lies_between_is_dark(tmp_path: Path) -> None:
    czi = pytest.importorskip("pylibCZIrw.czi", reason="pip install 'sfumato[microscopes]'")
    tile = np.random.default_rng(0).integers(1, 999, (16, 16, 1)).astype(np.uint16)
    with czi.create_czi(str(tmp_path / "tiles.czi")) as file:
        file.write(tile, location=(-40, 7))
        file.write(tile, location=(-20, 7))
    image = open_image(tmp_path / "tiles.czi")
    assert (image.axes, image.shape) == ("YX", (16, 36))
    assert np.array_equal(image.read(), np.hstack([tile[..., 0], np.zeros((16, 4)), tile[..., 0]]))
