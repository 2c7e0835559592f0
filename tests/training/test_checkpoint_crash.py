"""Saving that is interrupted: by a full disk, by Ctrl-C, by kill -9. What was saved before is always whole."""

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import Adam

from fuzz_model_files import small_model
from sfumato.models import safetensors_file
from sfumato.models.model_file import inspect_model, load, save_model
from sfumato.system.errors import RunError
from sfumato.training.checkpoint import TrainingState, load_state, optimizer_tensors, save_state


def network(value: float) -> tuple[nn.Linear, Adam]:
    model = nn.Linear(200, 100)
    nn.init.constant_(model.weight, value)
    return model, Adam(model.parameters())


def save(folder: Path, step: int, keep: int = 2) -> Path:
    """A state of 400 kB, all of whose weights are the step."""
    model, optimizer = network(step)
    weights = dict(model.state_dict())
    state = TrainingState(step, None, weights, weights, optimizer_tensors(optimizer, model))
    return save_state(folder, state, recipe_text="", keep=keep)


def saved(folder: Path) -> int:
    """The step of the newest state, which must be whole."""
    state = load_state(folder, *network(0))
    assert state is not None
    assert (state.model["weight"] == state.step).all()
    assert torch.equal(state.model["weight"], state.ema["weight"])
    return state.step


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """No file may grow beyond a size, as on a full disk; the limit is lifted afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 100, 5_000, 300_000])
def test_a_disk_that_fills_up(room: int, tmp_path: Path) -> None:
    for step in (1, 2):
        size = save(tmp_path, step).stat().st_size
    before = {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}
    with largest_file(room), pytest.raises(RunError) as caught:
        save(tmp_path, 3)
    text = str(caught.value)
    assert f"cannot write {tmp_path / 'step-00000003.safetensors'}: File too large" in text
    assert f"needs {size} bytes and the disk has " in text
    assert "The previous checkpoint, step-00000002.safetensors, is intact" in text
    assert "ulimit -f" in text
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == before
    assert saved(tmp_path) == 2
    save(tmp_path, 3)
    assert saved(tmp_path) == 3


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "No space left on device; .* free some space or raise the quota"),
        (errno.EDQUOT, "quota exceeded; .* free some space or raise the quota"),
        (errno.EROFS, "Read-only file system; .* choose a folder"),
    ],
)
def test_a_disk_that_says_so_only_when_flushed(
    number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(RunError, match=f"{words}") as caught:
            save(tmp_path, 1)
    assert "Nothing was saved before" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"No such file or directory; .*choose a folder that exists"):
        save(tmp_path / "nowhere", 1)
    (tmp_path / "step-00000001.safetensors").mkdir()
    with pytest.raises(RunError, match="Is a directory"):
        save(tmp_path, 1)
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-00000001.safetensors"]


def test_a_full_disk_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    small_model(tmp_path)
    path = tmp_path / "model.safetensors"
    before, loaded = path.read_bytes(), load(path)
    with (
        largest_file(2000),
        pytest.raises(RunError, match=r"The model\.safetensors that was there is intact; raise the"),
    ):
        save_model(path, loaded.model.state_dict(), loaded.info)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]
    with largest_file(2000), pytest.raises(RunError, match="Nothing else was changed"):
        save_model(tmp_path / "other.safetensors", loaded.model.state_dict(), loaded.info)


@pytest.mark.parametrize("moment", ["_write", "checksum"])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_interrupt_leaves_no_part_of_a_file(
    moment: str, stop: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    calls = []

    def interrupt(*_: object) -> None:
        calls.append(moment)
        if moment == "checksum" or len(calls) == 3:
            raise stop

    with monkeypatch.context() as patch:
        patch.setattr(safetensors_file, moment, interrupt)
        with pytest.raises(stop):
            save(tmp_path, 2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-00000001.safetensors"]


def test_durable_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is flushed, then renamed, then the folder flushed, and only then are old states removed."""
    for step in (1, 2):
        save(tmp_path, step)
    events: list[str] = []
    fsync, replace, unlink = os.fsync, Path.replace, Path.unlink

    def spy_fsync(handle: int) -> None:
        events.append("flush folder" if os.path.isdir(f"/dev/fd/{handle}") else "flush file")  # noqa: PTH112
        fsync(handle)

    def spy_replace(path: Path, target: Path) -> Path:
        events.append(f"rename to {target.name}")
        return replace(path, target)

    def spy_unlink(path: Path, missing_ok: bool = False) -> None:
        events.append(f"remove {path.name}")
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", spy_fsync)
        patch.setattr(Path, "replace", spy_replace)
        patch.setattr(Path, "unlink", spy_unlink)
        save(tmp_path, 3)
    named = "rename to step-00000003.safetensors"
    assert events == ["flush file", named, "flush folder", "remove step-00000001.safetensors"]


def test_leftovers_of_dead_processes_are_removed_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    dead = tmp_path / f"step-00000001.safetensors.tmp-{child.pid}"
    own = tmp_path / f"step-00000002.safetensors.tmp-{os.getpid()}"
    living = tmp_path / f"step-00000001.safetensors.tmp-{os.getppid()}"
    others = [tmp_path / "x.safetensors.tmp-notes", tmp_path / f"x.png.tmp-{child.pid}"]
    for path in (dead, own, living, *others):
        path.touch()
    save(tmp_path, 3)
    assert not dead.exists()
    assert not own.exists()
    assert all(path.exists() for path in (living, *others))


KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
import torch
sys.path.insert(0, sys.argv[2])
from test_checkpoint_crash import save, saved

torch.set_num_threads(1)
folder, draw, found = Path(sys.argv[1]), random.Random(0), []
save(folder, 1)
for round in range(200):
    if round >= 15 and sum(cut for *_, cut in found) >= 3:  # a busy machine hits a file being written seldom
        break
    first = saved(folder)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        for step in range(first + 1, first + 10_000):
            save(folder, step)
            os.write(writer, b".")
    os.close(writer)
    os.read(reader, 1)  # it has begun
    time.sleep(draw.random() * 0.03)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    done = first + 1
    while part := os.read(reader, 4096):
        done += len(part)
    os.close(reader)
    states = sorted(path.name for path in folder.glob("step-*.safetensors"))
    cut = len(list(folder.glob("*.tmp-*")))
    found.append([done, saved(folder), len(states), cut])
save(folder, 10**6)
print(json.dumps([found, sorted(path.name for path in folder.iterdir())]))
"""


def test_kill_at_any_instant(tmp_path: Path) -> None:
    """Whatever a killed process was doing, every state it said was saved is there, or a newer one, and it is whole."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parent)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    rounds, names = json.loads(result.stdout)
    for done, newest, number, _ in rounds:
        assert newest in (done, done + 1)
        assert number in (2, 3), "at most one more than is kept, if the old one was not yet removed"
    assert sum(cut for *_, cut in rounds) >= 3, "the kills did not hit a file being written"
    assert names[-1] == "step-01000000.safetensors"
    assert len(names) == 2, "leftovers are gone after the next save"


def test_inspecting_is_not_disturbed_by_leftovers(tmp_path: Path) -> None:
    content = small_model(tmp_path)
    (tmp_path / "model.safetensors.tmp-1").write_bytes(content[:100])
    assert inspect_model(tmp_path / "model.safetensors").condition_channels == 1
