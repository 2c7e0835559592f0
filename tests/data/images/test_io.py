"""Images come back as they were written, by region, lazily, with their axes and pixel sizes."""

import math
import pickle
import re
import struct
import subprocess
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
import yaozarrs
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage

from io_samples import Sample, deltavision, mrc_header, pattern, write_samples
from sfumato.data.images import png_jpeg, tiff_image
from sfumato.data.images.image import AXES, Image, PixelSize, Region, arrange
from sfumato.data.images.io import open_image, write_image
from sfumato.data.images.tiff_image import unpack
from sfumato.system.errors import ImageError, SfumatoError

Array = npt.NDArray[Any]
MEGABYTE = 10**6

LENGTHS = st.sampled_from(["micrometer", "nanometer", "angstrom", "millimeter", "inch"])
TIMES = st.sampled_from(["second", "millisecond", "minute", "hour"])
VALUES = st.floats(1e-3, 1e3).map(lambda value: float(f"{value:.6g}"))
DTYPES = ["uint8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "bool"]
SUFFIXES = [".tif", ".npy", ".png", ".0.4.zarr", ".0.5.ome.zarr"]


def can_hold(suffix: str, axes: str, dtype: str) -> bool:
    if suffix == ".npy":
        return True
    if suffix == ".png":
        return set(axes) in ({"Y", "X"}, {"Y", "X", "C"}) and dtype in ("uint8", "uint16")
    return {"Y", "X"} <= set(axes) and (suffix == ".tif" or not {"S", "C"} <= set(axes))


def write(path: Path, array: Array, axes: str, sizes: dict[str, PixelSize]) -> None:
    version: Literal["0.4", "0.5"] = "0.4" if ".0.4." in path.name else "0.5"
    write_image(path, array, axes=axes, pixel_size=sizes, ome_zarr_version=version)


@st.composite
def images(draw: st.DrawFn) -> tuple[str, str, Array, dict[str, PixelSize]]:
    """Suffix, axes in any order, pixels and pixel sizes of an image that the format can hold."""
    suffix = draw(st.sampled_from(SUFFIXES))
    letters = "YXC" if suffix == ".png" else AXES
    axes = "".join(draw(st.lists(st.sampled_from(letters), min_size=2, unique=True)))
    axes += "".join(axis for axis in "YX" if axis not in axes and suffix != ".npy")
    if "zarr" in suffix and {"S", "C"} <= set(axes):
        axes = axes.replace(draw(st.sampled_from("SC")), "")
    dtype = draw(st.sampled_from(["uint8", "uint16"] if suffix == ".png" else DTYPES))
    assert can_hold(suffix, axes, dtype)
    shape = tuple(draw(st.integers(1, 4 if axis == "C" else 5)) for axis in axes)
    noise = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256 if dtype == "uint8" else 30000, shape)
    sizes = {}
    if suffix != ".npy":
        spatial = {"X", "Y"} if suffix == ".png" else set(axes) & set("XYZ")
        sizes = {axis: PixelSize(draw(VALUES), draw(LENGTHS)) for axis in sorted(spatial)}
        if suffix == ".png":
            sizes = {
                axis: PixelSize(float(np.clip(size.value / 100, 1e-3, 5)), "micrometer") for axis, size in sizes.items()
            }
        elif "T" in axes:
            sizes["T"] = PixelSize(draw(VALUES), draw(TIMES))
    return suffix, axes, noise.astype(dtype), sizes if draw(st.booleans()) else {}


def regions(image: Image) -> st.SearchStrategy[dict[str, slice | int]]:
    """Some region of an image: whole axes, slices and indices."""

    def part(length: int) -> st.SearchStrategy[slice | int]:
        ends = st.tuples(st.integers(0, length - 1), st.integers(1, length)).filter(lambda ends: ends[0] < ends[1])
        slices = ends.map(lambda ends: slice(*ends)) | st.just(slice(None))
        return slices | st.integers(0, length - 1)

    parts = {axis: part(length) for axis, length in zip(image.axes, image.shape, strict=True)}
    return st.fixed_dictionaries({}, optional=parts)


@settings(max_examples=100, deadline=None)
@given(images(), st.data())
def test_what_was_written_is_read(written: tuple[str, str, Array, dict[str, PixelSize]], data: st.DataObject) -> None:
    suffix, axes, array, sizes = written
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"image{suffix}"
        write(path, array, axes, sizes)
        image = open_image(path, axes=axes if suffix == ".npy" else None)
        assert image.dtype == array.dtype
        assert image.name == f"image{suffix}"
        # OME-TIFF and PNG do not tell of axes of length 1; putting them back is all the difference there may be.
        whole = image.read()
        np.testing.assert_array_equal(arrange(whole, image.axes, axes), array)
        if suffix != ".tif" and suffix != ".png":
            assert sorted(image.axes) == sorted(axes)
        kept = {axis: size for axis, size in sizes.items() if axis in image.axes}
        assert set(image.pixel_size) == set(kept)
        for axis, size in kept.items():
            assert image.pixel_size[axis].to(size.unit) == pytest.approx(size.value, rel=5e-6)
            if suffix != ".png":
                assert image.pixel_size[axis] == size
        region = data.draw(regions(image))
        assert_region_is_slice(image, whole, region)


