"""Channels that are computed from measured ones: restoring computes them as training did, for whole images."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import sfumato
from data_sets import make_photographs
from sfumato.data.frames import CompletedFrames, Completion
from sfumato.data.images.io import open_image, write_image
from sfumato.data.pairs import Pair
from sfumato.data.sources import FilePairs
from sfumato.evaluation.calibrate import restore_held_out
from sfumato.evaluation.inspection import describe
from sfumato.export.bioimageio import example_image
from sfumato.export.card import Credits, model_card
from sfumato.models.model_file import LoadedModel
from sfumato.models.recipe import Recipe, parse
from sfumato.restoration.conditions import Measured
from sfumato.restoration.intervals import sampled_by
from sfumato.restoration.planning import Settings
from sfumato.restoration.run import restore_file
from sfumato.system.errors import ImageError
from sfumato.training.preparation import open_held_out
from sfumato.training.train import train

SIDE, BORDER = 48, 12


def phase_recipe(folder: Path) -> Recipe:
    return parse(
        f"""
        problem: phase
        forward: {{side_px: {SIDE + 2 * BORDER}, transport_dampings: [1.0e-8, 1.0e-4]}}
        data: {{folder: {folder}, patch: 16}}
        model: {{base: 4, rate_base: 4, num_scales: 2, residual: last}}
        train: {{steps: 3, batch_size: 2, validate_every: 3, save_every: 3}}
        sample: {{steps: 2, samples: 2}}
        """
    )


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("phases")
    names = [*(f"train/{k}.png" for k in range(3)), "val/v.png", "test/t.png", "test/u.png"]
    photographs = make_photographs(place / "photographs", names)
    return train(phase_recipe(photographs), place / "run", quiet=True).model_file


@pytest.fixture(scope="module")
def model(model_file: Path) -> LoadedModel:
    return sfumato.load(model_file)


@pytest.fixture(scope="module")
def conditions(model: LoadedModel) -> list[NDArray[np.float32]]:
    """As training has them, two measured channels and two computed ones."""
    source = open_held_out(model.info.recipe, "test")
    found = [np.asarray(source.read(index, (0, 0), (SIDE, SIDE))[0], np.float32) for index in range(len(source))]
    assert [len(condition) for condition in found] == [4, 4]
    return found


def test_what_is_measured_is_enough(model: LoadedModel, conditions: list[NDArray[np.float32]]) -> None:
    whole, measured = (
        sfumato.restore(condition, model, num_samples=2, num_steps=2)
        for condition in (conditions[0], conditions[0][:2])
    )
    np.testing.assert_allclose(measured.mean, whole.mean, atol=1e-5)
    assert model.info.condition_channels == 4


def test_regions_of_files_are_given_the_solution_of_the_whole(
    model: LoadedModel, model_file: Path, conditions: list[NDArray[np.float32]], tmp_path: Path
) -> None:
    shots = np.stack([condition[:2] for condition in conditions]).astype(np.float32)
    write_image(tmp_path / "shots.tif", shots, axes="TCYX")
    measured = Measured(str(tmp_path / "shots.tif"), model)
    for frame in (1, 0):
        seen = model.info.condition.invert(measured.condition(frame, (8, 4), (16, 24)))[0]
        np.testing.assert_allclose(seen, conditions[frame][:, 8:24, 4:28], atol=1e-4)
    chunked = Settings(num_samples=2, num_steps=2, chunk=16, halo=32)
    path = restore_file(model_file, tmp_path / "shots.tif", tmp_path / "phases.ome.zarr", chunked)[0]
    for frame in (0, 1):
        alone = sfumato.restore(conditions[frame], model, num_samples=2, num_steps=2, image=frame)
        np.testing.assert_allclose(open_image(path).read({"T": frame}), alone.mean[0], atol=1e-4)


def test_a_frame_is_completed_once_for_all_its_regions() -> None:
    class Stored:
        spatial, channels = (4, 6), 1

        def read(self, frame: int, corner: Sequence[int], size: Sequence[int]) -> NDArray[np.float32]:
            whole = np.arange(24, dtype=np.float32).reshape(1, 4, 6) + 100 * frame
            return whole[:, corner[0] : corner[0] + size[0], corner[1] : corner[1] + size[1]]

    asked = []

    def with_mean(measured: NDArray[np.generic]) -> NDArray[np.float32]:
        asked.append(measured.shape)
        pixels = np.asarray(measured, np.float32)
        return np.concatenate([pixels, pixels - pixels.mean()])

    frames = CompletedFrames(Stored(), Completion(1, 2, with_mean))
    for frame, corner in ((0, (0, 0)), (0, (2, 3)), (1, (2, 3)), (1, (0, 0))):
        region = np.asarray(frames.read(frame, corner, (2, 3)), np.float32)
        np.testing.assert_array_equal(region[1], region[0] - (100 * frame + 11.5))
    assert asked == [(1, 4, 6)] * 2


def test_held_out_files_need_only_what_is_measured(model: LoadedModel, tmp_path: Path) -> None:
    simulated, pairs = open_held_out(model.info.recipe, "test"), []
    for index in range(len(simulated)):
        condition, truth = simulated.read(index, (0, 0), (SIDE, SIDE))
        files = [tmp_path / f"{word}{index}.tif" for word in ("shots", "phase")]
        write_image(files[0], condition[:2], axes="CYX")
        write_image(files[1], truth[0], axes="YX")
        pairs.append(Pair(str(index), files[0], files[1]))
    sources = (simulated, FilePairs(pairs, axes=("CYX", "YX"), cache_bytes=0))
    found = [restore_held_out(model, source, sampled=sampled_by(model, 2, 2), level=0.3) for source in sources]
    for whole, measured in zip(*found, strict=True):
        np.testing.assert_allclose(measured.error, whole.error, atol=1e-5)


def test_solutions_are_in_the_units_of_what_they_are_taken_from(model: LoadedModel) -> None:
    condition, target = model.info.condition, model.info.target
    assert condition.offset[2:] == target.offset * 2
    assert condition.scale[2:] == target.scale * 2
    assert condition.scale[0] != target.scale[0]
    source = open_held_out(model.info.recipe, "train")
    read = [source.read(index, (0, 0), (SIDE, SIDE)) for index in range(len(source))]
    left = np.stack([truth[0] - seen[-1] for seen, truth in read]) / target.scale[0]
    # Half of unit size over the patches that training measures it on, which are some of these.
    assert 2 * np.sqrt((left**2).mean()) == pytest.approx(model.model.scale, rel=0.3)


def test_an_example_for_other_software_has_all_channels(
    model: LoadedModel, conditions: list[NDArray[np.float32]], tmp_path: Path
) -> None:
    write_image(tmp_path / "shots.tif", conditions[0][:2], axes="CYX")
    found = example_image(model, tmp_path / "shots.tif", 16)
    np.testing.assert_allclose(found, conditions[0][:, 16:32, 16:32], atol=1e-4)


def test_people_are_told_what_to_measure(
    model: LoadedModel, model_file: Path, conditions: list[NDArray[np.float32]], tmp_path: Path
) -> None:
    assert "channels: 2 in (2 more computed from them), 1 out" in "\n".join(describe(model))
    card = model_card(model, Credits("CC-BY-4.0", ("somebody",)), usage="Use it.")
    assert "The first 2 are measured" in card
    with pytest.raises(ImageError, match=r"this model takes \(2, \*spatial\)"):
        sfumato.restore(conditions[0][:1], model)
    write_image(tmp_path / "one.tif", np.ones((SIDE, SIDE), np.float32), axes="YX")
    with pytest.raises(ImageError, match="this model takes 2"):
        restore_file(model_file, tmp_path / "one.tif", tmp_path / "out.tif", Settings(2, 2))
    with pytest.raises(ImageError, match="the transport equation, which this model is shown, cannot be solved"):
        sfumato.restore(-conditions[0][:2], model)
