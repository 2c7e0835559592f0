"""The small files of a run are written whole or not at all, as its checkpoints are."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from sfumato.data.normalize import Normalization
from sfumato.data.sources import PairSource
from sfumato.models.recipe import Recipe
from sfumato.system.errors import RunError
from sfumato.training.preparation import Prepared
from sfumato.training.run_folder import RunFolder

UNIT = Normalization((0.0,), (1.0,))


def write_statistics(folder: RunFolder, mean: float) -> None:
    source: PairSource = SimpleNamespace()
    Prepared(source, None, UNIT, UNIT, {"mean": mean}).write(folder)


WRITERS: dict[str, tuple[Callable[[RunFolder], None], Callable[[RunFolder], None]]] = {
    "recipe.yaml": (lambda run: run.start(Recipe(name="a")), lambda run: run.start(Recipe(name="b"))),
    "statistics.json": (lambda run: write_statistics(run, 1.0), lambda run: write_statistics(run, 2.0)),
    "metrics.jsonl": (lambda run: run.log(step=5), lambda run: run.rewind(2)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_file_as_it_was(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is found full when the new file is flushed, which has to happen before it takes the old one's place."""
    run = RunFolder(tmp_path / "run")
    run.start(Recipe())
    first, second = WRITERS[name]
    first(run)
    before = {path: path.read_bytes() for path in run.path.iterdir() if path.is_file()}

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=f"cannot write .*{name}.* free some space"):
            second(run)
    assert {path: path.read_bytes() for path in run.path.iterdir() if path.is_file()} == before
    second(run)
    assert (run.path / name).read_bytes() != before[run.path / name]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot write to the run folder .* with --out"):
        RunFolder(tmp_path / "file" / "run").start(Recipe())
