"""Channels, scenes and times of a file by name and number: the same pixels as NumPy indexes."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from io_samples import pattern
from sfumato.data.images.choice import WHOLE, Choice
from sfumato.data.images.image import Image
from sfumato.data.images.io import open_image, write_image
from sfumato.data.images.pixels import ArrayImage
from sfumato.system.errors import ImageError

PIXELS = pattern(5, 4, 6, 7)
NAMES = ["DAPI", "GFP", "mCherry", "Cy5"]


@pytest.fixture(params=["cells.ome.tif", "cells.ome.zarr"])
def image(request: pytest.FixtureRequest, tmp_path: Path) -> Image:
    write_image(tmp_path / request.param, PIXELS, axes="TCYX", metadata={"channels": NAMES})
    return open_image(tmp_path / request.param)


def test_files_name_their_channels(image: Image) -> None:
    assert image.channel_names == tuple(NAMES)


@pytest.mark.parametrize(
    ("channels", "numbers"),
    [
        (("GFP",), [1]),
        (("gfp", "Cy5"), [1, 3]),
        (("3", "1"), [3, 1]),
        ((2, "DAPI"), [2, 0]),
        ((0, 1, 3, 2), [0, 1, 3, 2]),
    ],
)
def test_channels_by_name_and_number(image: Image, channels: tuple[str | int, ...], numbers: list[int]) -> None:
    chosen = pickle.loads(pickle.dumps(Choice(channels).of(image)))
    assert chosen.axes == "TCYX"
    assert chosen.channel_names == tuple(NAMES[number] for number in numbers)
    expected = PIXELS[:, numbers]
    assert np.array_equal(chosen.read(), expected)
    last = len(numbers) - 1
    assert np.array_equal(chosen.read({"C": last, "Y": slice(2, 4), "T": 1}), expected[1, last, 2:4])


@pytest.mark.parametrize(("times", "part"), [((0, 3), slice(0, 3)), ((2, None), slice(2, 5)), ((4, 5), slice(4, 5))])
def test_times(image: Image, times: tuple[int, int | None], part: slice) -> None:
    chosen = Choice(("Cy5", "DAPI"), times=times).of(image)
    assert np.array_equal(chosen.read(), PIXELS[part][:, [3, 0]])
    assert np.array_equal(chosen.read({"T": 0}), PIXELS[part][0, [3, 0]])


def test_a_choice_is_told_in_numbers_without_what_is_the_default(image: Image) -> None:
    assert Choice(("Cy5",), 0, (1, None)).resolved(image) == Choice((3,), None, (1, 5))
    assert Choice(tuple(NAMES), "0", (0, 5)).resolved(image) == WHOLE
    assert WHOLE.of(image) is image


def test_channels_of_a_model_are_found_where_there_are_others(image: Image) -> None:
    assert WHOLE.resolved(image, named=("GFP",)) == Choice((1,))
    assert WHOLE.resolved(image, named=("YFP",)) == WHOLE
    assert WHOLE.resolved(image, named=tuple(reversed(NAMES))) == WHOLE
    assert Choice((0,)).resolved(image, named=("GFP",)) == Choice((0,))
    unnamed = ArrayImage.of(PIXELS, axes="TCYX", name="unnamed")
    assert WHOLE.resolved(unnamed, named=("GFP",)) == WHOLE


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (Choice(("YFP",)), r"has the channels 0 \(DAPI\), 1 \(GFP\), .* and 'YFP' was asked for"),
        (Choice((4,)), "and 4 was asked for; expected one of these names or numbers"),
        (Choice(("GFP", 1)), "expected each once"),
        (Choice(times=(3, 6)), r"has 5 times \(axes TCYX\), and 3 to 6"),
        (Choice(times=(5, None)), "and 5 to 5"),
        (Choice(scene="1"), "has one scene, and '1' was asked for"),
    ],
)
def test_what_is_not_there_is_refused(image: Image, choice: Choice, said: str) -> None:
    with pytest.raises(ImageError, match=said):
        choice.open(image.path)


def test_an_image_without_the_axes_has_one_channel_and_one_time(tmp_path: Path) -> None:
    write_image(tmp_path / "a.tif", PIXELS[0, 0], axes="YX")
    assert np.array_equal(Choice((0,), 0, (0, 1)).open(tmp_path / "a.tif").read(), PIXELS[0, 0])
    with pytest.raises(ImageError, match="has the channels 0, and 1 was asked for"):
        Choice((1,)).open(tmp_path / "a.tif")


def test_a_number_is_a_number_unless_a_channel_has_that_name() -> None:
    image = ArrayImage.of(PIXELS, axes="TCYX", name="odd")
    odd = replace(image, channel_names=("1", "a", "b", "B"))
    assert Choice(("1",)).resolved(odd) == Choice((0,))
    assert Choice((1,)).resolved(odd) == Choice((1,))
    with pytest.raises(ImageError, match="was asked for"):
        Choice(("b",)).resolved(odd)


def test_the_budget_holds_for_what_is_read(tmp_path: Path) -> None:
    write_image(tmp_path / "a.zarr", np.zeros((64, 64, 64), np.uint8), axes="CYX")
    image = open_image(tmp_path / "a.zarr", memory_budget=100_000)
    assert Choice((3, 9)).of(image).read().shape == (2, 64, 64)
    with pytest.raises(ImageError, match="memory budget"):
        Choice(tuple(range(0, 64, 2))).of(image).read()