def assert_region_is_slice(image: Image, whole: Array, region: Region) -> None:
    part = image.read(region)
    np.testing.assert_array_equal(part, whole[tuple(region.get(axis, slice(None)) for axis in image.axes)])
    assert part.dtype == image.dtype
    assert part.dtype.isnative
    assert part.flags.c_contiguous


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sample]:
    return write_samples(tmp_path_factory.mktemp("samples"))


SAMPLE_NAMES = [
    *(
        "block.tif",
        "strips.tif",
        "tiles.tif",
        "tiles_plain.tif",
        "big_endian.tif",
        "bigtiff.tif",
        "rgb.tif",
        "planar.tif",
        "lzw.tif",
    ),
    *(
        "packbits.tif",
        "zstd.tif",
        "jpeg.tif",
        "jpeg2000.tif",
        "jpegxr.tif",
        "jpegxl.tif",
        "imagej.tif",
        "shaped.tif",
        "ome.tif",
        "ome_plain.tif",
        "ome_rgb.tif",
        "plain.mrc",
        "deltavision.dv",
        "grey.png",
        "deep.png",
    ),
    *("colour.png", "deep_colour.png", "palette.png", "colour.jpg", "grey.jpg", "plain.npy", "fortran.npy"),
    *("archive.npz", "movie_0.4.ome.zarr", "movie_0.5.ome.zarr", "sharded.zarr"),
]


def test_the_list_of_samples_is_complete(samples: dict[str, Sample]) -> None:
    assert sorted(SAMPLE_NAMES) == sorted(samples)


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_every_format_and_layout(name: str, samples: dict[str, Sample]) -> None:
    sample = samples[name]
    image = open_image(sample.path)
    assert (image.axes, image.shape, image.dtype) == (
        sample.axes,
        sample.pixels.shape,
        sample.pixels.dtype.newbyteorder("="),
    )
    assert image.nbytes == sample.pixels.nbytes
    np.testing.assert_array_equal(image.read(), sample.pixels)
    assert set(image.pixel_size) == set(sample.pixel_size)
    for axis, size in sample.pixel_size.items():
        assert image.pixel_size[axis].unit == size.unit
        assert image.pixel_size[axis].value == pytest.approx(size.value, rel=1e-6)
    assert_many_regions(image, sample.pixels)
    copy = pickle.loads(pickle.dumps(image))
    np.testing.assert_array_equal(copy.read(), sample.pixels)


def assert_many_regions(image: Image, pixels: Array) -> None:
    """Random boxes that start and stop anywhere, with some axes dropped."""
    source = np.random.default_rng(0)
    for _ in range(30):
        region: dict[str, slice | int] = {}
        for axis, length in zip(image.axes, image.shape, strict=True):
            start, stop = np.sort(source.choice(length + 1, 2, replace=False))
            region[axis] = slice(int(start), int(stop)) if source.random() < 0.7 else int(source.integers(length))
        assert_region_is_slice(image, pixels, region)


@pytest.mark.parametrize("name", ["strips.tif", "plain.mrc", "deep_colour.png", "plain.npy", "movie_0.5.ome.zarr"])
def test_given_axes_overrule_the_file(name: str, samples: dict[str, Sample]) -> None:
    sample = samples[name]
    axes = {3: "TYX", 4: "SCYX"}[sample.pixels.ndim]
    image = open_image(sample.path, axes=axes)
    assert image.axes == axes
    np.testing.assert_array_equal(image.read({axes[0]: 1}), sample.pixels[1])
    assert set(image.pixel_size) <= set("YX")
    with pytest.raises(ImageError, match="expected one letter out of STCZYX for each"):
        open_image(sample.path, axes="YX")


def test_sizes_stay_with_their_place_when_axes_are_renamed(samples: dict[str, Sample]) -> None:
    image = open_image(samples["deltavision.dv"].path, axes="XSZY")
    assert {axis: size.value for axis, size in image.pixel_size.items()} == {"X": 0.2, "Z": 0.065, "Y": 0.065}


