"""The experiment of measured and missing pixels: its pairs, and its ratios against what is stored."""

from pathlib import Path

import numpy as np
import pytest

import differing_pixels
from sfumato.data.images.io import open_image


def test_pixels_are_measured_almost_exactly_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differing_pixels, "FIELDS", {"train": 1, "test": 1})
    differing_pixels.make_data(tmp_path)
    lines = (tmp_path / "pairs.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert len(lines) == 8
    errors, shares = [], []
    for line in lines:
        given, truth, split = line.split(",")
        assert given.startswith(split)
        image = np.asarray(open_image(tmp_path / truth).read({}))
        seen, is_known = np.asarray(open_image(tmp_path / given).read({}))
        assert set(np.unique(is_known)) == {0.0, 1.0}
        assert not seen[is_known == 0].any()
        errors.append((seen - image)[is_known == 1])
        shares.append(is_known.mean())
    assert np.concatenate(errors).std() == pytest.approx(differing_pixels.NOISE, rel=0.02)
    assert np.mean(shares) == pytest.approx(0.5, abs=0.1)


def test_every_training_has_a_recipe(tmp_path: Path) -> None:
    recipes = [differing_pixels.recipe_for(training, tmp_path) for training in differing_pixels.TRAININGS]
    kinds = {(recipe.model.scale_network, recipe.model.schedule, recipe.model.log_rates) for recipe in recipes}
    assert len(kinds) == len(recipes) / differing_pixels.SEEDS
    assert all(recipe.model.mean_network for recipe in recipes)


def test_the_table_compares_fields_with_the_fixed_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(differing_pixels, "RESULTS", tmp_path / "rows.csv")
    found = [
        differing_pixels.Row("one", schedule, seed, kind, f"field_{field}", metric, value * factor * (1 + field))
        for schedule, factor in (("cosine", 1.0), ("learned rates", 0.5))
        for seed in (0, 1)
        for kind in differing_pixels.KINDS
        for field in range(3)
        for metric, value in (("CRPS", 0.01), ("within", 0.2), ("rate", 10.0))
    ]
    differing_pixels._store(found)
    assert [row[:6] for row in sorted(found)] == [row[:6] for row in differing_pixels.stored()]
    differing_pixels.print_table(check=False)
    printed = capsys.readouterr().out
    assert "| one | learned rates | 0.500 (0.500 to 0.500), 0.200, 10.0 |" in printed
    with pytest.raises(SystemExit):
        differing_pixels.print_table(check=True)


def test_a_seed_that_the_fixed_schedule_alone_has_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(differing_pixels, "RESULTS", tmp_path / "rows.csv")
    trainings = (("cosine", 0, 1.0), ("cosine", 1, 8.0), ("learned rates", 0, 0.5))
    found = [
        differing_pixels.Row("one", schedule, seed, kind, f"field_{field}", metric, value * (1 + field))
        for schedule, seed, value in trainings
        for kind in differing_pixels.KINDS
        for field in range(3)
        for metric in ("CRPS", "within", "rate")
    ]
    differing_pixels._store(found)
    differing_pixels.print_table(check=False)
    assert "| one | learned rates | 0.500 (0.500 to 0.500), " in capsys.readouterr().out
