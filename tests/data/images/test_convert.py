"""Copies hold the same pixels, sizes and metadata as their source, and take little memory to make."""

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import mrcfile
import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image as PillowImage

from sfumato.data.images import convert
from sfumato.data.images.convert import copy_image, slabs
from sfumato.data.images.image import PixelSize, arrange
from sfumato.data.images.io import open_image, write_image
from sfumato.data.images.output import OutputImage
from sfumato.system.errors import ImageError

Array = npt.NDArray[Any]

SIZES = {"Z": PixelSize(0.3, "micrometer"), "Y": PixelSize(62.5, "nanometer"), "X": PixelSize(0.0625, "micrometer")}
NOTES = {"model": "abc", "steps": 8}


def noise(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return (np.random.default_rng(0).random(shape) * 255).astype(dtype)


def stored(folder: Path, axes: str, array: Array, sizes: dict[str, PixelSize]) -> Path:
    write_image(folder / "source.zarr", array, axes=axes, pixel_size=sizes, metadata=NOTES)
    return folder / "source.zarr"


@pytest.mark.parametrize(
    ("axes", "shape", "dtype"),
    [
        ("YX", (1, 1), "uint8"),
        ("YX", (300, 517), "float32"),
        ("ZYX", (5, 40, 37), "uint16"),
        ("TCZYX", (2, 3, 4, 20, 30), "float32"),
        ("CYX", (2, 600, 300), "float64"),
        ("TSYX", (2, 3, 9, 10), "float16"),
        ("YX", (20, 30), "bool"),
    ],
)
@pytest.mark.parametrize("slab_bytes", [2**10, 2**27])
def test_tiffs(
    axes: str, shape: tuple[int, ...], dtype: str, slab_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "_SLAB_BYTES", slab_bytes)
    array = noise(shape, dtype)
    sizes = {axis: size for axis, size in SIZES.items() if axis in axes}
    copy_image(open_image(stored(tmp_path, axes, array, sizes)), tmp_path / "copy.ome.tif")
    copy = open_image(tmp_path / "copy.ome.tif")
    np.testing.assert_array_equal(arrange(copy.read(), copy.axes, axes), array)
    assert copy.dtype == dtype
    assert copy.pixel_size == sizes
    assert copy.metadata == NOTES
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "copy.ome.tif").squeeze(), copy.read().squeeze())
    assert list(tmp_path.glob(".*")) == []


def test_an_ome_tiff_tells_others_of_sizes_units_and_origin(tmp_path: Path) -> None:
    copy_image(open_image(stored(tmp_path, "ZYX", noise((3, 300, 310)), SIZES)), tmp_path / "copy.tif")
    with tifffile.TiffFile(tmp_path / "copy.tif") as file:
        assert file.is_ome
        assert file.series[0].axes == "ZYX"
        assert file.series[0].keyframe.is_tiled
        image = tifffile.xml2dict(file.ome_metadata or "")["OME"]["Image"]
    pixels = image["Pixels"]
    assert (pixels["PhysicalSizeX"], pixels["PhysicalSizeXUnit"]) == (0.0625, "\u00b5m")
    assert (pixels["PhysicalSizeY"], pixels["PhysicalSizeYUnit"]) == (62.5, "nm")
    assert (pixels["PhysicalSizeZ"], pixels["PhysicalSizeZUnit"]) == (0.3, "\u00b5m")
    assert json.loads(image["Description"]) == {"sfumato": NOTES}


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_pictures(channels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "_SLAB_BYTES", 2**10)
    array = noise((channels, 50, 40) if channels else (50, 40)) - 20
    array[..., 0, 0] = np.nan
    source = stored(tmp_path, "CYX" if channels else "YX", array, {axis: SIZES[axis] for axis in "YX"})
    with pytest.raises(ImageError, match="a PNG holds uint8 or uint16"):
        copy_image(open_image(source), tmp_path / "copy.png")
    copy_image(open_image(source), tmp_path / "copy.png", dtype="uint8")
    expected = np.clip(np.rint(np.nan_to_num(array)), 0, 255)
    expected = np.moveaxis(expected, 0, -1) if channels else expected
    shown = np.asarray(PillowImage.open(tmp_path / "copy.png"))
    np.testing.assert_array_equal(shown.reshape(expected.shape), expected)
    copy = open_image(tmp_path / "copy.png")
    assert copy.metadata == NOTES
    assert copy.pixel_size["X"].to("micrometer") == pytest.approx(0.0625)