BAD_REGIONS: list[tuple[dict[str, Any], str]] = [
    ({"Y": -1}, r"axis Y is -1; expected an index or a slice without step inside 0 to 20"),
    ({"Y": 20}, "axis Y is 20"),
    ({"X": slice(0, 31)}, r"axis X is slice\(0, 31, None\)"),
    ({"X": slice(-3, None)}, "axis X is slice"),
    ({"X": slice(3, 3)}, "at least one pixel"),
    ({"X": slice(0, 10, 2)}, "without step"),
    ({"X": 1.5}, "axis X is 1.5"),
    ({"T": 0}, r"names the axes \['T'\]; expected some of ZYX"),
]


@pytest.mark.parametrize(("region", "text"), BAD_REGIONS)
def test_regions_outside_are_refused(region: dict[str, Any], text: str, samples: dict[str, Sample]) -> None:
    with pytest.raises(ImageError, match=text):
        open_image(samples["strips.tif"].path).read(region)


def test_whole_numbers_of_numpy_are_indices(samples: dict[str, Sample]) -> None:
    sample = samples["block.tif"]
    corner = open_image(sample.path).read({"Z": np.int64(1), "Y": np.uint8(2), "X": 3})  # type: ignore[dict-item]
    assert corner.shape == ()
    assert corner == sample.pixels[1, 2, 3]


# Laziness.


def peak_of(work: Any) -> int:
    """Most memory that Python held during some work, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def sparse_npy(path: Path, shape: tuple[int, ...]) -> None:
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<u2", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + 2 * math.prod(shape))


def sparse_mrc(path: Path, shape: tuple[int, int, int]) -> None:
    with path.open("wb") as file:
        file.write(mrc_header(shape, 6, cell=(1.0, 1.0, 1.0)))
        file.truncate(1024 + 2 * math.prod(shape))


def sparse_tiff(path: Path, shape: tuple[int, ...]) -> None:
    tifffile.imwrite(path, shape=shape, dtype=np.uint16, bigtiff=True, photometric="minisblack")


def sparse_ome_tiff(path: Path, shape: tuple[int, ...]) -> None:
    """A strip for each plane of two gigabytes."""
    tifffile.imwrite(path, shape=shape, dtype=np.uint16, bigtiff=True, ome=True, metadata={"axes": "ZYX"})


def sparse_zarr(path: Path, shape: tuple[int, ...]) -> None:
    array = zarr.create_array(path, shape=shape, dtype="uint16", chunks=(1, 256, 256))
    array[1, :256, :256] = 7


SHAPE = (5, 32768, 32768)  # 10.7 GB of uint16
SPARSE: dict[str, Callable[[Path, tuple[int, int, int]], None]] = {
    "big.npy": sparse_npy,
    "big.mrc": sparse_mrc,
    "big.tif": sparse_tiff,
    "big.ome.tif": sparse_ome_tiff,
    "big.zarr": sparse_zarr,
}


@pytest.mark.parametrize("name", SPARSE)
def test_a_corner_of_ten_gigabytes_takes_little_memory(name: str, tmp_path: Path) -> None:
    SPARSE[name](tmp_path / name, SHAPE)
    region: Region = {"Z": 1, "Y": slice(0, 256), "X": slice(0, 256)}

    def read_corner() -> None:
        image = open_image(tmp_path / name)
        assert image.shape == SHAPE
        corner = image.read(region)
        assert corner.mean() == (7 if name == "big.zarr" else 0)

    read_corner()  # imports and caches of the libraries are not the image's
    assert peak_of(read_corner) < 2 * MEGABYTE
    with pytest.raises(ImageError, match=r"takes 1[01],\d+,\d+,\d+ bytes; expected at most the memory budget"):
        open_image(tmp_path / name).read()
    with pytest.raises(ImageError, match="budget of 131,071; read a smaller region"):
        open_image(tmp_path / name, memory_budget=131_071).read(region)


@pytest.mark.parametrize(
    ("how", "region", "segments"),
    [
        ({"tile": (16, 32)}, {"Z": 2, "Y": slice(15, 17), "X": slice(31, 33)}, 4),
        ({"tile": (16, 32)}, {"Z": 0, "Y": slice(16, 32), "X": slice(0, 32)}, 1),
        ({"tile": (16, 32)}, {}, 3 * 4 * 2),
        ({"rowsperstrip": 10}, {"Z": 1, "Y": 19}, 1),
        ({"rowsperstrip": 10}, {"Z": slice(1, 3), "Y": slice(9, 21)}, 6),
    ],
)
def test_only_the_strips_and_tiles_of_a_region_are_decoded(
    how: dict[str, Any], region: Region, segments: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = pattern(3, 64, 64)
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression="zlib", photometric="minisblack", **how)
    calls = []

    def counted(*arguments: Any) -> Array:
        calls.append(arguments)
        return unpack(*arguments)

    monkeypatch.setattr(tiff_image, "unpack", counted)
    image = open_image(tmp_path / "a.tif")
    assert not calls
    assert_region_is_slice(image, pixels, region)
    assert len(calls) == segments


def test_only_the_chunks_of_a_region_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged chunk harms only the regions that meet it, and a missing one is the fill value."""
    pixels = pattern(40, 40) + np.uint16(1)
    zarr.create_array(tmp_path / "a.zarr", data=pixels, chunks=(10, 10), fill_value=9)
    (tmp_path / "a.zarr/c/0/0").write_bytes(b"damage")
    (tmp_path / "a.zarr/c/3/3").unlink()
    image = open_image(tmp_path / "a.zarr")
    np.testing.assert_array_equal(image.read({"Y": slice(10, 30)}), pixels[10:30])
    corner = image.read({"Y": slice(25, 40), "X": slice(25, 40)})
    expected = pixels[25:, 25:].copy()
    expected[5:, 5:] = 9
    np.testing.assert_array_equal(corner, expected)
    with pytest.raises(ImageError, match=r"a\.zarr could not be read"):
        image.read()


