"""Restoring by chunks: neither layout nor workers nor kills change the result, and the journal says what is true."""

import contextlib
import dataclasses
import errno
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image as PillowImage
from typer.testing import CliRunner

from networks import seeded
from object_store import objects
from sfumato.cli import app
from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import open_image, write_image
from sfumato.data.normalize import Normalization
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.sampling import sample
from sfumato.models.model_file import load
from sfumato.nn import UNet
from sfumato.restoration import run
from sfumato.restoration.conditions import condition_of
from sfumato.restoration.engines import Dask
from sfumato.restoration.folder import restore_folder
from sfumato.restoration.frozen_norms import Statistics
from sfumato.restoration.in_memory import restore
from sfumato.restoration.job import Plan
from sfumato.restoration.journal import Journal
from sfumato.restoration.planning import Restoration, Settings, plan_restoration, png_dtype
from sfumato.restoration.restorer import Restorer
from sfumato.restoration.run import Progress, run_restoration, verify
from sfumato.system.errors import ImageError, ModelFileError, RunError
from untrained_models import SMALL, noise, restore_small, write_model
from warm_processes import start_function, warm_workers


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "model.safetensors")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "in.tif"
    size = PixelSize(0.1, "micrometer")
    write_image(path, noise(100, 75), axes="YX", pixel_size={"Y": size, "X": size})
    return path


def read(restoration: Restoration, number: int = 0) -> NDArray[np.float32]:
    return np.asarray(open_image(restoration.files[number]).read({}))


