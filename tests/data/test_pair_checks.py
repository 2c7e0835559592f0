"""Pairs whose sizes or pixels say that they do not show the same place."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import write_image
from sfumato.data.intensity import MatchedPairs
from sfumato.data.pair_checks import check_sizes, doubts_of_orientation
from sfumato.data.pair_middles import middles
from sfumato.data.pairs import Pair
from sfumato.data.sources import FilePairs
from sfumato.system.errors import PairingError

Image = NDArray[np.float32]


def blobs(seed: int, height: int = 48, width: int = 48) -> Image:
    """Spots of light at random places."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    spots = sum(np.exp(-((y - r) ** 2 + (x - c) ** 2) / 9) for r, c in rng.uniform(0, 48, (8, 2)))
    return np.asarray(100 * spots, np.float32)


def source(folder: Path, sides: list[tuple[Image, Image]], *, um: tuple[float, float] | None = None) -> FilePairs:
    pairs = []
    for number, both in enumerate(sides):
        files = [folder / f"{side}{number}.tif" for side in ("low", "high")]
        for place, (file, image) in enumerate(zip(files, both, strict=True)):
            sizes = {} if um is None else {axis: PixelSize(um[place], "micrometer") for axis in "YX"}
            write_image(file, image, axes="YX", pixel_size=sizes)
        pairs.append(Pair(f"pair{number}", files[0], files[1]))
    return FilePairs(pairs, upsample=True)


def doubts_of(pairs: FilePairs) -> list[str]:
    return doubts_of_orientation(middles(pairs))


def noisy(image: Image, seed: int = 0) -> Image:
    return image + np.random.default_rng(seed).normal(0, 20, image.shape).astype(np.float32)


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (np.transpose, "better if transposed"),
        (np.fliplr, "better if flipped left to right"),
        (np.flipud, "better if flipped upside down"),
        (lambda image: np.rot90(image, 2), "better if turned by 180 degrees"),
        (np.rot90, "better if turned by 270 degrees"),
        (lambda image: np.rot90(image, 3), "better if turned by 90 degrees"),
        (lambda image: np.rot90(image, 2).T, "better if transposed and turned"),
    ],
)
def test_a_target_that_lies_the_wrong_way_round_is_named(
    tmp_path: Path, turn: Callable[[Image], Image], words: str
) -> None:
    truths = [blobs(seed) for seed in range(4)]
    right = [(noisy(truth), truth) for truth in truths]
    assert doubts_of(source(tmp_path, right)) == []
    (tmp_path / "one").mkdir()
    wrong = [*right[:3], (right[3][0], np.ascontiguousarray(turn(truths[3])))]
    (said,) = doubts_of(source(tmp_path / "one", wrong))
    assert words in said
    assert "1 of the 4 checked pairs" in said
    assert "pair3" in said


def test_what_a_rectangle_cannot_be_is_not_asked(tmp_path: Path) -> None:
    truth = blobs(0, 48, 60)
    (said,) = doubts_of(source(tmp_path, [(noisy(truth), np.flipud(truth).copy())]))
    assert "upside down" in said


def test_inverted_contrast_flat_images_and_slopes_raise_no_doubt(tmp_path: Path) -> None:
    truth, slope = blobs(0), np.mgrid[:48, :48].astype(np.float32)
    flat = np.full((48, 48), 7, np.float32)
    pairs = [(noisy(-truth), truth), (flat, truth), (truth, flat), (slope[0], slope[1]), (truth * np.nan, truth)]
    assert doubts_of(source(tmp_path, pairs)) == []


def test_smooth_images_without_likeness_raise_no_doubt(tmp_path: Path) -> None:
    """Unrelated ones of few details: some fit another way by chance, but not half of them the same way."""
    shapes = np.mgrid[:48, :48] / 48 * np.pi
    rng = np.random.default_rng(1)

    def waves() -> Image:
        parts = [rng.normal() * np.cos(i * shapes[0]) * np.cos(j * shapes[1]) for i in range(3) for j in range(3)]
        return np.asarray(sum(parts), np.float32)

    assert doubts_of(source(tmp_path, [(waves(), waves()) for _ in range(20)])) == []


@pytest.mark.parametrize(
    ("um", "shape", "is_good"),
    [
        ((0.1, 0.1), (48, 48), True),
        ((0.1, 0.104), (48, 48), True),
        ((0.1, 0.14), (48, 48), False),
        ((0.1, 0.05), (48, 48), False),
        ((0.1, 0.05), (96, 96), True),
        ((0.1, 0.1), (96, 96), False),
    ],
)
def test_pixel_sizes_are_those_of_one_field(
    tmp_path: Path, um: tuple[float, float], shape: tuple[int, int], is_good: bool
) -> None:
    made = source(tmp_path, [(blobs(0), blobs(0, *shape))], um=um)
    if is_good:
        check_sizes(made)
    else:
        with pytest.raises(PairingError, match=r"pair0: along Y a pixel of the input is 0.1 micrometer .* target 0"):
            check_sizes(MatchedPairs(made))


def test_a_factor_that_only_a_transposed_target_explains_is_refused(tmp_path: Path) -> None:
    made = source(tmp_path, [(blobs(0, 16, 32), blobs(0, 64, 32))])
    with pytest.raises(PairingError, match=r"looks transposed: set data\.target_axes to XY"):
        check_sizes(made)
