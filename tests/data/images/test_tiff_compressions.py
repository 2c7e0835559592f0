"""A TIFF opens whatever it is compressed with, whole and by region, with the pixels that were written."""

import pickle
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest
import tifffile

from fuzz_readers import peak_memory
from io_samples import pattern
from sfumato.data.images.io import open_image
from sfumato.system.errors import ImageError

Array = npt.NDArray[Any]

GREY, DEEP, FLOATS = pattern(70, 90, dtype=np.uint8), pattern(70, 90), np.sqrt(pattern(70, 90)).astype(np.float32)
COLOUR, STACK = pattern(70, 90, 3, dtype=np.uint8), pattern(3, 70, 90)
LOSSLESS: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("zstd", "lzw", "packbits", "zlib", "deflate", "lzma", "png", "jpeg2000", "lerc")},
    "jpegxr": {"level": 1.0},
    "jpegxl": {"lossless": True},
}
LAYOUTS: dict[str, dict[str, Any]] = {"strips": {"rowsperstrip": 16}, "tiles": {"tile": (32, 48)}, "one": {}}
FLOATLESS = {"png", "jpeg2000", "jpegxr"}  # or not without loss


def write(path: Path, pixels: Array, compression: str, arguments: dict[str, Any], **options: Any) -> None:
    photometric = "rgb" if pixels.shape[-1] == 3 else "minisblack"
    options = {"photometric": photometric, "metadata": None, "compressionargs": dict(arguments) or None, **options}
    tifffile.imwrite(path, pixels, compression=compression, **options)


def assert_opens(path: Path, pixels: Array) -> None:
    image = open_image(path)
    assert (image.shape, image.dtype) == (pixels.shape, pixels.dtype)
    np.testing.assert_array_equal(image.read(), pixels)
    regions: list[dict[str, Any]] = [
        {"Y": slice(10, 50), "X": slice(31, 80)},
        {"Y": 69, "X": slice(88, 90)},
        {"Y": slice(16, 32)},
    ]
    for region in regions:
        cut = tuple(region.get(axis, slice(None)) for axis in image.axes)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(image)).read(region), pixels[cut])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("compression", LOSSLESS)
def test_without_loss_the_pixels_are_those_written(compression: str, layout: str, tmp_path: Path) -> None:
    kinds = [GREY, DEEP, COLOUR, STACK, *([] if compression in FLOATLESS else [FLOATS])]
    for number, pixels in enumerate(kinds):
        path = tmp_path / f"{number}.tif"
        write(path, pixels, compression, LOSSLESS[compression], **LAYOUTS[layout])
        assert_opens(path, pixels)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("compression", ["jpeg", "jpeg2000", "jpegxr", "jpegxl", "webp"])
def test_with_loss_the_pixels_are_those_of_tifffile(compression: str, layout: str, tmp_path: Path) -> None:
    levels: dict[str, dict[str, Any]] = {"jpegxr": {"level": 0.8}, "webp": {"level": 80, "lossless": False}}
    for number, pixels in enumerate([COLOUR] if compression == "webp" else [COLOUR, GREY]):
        path = tmp_path / f"{number}.tif"
        write(path, pixels, compression, levels.get(compression, {"level": 80}), **LAYOUTS[layout])
        decoded = tifffile.imread(path)
        assert 0 < np.abs(decoded.astype(float) - pixels).mean() < 60
        assert_opens(path, decoded)


@pytest.mark.parametrize(
    ("plane", "options"),
    [
        ("contig", {"compressionargs": {"outcolorspace": "rgb"}}),
        ("contig", {"compressionargs": {"outcolorspace": "ycbcr"}, "subsampling": (2, 2)}),
        ("separate", {}),
    ],
)
def test_jpeg_in_every_arrangement_of_colours(plane: Any, options: dict[str, Any], tmp_path: Path) -> None:
    pixels = COLOUR if plane == "contig" else np.moveaxis(COLOUR, -1, 0).copy()
    options = {"photometric": "rgb", "planarconfig": plane, "tile": (32, 48), "metadata": None, **options}
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression="jpeg", **options)
    assert_opens(tmp_path / "a.tif", tifffile.imread(tmp_path / "a.tif"))


