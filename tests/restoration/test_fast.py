"""Restoring without samples: mean and standard deviation by one read, in arrays, files, shards and on workers."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

import sfumato
from sfumato.cli import app
from sfumato.data.images.io import open_image, write_image
from sfumato.data.images.pixels import ArrayImage
from sfumato.data.normalize import Normalization
from sfumato.diffusion.noise import NoiseField
from sfumato.models.build import build_model
from sfumato.models.intervals import NO_SAMPLES
from sfumato.models.model_file import LoadedModel, ModelInfo, load, save_model
from sfumato.models.recipe import parse
from sfumato.restoration import interactive
from sfumato.restoration.conditions import Measured, condition_of
from sfumato.restoration.engines import Dask
from sfumato.restoration.interactive import Parts
from sfumato.restoration.outputs import Output
from sfumato.restoration.planning import Restoration, Settings, plan_restoration
from sfumato.restoration.restorer import Restorer
from sfumato.restoration.run import restore_file, run_restoration
from sfumato.system.errors import ImageError, RecipeError, RunError, SfumatoError
from untrained_models import noise, write_model, write_reading_model
from warm_processes import warm_workers

FAST = Settings(fast=True, chunk=64, threads=1)
SAMPLED = Settings(num_samples=2, num_steps=1, chunk=64, halo=16, threads=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reading_model(tmp_path_factory.mktemp("model") / "model.safetensors")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "in.tif"
    write_image(path, noise(150, 91), axes="YX")
    return path


def known(model: LoadedModel, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation of the whole image at once, in the units of the target."""
    with torch.no_grad():
        mean, std = model.model.mean_and_std((torch.from_numpy(pixels)[None, None] - 10) / 3)
    assert std is not None
    return (10 + 3 * mean[0, 0]).numpy(), (3 * std[0, 0]).numpy()


def read(files: list[str]) -> list[NDArray[np.float32]]:
    return [np.asarray(open_image(file).read({})) for file in files]


