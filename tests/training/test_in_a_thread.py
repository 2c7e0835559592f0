"""Training in a thread, for programs that have no terminal: what it tells, and how it is stopped."""

import threading
from pathlib import Path

import pytest

from pair_folders import make_pairs
from sfumato.training.run_folder import RunFolder
from sfumato.training.train import train
from small_runs import recipe, same_run


def test_a_run_that_a_program_stops_ends_like_one_that_was_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = recipe(make_pairs(tmp_path), train_steps=6, train_save_every=100, train_validate_every=2)
    told: list[str] = []
    stopped: list[str] = []
    folder = RunFolder(tmp_path / "stopped")

    def run() -> None:
        try:
            train(small, folder.path, device="cpu", tell=told.append, is_stopped=lambda: any(folder.metrics()))
        except KeyboardInterrupt as interrupt:
            stopped.append(str(interrupt))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "stopped at step 1" in stopped[0]
    assert any(line.startswith("note: ") for line in told)
    train(small, folder.path, device="cpu", tell=told.append)
    assert told[-1].startswith("validation PSNR")
    assert "training" not in capsys.readouterr().err  # no progress bar
    train(small, tmp_path / "whole", device="cpu", quiet=True)
    same_run(folder.path, tmp_path / "whole")
