"""The measurement of one-pass hints: its rival's loss and its figures by closed forms, and what docs say of them."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import one_pass_uncertainty as one_pass
from pair_folders import make_pairs
from quantile_head import LEVELS, QuantileHead, pinball, quantile_head
from sfumato.diffusion.uncertainty import SCHEDULE_NOTE
from sfumato.statistics.significance import rank_correlation
from sfumato.training.train import train
from small_runs import recipe


def test_the_pinball_loss_is_lowest_at_the_quantiles() -> None:
    """Of 10,000 normal values, where the quantiles are known; each level by itself."""
    normal = torch.distributions.Normal(0.0, 1.0)
    values = normal.icdf((torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000)
    places = torch.linspace(-2.5, 2.5, 501, dtype=torch.float64)
    for index, level in enumerate(LEVELS):
        losses = []
        for place in places:
            both = normal.icdf(torch.tensor(LEVELS, dtype=torch.float64))
            both[index] = place
            losses.append(float(pinball(both[:, None].expand(2, len(values)), values)))
        best = float(places[int(np.argmin(losses))])
        assert best == pytest.approx(float(normal.icdf(torch.tensor(level))), abs=0.01)


def test_the_rival_is_trained_once_and_its_quantiles_never_cross(tmp_path: Path) -> None:
    settings = recipe(make_pairs(tmp_path), train_steps=2)
    head = quantile_head(settings, tmp_path / "head.safetensors", steps=3)
    condition = torch.randn(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    low, high = head(condition)
    assert bool((low < high).all())
    again = quantile_head(settings, tmp_path / "head.safetensors", steps=3)
    torch.testing.assert_close(again(condition), head(condition), rtol=0, atol=0)
    assert not torch.equal(head(condition), QuantileHead(1, 1)(condition))


def test_a_run_is_measured_and_kept_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = make_pairs(tmp_path)
    model = train(recipe(folders, train_steps=4), tmp_path / "run", quiet=True).model_file
    places = {"inputs": folders[0], "targets": folders[1], "folder": None}
    monkeypatch.setattr(one_pass, "RESULTS", tmp_path / "results" / "figures.csv")
    for name in ("first", "second"):
        one_pass.keep(one_pass.measured(name, model, tmp_path, places, most=2, head="tiny", head_steps=3))
    with (tmp_path / "results" / "figures.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rates = [float(row["value"]) for row in rows if row["against"] in (one_pass.LOW, one_pass.HIGH)]
    assert all(6 <= rate <= 30 for rate in rates)
    assert (len(rows), len(rates)) == (2 * 2 * (4 + 5 + 2), 2 * 2 * 2)
    assert all(-1 <= float(row["value"]) <= 1 for row in rows if row["against"] in (one_pass.STD, one_pass.ERROR))
    maps = np.load(tmp_path / "maps" / "first.npz")
    error = [float(row["value"]) for row in rows if (row["run"], row["hint"], row["against"], row["image"])
             == ("first", one_pass.STD, one_pass.ERROR, "1")]  # fmt: skip
    assert error == [pytest.approx(rank_correlation(maps[one_pass.STD], maps[one_pass.ERROR]), abs=1e-4)]


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
