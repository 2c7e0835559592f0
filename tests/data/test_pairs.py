"""From files to batches: pairing, splits, frames, interpolation, and batches that are pure functions."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pair_folders import make_pairs
from sfumato.data.batches import PatchBatches
from sfumato.data.domain import fingerprint
from sfumato.data.images.io import write_image
from sfumato.data.normalize import Normalization
from sfumato.data.order import Order
from sfumato.data.pairs import Pair, find_pairs, read_manifest, split_pairs
from sfumato.data.sources import FilePairs
from sfumato.system.errors import PairingError

PLAIN = Normalization((0.0,), (1.0,))


def write(path: Path, array: np.ndarray, axes: str = "YX") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_image(path, array, axes=axes)
    return path


def ramp(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_pairs_are_found_by_name_in_folders_inside_too(tmp_path: Path) -> None:
    for name in ("a", "deep/b"):
        write(tmp_path / "low" / f"{name}.npy", ramp(4, 4))
        write(tmp_path / "high" / f"{name}.tif", ramp(4, 4))
    (tmp_path / "low" / ".hidden.npy").write_bytes(b"")
    (tmp_path / "low" / "notes.txt").write_text("not an image")
    pairs = find_pairs(tmp_path / "low", tmp_path / "high")
    assert [pair.name for pair in pairs] == ["a", "deep/b"]
    assert pairs[1].target == tmp_path / "high" / "deep" / "b.tif"


def test_unpaired_names_are_listed(tmp_path: Path) -> None:
    for folder, names in (("low", ["cell_1", "cell_2"]), ("high", ["cell_1", "cell_02"])):
        for name in names:
            write(tmp_path / folder / f"{name}.npy", ramp(4, 4))
    words = r"of 2 inputs and 2 targets, 2 images .* the target 'cell_02' looks like the input 'cell_2'; give both"
    with pytest.raises(PairingError, match=words):
        find_pairs(tmp_path / "low", tmp_path / "high")
    (tmp_path / "empty").mkdir()
    with pytest.raises(PairingError, match="holds no images"):
        find_pairs(tmp_path / "empty", tmp_path / "high")
    write(tmp_path / "low" / "cell_1.tif", ramp(4, 4))
    with pytest.raises(PairingError, match="two images called 'cell_1'"):
        find_pairs(tmp_path / "low", tmp_path / "high")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "expected rows under the columns input,target"),
        ("", "has nothing"),
        ("input,target\na.npy,../a.npy\n", "leaves the manifest's folder"),
        ("input,target\n/etc/passwd,a.npy\n", "leaves the manifest's folder"),
        ("input,target\na.npy,\n", "line 2: a path is empty"),
        ("input,target\na.npy,gone.npy\n", "does not exist beside the manifest"),
        ("input,target,split\na.npy,a.npy,training\n", "train, validation, test"),
    ],
)
def test_bad_manifests_say_what_to_do(tmp_path: Path, text: str, words: str) -> None:
    write(tmp_path / "a.npy", ramp(4, 4))
    (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(PairingError, match=words):
        read_manifest(tmp_path / "pairs.csv")


def test_a_manifest_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    """Spreadsheets put a byte-order mark before the first column."""
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.zeros((4, 4)))
    (tmp_path / "pairs.csv").write_text("input,target\na.npy,b.npy\n", encoding="utf-8-sig")
    assert len(read_manifest(tmp_path / "pairs.csv")) == 1


def test_manifest_splits_are_obeyed(tmp_path: Path) -> None:
    rows = "input,target,split\n"
    for number, split in enumerate(("train", "validation", "test", "train")):
        for side in "ab":
            write(tmp_path / f"{side}{number}.npy", ramp(4, 4))
        rows += f"a{number}.npy,b{number}.npy,{split}\n"
    (tmp_path / "pairs.csv").write_text(rows)
    train, validation = split_pairs(read_manifest(tmp_path / "pairs.csv"), 0.5, seed=0)
    assert (len(train), len(validation)) == (2, 1)


def test_a_target_may_serve_several_inputs_of_its_split(tmp_path: Path) -> None:
    for name in ("dim", "bright", "truth"):
        write(tmp_path / f"{name}.npy", ramp(4, 4))
    (tmp_path / "pairs.csv").write_text(
        "input,target,split,exposure\ndim.npy,truth.npy,train,1\n\nbright.npy,truth.npy,train,9,\n,,,\n"
    )
    assert [pair.name for pair in read_manifest(tmp_path / "pairs.csv")] == ["dim.npy", "bright.npy"]


def test_columns_that_nothing_reads_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.npy", ramp(4, 4))
    (tmp_path / "pairs.csv").write_text("input,target,operator\na.npy,b.npy,me\n")
    assert len(read_manifest(tmp_path / "pairs.csv")) == 1
    assert "the columns operator are not used" in capsys.readouterr().err


def test_splits_are_by_image_and_stable() -> None:
    pairs = [Pair(f"image{index}", Path(), Path()) for index in range(50)]
    train, validation = split_pairs(pairs, 0.1, seed=0)
    assert len(validation) == 5
    assert {p.name for p in train} | {p.name for p in validation} == {p.name for p in pairs}
    assert split_pairs(pairs[::-1], 0.1, seed=0)[1] == validation[::-1]
    assert split_pairs(pairs, 0.1, seed=1)[1] != validation
    assert len(split_pairs(pairs[:2], 0.01, seed=0)[1]) == 1
    assert split_pairs(pairs[:1], 0.5, seed=0) == (pairs[:1], [])


def test_splits_and_order_are_those_that_a_name_up_to_its_first_dot_gave(tmp_path: Path) -> None:
    """Runs of version 0.1 knew `a.1` as `a`; they resume with the same images on the same side, in the same order."""
    names = ["a.1", "a-b.2", "c d.3", "c.4", *(f"cell_{n}.5um" for n in range(30))]
    for name in names:
        for side in ("low", "high"):
            write(tmp_path / side / f"{name}.npy", ramp(4, 4))
    pairs = find_pairs(tmp_path / "low", tmp_path / "high")
    cut = sorted(name.partition(".")[0] for name in names)
    assert [pair.name.partition(".")[0] for pair in pairs] == cut
    before = split_pairs([Pair(name, Path(), Path()) for name in cut], 0.3, seed=1)
    for part, was in zip(split_pairs(pairs, 0.3, seed=1), before, strict=True):
        assert [pair.name.partition(".")[0] for pair in part] == [pair.name for pair in was]


def test_frames_come_as_channels_and_space_whatever_the_axes(tmp_path: Path) -> None:
    stack = ramp(2, 3, 5, 6)  # time, channel, y, x
    low = write(tmp_path / "low.npy", stack, "TCYX")
    high = write(tmp_path / "high.npy", np.moveaxis(stack, 1, -1), "TYXC")
    source = FilePairs([Pair("p", low, high)], axes=("TCYX", "TYXC"))
    assert (len(source), source.condition_channels, source.target_channels) == (2, 3, 3)
    assert source.name(1) == "p[1]"
    condition, target = source.read(1, [1, 2], [3, 4])
    np.testing.assert_array_equal(condition, stack[1, :, 1:4, 2:6])
    np.testing.assert_array_equal(target, condition)


def test_regions_of_uncached_frames_are_the_same(tmp_path: Path) -> None:
    inputs, targets = make_pairs(tmp_path)
    pairs = find_pairs(inputs, targets)
    cached, bare = FilePairs(pairs), FilePairs(pairs, cache_bytes=0)
    for sample in range(len(pairs)):
        for a, b in zip(cached.read(sample, [3, 5], [7, 8]), bare.read(sample, [3, 5], [7, 8]), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("cache_bytes", [0, 2**30])
def test_upsampled_regions_equal_the_upsampled_whole(tmp_path: Path, cache_bytes: int) -> None:
    small = np.random.default_rng(0).random((20, 24), dtype=np.float32)
    low, high = write(tmp_path / "low.npy", small), write(tmp_path / "high.npy", ramp(40, 72))
    source = FilePairs([Pair("p", low, high)], upsample=True, cache_bytes=cache_bytes)
    tensor = torch.from_numpy(small).double()[None, None]
    whole = F.interpolate(tensor, scale_factor=(2.0, 3.0), mode="bicubic", align_corners=False)[0].numpy()
    for corner in ([0, 0], [7, 11], [24, 56]):
        condition, _ = source.read(0, corner, [16, 16])
        expected = whole[:, corner[0] : corner[0] + 16, corner[1] : corner[1] + 16]
        np.testing.assert_allclose(condition.astype(np.float32), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("low", "high", "options", "words"),
    [
        (ramp(8, 8), ramp(16, 16), {}, "set data.upsample to true"),
        (ramp(8, 8), ramp(15, 16), {"upsample": True}, "resample one of them"),
        (ramp(8, 6), ramp(6, 8), {}, "looks transposed: set data.target_axes to XY"),
        (ramp(8, 6), ramp(12, 16), {"upsample": True}, "looks transposed"),
        (ramp(2, 8, 8), ramp(3, 8, 8), {}, "2 frames and the target 3"),
        (ramp(8, 8), ramp(8, 8), {"ndim": 3}, "a 3-D model needs ZYX"),
    ],
)
def test_pairs_that_do_not_fit_say_why(
    tmp_path: Path, low: np.ndarray, high: np.ndarray, options: dict[str, object], words: str
) -> None:
    axes = "ZYX"
    pair = Pair(
        "p",
        write(tmp_path / "low.npy", low, axes[-low.ndim :]),
        write(tmp_path / "high.npy", high, axes[-high.ndim :]),
    )
    with pytest.raises(PairingError, match=words):
        FilePairs([pair], **options)  # type: ignore[arg-type]


def batches(tmp_path: Path, *, augment: bool = True) -> PatchBatches:
    source = FilePairs(find_pairs(*make_pairs(tmp_path)))
    return PatchBatches(source, Order(3, len(source), 8), patch=16, augment=augment, condition=PLAIN, target=PLAIN)


def test_batches_are_pure_functions_of_step_and_position(tmp_path: Path) -> None:
    make = batches(tmp_path)
    whole = make(5, range(8))
    halves = [make(5, range(4)), make(5, range(4, 8))]
    for name in ("condition", "target", "t"):
        assert torch.equal(getattr(whole, name), torch.cat([getattr(half, name) for half in halves]))
    assert whole.samples == halves[0].samples + halves[1].samples
    assert not torch.equal(whole.condition, make(6, range(8)).condition)


def test_condition_and_target_are_cut_and_turned_alike(tmp_path: Path) -> None:
    image = np.random.default_rng(0).random((24, 32), dtype=np.float32)
    path = write(tmp_path / "same.npy", image)
    source = FilePairs([Pair("p", path, path)])
    make = PatchBatches(source, Order(0, 1, 16), patch=8, augment=True, condition=PLAIN, target=PLAIN)
    batch = make(0, range(16))
    assert torch.equal(batch.condition, batch.target)
    assert len({tuple(patch.flatten().tolist()) for patch in batch.target}) > 12
    windows = np.lib.stride_tricks.sliding_window_view(image, (8, 8)).reshape(-1, 8, 8)
    for patch in batch.target[:, 0].numpy():
        turns = [np.rot90(patch, k) for k in range(4)]
        both = [*turns, *(np.flip(turn, -1) for turn in turns)]
        assert any((windows == turn).all(axis=(1, 2)).any() for turn in both)


def test_bad_pixels_and_small_images_are_named(tmp_path: Path) -> None:
    image = ramp(24, 32)
    image[:, :] = np.nan
    path = write(tmp_path / "bad.npy", image)
    source = FilePairs([Pair("bad one", path, path)])
    make = PatchBatches(source, Order(0, 1, 2), patch=16, augment=False, condition=PLAIN, target=PLAIN)
    with pytest.raises(PairingError, match="bad one has NaN"):
        make(0, range(2))
    with pytest.raises(PairingError, match=r"less than the patch of 30; set data\.patch to 24"):
        PatchBatches(source, Order(0, 1, 2), patch=30, augment=False, condition=PLAIN, target=PLAIN)


def test_fingerprint_measures_noise_and_spectrum() -> None:
    """White noise of a known standard deviation on a slope: found to 5%, with a flat spectrum."""
    generator = np.random.default_rng(0)
    slope = np.linspace(0, 100, 64)[None, None, :]
    patches = [slope + 3 * generator.standard_normal((1, 64, 64)) for _ in range(20)]
    found = fingerprint(patches)
    noise, spectrum = np.asarray(found["noise"]), np.asarray(found["spectrum"])
    assert noise[0] == pytest.approx(3, rel=0.05)
    assert np.ptp(spectrum[0, 6:]) < 0.3
    assert spectrum[0, 0] > spectrum[0, 8] + 3
    quantiles = np.asarray(found["quantiles"])
    assert quantiles[0, 4] == pytest.approx(50, abs=2)
