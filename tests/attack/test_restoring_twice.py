"""Whatever is restored into one place first: a second command gives its own result there, or it is refused."""

import dataclasses
import functools
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from attack.attacking import image, pixels, run, write_model


@dataclass(frozen=True)
class Command:
    """One `sfumato restore`, but for the place of its output."""

    model: int
    content: int
    """Which image is in the input file at that time."""
    seed: int
    steps: int
    extra: tuple[str, ...]
    """Further options."""
    of_folder: bool
    shard: bool
    """Only half of the chunks, as if it had been killed."""

    def words(self, folder: Path, output: Path) -> list[str]:
        """What a user would type."""
        source = folder / "in" if self.of_folder else folder / "in" / "a.tif"
        place = output.parent if self.of_folder else output
        options = [
            "--samples",
            "2",
            "--steps",
            str(self.steps),
            "--seed",
            str(self.seed),
            "--chunk",
            "32",
            "--halo",
            "8",
        ]
        half = ["--shard", "0/2"] if self.shard and not self.of_folder else []
        formats = ["--format", "".join(output.suffixes)] if self.of_folder else []
        model = str(folder / "model.safetensors")
        return ["restore", model, str(source), str(place), *options, *self.extra, *half, *formats]


COMMANDS = st.builds(
    Command,
    model=st.sampled_from([0, 0, 1]),
    content=st.sampled_from([0, 0, 1]),
    seed=st.sampled_from([0, 0, 1]),
    steps=st.sampled_from([2, 2, 3]),
    extra=st.sampled_from(
        [(), (), ("--quantile", "0.05"), ("--keep-samples",), ("--uncertainty", "schedule"), ("--threads", "2")]
    ),
    of_folder=st.booleans(),
    shard=st.booleans(),
)

HALF_DONE = Command(model=0, content=0, seed=0, steps=2, extra=(), of_folder=False, shard=True)
OTHER_INPUT = dataclasses.replace(HALF_DONE, content=1, shard=False)


@pytest.mark.parametrize("suffix", [".tif", ".npy", ".zarr"])
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(first=COMMANDS, second=COMMANDS.map(lambda command: dataclasses.replace(command, shard=False)))
@example(first=HALF_DONE, second=OTHER_INPUT)
def test_restoring_twice_into_one_place_gives_the_second_result_or_a_refusal(
    suffix: str, first: Command, second: Command
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        output = folder / "out" / f"a{suffix}"
        output.parent.mkdir()
        _lay_out(folder, first)
        note(f"first: {run(*first.words(folder, output))}")
        before = _results(output.parent)
        _lay_out(folder, second)
        ran = run(*second.words(folder, output))
        note(f"second: {ran}")
        assert ran.code in (0, 1, 2), ran
        if ran.code:
            assert _same(_results(output.parent), before), "it was refused, and yet something changed"
            return
        now = _results(output.parent)
        for key, expected in _alone(second, suffix).items():
            # Threads are no part of what was asked for, and change the order of sums: intensities near 10 are rounded.
            np.testing.assert_allclose(now[key], expected, rtol=1e-6, atol=1e-5, err_msg=key)


def _lay_out(folder: Path, command: Command) -> None:
    """Model and input are replaced under their names, as users do."""
    shutil.copy(_model(command.model), folder / "model.safetensors")
    image(folder / "in" / "a.tif", seed=command.content, shape=(40, 48))


@functools.lru_cache
def _model(number: int) -> Path:
    return write_model(Path(tempfile.mkdtemp()) / "model.safetensors", seed=number)


@functools.lru_cache
def _alone(command: Command, suffix: str) -> dict[str, np.ndarray]:
    """What the command gives in an empty place."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        output = folder / "out" / f"a{suffix}"
        output.parent.mkdir()
        _lay_out(folder, command)
        assert run(*command.words(folder, output)).code == 0
        return _results(output.parent)


def _results(folder: Path) -> dict[str, np.ndarray]:
    """Pixels of all images in a folder; what a half-done restoration has of them too."""
    found = [path for path in sorted(folder.iterdir()) if path.suffix in (".tif", ".npy", ".zarr")]
    return {path.name: pixels(path) for path in found}


def _same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)
