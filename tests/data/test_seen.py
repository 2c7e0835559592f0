"""Pixel hashes know an image again and nothing else; a model file keeps them, whole and small."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from pair_folders import make_pairs
from sfumato.data import seen as seen_images
from sfumato.data.frames import region
from sfumato.data.images.io import write_image
from sfumato.data.intensity import MatchedPairs
from sfumato.data.pack import pack
from sfumato.data.packed import PackedPairs
from sfumato.data.pairs import Pair, find_pairs, find_units
from sfumato.data.pixel_hash import pixel_hash
from sfumato.data.seen import SeenImages, look_at, look_up
from sfumato.data.sources import FilePairs
from sfumato.problems.natural import NaturalSettings
from sfumato.problems.registry import open_problem
from sfumato.problems.request import Request
from sfumato.system.errors import PairingError

Array = NDArray[Any]


def hashed(image: Array) -> int | None:
    return pixel_hash(partial(region, image), len(image), image.shape[1:])


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 4000, (1, *shape))


@pytest.mark.parametrize("shape", [(5, 5), (64, 64), (300, 200), (9, 70, 80)])
def test_equal_values_have_equal_hashes_whatever_their_type(shape: tuple[int, ...]) -> None:
    image = noise(*shape)
    kinds = ["<u2", ">u2", "<i4", "<f4", ">f8", "<u8"]
    assert len({hashed(image.astype(kind)) for kind in kinds}) == 1
    assert hashed(np.asfortranarray(image)) == hashed(image)
    assert hashed(-(image - image)) is None


def test_other_pixels_sizes_or_channels_have_other_hashes() -> None:
    image = noise(200, 200)
    changed = image.copy()
    changed[0, 100, 100] += 1
    others = [image[:, ::-1], image.transpose(0, 2, 1), changed, image[:, :199], np.repeat(image, 2, 0), image / 2]
    assert len({hashed(image), *map(hashed, others)}) == len(others) + 1


def test_few_pixels_are_read_of_a_large_image() -> None:
    read: list[list[int]] = []

    def one(corner: list[int], size: list[int]) -> Array:
        read.append(size)
        return noise(*size)

    for channels, spatial in ((1, (9000, 9000)), (1, (500, 900, 900))):
        assert pixel_hash(one, channels, spatial) is not None
    assert [np.prod(size) <= 1024 for size in read] == [True, True]


def test_an_image_with_a_blank_middle_is_known_by_its_rest() -> None:
    image = np.zeros((1, 400, 400), np.uint16)
    assert hashed(image) is None
    image[0, 200, 200] = 1
    assert hashed(image) is None  # in many images a bright pixel stands there
    image[0, 80:180, 80:180] = noise(100, 100)[0]
    assert hashed(image) is not None
    assert hashed(image) != hashed(image[:, ::-1])


def test_files_stores_and_rescaled_pairs_have_the_same_hashes(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path, number=4)
    files = FilePairs(find_pairs(*folders))
    pack({"train": files}, tmp_path / "store.zarr")
    packed = PackedPairs(tmp_path / "store.zarr")
    for sample in range(4):
        assert files.hashes(sample) == packed.hashes(sample) == MatchedPairs(files).hashes(sample)
        assert None not in files.hashes(sample)
    uncached = FilePairs(find_pairs(*folders), cache_bytes=0)
    assert uncached.hashes(1) == files.hashes(1)


def test_upsampled_inputs_have_the_same_hash_in_a_store(tmp_path: Path) -> None:
    for name, side in (("low", 40), ("high", 80)):
        (tmp_path / name).mkdir()
        write_image(tmp_path / name / "a.tif", noise(side, side)[0].astype(np.float32), axes="YX")
    files = FilePairs(find_pairs(tmp_path / "low", tmp_path / "high"), upsample=True)
    pack({"train": files}, tmp_path / "store.zarr")
    assert PackedPairs(tmp_path / "store.zarr").hashes(0) == files.hashes(0)


@pytest.mark.parametrize("problem", ["phase", "natural"])
def test_simulated_pairs_are_known_by_their_photograph(tmp_path: Path, problem: str) -> None:
    """The noise of a sample, its geometry and the border that a test cuts off are drawn; the photograph stays."""
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / split / f"{split}.png")
    side = NaturalSettings().side_px if problem == "natural" else 64
    found = open_problem(problem, Request(folder=tmp_path, forward={"side_px": side}, validation_fraction=0.0))
    seen, _ = look_at(found["train"], None, seed=0)
    assert look_up(seen, found["test"], [0]) == ["train"]


def sources(tmp_path: Path, train: list[int], validation: list[int]) -> tuple[FilePairs, FilePairs]:
    """Pairs of numbered images, which may be the same under several names."""
    made = []
    for split, numbers in (("t", train), ("v", validation)):
        pairs = []
        for place, number in enumerate(numbers):
            paths = [tmp_path / f"{split}{place}{side}.npy" for side in "ab"]
            for path, offset in zip(paths, (0, 1000), strict=True):
                np.save(path, noise(16, 16, seed=number + offset)[0])
            pairs.append(Pair(f"{split}{place}", paths[0], paths[1]))
        made.append(FilePairs(pairs))
    return made[0], made[1]


def test_an_image_in_both_splits_is_refused_with_both_names(tmp_path: Path) -> None:
    with pytest.raises(PairingError, match=r"2 of 3 validation pairs.*v0 of validation is t1 of training, v2 of"):
        look_at(*sources(tmp_path, [1, 2, 3], [2, 9, 3]), seed=0)


def test_copies_in_training_are_counted_and_frames_are_not(tmp_path: Path) -> None:
    _, notes = look_at(*sources(tmp_path, [1, 2, 1, 1], [9]), seed=0)
    assert len(notes) == 1
    assert "2 training inputs are copies of others, by their pixels, such as t2 of t0" in notes[0]
    stack = np.repeat(noise(16, 16), 3, 0)
    np.save(tmp_path / "stack.npy", stack)
    frames = FilePairs([Pair("stack", tmp_path / "stack.npy", tmp_path / "stack.npy")])
    assert look_at(frames, None, seed=0)[1] == []


def test_of_many_images_a_seeded_subset_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, validation = sources(tmp_path, list(range(20)), list(range(20, 25)))
    monkeypatch.setattr(seen_images, "_MOST_HASHES", 20)
    found, notes = look_at(train, validation, seed=3)
    assert (len(found.train), len(found.validation), found.num_hashed, found.num_pairs) == (16, 4, 10, 25)
    assert "10 of 25 pairs, drawn with the seed," in notes[0]
    assert look_at(train, validation, seed=3)[0] == found
    assert look_at(train, validation, seed=4)[0] != found


def test_hashes_survive_json_and_are_small() -> None:
    generator = np.random.default_rng(0)
    numbers = frozenset(generator.integers(0, 2**64, 100_000, np.uint64).tolist())
    found = SeenImages(numbers, frozenset(), 50_000, 50_000)
    text = json.dumps(found.to_json())
    assert len(text) < 1_100_000
    assert SeenImages.from_json(json.loads(text)) == found


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.pop("train"),
        lambda v: v.update(train="AAAA"),
        lambda v: v.update(train=3),
        lambda v: v.update(validation="not base64!"),
        lambda v: v.update(num_pairs=1.5),
        lambda v: v.update(num_hashed=3),
        lambda v: v.update(more=1),
    ],
)
def test_hashes_that_are_none_are_refused(change: Callable[[dict[str, Any]], object]) -> None:
    values = SeenImages(frozenset({1, 2**64 - 1}), frozenset({3}), 2, 2).to_json()
    change(values)
    with pytest.raises(ValueError, match=r"seen images|hashes of"):
        SeenImages.from_json(values)


GROUPS: dict[str, tuple[list[str], int]] = {
    "fields": (["085_0", "085_1", "086_0", "086_1"], 2),
    "suffixes": (["085-0.ome.tif", "085-1.ome.tif", "086-0.ome.tif", "086-1.ome.tif"], 2),
    "folders": (["a/1_0.tif", "a/1_1.tif", "b/1_0.tif", "b/1_1.tif"], 2),
    "frames of fields": (["1_0.tif[0]", "1_0.tif[1]", "1_1.tif", "2_0.tif", "2_1.tif"], 2),
    "one count": (["img_0", "img_1", "img_2"], 3),
    "other endings": (["1_0", "1_1", "2_0", "2_2"], 4),
    "one alone": (["1_0", "1_1", "2_0", "2_1", "3_0"], 5),
    "no number": (["1_0", "1_1", "2_0", "2_1", "blank"], 5),
    "decimals": (["cell_0.5um.tif", "cell_0.7um.tif", "x_0.5um.tif", "x_0.7um.tif"], 4),
    "numbers alone": (["1", "2", "3"], 3),
}


@pytest.mark.parametrize("case", GROUPS)
def test_units_are_told_by_names(case: str) -> None:
    names, number = GROUPS[case]
    found = find_units(names)
    assert len(set(found.names)) == number
    assert found.line.startswith(f"{number} independent units of {len(names)} images: ")


def test_groups_are_those_of_the_whole_set() -> None:
    every = [f"{field}_{number}" for field in (1, 2) for number in range(3)]
    assert set(find_units(["1_0", "1_2", "2_1"], among=every).names) == {"1", "2"}
    assert len(set(find_units(["1_0", "1_2", "2_1"]).names)) == 3
