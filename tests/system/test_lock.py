"""A folder is one process's: what a lock promises, with real processes."""

import errno
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from sfumato.system import lock
from sfumato.system.errors import RunError
from sfumato.system.lock import held_alone

HOLD = """
import sys
from pathlib import Path
from sfumato.system.lock import held_alone
with held_alone(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    process = holder(tmp_path)
    with pytest.raises(RunError, match=f"in use by another training .process {process.pid} on .*choose another --out"):
        held_alone(tmp_path).__enter__()
    process.kill()
    process.communicate()
    assert (tmp_path / ".lock").exists()
    with held_alone(tmp_path):
        assert (tmp_path / ".lock").exists()
    assert list(tmp_path.iterdir()) == []


def test_one_that_ends_well_leaves_nothing(tmp_path: Path) -> None:
    process = holder(tmp_path)
    process.communicate("")
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening and locking, its last holder may remove the file: a lock on it would keep nobody out."""
    take, taken = lock._lock, list[BinaryIO]()

    def slow(file: BinaryIO) -> None:
        take(file)
        if not taken:
            (tmp_path / ".lock").unlink()
        taken.append(file)

    monkeypatch.setattr(lock, "_lock", slow)
    with held_alone(tmp_path):
        assert len(taken) == 2
        with pytest.raises(RunError, match="in use"):
            held_alone(tmp_path).__enter__()


def test_a_file_system_without_locks_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(file: BinaryIO) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock, "_lock", missing)
    with held_alone(tmp_path):
        assert capsys.readouterr().err.count("note: ") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot write to"):
        held_alone(tmp_path / "nowhere").__enter__()