@pytest.mark.parametrize("axes", ["YX", "ZYX", "CYX"])
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_mrc(axes: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "_SLAB_BYTES", 2**10)
    array = noise((4, 30, 20)[-len(axes) :], dtype)
    sizes = {axis: size for axis, size in SIZES.items() if axis in axes}
    source = open_image(stored(tmp_path, axes, array, sizes))
    if "C" in axes:
        with pytest.raises(ImageError, match="expected ZYX in this format"):
            copy_image(source, tmp_path / "copy.mrc")
        return
    copy_image(source, tmp_path / "copy.mrc")
    assert mrcfile.validate(tmp_path / "copy.mrc")
    with mrcfile.open(tmp_path / "copy.mrc") as file:
        np.testing.assert_array_equal(file.data, array)
        assert file.voxel_size.x == pytest.approx(625)
        assert json.loads(file.header.label[0].decode()) == {"sfumato": NOTES}
    copy = open_image(tmp_path / "copy.mrc")
    np.testing.assert_array_equal(copy.read(), array)
    for axis, size in sizes.items():
        assert copy.pixel_size[axis].to("micrometer") == pytest.approx(size.to("micrometer"))


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bool"])
def test_npy(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "_SLAB_BYTES", 2**10)
    array = noise((3, 41, 20), dtype)
    copy_image(open_image(stored(tmp_path, "CYX", array, {})), tmp_path / "copy.npy")
    loaded = np.load(tmp_path / "copy.npy")
    np.testing.assert_array_equal(loaded, array)
    assert loaded.dtype == dtype


@pytest.mark.parametrize("num_bytes", [1, 100, 1000, 10**6])
@pytest.mark.parametrize("axes", ["TCYX", "YXC", "CZYX"])
def test_slabs_end_to_end_are_the_image(num_bytes: int, axes: str, tmp_path: Path) -> None:
    shape = {"T": 1, "C": 3, "Z": 1, "Y": 13, "X": 11}
    array = noise(tuple(shape[axis] for axis in "TCYX"))
    image = open_image(stored(tmp_path, "TCYX", array, {}))
    parts = list(slabs(image, axes, num_bytes=num_bytes))
    joined = np.concatenate([part.reshape(-1) for part in parts])
    np.testing.assert_array_equal(joined, arrange(array, "TCYX", axes).reshape(-1))
    assert max(part.nbytes for part in parts) <= max(num_bytes, array.itemsize)


def test_a_name_is_taken_only_by_a_whole_file(tmp_path: Path) -> None:
    source = stored(tmp_path, "YX", noise((30, 20)), {})
    (tmp_path / "copy.tif").write_bytes(b"mine")
    with pytest.raises(ImageError, match="exists already"):
        copy_image(open_image(source), tmp_path / "copy.tif")
    image = open_image(source)
    (source / "0" / "c" / "0" / "0").write_bytes(b"damaged")
    with pytest.raises(ImageError, match="could not be read"):
        copy_image(image, tmp_path / "copy.tif", overwrite=True)
    assert (tmp_path / "copy.tif").read_bytes() == b"mine"
    with pytest.raises(ImageError, match=r"suffix '.jpg'; expected .tif"):
        copy_image(image, tmp_path / "copy.jpg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.tif", "source.zarr"]


LIMITED = """
import resource, sys
from sfumato.data.images.convert import copy_image
from sfumato.data.images.io import open_image
from sfumato.system.errors import StorageError
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    copy_image(open_image(sys.argv[1]), sys.argv[2])
except StorageError as error:
    print(error)
"""


@pytest.mark.parametrize("suffix", [".tif", ".npy"])
def test_a_disk_that_takes_no_more(suffix: str, tmp_path: Path) -> None:
    source = stored(tmp_path, "YX", noise((300, 200)), {})
    command = [sys.executable, "-c", LIMITED, str(source), str(tmp_path / f"copy{suffix}")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert "raise the limit" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["source.zarr"]


@pytest.mark.parametrize("suffix", [".tif", ".npy", ".mrc", ".png"])
def test_memory_does_not_grow_with_the_image(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large image whose chunks were never written, so that only the copy costs time."""
    monkeypatch.setattr(convert, "_SLAB_BYTES", 2**21)
    dtype = "uint8" if suffix == ".png" else "float32"
    peaks = []
    for side in (2048, 6144):
        place = tmp_path / f"{side}.zarr"
        output = OutputImage.create(place, shape=(side, 2048), dtype=dtype, axes="YX", chunks=(256, 256))
        image = output.image()
        tracemalloc.start()
        copy_image(image, tmp_path / f"{side}{suffix}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 10**6
    assert peaks[1] < 6 * 2**21


def test_a_copy_becomes_a_big_tiff_where_it_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.data.images.tiff_writer._BIG", 1000)
    copy_image(open_image(stored(tmp_path, "YX", noise((30, 20)), {})), tmp_path / "copy.tif")
    with tifffile.TiffFile(tmp_path / "copy.tif") as file:
        assert file.is_bigtiff
        np.testing.assert_array_equal(file.asarray(), noise((30, 20)))


def test_a_file_is_flushed_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was copied from may be removed at once, and a power cut must not lose both."""
    flushed: list[int] = []
    fsync = os.fsync

    def recorded(handle: int) -> None:
        flushed.append(os.fstat(handle).st_ino)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    source = open_image(stored(tmp_path, "YX", noise((30, 20), "float32"), {}))
    copy_image(source, tmp_path / "copy.npy")
    assert flushed[-2:] == [(tmp_path / "copy.npy").stat().st_ino, tmp_path.stat().st_ino]
