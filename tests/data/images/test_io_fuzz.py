"""Thousands of damaged files: pixels or an ImageError, nothing else, quickly and in little memory."""

import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import fuzz_readers
from fuzz_readers import KINDS, MOST_BYTES, MOST_SECONDS, Edit, damage, peak_memory, try_file
from io_samples import Sample, write_samples
from sfumato.system.errors import ImageError

EDITS = st.builds(
    Edit,
    kind=st.sampled_from(KINDS),
    place=st.floats(0, 1, exclude_max=True),
    head=st.booleans(),
    choice=st.integers(0, 255),
)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    return list(write_samples(tmp_path_factory.mktemp("valid")).values())


@pytest.mark.parametrize("number", [400, pytest.param(20_000, marks=pytest.mark.slow)])
def test_damaged_files(number: int, samples: list[Sample], tmp_path: Path) -> None:
    counts: Counter[str] = Counter()

    @settings(
        max_examples=number,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(sample=st.sampled_from(samples), edits=st.lists(EDITS, min_size=1, max_size=6))
    def damaged_file(sample: Sample, edits: list[Edit]) -> None:
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        outcome = try_file(damage(sample, edits, folder))
        assert not outcome.escaped
        assert outcome.seconds < MOST_SECONDS
        assert outcome.peak_bytes < MOST_BYTES
        counts["error" if outcome.is_typed_error else "read"] += 1

    damaged_file()
    assert counts.total() >= number
    # Some changes harm no header; a fuzz in which all or none do would test little.
    assert min(counts["error"], counts["read"]) > number / 20


def test_undamaged_files_are_read(samples: list[Sample]) -> None:
    for sample in samples:
        outcome = try_file(sample.path)
        assert not outcome.is_typed_error
        assert not outcome.escaped


def raises(error: type[BaseException]) -> Callable[..., Any]:
    def reader(*arguments: object, **options: object) -> None:
        raise error("seen")

    return reader


def warns(*arguments: object, **options: object) -> None:
    warnings.warn("seen", UserWarning, stacklevel=1)
    raise ImageError("typed")


@pytest.mark.parametrize("reader", [raises(OSError), raises(MemoryError), warns])
def test_the_fuzz_sees_what_escapes(reader: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_readers, "open_image", reader)
    assert "seen" in try_file(Path("any.tif")).escaped


def test_the_fuzz_ends_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*arguments: object, **options: object) -> None:
        while True:
            pass

    monkeypatch.setattr(fuzz_readers, "open_image", hang)
    monkeypatch.setattr(fuzz_readers, "GIVE_UP_SECONDS", 1)
    outcome = try_file(Path("any.tif"))
    assert "Hung" in outcome.escaped
    assert outcome.seconds >= 1


def test_the_fuzz_sees_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((9000, 10000), np.uint8))
    peak_memory(reset=True)
    assert 80e6 < try_file(tmp_path / "a.npy").peak_bytes < 300e6