def test_chunks_that_are_not_there_cost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zarr would take seconds to find them missing."""
    zarr.create_array(tmp_path / "a.zarr", shape=(4096, 4096), dtype="uint8", chunks=(64, 64), fill_value=3)
    image = open_image(tmp_path / "a.zarr")
    monkeypatch.setattr(zarr.Array, "__getitem__", lambda *arguments: pytest.fail("Zarr was asked"))
    assert image.read().min() == 3


def test_the_budget_counts_what_decoding_takes(tmp_path: Path) -> None:
    """One row of a picture, a strip or a chunk costs as much as they do, and is refused before it is decoded."""
    pixels = np.zeros((2000, 2000), np.uint8)
    write_image(tmp_path / "a.png", pixels, axes="YX")
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression="zlib", rowsperstrip=2000)
    zarr.create_array(tmp_path / "a.zarr", data=pixels, chunks=(2000, 2000))
    np.savez_compressed(tmp_path / "a.npz", pixels)
    for name in ("a.png", "a.tif", "a.zarr", "a.npz"):
        image = open_image(tmp_path / name, memory_budget=4 * MEGABYTE)

        def refuse(image: Image = image) -> None:
            with pytest.raises(ImageError, match="memory budget of 4,000,000"):
                image.read({"Y": 0})

        assert peak_of(refuse) < MEGABYTE, name
        assert open_image(tmp_path / name, memory_budget=50 * MEGABYTE).read({"Y": 0}).shape == (2000,)


# Use from several threads and processes.


def test_threads_may_share_an_image(samples: dict[str, Sample]) -> None:
    for name in ("tiles.tif", "block.tif", "movie_0.5.ome.zarr", "deep_colour.png"):
        sample, image = samples[name], open_image(samples[name].path)
        start = threading.Barrier(4)

        def read(turn: int, image: Image = image, sample: Sample = sample, start: threading.Barrier = start) -> bool:
            start.wait()
            return all(
                np.array_equal(image.read({"Y": y}), sample.pixels.take(y, image.axes.index("Y")))
                for y in range(turn, 20, 4)
            )

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(read, range(4))), name


FORK = """
import os, sys, pickle
images = pickle.load(sys.stdin.buffer)
before = [image.read() for image in images]
child = os.fork()
if child == 0:
    same = all((image.read() == pixels).all() for image, pixels in zip(images, before))
    os._exit(0 if same else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_images_survive_a_fork(samples: dict[str, Sample]) -> None:
    opened = [open_image(samples[name].path) for name in ("tiles.tif", "block.tif", "movie_0.5.ome.zarr", "grey.png")]
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    subprocess.run(command, input=pickle.dumps(opened), check=True, timeout=60)


# Details of single formats.


@pytest.mark.parametrize(
    ("predictor", "dtype"), [(1, np.uint8), (2, np.uint8), (2, np.uint16), (2, np.float32), (3, np.float32)]
)
@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate"])
def test_tiff_predictors_against_libtiff(
    predictor: int, compression: str, dtype: npt.DTypeLike, tmp_path: Path
) -> None:
    pixels = pattern(50, 60, dtype=dtype)
    if dtype == np.float32:
        pixels = np.sqrt(pixels) / np.float32(3)
    PillowImage.fromarray(pixels).save(tmp_path / "a.tif", compression=compression, tiffinfo={317: predictor})
    image = open_image(tmp_path / "a.tif")
    assert isinstance(image, tiff_image.TiffImage)
    assert image.grid.packing.predictor == predictor
    np.testing.assert_array_equal(image.read(), pixels)
    np.testing.assert_array_equal(image.read({"Y": slice(30, 41), "X": slice(7, 9)}), pixels[30:41, 7:9])


def test_tiff_of_single_bits(tmp_path: Path) -> None:
    mask = pattern(20, 37) % 3 == 0
    PillowImage.fromarray(mask).save(tmp_path / "a.tif")
    image = open_image(tmp_path / "a.tif")
    assert image.dtype == np.bool_
    np.testing.assert_array_equal(image.read(), mask)
    np.testing.assert_array_equal(image.read({"X": slice(9, 30)}), mask[:, 9:30])


def test_tiff_resolution_tags_are_believed_below_the_size_of_print(tmp_path: Path) -> None:
    pixels = pattern(4, 5)
    tifffile.imwrite(tmp_path / "fine.tif", pixels, resolution=(1e4 / 0.1, 1e4 / 0.2), resolutionunit="CENTIMETER")
    sizes = open_image(tmp_path / "fine.tif").pixel_size
    assert {axis: size.to("nanometer") for axis, size in sizes.items()} == pytest.approx({"X": 100, "Y": 200})
    tifffile.imwrite(tmp_path / "print.tif", pixels, resolution=(300, 300), resolutionunit="INCH")
    assert open_image(tmp_path / "print.tif").pixel_size == {}


def test_ome_tiff_names_its_planes(tmp_path: Path) -> None:
    """Planes may lie in the file in any order; the OME-XML says which page is which."""
    pixels = pattern(2, 3, 8, 9)
    write_image(tmp_path / "a.ome.tif", pixels, axes="CZYX")
    text = str(tifffile.tiffcomment(tmp_path / "a.ome.tif"))
    swapped = '<TiffData FirstC="0" IFD="3" PlaneCount="3"/><TiffData FirstC="1" IFD="0" PlaneCount="3"/>'
    shuffled = re.sub("<TiffData[^>]*>", swapped, text)
    assert shuffled != text
    tifffile.tiffcomment(tmp_path / "a.ome.tif", shuffled.encode())
    image = open_image(tmp_path / "a.ome.tif")
    assert image.axes == "CZYX"
    np.testing.assert_array_equal(image.read(), pixels[::-1])


def test_ome_tiff_sizes_without_unit_are_micrometers_and_seconds(tmp_path: Path) -> None:
    sizes = {"PhysicalSizeX": 0.5, "PhysicalSizeY": 0.25, "PhysicalSizeYUnit": "nm", "TimeIncrement": 3}
    tifffile.imwrite(tmp_path / "a.ome.tif", pattern(2, 8, 9), ome=True, metadata={"axes": "TYX", **sizes})
    assert open_image(tmp_path / "a.ome.tif").pixel_size == {
        "X": PixelSize(0.5, "micrometer"),
        "Y": PixelSize(0.25, "nanometer"),
        "T": PixelSize(3, "second"),
    }


def test_a_written_ome_tiff_is_read_alike_by_tifffile(tmp_path: Path) -> None:
    pixels = pattern(2, 3, 4, 8, 9)
    sizes = {"X": PixelSize(0.1, "micrometer"), "T": PixelSize(3, "second")}
    write_image(tmp_path / "a.ome.tif", pixels, axes="TCZYX", pixel_size=sizes)
    with tifffile.TiffFile(tmp_path / "a.ome.tif") as file:
        assert file.is_ome
        assert file.series[0].axes == "TCZYX"
        np.testing.assert_array_equal(file.asarray(), pixels)
        assert 'PhysicalSizeX="0.1" PhysicalSizeXUnit="\u00b5m"' in str(file.ome_metadata)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("mode", "code"), [(0, "i1"), (1, "i2"), (2, "f4"), (4, "c8"), (6, "u2"), (12, "f2")])