def stored(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def regression(path: Path) -> Path:
    recipe, data = parse("model: {method: regression, base: 4, num_scales: 2}"), Normalization((10.0,), (3.0,))
    info = ModelInfo(recipe, 1, 1, data, data, {}, {})
    save_model(path, build_model(recipe.model, 1, 1).state_dict(), info)
    return path


@pytest.mark.parametrize("tile", [None, 16])
def test_arrays_and_tiles_of_them_equal_one_read_of_the_whole(model: Path, tile: int | None) -> None:
    loaded, pixels = load(model), noise(100, 75)
    mean, std = known(loaded, pixels)
    restored = sfumato.restore(pixels, loaded, fast=True, tile=tile)
    np.testing.assert_allclose(restored.mean, mean, atol=3e-5)  # 1e-5 of the unit, which is 3
    assert restored.std is not None
    np.testing.assert_allclose(restored.std, std, rtol=1e-5)
    assert std.max() > 1.01 * std.min()
    assert (restored.low, restored.high, restored.label) == (None, None, "not calibrated")
    for seed in (0, 1):
        np.testing.assert_array_equal(
            restored.mean, sfumato.restore(pixels, loaded, fast=True, tile=tile, seed=seed).mean
        )


def test_chunks_see_as_far_as_one_read_and_equal_the_whole(model: Path, source: Path, tmp_path: Path) -> None:
    loaded, pixels = load(model), np.asarray(open_image(source).read({}))
    planned = plan_restoration(model, source, tmp_path / "out.zarr", FAST)
    assert (planned.job.plan.halo, planned.job.batch, len(planned.job.plan.stages[0])) == ((40, 40), 1, 6)
    assert plan_restoration(model, source, tmp_path / "out.zarr", Settings(chunk=64)).job.plan.halo == (64, 64)
    calls: list[int] = []
    loaded_here = planned.model.model
    loaded_here.get_submodule("reader").register_forward_hook(lambda *_: calls.append(1))
    for name in ("schedule", "network"):
        loaded_here.get_submodule(name).register_forward_hook(lambda *_: pytest.fail("it was run"))
    mean, std = read(run_restoration(planned))
    assert len(calls) == 6
    expected = known(loaded, pixels)
    np.testing.assert_allclose(mean, expected[0], atol=3e-5)
    np.testing.assert_allclose(std, expected[1], rtol=1e-5)
    near = read(restore_file(model, source, tmp_path / "near.zarr", Settings(fast=True, chunk=64, halo=8, threads=1)))
    assert np.abs(near[0] - expected[0]).max() > 1e-3


def test_shards_and_workers_write_the_same_bytes_as_one_process(model: Path, source: Path, tmp_path: Path) -> None:
    def planned(name: str) -> Restoration:
        return plan_restoration(model, source, tmp_path / name / "out.zarr", FAST)

    for name in ("alone", "shards", "workers"):
        (tmp_path / name).mkdir()
    run_restoration(planned("alone"))
    assert run_restoration(planned("shards"), shard=(1, 2)) == []
    run_restoration(planned("shards"), shard=(0, 2))
    with warm_workers():
        run_restoration(planned("workers"), engine=Dask(workers=1))
    first = stored(tmp_path / "alone")
    images = {name for name in first if ".journal" not in name}
    assert len(images) > 10
    for other in ("shards", "workers"):
        found = stored(tmp_path / other)
        assert {name: found[name] for name in images} == {name: first[name] for name in images}


def test_a_fast_restoration_is_not_resumed_as_a_sampled_one_nor_the_other_way_round(
    model: Path, source: Path, tmp_path: Path
) -> None:
    for name, begun, other, said in (
        ("a", FAST, SAMPLED, "num_samples is 2, was 0"),
        ("b", SAMPLED, FAST, "num_samples is 0, was 2"),
    ):
        output = tmp_path / f"{name}.zarr"
        assert run_restoration(plan_restoration(model, source, output, begun), shard=(0, 2)) == []
        with pytest.raises(RunError, match=said):
            run_restoration(plan_restoration(model, source, output, other))
        run_restoration(plan_restoration(model, source, output, begun))
        file = tmp_path / f"{name}.tif"
        run_restoration(plan_restoration(model, source, file, begun))
        with pytest.raises(ImageError, match=r"restored differently: .*samples"):
            run_restoration(plan_restoration(model, source, file, other))


def test_the_command_says_that_no_samples_were_drawn(model: Path, source: Path, tmp_path: Path) -> None:
    command = ("restore", model, source, tmp_path / "out.zarr", "--fast", "--chunk", 64)
    told = run(*command, "--dry-run")
    assert "network calls: 6" in told.output
    picture = tmp_path / "preview.png"
    assert run(*command, "--preview", picture).exit_code == 0
    assert picture.exists()
    done = run(*command)
    assert done.exit_code == 0, done.output
    assert "out_std.zarr; no samples were drawn" in done.output.replace("\n", "")
    assert run(*command, "--verify").exit_code == 0
    assert "already restored" in run(*command).output
    for name, content in (("out", "mean"), ("out_std", "standard deviation")):
        notes = json.loads((tmp_path / f"{name}.zarr" / "zarr.json").read_text())["attributes"]["sfumato"]
        assert notes["content"] == content
        assert notes["samples"] == 0
        assert notes["fast"].startswith("no samples were drawn")
        assert not {"steps", "solver", "eta"} & set(notes)
    (tmp_path / "in").mkdir()
    write_image(tmp_path / "in" / "a.tif", noise(20, 20), axes="YX")
    folder = run("restore", model, tmp_path / "in", tmp_path / "out", "--fast")
    assert folder.exit_code == 0, folder.output
    assert "no samples were drawn" in folder.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("option", "settings"),
    [
        (["--samples", "4"], {"num_samples": 4}),
        (["--steps", "4"], {"num_steps": 4}),
        (["--quantile", "0.1"], {"quantiles": (0.1,)}),
        (["--keep-samples"], {"keep_samples": True}),
        (["--uncertainty", "schedule"], {"uncertainty": "schedule"}),
        (["--batch", "2"], {"batch": 2}),
    ],
)
def test_what_needs_samples_is_refused(
    option: list[str], settings: dict[str, Any], model: Path, source: Path, tmp_path: Path
) -> None:
    refused = run("restore", model, source, tmp_path / "out.tif", "--fast", *option)
    assert refused.exit_code == 2
    assert "draws no samples" in refused.output.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []
    name = option[0].removeprefix("--").split("-")[0]
    with pytest.raises(RecipeError, match=f"given with {name}.*; leave out one of them"):
        Settings(fast=True, **settings)