def test_a_jpeg_that_does_not_tell_its_colours(tmp_path: Path) -> None:
    """Red, green and blue without a marker that says so, as slide scanners write them: the TIFF's own tag counts."""
    packed = bytearray(imagecodecs.jpeg_encode(COLOUR, 90, colorspace="rgb", outcolorspace="rgb"))
    decoded = imagecodecs.jpeg_decode(bytes(packed))
    frame, scan = packed.index(b"\xff\xc0"), packed.index(b"\xff\xda")
    for number in range(3):  # from the letters R, G, B
        packed[frame + 10 + 3 * number] = packed[scan + 5 + 2 * number] = number + 1
    note = packed.index(b"\xff\xee")  # Adobe's
    del packed[note : note + 2 + int.from_bytes(packed[note + 2 : note + 4], "big")]
    assert np.abs(imagecodecs.jpeg_decode(bytes(packed)).astype(float) - decoded).mean() > 10
    tifffile.imwrite(
        tmp_path / "a.tif",
        iter([bytes(packed)]),
        shape=COLOUR.shape,
        dtype=COLOUR.dtype,
        compression="jpeg",
        photometric="rgb",
        compressionargs={"outcolorspace": "rgb"},
    )
    assert_opens(tmp_path / "a.tif", decoded)


@pytest.mark.parametrize("bits", [1, 2, 4, 6, 10, 12, 14])
def test_samples_that_share_bytes(bits: int, tmp_path: Path) -> None:
    pixels = (DEEP % 2**bits).astype("?" if bits == 1 else "u1" if bits <= 8 else "u2")
    tifffile.imwrite(tmp_path / "a.tif", pixels, bitspersample=bits, photometric="minisblack", rowsperstrip=16)
    assert_opens(tmp_path / "a.tif", pixels)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("dtype", ["u1", "u2", "i4", "f2", "f4", "f8"])
@pytest.mark.parametrize("compression", ["zlib", "zstd", "lzw"])
def test_predictors(order: Any, dtype: str, compression: str, tmp_path: Path) -> None:
    pixels = (FLOATS * 7).astype(dtype)
    predictor = 3 if pixels.dtype.kind == "f" else 2
    tifffile.imwrite(
        tmp_path / "a.tif", pixels, predictor=predictor, byteorder=order, compression=compression, rowsperstrip=16
    )
    assert_opens(tmp_path / "a.tif", pixels)


def test_tiles_may_leave_out_what_lies_outside_of_the_image(tmp_path: Path) -> None:
    """Some writers of JPEG cut the last tiles to the image."""
    tiles = [GREY[y : y + 32, x : x + 48] for y in (0, 32, 64) for x in (0, 48)]
    packed = [bytes(imagecodecs.png_encode(np.ascontiguousarray(tile))) for tile in tiles]
    tifffile.imwrite(
        tmp_path / "a.tif", iter(packed), shape=GREY.shape, dtype=GREY.dtype, compression="png", tile=(32, 48)
    )
    assert_opens(tmp_path / "a.tif", GREY)


def test_a_last_strip_may_be_as_long_as_the_others(tmp_path: Path) -> None:
    padded = np.pad(DEEP, ((0, 10), (0, 0)))
    packed = [bytes(imagecodecs.zlib_encode(padded[y : y + 16].tobytes())) for y in range(0, 80, 16)]
    tifffile.imwrite(
        tmp_path / "a.tif", iter(packed), shape=DEEP.shape, dtype=DEEP.dtype, compression="zlib", rowsperstrip=16
    )
    assert_opens(tmp_path / "a.tif", DEEP)


@pytest.mark.parametrize("compression", ["zstd", "lzw", "jpeg", "jpeg2000", "jpegxr", "jpegxl"])
def test_the_budget_counts_what_decoding_takes(compression: str, tmp_path: Path) -> None:
    side = 1500
    pixels = np.random.default_rng(0).integers(0, 200, (side, side), np.uint8)
    write(tmp_path / "a.tif", pixels, compression, {}, rowsperstrip=side)
    with pytest.raises(ImageError, match="at most the memory budget of 6,000,000"):
        open_image(tmp_path / "a.tif", memory_budget=6_000_000).read({"Y": 0})
    image = open_image(tmp_path / "a.tif")
    needed = image._working_bytes((slice(0, 1), slice(0, side)))
    before = peak_memory(reset=True)
    image.read({"Y": 0})
    assert peak_memory() - before < needed + 10**7