def test_mrc_modes_and_byte_orders(order: str, mode: int, code: str, tmp_path: Path) -> None:
    pixels = pattern(2, 5, 7).astype(order + code)
    extended = bytearray(mrc_header((2, 5, 7), mode, cell=(14.0, 10.0, 3.0), order=order))
    extended[92:96] = np.array(100, order + "i4").tobytes()
    (tmp_path / "a.mrc").write_bytes(bytes(extended) + bytes(100) + pixels.tobytes())
    image = open_image(tmp_path / "a.mrc")
    assert image.dtype == pixels.dtype.newbyteorder("=")
    np.testing.assert_array_equal(image.read(), pixels)
    sizes = {axis: size.value for axis, size in image.pixel_size.items()}
    assert sizes == {"X": 2.0, "Y": 2.0, "Z": 1.5}


def test_a_single_section_is_a_plane(tmp_path: Path) -> None:
    pixels = pattern(5, 7)
    (tmp_path / "a.mrc").write_bytes(mrc_header((1, 5, 7), 6, cell=(14.0, 10.0, 3.0)) + pixels.tobytes())
    image = open_image(tmp_path / "a.mrc")
    assert (image.axes, image.shape, set(image.pixel_size)) == ("YX", (5, 7), {"X", "Y"})
    np.testing.assert_array_equal(image.read(), pixels)


