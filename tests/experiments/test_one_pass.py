"""The measurement of one-pass hints: its figures by closed forms, and what docs say of them."""

import re
from pathlib import Path

import numpy as np
import pytest

import one_pass_uncertainty as one_pass
from pair_folders import make_pairs
from sfumato.diffusion.uncertainty import SCHEDULE_NOTE
from sfumato.models.model_file import load
from sfumato.statistics.significance import rank_correlation
from sfumato.training.train import train
from small_runs import STAGED, recipe
from yardstick.problems import Held


def test_a_model_is_measured_and_kept_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(recipe(make_pairs(tmp_path), **STAGED), tmp_path / "run", quiet=True)
    model = load(run.model_file)
    generator = np.random.default_rng(0)
    images = [Held(f"{n}", "test", *generator.random((2, 1, 24, 24)).astype(np.float32)) for n in range(2)]
    monkeypatch.setattr(one_pass, "RESULTS", tmp_path / "results" / "figures.csv")
    for cell in ("w2s/default/4/0", "phase/default/4/0", "w2s/default/4/0"):
        one_pass.keep(one_pass.measured(cell, model, images, tmp_path / "maps"))
    found = one_pass.stored()
    against = (one_pass.STD, one_pass.ERROR, one_pass.LOW, one_pass.HIGH)
    assert set(found) == {(cell, what) for cell in ("w2s/default/4/0", "phase/default/4/0") for what in against}
    assert all(len(values) == 2 for by_hint in found.values() for values in by_hint.values())
    low, high = (found["w2s/default/4/0", end][one_pass.SCHEDULE] for end in (one_pass.LOW, one_pass.HIGH))
    assert all(0 < least <= most for least, most in zip(low, high, strict=True))
    maps = np.load(tmp_path / "maps" / "w2s_default_4_0.npz")
    by_hint = found["w2s/default/4/0", one_pass.ERROR]
    for hint in (*one_pass.HINTS, one_pass.STD):
        assert by_hint[hint][1] == pytest.approx(rank_correlation(maps[hint], maps[one_pass.ERROR]), abs=1e-4)


def test_looks_of_a_ramp() -> None:
    """A plane of slope (3, 4) has the gradient 5 and, away from the border, its own value as local mean."""
    rows, columns = np.mgrid[:32, :32].astype(float)
    intensity, gradient = one_pass._looks((3 * rows + 4 * columns)[None])
    inner = np.s_[10:-10, 10:-10]
    np.testing.assert_allclose(gradient[inner], 5, rtol=1e-3)
    np.testing.assert_allclose(intensity[inner], (3 * rows + 4 * columns)[inner], rtol=1e-6)


def test_what_is_said_of_the_hint_is_what_is_stored() -> None:
    """The docs' table line by line, and the ranges in the note that goes with every map."""
    text = one_pass.DOCUMENT.read_text(encoding="utf-8").splitlines()
    for line in one_pass.table() + one_pass.rate_table():
        assert line in text
    said = [float(number) for number in re.findall(r"-?\d\.\d\d", SCHEDULE_NOTE)]
    means: dict[str, list[float]] = {one_pass.STD: [], one_pass.ERROR: []}
    for (_, against), values in one_pass.stored().items():
        if against in means:
            means[against].append(float(np.mean(values[one_pass.SCHEDULE])))
    expected = [end(means[against]) for against in (one_pass.STD, one_pass.ERROR) for end in (min, max)]
    assert said == pytest.approx(expected, abs=0.0051)
