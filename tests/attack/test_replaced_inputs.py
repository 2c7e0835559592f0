"""Inputs, models and outputs that change between or during two commands: never a mixture, never an old result."""

import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from attack.attacking import FEW, image, pixels, refuses, run, write_model
from sfumato.data.normalize import Normalization
from sfumato.models.model_file import load, save_model
from sfumato.restoration.planning import Settings, plan_restoration
from sfumato.restoration.run import Progress, run_restoration
from sfumato.system.errors import SfumatoError

CHUNKS = (*FEW, "--chunk", "16", "--halo", "8")
"""Four chunks of a small image."""
SETTINGS = Settings(num_samples=2, num_steps=2, chunk=16, halo=8)
FORMATS = [".tif", ".npy", ".mrc", ".png"]


def half(model: Path, source: Path, output: Path) -> None:
    """Restore every second chunk, as a restoration that is killed leaves it."""
    ran = run("restore", model, source, output, *CHUNKS, "--shard", "0/2")
    assert ran.code == 0, ran.text


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def bright(tmp_path: Path) -> Path:
    """A model whose results a PNG can hold."""
    path = write_model(tmp_path / "bright.safetensors")
    loaded = load(path)
    info = dataclasses.replace(loaded.info, target=Normalization(offset=(1000.0,), scale=(900.0,)))
    save_model(path, loaded.model.state_dict(), info)
    return path


@pytest.mark.parametrize("suffix", [".zarr", ".tif"])
def test_an_image_that_was_replaced_halfway(suffix: str, model: Path, tmp_path: Path) -> None:
    source, output = image(tmp_path / "in.npy"), tmp_path / f"out{suffix}"
    half(model, source, output)
    image(source, seed=1)
    refuses(run("restore", model, source, output, *CHUNKS), "in.npy", "is not the input", "its content differs")
    assert suffix == ".zarr" or not output.exists()


def test_a_store_that_was_replaced_halfway(model: Path, tmp_path: Path) -> None:
    source = image(tmp_path / "in.zarr")
    half(model, source, tmp_path / "out.zarr")
    shutil.rmtree(source)
    image(source, seed=1)
    refuses(run("restore", model, source, tmp_path / "out.zarr", *CHUNKS), "in.zarr", "is not the input")


def test_an_array_of_an_archive_that_was_replaced_halfway(model: Path, tmp_path: Path) -> None:
    archive = tmp_path / "in.npz"
    for seed in (0, 1):
        np.savez(archive, cells=np.random.default_rng(seed).normal(10, 3, (32, 32)).astype(np.float32))
        if seed == 0:
            half(model, archive / "cells", tmp_path / "out.zarr")
    refuses(run("restore", model, archive / "cells", tmp_path / "out.zarr", *CHUNKS), "in.npz", "is not the input")


def test_an_image_of_another_length_halfway(model: Path, tmp_path: Path) -> None:
    source = image(tmp_path / "in.tif")
    half(model, source, tmp_path / "out.zarr")
    with source.open("ab") as file:
        file.write(b"more")
    refuses(run("restore", model, source, tmp_path / "out.zarr", *CHUNKS), "bytes, had")


def test_verify_with_an_image_that_was_replaced(model: Path, tmp_path: Path) -> None:
    source = image(tmp_path / "in.tif")
    assert run("restore", model, source, tmp_path / "out.zarr", *CHUNKS).code == 0
    image(source, seed=1)
    refuses(run("restore", model, source, tmp_path / "out.zarr", *CHUNKS, "--verify"), "is not the input")


def test_a_finished_store_whose_image_was_replaced(model: Path, tmp_path: Path) -> None:
    source = image(tmp_path / "in.tif")
    assert run("restore", model, source, tmp_path / "out.zarr", *CHUNKS).code == 0
    image(source, seed=1)
    refuses(run("restore", model, source, tmp_path / "out.zarr", *CHUNKS), "is not the input")


def test_another_shard_of_an_image_that_was_replaced(model: Path, tmp_path: Path) -> None:
    source = image(tmp_path / "in.tif")
    half(model, source, tmp_path / "out.zarr")
    image(source, seed=1)
    refuses(run("restore", model, source, tmp_path / "out.zarr", *CHUNKS, "--shard", "1/2"), "is not the input")


def test_the_former_image_put_back_with_other_times_resumes(model: Path, tmp_path: Path) -> None:
    source, output = image(tmp_path / "in.tif"), tmp_path / "out.zarr"
    shutil.copy(source, tmp_path / "kept.tif")
    assert run("restore", model, source, tmp_path / "smooth.zarr", *CHUNKS).code == 0
    half(model, source, output)
    image(source, seed=1)
    refuses(run("restore", model, source, output, *CHUNKS))
    shutil.copy(tmp_path / "kept.tif", source)
    os.utime(source, ns=(1, 1))
    ran = run("restore", model, source, output, *CHUNKS)
    assert ran.code == 0, ran.text
    np.testing.assert_array_equal(pixels(output), pixels(tmp_path / "smooth.zarr"))


@pytest.mark.parametrize("suffix", [".tif", ".zarr"])
def test_an_image_that_is_replaced_while_it_is_restored(suffix: str, model: Path, tmp_path: Path) -> None:
    source, kept = image(tmp_path / f"in{suffix}"), tmp_path / f"kept{suffix}"
    shutil.copytree(source, kept) if source.is_dir() else shutil.copy(source, kept)
    run_restoration(plan_restoration(model, source, tmp_path / "smooth.tif", SETTINGS))

    def replace(now: Progress) -> None:
        if now.done == 2 and not now.share:
            shutil.rmtree(source) if source.is_dir() else source.unlink()
            image(source, seed=1)

    planned = plan_restoration(model, source, tmp_path / "out.tif", SETTINGS)
    with pytest.raises(SfumatoError, match="was replaced or changed while"):
        run_restoration(planned, progress=replace)
    assert not (tmp_path / "out.tif").exists()
    shutil.rmtree(source) if source.is_dir() else source.unlink()
    kept.rename(source)
    run_restoration(plan_restoration(model, source, tmp_path / "out.tif", SETTINGS))
    np.testing.assert_array_equal(pixels(tmp_path / "out.tif"), pixels(tmp_path / "smooth.tif"))


