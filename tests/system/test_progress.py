"""Plain lines of progress: how much time they say is left."""

import itertools
import re
from collections.abc import Iterator

import pytest

from sfumato.system.progress import Bar


def minutes_left(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"([0-9.]+) min left", text)]


def test_a_night_asleep_is_soon_forgotten(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A step every second, with eight hours between two of them."""
    seconds = itertools.chain(range(100), range(28_900, 30_000))
    clock: Iterator[float] = map(float, seconds)
    monkeypatch.setattr("sfumato.system.progress.time.monotonic", lambda: next(clock))
    with Bar("training", 1000) as bar:
        for done in range(1, 401):
            bar.show(done, "")
    left = minutes_left(capsys.readouterr().err)
    assert left[0] == pytest.approx(990 / 60, abs=0.1)
    assert left[-1] == pytest.approx(600 / 60, rel=0.02)
