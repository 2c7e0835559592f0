"""Views of files, files in the DeltaVision dialect, and images scaled by themselves."""

import os
import struct
from pathlib import Path

import mrcfile
import numpy as np
import pytest

from sfumato.data.images.io import open_image, write_image
from sfumato.data.images.mrc import write_deltavision
from sfumato.data.images.view import View
from sfumato.data.intensity import ScaledPairs
from sfumato.data.pairs import Pair
from sfumato.data.sources import FilePairs
from sfumato.system.errors import ImageError


@pytest.fixture
def stack(tmp_path: Path) -> tuple[Path, np.ndarray]:
    pixels = np.random.default_rng(0).integers(0, 60000, (2, 3, 12, 17), dtype=np.uint16)
    write_image(tmp_path / "stack.tif", pixels, axes="TZYX")
    return tmp_path / "stack.tif", pixels


def test_a_view_equals_numpy_on_the_whole(stack: tuple[Path, np.ndarray]) -> None:
    path, pixels = stack
    view = View(path, pick={"T": 1}, crop={"Y": (1, 11)}, average="Z", bin=2).open()
    expected = pixels[1].astype(float).mean(0)[1:11, :16].reshape(5, 2, 8, 2).mean((1, 3))
    assert (view.axes, view.shape) == ("YX", (5, 8))
    np.testing.assert_allclose(view.read(), expected, rtol=1e-6)
    np.testing.assert_allclose(view.read({"Y": slice(1, 3), "X": slice(2, 7)}), expected[1:3, 2:7], rtol=1e-6)


def test_a_view_that_computes_nothing_keeps_the_type(stack: tuple[Path, np.ndarray]) -> None:
    path, pixels = stack
    view = View(path, pick={"T": 0}).open()
    assert view.dtype == np.uint16
    np.testing.assert_array_equal(view.read(), pixels[0])


def test_a_view_of_what_is_not_there_says_so(stack: tuple[Path, np.ndarray]) -> None:
    for view in (View(stack[0], pick={"C": 0}), View(stack[0], pick={"T": 2}), View(stack[0], crop={"Y": (4, 13)})):
        with pytest.raises(ImageError, match=r"has axes TZYX .* is asked for"):
            view.open()


def test_deltavision_files_read_back_and_need_leave_of_mrcfile(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 60000, (9, 20, 30), dtype=np.uint16)
    write_deltavision(tmp_path / "raw.mrc", pixels, pixel_um=(0.0626, 0.16), wavelength_um=0.525)
    image = open_image(tmp_path / "raw.mrc")
    assert (image.axes, image.shape, image.format) == ("ZYX", (9, 20, 30), "MRC (DeltaVision)")
    assert image.pixel_size["X"].to("micrometer") == pytest.approx(0.0626)
    np.testing.assert_array_equal(image.read(), pixels)
    with pytest.raises(ValueError, match="Map ID"):
        mrcfile.open(tmp_path / "raw.mrc")
    with pytest.warns(RuntimeWarning), mrcfile.open(tmp_path / "raw.mrc", permissive=True) as file:
        np.testing.assert_array_equal(file.data, pixels)


def test_deltavision_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="float64; expected"):
        write_deltavision(tmp_path / "x.mrc", np.zeros((4, 4)), pixel_um=(1.0, 1.0))


@pytest.mark.skipif("SFUMATO_DATA" not in os.environ, reason="needs SFUMATO_DATA")
def test_the_header_is_that_of_a_real_file(tmp_path: Path) -> None:
    """Every field up to the titles, save bookkeeping that no reader of pixels looks at."""
    real = (Path(os.environ["SFUMATO_DATA"]) / "fluor_mrc" / "MT.mrc").read_bytes()[:224]
    write_deltavision(
        tmp_path / "x.mrc", np.zeros((9, 256, 256), np.uint16), pixel_um=(0.0626, 0.16), wavelength_um=0.525
    )
    ours = (tmp_path / "x.mrc").read_bytes()[:224]
    for code, offset, number in (("i", 0, 10), ("f", 40, 6), ("i", 64, 8), ("h", 96, 1), ("h", 180, 2), ("h", 196, 6)):
        form = f"<{number}{code}"
        assert struct.unpack_from(form, ours, offset) == struct.unpack_from(form, real, offset)
    assert ours[208:216] == real[208:216] == bytes(8)


def test_scaled_patches_are_parts_of_scaled_images(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    pairs = []
    for number, light in enumerate((15, 600)):
        for role in "ab":
            pixels = (light * generator.random((20, 24)) + 100).astype(np.float32)
            write_image(tmp_path / f"{role}{number}.tif", pixels, axes="YX")
        pairs.append(Pair(str(number), tmp_path / f"a{number}.tif", tmp_path / f"b{number}.tif"))
    source = ScaledPairs(FilePairs(pairs), (0.0, 1.0))
    for sample in range(2):
        whole = source.read(sample, (0, 0), (20, 24))
        for side, part in zip(whole, source.read(sample, (3, 5), (8, 9)), strict=True):
            assert (side.min(), side.max()) == pytest.approx((-1, 1))
            np.testing.assert_array_equal(part, side[:, 3:11, 5:14])