def test_chunks_of_a_store_that_change_while_it_is_restored(model: Path, tmp_path: Path) -> None:
    source = image(tmp_path / "in.zarr")
    other = image(tmp_path / "other.zarr", seed=1)

    def change(now: Progress) -> None:
        if now.done == 2 and not now.share:
            shutil.copytree(other / "0", source / "0", dirs_exist_ok=True)  # the documents stay as they are

    with pytest.raises(SfumatoError, match="was replaced or changed while"):
        run_restoration(plan_restoration(model, source, tmp_path / "out.zarr", SETTINGS), progress=change)


@pytest.mark.parametrize("suffix", [*FORMATS, pytest.param(".zarr", marks=pytest.mark.guard)])
def test_the_same_command_again_is_a_success_that_changes_nothing(suffix: str, bright: Path, tmp_path: Path) -> None:
    source = image(tmp_path / "in.tif", dtype=np.uint16)
    (tmp_path / "out").mkdir()
    command = ("restore", bright, source, tmp_path / "out" / f"a{suffix}", *FEW)
    assert run(*command).code == 0
    before = content(tmp_path / "out")
    ran = run(*command)
    assert ran.code == 0, ran.text
    assert suffix == ".zarr" or "already restored" in ran.text
    assert content(tmp_path / "out") == before


@pytest.mark.guard
@pytest.mark.parametrize("suffix", [*FORMATS, ".zarr"])
def test_another_command_into_the_same_place_is_refused(suffix: str, bright: Path, tmp_path: Path) -> None:
    source = image(tmp_path / "in.tif", dtype=np.uint16)
    (tmp_path / "out").mkdir()
    command = ["restore", bright, source, tmp_path / "out" / f"a{suffix}", *FEW]
    assert run(*command).code == 0
    before = content(tmp_path / "out")
    others = ["--seed 1", "--steps 3", "--samples 3", "--halo 0", "--batch 1", "--quantile 0.5", "--keep-samples"]
    for option in [*others, "--uncertainty schedule", "--axes YX"]:
        ran = run(*command, *option.split())
        assert ran.code == 2, f"{option}: {ran.text}"
    image(source, seed=1, dtype=np.uint16)
    assert run(*command).code == 2
    image(source, dtype=np.uint16)
    write_model(bright, seed=1)
    assert run(*command).code == 2
    assert content(tmp_path / "out") == before


def test_another_number_of_threads_resumes(model: Path, tmp_path: Path) -> None:
    source = image(tmp_path / "in.tif")
    ran = run("restore", model, source, tmp_path / "out.zarr", *CHUNKS, "--shard", "0/2", "--threads", "1")
    assert ran.code == 0, ran.text
    ran = run("restore", model, source, tmp_path / "out.zarr", *CHUNKS, "--threads", "2")
    assert ran.code == 0, ran.text


@pytest.mark.parametrize("part", ["out.zarr", "out_std.zarr"])
def test_a_store_that_was_deleted_while_its_journal_stayed(part: str, model: Path, tmp_path: Path) -> None:
    source = image(tmp_path / "in.tif")
    command = ("restore", model, source, tmp_path / "out.zarr", *CHUNKS)
    assert run(*command).code == 0
    shutil.rmtree(tmp_path / part)
    refuses(run(*command), part, "is gone")
    assert not (tmp_path / part).exists()


def test_a_store_that_is_deleted_while_it_is_written(model: Path, tmp_path: Path) -> None:
    source, calls = image(tmp_path / "in.tif"), []

    def delete(now: Progress) -> None:
        calls.append(now.done)
        if now.done == 1 and not now.share:
            shutil.rmtree(tmp_path / "out.zarr")

    with pytest.raises(SfumatoError, match="is gone"):
        run_restoration(plan_restoration(model, source, tmp_path / "out.zarr", SETTINGS), progress=delete)
    assert max(calls) == 1  # it stopped at once
    assert not (tmp_path / "out.zarr").exists()


def test_a_journal_that_is_deleted_while_it_is_written(model: Path, tmp_path: Path) -> None:
    source, calls = image(tmp_path / "in.tif"), []

    def delete(now: Progress) -> None:
        calls.append(now.done)
        shutil.rmtree(tmp_path / "out.zarr.journal", ignore_errors=True)

    with pytest.raises(SfumatoError):
        run_restoration(plan_restoration(model, source, tmp_path / "out.zarr", SETTINGS), progress=delete)
    assert max(calls) <= 1  # it stopped at once
    assert not (tmp_path / "out.zarr.journal").exists()


def test_a_journal_in_a_folder_of_somebody_else(model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    source = image(tmp_path / "in.tif")
    refuses(run("restore", model, source, tmp_path / "out.tif", *FEW, "--journal", tmp_path / "mine"), "not recognised")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"


@pytest.mark.guard
def test_a_file_of_somebody_else_where_the_sidecar_would_be(model: Path, tmp_path: Path) -> None:
    (tmp_path / "out.npy.sfumato.json").write_text("mine")
    run("restore", model, image(tmp_path / "in.tif"), tmp_path / "out.npy", *FEW)
    assert (tmp_path / "out.npy.sfumato.json").read_text() == "mine"