@pytest.mark.parametrize(
    ("group", "directions", "axes", "shape"),
    [(401, (1, 2, 3), "SZYX", (3, 2, 5, 7)), (1, (3, 1, 2), "YXZ", (6, 5, 7)), (1, (0, 0, 0), "ZYX", (6, 5, 7))],
)
def test_mrc_volumes(
    group: int, directions: tuple[int, int, int], axes: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """A space group from 401 on declares a stack of volumes; columns, rows and sections may run along any axis."""
    header, pixels = bytearray(mrc_header((6, 5, 7), 6, cell=(2.0, 3.0, 4.0))), pattern(6, 5, 7)
    struct.pack_into("<3i", header, 28, 1, 1, 2)
    struct.pack_into("<3i", header, 64, *directions)
    struct.pack_into("<i", header, 88, group)
    (tmp_path / "a.mrc").write_bytes(bytes(header) + pixels.tobytes())
    image = open_image(tmp_path / "a.mrc")
    assert (image.axes, image.shape) == (axes, shape)
    assert {axis: size.value for axis, size in image.pixel_size.items()} == {"X": 2.0, "Y": 3.0, "Z": 2.0}
    np.testing.assert_array_equal(image.read(), pixels.reshape(shape))


@pytest.mark.parametrize(
    ("times", "waves", "sequence", "axes", "shape"),
    [
        (1, 1, 0, "ZYX", (12,)),
        (2, 3, 0, "CTZYX", (3, 2, 2)),
        (2, 3, 1, "TZCYX", (2, 2, 3)),
        (2, 3, 2, "TCZYX", (2, 3, 2)),
    ],
)
@pytest.mark.parametrize("order", ["<", ">"])
def test_deltavision_sections(
    times: int, waves: int, sequence: int, axes: str, shape: tuple[int, ...], order: str, tmp_path: Path
) -> None:
    pixels = pattern(12, 5, 7).astype(order + "u2")
    header = deltavision((12, 5, 7), 6, times=times, waves=waves, sequence=sequence, order=order)
    (tmp_path / "a.mrc").write_bytes(header + pixels.tobytes())
    image = open_image(tmp_path / "a.mrc")
    assert (image.axes, image.shape) == (axes, (*shape, 5, 7))
    np.testing.assert_array_equal(image.read(), pixels.reshape(image.shape))
    assert image.pixel_size["Z"] == PixelSize(0.2, "micrometer")


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("axes", ["YX", "ZYX", "CYX", "TCZYX", "TSYX"])
def test_written_stores_are_valid_ome_zarr(version: Literal["0.4", "0.5"], axes: str, tmp_path: Path) -> None:
    sizes = {"X": PixelSize(0.1, "micrometer"), "Y": PixelSize(0.2, "micrometer")}
    path = tmp_path / "a.ome.zarr"
    write_image(path, pattern(*range(2, 2 + len(axes))), axes=axes, pixel_size=sizes, ome_zarr_version=version)
    yaozarrs.validate_zarr_store(str(path))
    group = yaozarrs.open_group(str(path))
    assert group.ome_version() == version
    described = group.ome_metadata()
    assert isinstance(described, yaozarrs.v05.Image | yaozarrs.v04.Image)
    multiscale = described.multiscales[0]
    assert multiscale.name == "a.ome.zarr"
    assert [axis.name for axis in multiscale.axes] == list(axes.lower())


def test_ome_zarr_scales_multiply_and_axes_have_types(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "a.zarr", zarr_format=3)
    pixels = pattern(2, 3, 4, 5)
    group.create_array("scale0", data=pixels)
    entries = [{"name": "time", "type": "time", "unit": "minute"}, {"name": "Fluo", "type": "channel"}]
    entries += [{"name": "y", "type": "space", "unit": "nanometer"}, {"name": "x", "type": "space"}]
    group.attrs["ome"] = {
        "version": "0.5",
        "multiscales": [
            {
                "axes": entries,
                "datasets": [
                    {"path": "scale0", "coordinateTransformations": [{"type": "scale", "scale": [1, 1, 2.5, 3]}]}
                ],
                "coordinateTransformations": [{"type": "scale", "scale": [0.5, 1, 10, 1]}],
            }
        ],
    }
    image = open_image(tmp_path / "a.zarr")
    assert (image.axes, image.format) == ("TCYX", "OME-Zarr 0.5")
    np.testing.assert_array_equal(image.read(), pixels)
    # A scale without a unit is no physical size.
    assert image.pixel_size == {"T": PixelSize(0.5, "minute"), "Y": PixelSize(25, "nanometer")}


def test_zarr_at_an_address(samples: dict[str, Sample]) -> None:
    for name in ("movie_0.4.ome.zarr", "movie_0.5.ome.zarr", "sharded.zarr"):
        sample = samples[name]
        image = open_image(sample.path.as_uri())
        assert (image.axes, image.pixel_size, image.name) == (sample.axes, sample.pixel_size, name)
        np.testing.assert_array_equal(image.read({"Y": slice(3, 15)}), sample.pixels[..., 3:15, :])


def test_arrays_of_an_archive_are_named(tmp_path: Path) -> None:
    arrays = {"phase": pattern(4, 5, dtype=np.float32), "field": pattern(3, 4, 5, dtype=np.complex64)}
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    for name, pixels in arrays.items():
        image = open_image(tmp_path / f"a.npz/{name}")
        assert (image.name, image.axes) == (name, "ZYX"[-pixels.ndim :])
        np.testing.assert_array_equal(image.read({"Y": 2}), pixels[..., 2, :])


def test_a_cmyk_jpeg_and_transparent_palettes_become_colours(tmp_path: Path) -> None:
    colours = PillowImage.fromarray(pattern(20, 30, 3, dtype=np.uint8))
    colours.convert("CMYK").save(tmp_path / "a.jpg")
    with PillowImage.open(tmp_path / "a.jpg") as decoded:
        np.testing.assert_array_equal(open_image(tmp_path / "a.jpg").read(), np.asarray(decoded.convert("RGB")))
    colours.quantize(16).save(tmp_path / "a.png", transparency=3)
    with PillowImage.open(tmp_path / "a.png") as decoded:
        rgba = np.asarray(decoded.convert("RGBA"))
    np.testing.assert_array_equal(open_image(tmp_path / "a.png").read(), rgba)
    assert set(np.unique(rgba[..., 3])) == {0, 255}


def test_what_pillow_warns_of_is_left_out(tmp_path: Path) -> None:
    """Animation and EXIF make no pixels; damaged ones make Pillow warn."""
    grey = pattern(20, 30, dtype=np.uint8)
    PillowImage.fromarray(grey).save(tmp_path / "a.png")
    png = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(png[:33] + 2 * png_jpeg._chunk(b"acTL", struct.pack(">II", 2, 0)) + png[33:])
    PillowImage.fromarray(grey).save(tmp_path / "a.jpg")
    jpeg = (tmp_path / "a.jpg").read_bytes()
    exif = b"Exif\0\0II*\0" + struct.pack("<IHHHII", 8, 1, 282, 5, 1, 9999)
    (tmp_path / "a.jpg").write_bytes(jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + jpeg[20:])
    for name in ("a.png", "a.jpg"):
        with (
            pytest.warns(UserWarning, match="Invalid APNG|Truncated File Read"),
            PillowImage.open(tmp_path / name) as picture,
        ):
            pixels = np.asarray(picture)
        np.testing.assert_array_equal(open_image(tmp_path / name).read(), pixels)


def test_written_pictures_are_read_alike_by_pillow(tmp_path: Path) -> None:
    for pixels in (pattern(7, 9, dtype=np.uint8), pattern(7, 9) * np.uint16(300), pattern(7, 9, 3, dtype=np.uint8)):
        write_image(tmp_path / "a.png", pixels, axes="YXC"[: pixels.ndim], overwrite=True)
        with PillowImage.open(tmp_path / "a.png") as picture:
            np.testing.assert_array_equal(np.asarray(picture), pixels)


ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""First column and row of the passes of an interlaced picture, and steps from one to the next."""


@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 2), (9, 7), (30, 20)])
@pytest.mark.parametrize(("bits", "colour"), [(1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (8, 2), (8, 4), (16, 4), (8, 6)])
def test_interlaced_pictures(width: int, height: int, bits: int, colour: int, tmp_path: Path) -> None:
    """Adam7 by hand: seven small pictures one after the other."""
    samples = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    pixels = np.random.default_rng(bits).integers(0, 2**bits, (height, width, samples))
    packed = b""
    for left, top, right, down in ADAM7:
        part = pixels[top::down, left::right]
        for row in part if part.size else ():
            digits = "".join(f"{value:0{bits}b}" for value in row.ravel())
            packed += b"\0" + int(digits.ljust(-(-len(digits) // 8) * 8, "0"), 2).to_bytes(-(-len(digits) // 8), "big")
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 1)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(packed)), (b"IEND", b"")]
    (tmp_path / "a.png").write_bytes(png_jpeg._PNG_MAGIC + b"".join(png_jpeg._chunk(*chunk) for chunk in chunks))
    found = open_image(tmp_path / "a.png").read().reshape(height, width, -1)
    np.testing.assert_array_equal(found, pixels * (255 // (2**bits - 1) if bits < 8 else 1))


@pytest.mark.parametrize("suffix", [".tif", ".png", ".npy", ".zarr"])
def test_one_pixel_is_an_image(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    write_image(path, np.full((1, 1), 7, np.uint8), axes="YX")
    image = open_image(path)
    assert (image.axes, image.shape) == ("YX", (1, 1))
    assert image.read({"Y": 0, "X": 0}) == 7


# Writing.


@pytest.mark.parametrize("suffix", [".tif", ".zarr", ".png"])
def test_metadata_is_kept(suffix: str, tmp_path: Path) -> None:
    note = {"seed": 3, "model": "a < b & c", "steps": [1, 2]}
    for axes in ("YX", "SYX") if suffix == ".tif" else ("YX",):
        path = tmp_path / f"{axes}{suffix}"
        write_image(path, pattern(2, 3, 4)[(0,) * (3 - len(axes))], axes=axes, metadata=note)
        assert open_image(path).metadata == note


@pytest.mark.parametrize("suffix", [".tif", ".npy", ".png", ".zarr"])
def test_a_name_is_taken_only_when_the_image_is_whole(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, first, second = tmp_path / f"a{suffix}", pattern(4, 5), pattern(4, 5)[::-1]
    write_image(path, first, axes="YX")
    with pytest.raises(ImageError, match=r"exists already; expected a new name; choose one or pass overwrite=True"):
        write_image(path, second, axes="YX")
    np.testing.assert_array_equal(open_image(path).read(), first)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]

    def break_off(*arguments: object, **options: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        for place in (
            "tifffile.imwrite",
            "numpy.lib.format.write_array_header_1_0",
            "sfumato.data.images.png_jpeg.zlib.compressobj",
            "zarr.Array.__setitem__",
        ):
            patch.setattr(place, break_off)
        with pytest.raises(OSError, match="no space left"):
            write_image(path, second, axes="YX", overwrite=True)
    np.testing.assert_array_equal(open_image(path).read(), first)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    write_image(path, second, axes="YX", overwrite=True)
    np.testing.assert_array_equal(open_image(path).read(), second)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


# Small things.


def test_errors_are_value_errors() -> None:
    assert issubclass(ImageError, SfumatoError)
    assert issubclass(SfumatoError, ValueError)


def test_pixel_sizes_change_units() -> None:
    assert PixelSize(1, "inch").to("micrometer") == 25400
    assert PixelSize(90, "minute").to("hour") == 1.5
    assert PixelSize(2.5, "angstrom").to("nanometer") == 0.25
    with pytest.raises(ImageError, match="second cannot be given in 'micrometer'"):
        PixelSize(1, "second").to("micrometer")


@given(st.permutations("STCZYX"), st.permutations("STCZYX"))
def test_arrange_moves_axes_with_their_pixels(axes: list[str], wanted: list[str]) -> None:
    places = {
        axis: np.arange(size).reshape([-1 if a == axis else 1 for a in axes])
        for axis, size in zip(axes, range(1, 7), strict=True)
    }
    lengths = tuple(range(1, 7))
    for axis, place in places.items():
        moved = arrange(np.broadcast_to(place, lengths), "".join(axes), "".join(wanted))
        assert moved.shape == tuple(lengths[axes.index(a)] for a in wanted)
        along = np.moveaxis(moved, wanted.index(axis), 0).reshape(len(place.ravel()), -1)
        assert (along == place.reshape(-1, 1)).all()


def test_arrange_drops_no_pixels() -> None:
    assert arrange(np.zeros((1, 2, 3)), "ZYX", "CXY").shape == (1, 3, 2)
    with pytest.raises(ImageError, match="expected Z to stay or to have length 1"):
        arrange(np.zeros((4, 2, 3)), "ZYX", "YX")


def modules() -> Iterator[str]:
    code = "import sys; from sfumato.data.images.io import open_image; open_image(sys.argv[1]); print(*sys.modules)"
    with TemporaryDirectory() as folder:
        np.save(f"{folder}/a.npy", np.zeros((2, 2)))
        command = [sys.executable, "-c", code, f"{folder}/a.npy"]
        yield from subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_a_format_costs_its_own_library_alone() -> None:
    assert not {"tifffile", "zarr", "PIL", "torch"} & set(modules())