def test_arrays_and_parts_refuse_what_needs_samples(model: Path) -> None:
    loaded, pixels = load(model), noise(20, 20)
    asked: dict[str, Any]
    for asked in ({"num_samples": 4}, {"num_steps": 2}, {"uncertainty": "schedule"}):
        with pytest.raises(RecipeError, match="draws no samples"):
            sfumato.restore(pixels, loaded, fast=True, **asked)
    image = Measured(ArrayImage.of(pixels, axes="YX", name="array"), loaded)
    with pytest.raises(RecipeError, match="given with keep_samples"):
        Parts(image, loaded, fast=True, keep_samples=True)
    restorer, condition = Restorer.of(loaded, fast=True), condition_of(pixels, loaded).condition()
    for output in (Output("quantile", "", level=0.5), Output("sample", "", number=0)):
        with pytest.raises((ValueError, IndexError)):
            restorer.summarise(condition, NoiseField(0), [output])


def test_a_model_without_mean_and_scale_networks_is_refused_with_what_to_do(source: Path, tmp_path: Path) -> None:
    plain = write_model(tmp_path / "plain.safetensors")
    with pytest.raises(ImageError, match=r"without mean and scale networks.*sfumato train --preset default"):
        sfumato.restore(noise(20, 20), load(plain), fast=True)
    refused = run("restore", plain, source, tmp_path / "out.tif", "--fast")
    assert refused.exit_code == 2
    assert not (tmp_path / "out.tif").exists()
    with pytest.raises(SfumatoError, match="without mean and scale networks"):
        Restorer(load(plain), NO_SAMPLES)


def test_a_regression_answers_as_it_does_without(source: Path, tmp_path: Path) -> None:
    path = regression(tmp_path / "model.safetensors")
    (usual,) = restore_file(path, source, tmp_path / "usual.tif")
    (fast,) = restore_file(path, source, tmp_path / "fast.tif", Settings(fast=True))
    assert Path(fast).read_bytes() == Path(usual).read_bytes()
    assert run("restore", path, source, tmp_path / "usual.tif", "--fast").exit_code == 0  # done already
    told = run("restore", path, source, tmp_path / "more.tif", "--dry-run")
    assert "network calls: 1\n" in told.output
    restored = sfumato.restore(noise(20, 20), load(path), fast=True)
    assert restored.std is None


def test_parts_of_an_open_image_equal_the_whole(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, pixels = load(model), noise(150, 40)
    monkeypatch.setitem(interactive._CHUNK, 2, 64)
    parts = Parts(Measured(ArrayImage.of(pixels, axes="YX", name="array"), loaded), loaded, fast=True)
    told: list[int] = []
    found = parts.restore(told.append)
    assert (parts.contents, parts.num_calls, sum(told)) == (("mean", "std"), 3, 3)
    for content, expected in zip(("mean", "std"), known(loaded, pixels), strict=True):
        np.testing.assert_allclose(found[content][0, 0], expected, atol=3e-5)


@pytest.mark.parametrize("fast", [True, False])
def test_chunks_of_an_instance_normalised_model_share_their_statistics(fast: bool, tmp_path: Path) -> None:
    """The region that statistics come from is the whole image here, so chunks equal it."""
    path = tmp_path / "model.safetensors"
    model = write_reading_model(path, norm="instance", options="sample: {mean: network}")
    pixels = noise(150, 91)
    pixels[64:] *= 2
    write_image(tmp_path / "in.tif", pixels, axes="YX")
    settings = Settings(fast=True, chunk=64, halo=64, threads=1)
    if not fast:
        settings = dataclasses.replace(settings, fast=False, num_samples=2, num_steps=1)
    mean, std = read(restore_file(model, tmp_path / "in.tif", tmp_path / "out.zarr", settings))
    expected = known(load(model), pixels)
    np.testing.assert_allclose(mean, expected[0], atol=3e-5)
    if fast:
        np.testing.assert_allclose(std, expected[1], atol=3e-5)
