"""An output image takes whole blocks, gives them back, and is the same for all who open it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import yaozarrs
import zarr

from filled_outputs import SIZES, VERSIONS, Version, blocks, create, fill, noise
from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import open_image, write_image
from sfumato.data.images.ome_zarr import open_ome_zarr
from sfumato.data.images.ome_zarr_writer import halve_pixels
from sfumato.data.images.output import OutputImage
from sfumato.system.errors import ImageError, StorageError

Array = npt.NDArray[Any]

LAYOUTS = [("YX", (70, 45)), ("CYX", (2, 70, 45)), ("ZYX", (5, 40, 33)), ("TCZYX", (2, 2, 5, 17, 20))]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("axes", "shape"), LAYOUTS)
@pytest.mark.parametrize(("version", "sharded"), VERSIONS)
def test_a_filled_image_is_valid_and_its_levels_are_means(
    axes: str, shape: tuple[int, ...], version: Version, sharded: bool, tmp_path: Path
) -> None:
    place = tmp_path / "out.zarr"
    output = create(place, axes, shape, version=version, sharded=sharded)
    array = noise(shape)
    array[..., 3, 3] = np.nan
    fill(output, array)
    yaozarrs.validate_zarr_store(str(place))
    expected = array
    for number, level in enumerate(output.levels):
        if number > 0:
            expected = halve_pixels(expected, level.steps)
        np.testing.assert_array_equal(output.read(number, [0] * len(axes), level.shape), expected)
        np.testing.assert_array_equal(zarr.open_array(str(place / str(number)), mode="r")[...], expected)
        image = open_ome_zarr(place, memory_budget=2**30, level=number)
        np.testing.assert_array_equal(image.read(), expected)
    assert np.isnan(output.read(2, [0] * len(axes), output.levels[2].shape)).any()
    assert open_image(place).metadata == {"model": "m"}
    written = [name for name in files(place / "0") if not name.endswith(("zarr.json", ".zarray", ".zattrs"))]
    assert len(written) == len(blocks(output, 0))


@pytest.mark.parametrize(("version", "sharded"), VERSIONS)
def test_each_level_tells_its_pixel_size_in_the_units_given(version: Version, sharded: bool, tmp_path: Path) -> None:
    output = create(tmp_path / "out.zarr", "TZYX", (2, 9, 64, 64), version=version, sharded=sharded, num_levels=4)
    # Sections are 4 pixels apart, so depth is halved last.
    factors = [(1, 1, 1), (1, 2, 2), (1, 4, 4), (2, 8, 8)]
    for number, factor in enumerate(factors):
        image = open_ome_zarr(tmp_path / "out.zarr", memory_budget=2**30, level=number)
        assert image.pixel_size == output.levels[number].pixel_size == output.image(number).pixel_size
        assert image.pixel_size["T"] == SIZES["T"]
        for axis, f in zip("ZYX", factor, strict=True):
            assert image.pixel_size[axis].unit == SIZES[axis].unit
            assert image.pixel_size[axis].value == pytest.approx(SIZES[axis].value * f)
    with pytest.raises(ImageError, match="it has 4 levels; expected one of number 4"):
        open_ome_zarr(tmp_path / "out.zarr", memory_budget=2**30, level=4)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_levels_overlay(version: Version, tmp_path: Path) -> None:
    """A ramp has the same value at the same place on every level, if scale and translation are right."""
    output = create(tmp_path / "out.zarr", "ZYX", (8, 64, 32), version=version, num_levels=4)
    fill(output, np.add.outer(np.arange(8.0), np.add.outer(np.arange(64.0), np.arange(32.0))).astype("float32"))
    document = json.loads((tmp_path / "out.zarr" / ("zarr.json" if version == "0.5" else ".zattrs")).read_text())
    ome = document["attributes"]["ome"] if version == "0.5" else document
    for number, dataset in enumerate(ome["multiscales"][0]["datasets"]):
        transforms = {entry["type"]: entry[entry["type"]] for entry in dataset["coordinateTransformations"]}
        assert list(transforms) == (["scale", "translation"] if number else ["scale"])
        index = (1, 2, 3)
        place = [
            (shift + scale * i) / SIZES[axis].value
            for axis, i, scale, shift in zip(
                "ZYX", index, transforms["scale"], transforms.get("translation", [0, 0, 0]), strict=True
            )
        ]
        assert output.read(number, index, (1, 1, 1)).item() == pytest.approx(sum(place))


def test_what_was_not_written_is_zero_and_takes_no_file(tmp_path: Path) -> None:
    shape = (10**6, 10**6)
    output = OutputImage.create(tmp_path / "out.zarr", shape=shape, dtype="uint16", axes="YX", num_levels=8)
    assert output.read(0, (123_456, 654_321), (50, 50)).max() == 0
    assert sorted(files(tmp_path / "out.zarr")) == [f"{level}/zarr.json" for level in range(8)] + ["zarr.json"]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float64", "complex64"])
@pytest.mark.parametrize(("version", "sharded"), VERSIONS)
def test_the_same_pixels_give_the_same_bytes(dtype: str, version: Version, sharded: bool, tmp_path: Path) -> None:
    kept = []
    for name in ("once.zarr", "again.zarr"):
        output = create(tmp_path / name, "YX", (70, 45), dtype=dtype, version=version, sharded=sharded)
        fill(output, noise((70, 45), dtype))
        if name == "again.zarr":
            fill(output, np.zeros((70, 45), dtype))
            fill(OutputImage.open(tmp_path / name), noise((70, 45), dtype))
        kept.append({key: file for key, file in files(tmp_path / name).items() if not key.startswith(".")})
    kept = [{key: file for key, file in one.items() if key not in ("zarr.json", ".zattrs")} for one in kept]
    assert kept[0] == kept[1]


def test_zeros_are_written_too(tmp_path: Path) -> None:
    output = create(tmp_path / "out.zarr", "YX", (70, 45), sharded=True)
    output.write(0, (0, 0), np.zeros((32, 32), "float32"))
    assert (tmp_path / "out.zarr/0/c/0/0").is_file()


@pytest.mark.parametrize("sharded", [False, True])
def test_a_damaged_block_is_told_and_can_be_written_again(sharded: bool, tmp_path: Path) -> None:
    output = create(tmp_path / "out.zarr", "YX", (70, 45), sharded=sharded)
    array = noise((70, 45))
    fill(output, array)
    for file in (tmp_path / "out.zarr/0/c").rglob("*"):
        if file.is_file():
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
    for corner, size in blocks(output, 0):
        with pytest.raises(ImageError, match="could not be read"):
            output.checksum(0, corner, size)
    fill(output, array)
    np.testing.assert_array_equal(output.read(0, (0, 0), (70, 45)), array)


@pytest.mark.parametrize(
    ("corner", "size"),
    [
        ((0, 8), (32, 16)),
        ((0, 0), (32, 31)),
        ((0, 0), (16, 32)),
        ((64, 32), (6, 12)),
        ((0, 0), (32, 64)),
        ((0,), (32,)),
    ],
)
def test_only_whole_blocks_are_taken(corner: tuple[int, ...], size: tuple[int, ...], tmp_path: Path) -> None:
    output = create(tmp_path / "out.zarr", "YX", (70, 45), sharded=True)
    with pytest.raises(ImageError, match=r"expected (float32 in whole blocks of \(32, 32\)|one inside its shape)"):
        output.write(0, corner, np.ones(size, "float32"))
    assert not (tmp_path / "out.zarr/0/c").exists()


def test_only_the_type_and_levels_of_the_image_are_taken(tmp_path: Path) -> None:
    output = create(tmp_path / "out.zarr", "YX", (70, 45))
    with pytest.raises(ImageError, match=r"float64 of .* expected float32"):
        output.write(0, (0, 0), np.ones((16, 16)))
    assert output.write(0, (0, 0), np.ones((16, 16), ">f4")) == output.write(0, (0, 0), np.ones((16, 16), "<f4"))
    with pytest.raises(ImageError, match="has no level 3; expected 0 to 2"):
        output.read(3, (0, 0), (1, 1))
    with pytest.raises(ImageError, match="level 0 was to be computed"):
        output.halve(0, (0, 0), (1, 1))


def test_creating_the_same_image_again_finds_it(tmp_path: Path) -> None:
    output = create(tmp_path / "out.zarr", "YX", (70, 45))
    fill(output, noise((70, 45)))
    before = files(tmp_path / "out.zarr")
    again = create(tmp_path / "out.zarr", "YX", (70, 45))
    assert again.levels == output.levels
    assert files(tmp_path / "out.zarr") == before
    for other in ({"dtype": "uint8"}, {"metadata": {"model": "n"}}, {"sharded": True}, {"num_levels": 4}):
        with pytest.raises(ImageError, match="exists and differs from the image to be made"):
            create(tmp_path / "out.zarr", "YX", (70, 45), **other)
    assert files(tmp_path / "out.zarr") == before


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file.zarr").write_text("mine")
    (tmp_path / "folder.zarr").mkdir()
    (tmp_path / "folder.zarr" / "thesis.txt").write_text("mine")
    for name in ("file.zarr", "folder.zarr"):
        for version in ("0.4", "0.5"):
            with pytest.raises(ImageError, match="exists and is not an image of sfumato"):
                create(tmp_path / name, "YX", (70, 45), version=version)
    write_image(tmp_path / "array.npy", np.zeros((3, 3)), axes="YX")
    zarr.create_array(str(tmp_path / "other.zarr"), shape=(3, 3), dtype="float32")
    with pytest.raises(ImageError, match="exists and differs"):
        create(tmp_path / "other.zarr", "YX", (70, 45))
    assert (tmp_path / "folder.zarr" / "thesis.txt").read_text() == "mine"
    with pytest.raises(StorageError, match="is not a folder"):
        create(tmp_path / "nowhere" / "out.zarr", "YX", (70, 45))


def test_only_images_of_ours_are_opened_to_write(tmp_path: Path) -> None:
    output = create(tmp_path / "out.zarr", "YX", (70, 45))
    document = tmp_path / "out.zarr" / "zarr.json"
    content = json.loads(document.read_text())
    del content["attributes"]["sfumato"]
    document.write_text(json.dumps(content))
    with pytest.raises(ImageError, match="was not made by sfumato"):
        OutputImage.open(output.place)
    with pytest.raises(ImageError, match=r"does not exist|could not be read"):
        OutputImage.open(tmp_path / "nothing.zarr")


@pytest.mark.parametrize("name", ["../stolen", "0/../../stolen", "/stolen"])
def test_a_name_cannot_leave_its_folder(name: str, tmp_path: Path) -> None:
    create(tmp_path / "stolen", "YX", (70, 45))
    create(tmp_path / "out.zarr", "YX", (70, 45))
    document = tmp_path / "out.zarr" / "zarr.json"
    for level in (0, 2):
        content = json.loads(document.read_text())
        content["attributes"]["ome"]["multiscales"][0]["datasets"][level]["path"] = f"{name}/{level}"
        (tmp_path / "out.zarr" / "zarr.json").write_text(json.dumps(content))
        with pytest.raises(ImageError, match="expected a name inside the store"):
            OutputImage.open(tmp_path / "out.zarr")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"chunks": (16,)}, "one for each axis"),
        ({"chunks": (16, 0)}, "positive numbers"),
        ({"chunks": (16, 16), "shards": (32, 24)}, "multiples of chunks"),
        ({"chunks": (16, 16), "shards": (32, 32), "version": "0.4"}, "leave them out or write 0.5"),
        ({"shape": (0, 5)}, "at least one pixel"),
        ({"axes": "XY"}, "expects them in the order YX"),
        ({"axes": "CYX"}, "one letter out of"),
        ({"pixel_size": {"X": PixelSize(1, "second")}}, "expected a length"),
        ({"dtype": "object"}, "pixels are of type"),
        ({"version": "0.3"}, "expected '0.4' or '0.5'"),
    ],
)
def test_what_cannot_be_made_is_refused(options: dict[str, Any], text: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"shape": (70, 45), "dtype": "float32", "axes": "YX"}
    with pytest.raises(ImageError, match=text):
        OutputImage.create(tmp_path / "out.zarr", **(settings | options))
    assert list(tmp_path.iterdir()) == []