def stored(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=3),
    st.integers(1, 3),
)
def test_the_tasks_of_a_plan_cover_every_level_once(axes: list[tuple[int, int, int]], num_levels: int) -> None:
    whole, chunk, halo = zip(*axes, strict=True)
    levels = tuple(tuple(-(-side // 2**level) for side in whole) for level in range(num_levels))
    plan = Plan(levels, chunk, halo)
    written = [np.zeros(level, int) for level in levels]
    for number in range(plan.num_tasks):
        task = plan.task(number)
        assert number in plan.stages[task.level]
        place = tuple(slice(c, c + s) for c, s in zip(task.corner, task.size, strict=True))
        seen = tuple(slice(c, c + s) for c, s in zip(task.seen_corner, task.seen_size, strict=True))
        written[task.level][place] += 1
        grid = np.arange(written[task.level].size).reshape(written[task.level].shape)
        np.testing.assert_array_equal(grid[seen][task.inner], grid[place])
    assert all((count == 1).all() for count in written)
    with pytest.raises(IndexError):
        plan.task(plan.num_tasks)


def test_a_plan_and_journal_of_a_million_tasks_are_cheap(tmp_path: Path) -> None:
    plan = Plan(levels=((1_000_000, 1000, 1000),), chunk=(1, 1000, 1000), halo=(0, 0, 0))
    journal = Journal(tmp_path, plan.num_tasks)
    started = time.monotonic()
    with journal.writer() as writer:
        writer.record(999_999, 7)
    assert plan.task(999_999).corner == (999_999, 0, 0)
    assert journal.done().sum() == 1
    assert time.monotonic() - started < 1


def test_whole_images_and_chunks_give_the_same_samples(model: Path, source: Path, tmp_path: Path) -> None:
    """Reach of the network: 26 pixels. Three steps reach further than the halo, but what comes from there is faint."""
    whole = restore(open_image(source).read({}), load(model), num_samples=2, num_steps=3)
    for name, chosen in {"a": SMALL, "b": Settings(2, 3, chunk=64, halo=32, tile=16, batch=1, threads=1)}.items():
        planned = plan_restoration(model, source, tmp_path / f"{name}.zarr", chosen)
        run_restoration(planned)
        spread = whole.mean.max() - whole.mean.min()
        assert np.abs(read(planned) - whole.mean).max() < 1e-3 * spread
        assert whole.std is not None
        assert np.abs(read(planned, 1) - whole.std).max() < 2e-3 * spread


def test_shards_and_workers_write_the_same_bytes_as_one_process(model: Path, source: Path, tmp_path: Path) -> None:
    alone = plan_restoration(model, source, tmp_path / "alone.zarr", SMALL)
    run_restoration(alone)
    shards = plan_restoration(model, source, tmp_path / "shards.zarr", SMALL)
    for i in (2, 0, 3):
        assert run_restoration(shards, shard=(i, 4)) == []
    assert run_restoration(shards, shard=(1, 4)) == list(shards.files)
    workers = plan_restoration(model, source, tmp_path / "workers.zarr", SMALL)
    with warm_workers():
        run_restoration(workers, engine=Dask(workers=2))
    for number in range(2):
        reference = stored(Path(alone.files[number]))
        assert len(reference) > 12
        for other in (shards, workers):
            found = stored(Path(other.files[number]))
            assert {k: v for k, v in found.items() if k != "zarr.json"} == {
                k: v for k, v in reference.items() if k != "zarr.json"
            }  # the group says the image's name
    assert verify(workers) == []


def test_every_output_is_what_its_name_says(model: Path, source: Path, tmp_path: Path) -> None:
    chosen = Settings(4, 2, quantiles=(0.25,), keep_samples=True, threads=1)
    planned = plan_restoration(model, source, tmp_path / "out.ome.tif", chosen)
    files = run_restoration(planned)
    names = ["out.ome.tif", "out_std.ome.tif", "out_q25.ome.tif", *(f"out_sample{i:03}.ome.tif" for i in range(4))]
    assert [Path(file).name for file in files] == names
    mean, std, quantile, *samples = (open_image(file).read({}) for file in files)
    np.testing.assert_allclose(mean, np.mean(samples, 0), rtol=1e-5)
    np.testing.assert_allclose(std, np.std(samples, 0, ddof=1), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(quantile, np.sort(samples, 0)[:2].mean(0) * 0 + _quarter(samples), rtol=1e-5)
    image = open_image(files[0])
    assert image.pixel_size["Y"].to("micrometer") == pytest.approx(0.1)
    assert image.metadata["model_sha256"] == load(model).sha256
    assert not planned.journal.exists()


def _quarter(samples: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Position q (N + 1) = 1.25 among four sorted samples."""
    ordered = np.sort(samples, 0)
    return np.asarray(ordered[0] + 0.25 * (ordered[1] - ordered[0]))


def test_channels_frames_and_volumes_find_their_places(tmp_path: Path) -> None:
    model = write_model(tmp_path / "two.safetensors", channels=2)
    pixels = noise(3, 2, 2, 40, 36)  # T Z C Y X, which is not the output's order
    write_image(tmp_path / "in.npy", pixels, axes="TZCYX")
    planned = plan_restoration(
        model, tmp_path / "in.npy", tmp_path / "out.zarr", Settings(2, 2, axes="TZCYX", threads=1)
    )
    run_restoration(planned)
    assert open_image(planned.files[0]).axes == "TZYX"
    for t, z in ((0, 1), (2, 0)):
        alone = restore(pixels[t, z], load(model), num_samples=2, num_steps=2, image=2 * t + z)
        np.testing.assert_allclose(read(planned)[t, z], alone.mean[0], rtol=1e-5)


def test_the_pyramid_halves_what_was_restored(model: Path, tmp_path: Path) -> None:
    write_image(tmp_path / "in.tif", noise(600, 520), axes="YX")
    chosen = Settings(2, 1, chunk=512, halo=32, threads=1)
    planned = plan_restoration(model, tmp_path / "in.tif", tmp_path / "out.zarr", chosen)
    run_restoration(planned)
    import zarr

    group = zarr.open_group(planned.files[0], mode="r")
    fine, coarse = (np.asarray(group[name]) for name in "01")
    assert coarse.shape == (300, 260)
    np.testing.assert_allclose(coarse, fine.reshape(300, 2, 260, 2).mean((1, 3)), rtol=1e-5)


def test_a_killed_restoration_goes_on_to_the_same_bytes(model: Path, source: Path, tmp_path: Path) -> None:
    smooth = plan_restoration(model, source, tmp_path / "smooth" / "out.zarr", SMALL)
    Path(smooth.files[0]).parent.mkdir()
    run_restoration(smooth)
    place = tmp_path / "killed" / "out.zarr"
    place.parent.mkdir()
    random, kills = np.random.default_rng(0), 0
    for _ in range(40):
        process = start_function(restore_small, model, source, place, errors=tmp_path / "stderr.txt")
        journal = place.with_name("out.zarr.journal")
        deadline, before = time.monotonic() + 60, _records(journal)
        while process.is_alive() and _records(journal) < before + 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(float(random.random()) * 0.02)
        if not process.is_alive():
            assert process.exitcode == 0, (tmp_path / "stderr.txt").read_text()
            break
        process.kill()
        process.join()
        kills += 1
        recorded = [number for number, _ in Journal(journal, smooth.job.plan.num_tasks).checksums()]
        planned = plan_restoration(model, source, place, SMALL)
        assert verify(planned) == []  # nothing is recorded that is not there
        assert len(recorded) >= before
    else:
        pytest.fail("it did not end")
    assert kills >= 3
    for number in range(2):
        found = stored(place.with_name(Path(smooth.files[number]).name))
        unfinished = [name for name in found if name.endswith(".unfinished")]
        assert {k: v for k, v in found.items() if k not in unfinished} == stored(Path(smooth.files[number]))


def _records(journal: Path) -> int:
    return sum(path.stat().st_size // 16 for path in journal.glob("*.records")) if journal.exists() else 0


def test_a_record_that_was_cut_short_is_no_record(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 10)
    with journal.writer() as writer:
        writer.record(3, 1)
        writer.record(4, 2)
    path = tmp_path / "main.records"
    whole = path.read_bytes()
    for length in range(17, 32):
        path.write_bytes(whole[:length])
        assert np.flatnonzero(journal.done()).tolist() == [3]
    with journal.writer() as writer:
        writer.record(5, 9)
    assert list(journal.checksums()) == [(3, {1}), (5, {9})]
    path.write_bytes(bytes(16) + whole)
    with pytest.raises(RunError, match="damaged at record 0"):
        journal.done()


def test_two_processes_cannot_write_one_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 10)
    with journal.writer(), pytest.raises(RunError, match="in use by another process"), journal.writer():
        pass


def test_file_systems_without_locks_do_not_stop_a_restoration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(code: int) -> None:
        raise OSError(code, "refused")

    for code in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
        monkeypatch.setattr(fcntl, "flock", lambda *_, code=code: refuse(code))
        with Journal(tmp_path, 10).writer() as writer:
            writer.record(1, 5)
    monkeypatch.setattr(fcntl, "flock", lambda *_: refuse(errno.EIO))
    with pytest.raises(OSError, match="refused"), Journal(tmp_path, 10).writer():
        pass


def test_verify_finds_a_changed_chunk(model: Path, source: Path, tmp_path: Path) -> None:
    planned = plan_restoration(model, source, tmp_path / "out.zarr", SMALL)
    run_restoration(planned)
    assert verify(planned) == []
    chunk = Path(planned.files[0]) / "0" / "c" / "1" / "0"
    whole = chunk.read_bytes()
    chunk.write_bytes((chunk.parent / "1").read_bytes())
    assert verify(planned) == [planned.job.plan.stages[0].start + 3]
    assert verify(planned) == []  # it counts as missing now
    run_restoration(planned)
    assert chunk.read_bytes() == whole
    chunk.unlink()
    assert len(verify(planned)) == 1
    run_restoration(planned)
    assert chunk.read_bytes() == whole
    assert verify(planned) == []


def test_verify_takes_back_what_two_shards_have_done(model: Path, source: Path, tmp_path: Path) -> None:
    """Of two records neither is the later, and a task counts until both are taken back."""
    planned = plan_restoration(model, source, tmp_path / "out.zarr", SMALL)
    run_restoration(planned)
    journal, number = Journal(planned.journal, planned.job.plan.num_tasks), planned.job.plan.stages[0].start
    with journal.writer("shard-0-of-2") as writer:
        writer.record(number, 12345)  # of a chunk that was replaced since
    assert verify(planned) == []
    chunk = Path(planned.files[0]) / "0" / "c" / "0" / "0"
    whole = chunk.read_bytes()
    chunk.unlink()
    assert verify(planned) == [number]
    assert verify(planned) == []
    run_restoration(planned)
    assert chunk.read_bytes() == whole
    assert verify(planned) == []


def test_nan_regions_fail_alone_and_are_listed(model: Path, tmp_path: Path) -> None:
    pixels = noise(64, 64)
    pixels[0, 0] = np.nan
    write_image(tmp_path / "in.tif", pixels, axes="YX")
    chosen = Settings(2, 2, chunk=32, halo=0, threads=1)
    planned = plan_restoration(model, tmp_path / "in.tif", tmp_path / "out.zarr", chosen)
    with pytest.raises(RunError, match=r"1 chunks could not be restored(.|\n)*chunk at \(0, 0\): .*NaN"):
        run_restoration(planned)
    assert Journal(planned.journal, planned.job.plan.num_tasks).done().sum() == 3
    pixels[0, 0] = 0
    write_image(tmp_path / "in.tif", pixels, axes="YX", overwrite=True)
    again = plan_restoration(model, tmp_path / "in.tif", tmp_path / "out.zarr", chosen)
    with pytest.raises(RunError, match="not the input that"):  # what is done was restored from another image
        run_restoration(again)
    for place in (*map(Path, again.files), again.journal):
        shutil.rmtree(place)
    assert run_restoration(again)


BAD: dict[str, tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = {
    "channels": ({"channels": 2}, {}, ImageError, "this model takes 2"),
    "one sample": ({}, {"num_samples": 1}, ImageError, "at least 2"),
    "quantile": ({}, {"quantiles": (1.5,)}, ImageError, "between 0 and 1"),
    "chunk": ({}, {"chunk": 30}, ValueError, "multiple of 4"),
    "volume": ({"ndim": 3}, {}, ValueError, "needs ZYX"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_said_before_anything_is_written(case: str, source: Path, tmp_path: Path) -> None:
    make, chosen, error, message = BAD[case]
    path = write_model(tmp_path / "model.safetensors", **make)
    with pytest.raises(error, match=message):
        plan_restoration(path, source, tmp_path / "out.zarr", Settings(**chosen))
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_outputs_are_never_overwritten(model: Path, source: Path, tmp_path: Path) -> None:
    (tmp_path / "out.zarr").mkdir()
    (tmp_path / "out.zarr" / "mine.txt").write_text("keep")
    with pytest.raises(ImageError, match="exists already"):
        run_restoration(plan_restoration(model, source, tmp_path / "out.zarr", SMALL))
    assert stored(tmp_path / "out.zarr") == {"mine.txt": b"keep"}
    with pytest.raises(ImageError, match="rename it"):
        plan_restoration(model, source, tmp_path / "out.jpeg", SMALL)


def test_another_job_is_refused_with_what_differs(model: Path, source: Path, tmp_path: Path) -> None:
    run_restoration(plan_restoration(model, source, tmp_path / "out.zarr", SMALL), shard=(0, 4))
    other = Settings(2, 3, seed=5, chunk=32, halo=32, batch=2, threads=1)
    with pytest.raises(RunError, match="seed is 5, was 0"):
        run_restoration(plan_restoration(model, source, tmp_path / "out.zarr", other))


def test_a_worker_refuses_a_model_that_changed(source: Path, tmp_path: Path) -> None:
    """The process that planned has the model; a worker reads the file."""
    path = write_model(tmp_path / "model.safetensors")
    planned = plan_restoration(path, source, tmp_path / "out.zarr", SMALL)
    write_model(path, norm="instance")
    with warm_workers(), pytest.raises(RunError, match="the job was planned with"):
        run_restoration(planned, engine=Dask(1))
    assert issubclass(ModelFileError, ValueError)


def test_out_of_memory_halves_the_batch_and_says_so(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allocator's refusal is planted: to exhaust a machine's memory in a test would end other processes."""
    real = Restorer.draws

    def refusing(self: Restorer, *args: Any, batch: int, **kwargs: Any) -> Iterator[torch.Tensor]:
        if batch > 1:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ...")
        return real(self, *args, batch=batch, **kwargs)

    smooth = plan_restoration(model, source, tmp_path / "smooth.zarr", SMALL)
    run_restoration(smooth)
    monkeypatch.setattr(Restorer, "draws", refusing)
    planned = plan_restoration(model, source, tmp_path / "out.zarr", SMALL)
    run_restoration(planned)
    np.testing.assert_allclose(read(planned), read(smooth), rtol=1e-4)
    assert "1 at a time" in (planned.journal / "notes.txt").read_text()
    run_restoration(planned)  # a note does not make it another image
    file = tmp_path / "out.tif"
    run_restoration(plan_restoration(model, source, file, SMALL))
    for image in (open_image(planned.files[1]), open_image(file)):
        assert "memory ran out" in str(image.metadata)
    assert "memory ran out" not in str(open_image(smooth.files[0]).metadata)


def test_a_cluster_of_our_own_listens_on_loopback_only() -> None:
    engine = Dask(workers=1)
    with engine._client() as client:
        numbers = {os.getpid(), *client.run(os.getpid).values()}
        assert len(numbers) == 2
        listening = {address for number in numbers for address in _listening(number)}
    assert listening
    assert {address.split(":")[0] for address in listening} == {"127.0.0.1"}


def test_workers_that_join_later_get_work_too(model: Path, tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    write_image(tmp_path / "in.tif", noise(128, 128), axes="YX")
    chosen = Settings(2, 2, chunk=32, halo=0, threads=1)
    planned = plan_restoration(model, tmp_path / "in.tif", tmp_path / "out.zarr", chosen)
    numbers = list(planned.job.plan.stages[0])
    assert len(numbers) == 16
    run._create_outputs(planned)
    with LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
        outcomes = Dask(scheduler=cluster.scheduler_address).run(planned.job, numbers)
        done = [next(outcomes)]
        assert len(cluster.scheduler.tasks) <= 2
        cluster.scale(3)
        with Client(cluster) as client:
            client.wait_for_workers(3, timeout=60)
        done += [next(outcomes), next(outcomes)]  # the second was ready before the others joined
        assert len(cluster.scheduler.tasks) >= 4
        done += outcomes
    assert all(outcome.error is None for outcome in done)
    assert sorted(outcome.number for outcome in done) == numbers


def _listening(process: int) -> set[str]:
    """Addresses of the TCP sockets that a process listens on, from the kernel's tables."""
    inodes = set()
    for link in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # of a file that was closed meanwhile
            target = str(link.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].split(":")
                quad = (
                    ".".join(str(int(address[i : i + 2], 16)) for i in (6, 4, 2, 0)) if len(address) == 8 else address
                )
                found.add(f"{quad}:{int(port, 16)}")
    return found


def test_tasks_leave_torch_as_they_found_it(model: Path, source: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    run_restoration(plan_restoration(model, source, tmp_path / "out.zarr", SMALL))
    assert torch.get_num_threads() == before


def test_the_command_forecasts_previews_restores_and_verifies(model: Path, source: Path, tmp_path: Path) -> None:
    output, picture = tmp_path / "out.zarr", tmp_path / "picture.png"
    command = ["restore", str(model), str(source), str(output), "--samples", "3", "--steps", "2", "--chunk", "64"]
    told = CliRunner().invoke(app, [*command, "--dry-run"])
    assert told.exit_code == 0, told.output
    assert "chunks: 4" in told.output
    assert "network calls: 8" in told.output
    assert "on 64" in told.output
    assert CliRunner().invoke(app, [*command, "--preview", str(picture)]).exit_code == 0
    assert open_image(picture).shape[0] >= 100
    assert not output.exists()
    done = CliRunner().invoke(app, [*command, "--picture", str(tmp_path / "whole.png")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "whole.png").exists()
    assert CliRunner().invoke(app, [*command, "--verify"]).exit_code == 0
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 0  # nothing is left to do
    (output / "0" / "c" / "0" / "0").unlink()
    lost = CliRunner().invoke(app, [*command, "--verify"])
    assert lost.exit_code == 1
    assert "(0, 0)" in lost.output
    assert CliRunner().invoke(app, command).exit_code == 0
    assert CliRunner().invoke(app, [*command, "--verify"]).exit_code == 0


WRONG_OPTIONS = {
    "--workers is 0": ["--workers", "0"],
    "both given": ["--workers", "1", "--scheduler", "tcp://127.0.0.1:1"],
    "expected i/n": ["--shard", "4/4"],
    "no cluster with workers answers": ["--scheduler", "tcp://127.0.0.1:1"],
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("message", WRONG_OPTIONS)
def test_options_that_cannot_be_met_are_explained(message: str, model: Path, source: Path, tmp_path: Path) -> None:
    command = ["restore", str(model), str(source), str(tmp_path / "out.zarr"), *WRONG_OPTIONS[message]]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert message in done.output


def test_a_restoration_on_an_object_store_has_the_bytes_of_one_on_disk(
    model: Path, source: Path, tmp_path: Path, server: str, bucket: str
) -> None:
    local = plan_restoration(model, source, tmp_path / "out.zarr", SMALL)
    run_restoration(local)
    remote = plan_restoration(model, source, f"s3://{bucket}/out.zarr", SMALL, journal=tmp_path / "remote.journal")
    run_restoration(remote)
    assert verify(remote) == []
    for one, other in zip(local.files, remote.files, strict=True):
        assert objects(server, other.removeprefix("s3://")) == stored(Path(one))


def test_a_folder_is_restored_under_the_same_names(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model.safetensors", scale=10.0)
    (tmp_path / "in").mkdir()
    for number, name in enumerate(("a.tif", "b.npy", "c.png")):
        pixels = noise(24, 20 + number)
        write_image(tmp_path / "in" / name, pixels.astype(np.uint8) if name == "c.png" else pixels, axes="YX")
    (tmp_path / "in" / "notes.txt").write_text("not an image")
    command = ["restore", str(model), str(tmp_path / "in"), str(tmp_path / "out"), "--samples", "2", "--steps", "2"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    names = ["a.tif", "a_std.tif", "b.npy", "b_std.npy", "c.png", "c_std.tif"]
    sidecars = ["b.npy.sfumato.json", "b_std.npy.sfumato.json"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names + sidecars)
    second = restore(np.load(tmp_path / "in" / "b.npy"), load(model), num_samples=2, num_steps=2, image=1)
    np.testing.assert_allclose(np.load(tmp_path / "out" / "b.npy"), second.mean, rtol=1e-5)
    kept = [open_image(tmp_path / "out" / name).read() for name in names]
    for file in ("a.tif", "a_std.tif"):
        (tmp_path / "out" / file).unlink()
    assert CliRunner().invoke(app, command).exit_code == 0
    for name, pixels in zip(names, kept, strict=True):
        np.testing.assert_array_equal(open_image(tmp_path / "out" / name).read(), pixels)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "notes.txt").write_text("not an image")
    empty = CliRunner().invoke(app, [*command[:2], str(tmp_path / "texts"), *command[3:]])
    assert empty.exit_code == 2
    assert "holds no image" in empty.output
    picture = CliRunner().invoke(app, [*command, "--verify"])
    assert picture.exit_code == 2
    assert "name that image" in picture.output
    itself = CliRunner().invoke(app, [*command[:3], command[2], *command[4:]])
    assert itself.exit_code == 2
    assert "is the folder of the inputs" in itself.output
    for changed, told in [
        (["--seed", "1"], "a.tif was restored differently: seed 0, now 1"),
        (["--steps", "3"], "steps 2, now 3"),
        (["--quantile", "0.5"], "without a_q"),
    ]:
        otherwise = CliRunner().invoke(app, [*command, *changed])
        assert otherwise.exit_code == 2
        assert told in otherwise.output.replace("\n", " ")
    write_model(model, scale=11.0)
    other = CliRunner().invoke(app, command)
    assert other.exit_code == 2
    assert "a.tif was restored by another model" in other.output


def test_a_folder_of_pictures_becomes_tiff_where_a_picture_could_not_hold_the_values(
    model: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.png", "b.jpg"):
        PillowImage.fromarray((10 * noise(24, 20)).clip(0, 255).astype(np.uint8)).save(tmp_path / "in" / name)
    files = restore_folder(model, tmp_path / "in", tmp_path / "out", SMALL)  # its targets span six grey levels
    assert [Path(file).name for file in files] == ["a.tif", "b.tif"]
    with pytest.raises(ImageError, match=r"whole numbers from 0 on, .*about 7 to 13; .*write \.tif"):
        restore_folder(model, tmp_path / "in", tmp_path / "png", SMALL, suffix=".png")
    assert not (tmp_path / "png").exists()


@pytest.mark.parametrize(
    ("measured", "scale", "dtype"),
    [
        ("uint8", 3, None),
        ("uint8", 100, None),
        ("uint8", 10, "uint8"),
        ("float32", 10, "uint16"),
        ("int16", 9, "uint16"),
    ],
)
def test_a_png_has_the_pixels_that_hold_what_is_restored(
    measured: str, scale: float, dtype: str | None, tmp_path: Path
) -> None:
    loaded = load(write_model(tmp_path / "model.safetensors", scale=scale))  # values from 10 - scale to 10 + scale
    assert png_dtype(loaded, np.dtype(measured)) == (dtype and np.dtype(dtype))


def test_sixteen_bits_are_taken_where_eight_are_too_few(tmp_path: Path) -> None:
    loaded = load(write_model(tmp_path / "model.safetensors"))
    for offset, dtype in ((500.0, "uint16"), (1e6, None)):
        info = dataclasses.replace(loaded.info, target=Normalization((offset,), (offset,)))
        assert png_dtype(dataclasses.replace(loaded, info=info), np.dtype("uint8")) == (dtype and np.dtype(dtype))


@pytest.mark.parametrize(
    ("axes", "shape", "name", "words"),
    [("TYX", (3, 24, 20), "out.png", "expected YXC"), ("TYX", (3, 24, 20), "out.mrc", "expected ZYX")],
)
def test_a_format_that_cannot_hold_the_image_is_refused_before_sampling(
    axes: str, shape: tuple[int, ...], name: str, words: str, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "model.safetensors", scale=10.0)
    write_image(tmp_path / "in.tif", noise(*shape), axes=axes)
    with pytest.raises(ImageError, match=f"{words}.*write .tif"):
        plan_restoration(model, tmp_path / "in.tif", tmp_path / name, SMALL)


@pytest.mark.parametrize(
    "said", [{"eta": 0.5}, {"solver": "first_order"}, {"last_noise": 0.01}, {"grid": "uniform"}], ids=str
)
def test_a_model_is_sampled_as_its_recipe_says(model: Path, said: dict[str, Any]) -> None:
    loaded = load(model)
    recipe = loaded.info.recipe
    recipe = recipe.model_copy(update={"sample": recipe.sample.model_copy(update=said)})
    changed = dataclasses.replace(loaded, info=dataclasses.replace(loaded.info, recipe=recipe))
    condition = condition_of(noise(24, 16), loaded).condition()
    expected = sample(loaded.model, condition, num_samples=2, num_steps=3, seed=1, **said)[:, 0]
    (found,), (plain,) = (Restorer.of(each, 2, 3).draws(condition, NoiseField(1)) for each in (changed, loaded))
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, plain)


def test_a_source_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    """The range of an image is measured once per restoration, not once per process."""
    model = write_model(tmp_path / "model.safetensors", normalize="image")
    results = []
    for factor in (1, 50, 1):
        np.save(tmp_path / "in.npy", factor * noise(40, 40))
        planned = plan_restoration(model, tmp_path / "in.npy", tmp_path / "out.npy", SMALL)
        run_restoration(planned)
        results.append(read(planned))
        for file in planned.files:
            Path(file).unlink()
    np.testing.assert_allclose(results[1], results[0], rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(results[2], results[0])


def test_what_remains_of_a_removed_journal_does_not_stop_a_folder(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server keeps files that somebody has open, so that folders of them cannot be removed or renamed."""
    (tmp_path / "in").mkdir()
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / "in" / name, noise(24, 20))

    rename, remove = Path.rename, shutil.rmtree

    def rename_files(path: Path, target: Path) -> Path:
        if path.suffix == ".journal":
            raise OSError(errno.EBUSY, "Device or resource busy")
        return rename(path, target)

    def remove_in_part(folder: Path, **options: Any) -> None:
        remove(folder / "mean.zarr" if folder.name == "parts" else folder, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename_files)
        patched.setattr(shutil, "rmtree", remove_in_part)
        restore_folder(model, tmp_path / "in", tmp_path / "out", SMALL)
    restored = np.load(tmp_path / "out" / "b.npy")
    assert (tmp_path / "out" / "a.npy.journal").exists()
    (tmp_path / "out" / "b.npy").unlink()
    (tmp_path / "out" / "b_std.npy").unlink()
    assert len(restore_folder(model, tmp_path / "in", tmp_path / "out", SMALL)) == 2
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "b.npy"), restored)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not list open files there")
def test_nobody_has_the_journal_open_when_it_is_removed(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows, and file servers, refuse to remove what is open."""
    open_files: list[str] = []

    def look(_: Path) -> None:
        open_files.extend(str(link.readlink()) for link in [*Path("/proc/self/fd").iterdir()] if link.is_symlink())

    monkeypatch.setattr(run, "discard", look)
    run_restoration(plan_restoration(model, source, tmp_path / "out.npy", SMALL))
    assert open_files
    assert not [name for name in open_files if name.endswith(".records")]


def test_fixed_statistics_are_group_normalisation_on_what_they_were_taken_from() -> None:
    network = seeded(lambda: UNet(1, 1, base=4, num_scales=2, norm="instance"))
    images = torch.randn(3, 1, 16, 20, generator=torch.Generator().manual_seed(0))
    statistics = Statistics(network)
    with torch.no_grad():
        with statistics.recording():
            plain = network(images)
        with statistics.applied():
            torch.testing.assert_close(network(images), plain, rtol=1e-4, atol=1e-5)
        with statistics.applied():
            assert not torch.allclose(network(3 * images), plain)  # which plain normalisation would forget
        torch.testing.assert_close(network(images), plain)
        with statistics.recording():
            both = [network(images), network(2 * images + 1)]
        with statistics.applied():  # each call by what was seen in it
            for expected, given in zip(both, (images, 2 * images + 1), strict=True):
                torch.testing.assert_close(network(given), expected, rtol=1e-4, atol=1e-5)


def test_chunks_of_an_instance_normalised_network_meet_without_seams(source: Path, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.safetensors", norm="instance")
    images = []
    for name, chunk in {"a": 32, "b": 64}.items():
        chosen = Settings(2, 3, chunk=chunk, halo=64 - chunk // 2, batch=2, threads=1)  # the same reference region
        planned = plan_restoration(path, source, tmp_path / f"{name}.zarr", chosen)
        run_restoration(planned)
        images.append(read(planned))
    assert np.abs(images[0] - images[1]).max() < 1e-3 * np.ptp(images[0])


def test_a_journal_that_cannot_grow_is_explained(tmp_path: Path) -> None:
    """A limit on the size of files, in a process of its own, stands for a full disk."""
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from sfumato.restoration.journal import Journal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (24, 24))\n"
        "with Journal(Path(sys.argv[1]), 10).writer() as writer:\n"
        "    writer.record(1, 5)\n"
        "    try: writer.record(2, 6)\n"
        "    except ValueError as error: print(type(error).__name__, error)\n"
    )
    told = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr  # closing the file does not try again
    assert "RunError cannot write to the journal" in told.stdout, told.stderr
    assert "raise the limit" in told.stdout
    assert np.flatnonzero(Journal(tmp_path, 10).done()).tolist() == [1]


def test_progress_is_told_within_a_chunk(model: Path, source: Path, tmp_path: Path) -> None:
    """An image of one chunk can take many minutes: every network call counts, here 3 of 1 or 2 draws per chunk."""
    three = dataclasses.replace(SMALL, num_samples=3)
    planned = plan_restoration(model, source, tmp_path / "out.tif", three)
    seen: list[Progress] = []
    run_restoration(planned, progress=seen.append)
    total = [now.done + now.share for now in seen]
    assert total == sorted(total)
    chunks = planned.job.plan.stages[0].stop
    steps = [2 / 9, 4 / 9, 6 / 9, 7 / 9, 8 / 9]  # the last call is told as a chunk that is done
    of_chunks = [now.share for now in seen if now.done < chunks]
    np.testing.assert_allclose(of_chunks, [*steps, *([0.0, *steps] * (chunks - 1))])
    assert seen[-1].done == seen[-1].total
    assert seen[-1].share == 0


@pytest.mark.parametrize("is_folder", [False, True])
def test_lines_tell_of_one_chunk_on_its_way(
    is_folder: bool, model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfumato.system.progress._SECONDS_BETWEEN_LINES", 0.0)
    measured, output = (source.parent, tmp_path / "out") if is_folder else (source, tmp_path / "out.tif")
    options = ["--samples", "2", "--steps", "4", "--batch", "1"]
    done = CliRunner().invoke(app, ["restore", str(model), str(measured), str(output), *options])
    assert done.exit_code == 0
    assert re.search(r"restoring 0\.25/1 .* min left", done.stderr)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="tmpfs is Linux's")
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_disk_that_gives_out_half_way_is_told_and_what_was_done_is_kept(
    trouble: str, model: Path, source: Path, tmp_path: Path, small_disk: Path
) -> None:
    smooth = plan_restoration(model, source, tmp_path / "out.zarr", SMALL)
    run_restoration(smooth)
    planned = plan_restoration(model, source, small_disk / "out.zarr", SMALL, journal=tmp_path / "journal")

    def spoil(now: Progress) -> None:
        if now.done != 3 or now.share:
            return
        if trouble == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        if trouble == "full":
            free = shutil.disk_usage(small_disk).free
            (small_disk / "filler").write_bytes(bytes(free))

    with pytest.raises(RunError, match=r"1 chunks could not be restored(.|\n)*rerun the same command"):
        run_restoration(planned, progress=spoil)
    assert Journal(planned.journal, planned.job.plan.num_tasks).done().sum() == 3
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert verify(planned) == []
    (small_disk / "filler").unlink(missing_ok=True)
    run_restoration(planned)
    for one, other in zip(smooth.files, planned.files, strict=True):
        assert stored(Path(other)) == stored(Path(one))
