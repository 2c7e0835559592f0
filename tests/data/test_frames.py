"""Targets on a finer grid than what was measured: restoring sees what training saw, on the same grid."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import sfumato
from data_sets import make_photographs
from sfumato.audit.files import read_measured, read_restored
from sfumato.cli import app
from sfumato.data.frames import UpsampledFrames, upsample
from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import open_image, write_image
from sfumato.data.pack import pack
from sfumato.data.packed import PackedPairs
from sfumato.data.pairs import Pair, find_pairs
from sfumato.data.sources import FilePairs, FrameReader
from sfumato.evaluation.inspection import read_image
from sfumato.models.model_file import LoadedModel, save_model
from sfumato.models.recipe import Recipe
from sfumato.problems.natural import coarsen
from sfumato.restoration.conditions import condition_of, upsampling_factor
from sfumato.restoration.planning import Settings
from sfumato.restoration.run import restore_file
from sfumato.system.errors import ImageError, PairingError
from sfumato.training.preparation import prepare
from sfumato.training.train import train
from small_runs import recipe

SMALL = (18, 21)


def make_fine_pairs(folder: Path, *, factor: int = 2, number: int = 4) -> tuple[str, str]:
    """Means over blocks of pixels, and the images they were taken of, each with its pixel size."""
    generator = np.random.default_rng(0)
    for index in range(number):
        fine = generator.random([n * factor for n in SMALL], dtype=np.float32) * (1 + index)
        coarse = fine.reshape(SMALL[0], factor, SMALL[1], factor).mean((1, 3))
        for name, pixels, pixel_um in (("low", coarse, 0.1 * factor), ("high", fine, 0.1)):
            (folder / name).mkdir(parents=True, exist_ok=True)
            sizes = {axis: PixelSize(pixel_um, "micrometer") for axis in "YX"}
            write_image(folder / name / f"image{index}.tif", pixels, axes="YX", pixel_size=sizes)
    return str(folder / "low"), str(folder / "high")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_fine_pairs(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module", params=["quantile", "image"])
def model_file(request: pytest.FixtureRequest, folders: tuple[str, str]) -> Path:
    chosen = recipe(folders, train_steps=2, data_upsample=True, data_normalize=request.param)
    return train(chosen, Path(folders[0]).parent / request.param, quiet=True).model_file


@pytest.fixture(scope="module")
def model(model_file: Path) -> LoadedModel:
    return sfumato.load(model_file)


@given(
    shape=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    factor=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    data=st.data(),
)
@settings(deadline=None, max_examples=40)
def test_regions_equal_those_of_the_whole(shape: tuple[int, int], factor: tuple[int, int], data: st.DataObject) -> None:
    class Memory:
        """Frames in memory that count what is read."""

        spatial, channels, pixels = shape, 2, np.random.default_rng(0).random((2, *shape), dtype=np.float32)

        def read(self, frame: int, corner: Sequence[int], size: Sequence[int]) -> np.ndarray:
            assert frame == 3
            assert all(c >= 0 and c + s <= n for c, s, n in zip(corner, size, shape, strict=True))
            return self.pixels[:, corner[0] : corner[0] + size[0], corner[1] : corner[1] + size[1]]

    frames = UpsampledFrames(Memory(), factor)
    whole = upsample(Memory.pixels, factor)
    assert frames.spatial == whole.shape[1:]
    corner = [data.draw(st.integers(0, n - 1)) for n in frames.spatial]
    size = [data.draw(st.integers(1, n - c)) for c, n in zip(corner, frames.spatial, strict=True)]
    part = whole[:, corner[0] : corner[0] + size[0], corner[1] : corner[1] + size[1]]
    np.testing.assert_allclose(frames.read(3, corner, size).astype(float), part.astype(float), rtol=0, atol=1e-6)


@pytest.mark.parametrize("factor", [(2, 2), (3, 3)])
def test_far_from_the_corner_too(factor: tuple[int, int], tmp_path: Path) -> None:
    """Places of a factor 3 are no whole binary fractions: in float32 they would drift along a long side."""
    pixels = np.random.default_rng(1).random((8, 4000), dtype=np.float32)
    write_image(tmp_path / "long.tif", pixels, axes="YX")
    frames = UpsampledFrames(FrameReader(open_image(tmp_path / "long.tif"), 2), factor)
    corner = [0, frames.spatial[1] - 100]
    whole = upsample(pixels[None], factor)[:, :, corner[1] :]
    np.testing.assert_allclose(
        frames.read(0, corner, [frames.spatial[0], 100]).astype(float), whole.astype(float), rtol=0, atol=1e-6
    )


def test_volumes_are_upsampled_along_each_axis_by_its_own_factor(tmp_path: Path) -> None:
    pixels = np.random.default_rng(2).integers(0, 999, (5, 9, 11), dtype=np.uint16)
    write_image(tmp_path / "volume.tif", pixels, axes="ZYX")
    frames = UpsampledFrames(FrameReader(open_image(tmp_path / "volume.tif"), 3), (1, 2, 2))
    assert frames.spatial == (5, 18, 22)
    part = upsample(pixels[None], (1, 2, 2))[:, 1:4, 5:15, 3:20]
    np.testing.assert_allclose(
        frames.read(0, [1, 5, 3], [3, 10, 17]).astype(float), part.astype(float), rtol=1e-6, atol=0
    )
    with pytest.raises(ValueError, match="for each axis"):
        UpsampledFrames(frames, (2, 2))


def test_restoring_sees_what_training_saw(model: LoadedModel, folders: tuple[str, str]) -> None:
    """To the bit, by file and by array, whatever the normalisation."""
    trained = prepare(model.info.recipe)
    assert model.info.factor == trained.train.factor == (2, 2)
    condition = trained.train.read(0, [0, 0], trained.train.spatial(0))[0]
    saw = model.info.condition.apply(torch.from_numpy(np.asarray(condition, np.float32))[None])
    name = Path(folders[0]) / f"{trained.train.name(0)}.tif"
    sees = condition_of(open_image(name).read(), model).condition()
    assert torch.equal(sees, saw)
    upsampled, _ = read_image(model, name, None, allow_seen=True)
    assert torch.equal(condition_of(upsampled, model, on_target_grid=True).condition(), saw)


def test_a_file_is_restored_to_twice_the_size_and_half_the_pixel(
    model_file: Path, model: LoadedModel, folders: tuple[str, str], tmp_path: Path
) -> None:
    source, output = Path(folders[0]) / "image1.tif", tmp_path / "out.tif"
    command = ["restore", str(model_file), str(source), str(output), "--samples", "2", "--steps", "2"]
    done = CliRunner().invoke(app, [*command, "--picture", str(tmp_path / "out.png")])
    assert done.exit_code == 0, done.output
    alone = sfumato.restore(open_image(source).read(), model, num_samples=2, num_steps=2)
    for path in (output, tmp_path / "out_std.tif"):
        written = open_image(path)
        assert written.shape == alone.mean.shape == tuple(2 * n for n in SMALL)
        assert {axis: size.to("micrometer") for axis, size in written.pixel_size.items()} == pytest.approx(
            {"Y": 0.1, "X": 0.1}
        )
    np.testing.assert_array_equal(open_image(output).read(), alone.mean)


def test_what_is_on_the_grid_already_is_not_upsampled_again(
    model_file: Path, folders: tuple[str, str], tmp_path: Path
) -> None:
    model = sfumato.load(model_file)
    pixels = open_image(Path(folders[0]) / "image1.tif").read()
    write_image(tmp_path / "large.tif", upsample(pixels[None], (2, 2))[0], axes="YX")
    settings = Settings(2, 2, on_target_grid=True)
    path, _ = restore_file(model_file, tmp_path / "large.tif", tmp_path / "out.tif", settings)
    alone = sfumato.restore(pixels, model, num_samples=2, num_steps=2)
    np.testing.assert_array_equal(open_image(path).read(), alone.mean)


def test_images_scaled_by_themselves_are_restored_the_same_at_any_exposure(folders: tuple[str, str]) -> None:
    """With `data.normalize: image` gain and offset of what was measured do not matter."""
    place = Path(folders[0]).parent
    chosen = recipe(folders, train_steps=2, data_upsample=True, data_normalize="image")
    model = sfumato.load(train(chosen, place / "exposure", quiet=True).model_file)
    pixels = open_image(Path(folders[0]) / "image1.tif").read().astype(np.float64)
    dim, bright = (sfumato.restore(a + b * pixels, model, num_samples=2, num_steps=2) for a, b in ((0, 1), (100, 40)))
    np.testing.assert_allclose(dim.mean, bright.mean, atol=2e-3)


def test_files_of_earlier_versions_load_and_say_what_they_lack(model_file: Path, tmp_path: Path) -> None:
    """Without a factor nothing is upsampled; only where inputs were upsampled in training that is an error."""
    model = sfumato.load(model_file)
    unknown = {**vars(model.info), "factor": None}
    save_model(tmp_path / "old.safetensors", model.model.state_dict(), type(model.info)(**unknown))
    old = sfumato.load(tmp_path / "old.safetensors")
    assert old.info.factor is None
    image = np.random.default_rng(0).random(SMALL, dtype=np.float32)
    with pytest.raises(ImageError, match="does not say by how much"):
        sfumato.restore(image, old)
    assert sfumato.restore(image, old, num_samples=2, num_steps=2, on_target_grid=True).mean.shape == SMALL
    data = old.info.recipe.data.model_copy(update={"upsample": False})
    plain = type(old.info)(**{**unknown, "recipe": old.info.recipe.model_copy(update={"data": data})})
    assert upsampling_factor(LoadedModel(old.model, plain, old.sha256)) == (1, 1)


@pytest.mark.parametrize("factor", [(2,), (2, 0), (2, 2.0), (2, 10**6)])
def test_no_model_has_a_factor_that_is_none(factor: tuple[int, ...], model: LoadedModel) -> None:
    with pytest.raises(ValueError, match="whole numbers from 1"):
        type(model.info)(**{**vars(model.info), "factor": factor})


def test_pairs_of_different_factors_are_refused(tmp_path: Path) -> None:
    low, high = make_fine_pairs(tmp_path / "two")
    lower, higher = make_fine_pairs(tmp_path / "three", factor=3)
    both = [*find_pairs(low, high), Pair("odd", Path(lower) / "image0.tif", Path(higher) / "image0.tif")]
    with pytest.raises(PairingError, match=r"\(2, 2\) times .* \(3, 3\) times in odd"):
        FilePairs(both, upsample=True)


def test_a_store_remembers_the_factor(folders: tuple[str, str], tmp_path: Path) -> None:
    pack({"train": FilePairs(find_pairs(*folders), upsample=True)}, tmp_path / "store.zarr")
    assert PackedPairs(tmp_path / "store.zarr").factor == (2, 2)


def test_coarse_photographs_are_upsampled_by_the_same_function() -> None:
    """A natural model restores 64 pixels to 256 as it was trained to."""
    photograph = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0))
    small = torch.nn.functional.interpolate(photograph[None], size=(8, 8), mode="bicubic", antialias=True)
    expected = upsample(small[0].clamp(0, 1).numpy(), (4, 4)).astype(np.float32)
    np.testing.assert_array_equal(coarsen(photograph, 4).numpy(), expected)


def test_a_small_picture_becomes_a_large_one(tmp_path: Path) -> None:
    """A natural model takes shares of white; a PNG of whole numbers is brought to them and back."""
    photographs = make_photographs(tmp_path / "photographs", ["one.png", "two.png"])
    places = {"inputs": None, "targets": None, "folder": str(photographs)}
    plain = recipe(("a", "b"), train_steps=2).model_dump(mode="json")
    chosen = Recipe.model_validate(
        {**plain, "problem": "natural", "forward": {"factor": 4, "side_px": 32}, "data": {**plain["data"], **places}}
    )
    path = train(chosen, tmp_path / "run", quiet=True).model_file
    model = sfumato.load(path)
    assert model.info.factor == (4, 4)
    small = np.random.default_rng(0).integers(0, 255, (8, 10, 3), dtype=np.uint8)
    write_image(tmp_path / "small.png", small, axes="YXC")
    output, _ = restore_file(path, tmp_path / "small.png", tmp_path / "large.png", Settings(2, 2))
    shares = np.asarray(small.transpose(2, 0, 1), np.float32) / np.float32(255)
    alone = sfumato.restore(shares, model, num_samples=2, num_steps=2).mean
    written = open_image(output)
    assert (written.axes, written.shape, written.dtype.name) == ("YXC", (32, 40, 3), "uint8")
    expected = np.clip(255 * alone.transpose(1, 2, 0), 0, 255)
    assert float(np.abs(written.read().astype(np.float32) - expected).max()) <= 0.51
    exact, _ = restore_file(path, tmp_path / "small.png", tmp_path / "exact.tif", Settings(2, 2))
    np.testing.assert_allclose(open_image(exact).read({}), 255 * alone, rtol=0, atol=1e-3)
    measured, _ = read_measured(model, tmp_path / "small.png")
    np.testing.assert_array_equal(measured, shares)
    for place in (output, exact):
        audited, _ = read_restored(model, Path(place), tmp_path / "small.png")
        told = np.clip(alone, 0, 1) if place == output else alone
        assert float(np.abs(np.asarray(audited, np.float32) - told).max()) <= 0.51 / 255
    large = np.random.default_rng(1).integers(0, 255, (32, 40, 3), dtype=np.uint8)
    for name, pixels in (("in", small), ("out", large)):
        (tmp_path / name).mkdir()
        write_image(tmp_path / name / "small.png", pixels, axes="YXC")
    fine = np.asarray(upsample(shares, (4, 4)), np.float32)
    for target in (None, tmp_path / "out" / "small.png"):
        seen, truth = read_image(model, tmp_path / "small.png", target)
        assert float(np.abs(np.asarray(seen, np.float32) - fine).max()) < 1e-6
    wanted = np.asarray(large.transpose(2, 0, 1), np.float32) / np.float32(255)
    assert truth is not None
    np.testing.assert_array_equal(truth, wanted)
    command = ["evaluate", f"ours={path}", "--baseline", "bicubic", "--inputs", str(tmp_path / "in")]
    command += ["--targets", str(tmp_path / "out"), "--samples", "2", "--steps", "2", "--out", str(tmp_path / "scores")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    with (tmp_path / "scores" / "scores.csv").open(encoding="utf-8") as file:
        maes = {row["method"]: float(row["MAE"]) for row in csv.DictReader(file)}
    for name, estimate in {"ours": alone, "bicubic": fine}.items():
        assert maes[name] == pytest.approx(float(np.abs(estimate - wanted).mean()), rel=1e-3)
