"""Training with batches from workers: the same run to the bit, and no process stays when it is stopped or killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pair_folders import make_pairs
from sfumato.cli import app
from sfumato.data.prefetch import can_start_workers
from sfumato.training.run_folder import RunFolder
from sfumato.training.train import train
from small_runs import command, commanded, same_run

pytestmark = [
    pytest.mark.skipif(not can_start_workers(), reason="workers are forks, on Linux alone"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than cores
]
LONG = ("model.mean_network=false", "train.validate_every=100000", "train.save_every=2", "train.steps=100000")
WORKERS = ("--workers", "2")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_pairs(tmp_path_factory.mktemp("pairs"))


def test_two_workers_give_the_run_of_none(folders: tuple[str, str], tmp_path: Path) -> None:
    """With the default preset, whose stages fit filters in between; resumed with another number, too."""
    asked = commanded(folders, train_steps=10, train_validate_every=5, train_save_every=5)
    alone = train(asked, tmp_path / "alone", quiet=True)
    train(asked, tmp_path / "shared", workers=2, quiet=True)
    same_run(tmp_path / "alone", tmp_path / "shared")
    (alone.checkpoints / "step-00000010.safetensors").unlink()
    train(asked, tmp_path / "alone", workers=1, quiet=True)
    same_run(tmp_path / "alone", tmp_path / "shared")


def test_fewer_workers_than_none_are_refused(folders: tuple[str, str], tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, [*command(folders, tmp_path / "run"), "--workers", "-1"])
    assert ran.exit_code == 2
    assert "workers" in ran.output


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_leaves_a_state(
    signal_number: signal.Signals, folders: tuple[str, str], tmp_path: Path
) -> None:
    """As Ctrl-C and schedulers send it."""
    process, workers = started(folders, tmp_path / "run")
    os.killpg(process.pid, signal_number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "run the same command again to resume" in errors
    assert "Traceback" not in errors
    assert not [pid for pid in workers if is_alive(pid)]
    step = int(errors.partition("stopped at step ")[2].partition(";")[0])
    assert (tmp_path / "run" / "checkpoints" / f"step-{step:08d}.safetensors").exists()


def test_a_killed_run_leaves_no_process_and_ends_the_same(folders: tuple[str, str], tmp_path: Path) -> None:
    process, workers = started(folders, tmp_path / "killed", "train.steps=150")
    process.kill()
    process.wait()  # not for the end of its messages, which workers could still write
    deadline = time.monotonic() + 2  # torch itself would take up to five seconds
    while alive := [pid for pid in workers if is_alive(pid)]:
        assert time.monotonic() < deadline, alive
    process.communicate()
    assert last_step(tmp_path / "killed") < 150
    asked = RunFolder(tmp_path / "killed").recipe()
    assert asked is not None
    train(asked, tmp_path / "killed", workers=2, quiet=True)  # the folder is no longer locked
    train(asked, tmp_path / "smooth", quiet=True)
    same_run(tmp_path / "smooth", tmp_path / "killed")


def started(folders: tuple[str, str], run: Path, *settings: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A training with two workers that has saved a state, and its workers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sfumato", *command(folders, run, *LONG, *settings), *WORKERS],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not last_step(run):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    return process, [int(pid) for pid in children]


def last_step(run: Path) -> int:
    return max((int(file.stem.split("-")[1]) for file in run.glob("checkpoints/step-*.safetensors")), default=0)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
