"""The yardstick: its intervals against closed forms, its recipes, and one problem from simulated light to figures."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import per_minute
from yardstick import problems, running, stored
from yardstick.cells import Cell, cells, recipe_of
from yardstick.comparison import compare, ratio, share_above, values_of
from yardstick.contenders import CONTENDERS
from yardstick.problems import PROBLEMS, Places
from yardstick.scores import BANDS, Restored, score
from yardstick.stored import Figure


def test_a_ratio_of_one_seed_each_has_students_interval_over_images() -> None:
    rng = np.random.default_rng(0)
    second = rng.uniform(1, 2, (1, 12))
    first = second * np.exp(rng.normal(-0.1, 0.2, (1, 12)))
    found = ratio(first, second)
    assert found is not None
    logs = np.log(first / second)[0]
    low, high = stats.t.interval(0.95, 11, logs.mean(), logs.std(ddof=1) / np.sqrt(12))
    np.testing.assert_allclose([found.value, found.low, found.high], np.exp([logs.mean(), low, high]))
    assert (found.seeds, found.images) == ((1, 1), 12)


def test_intervals_over_images_and_seeds_cover_the_truth() -> None:
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(400):
        image, of_first, of_second = rng.normal(0, 0.3, 20), rng.normal(0, 0.1, (3, 1)), rng.normal(0, 0.1, (3, 1))
        differs = rng.normal(0, 0.1, 20)
        found = ratio(np.exp(image + differs + of_first), np.exp(image + of_second))
        assert found is not None
        covered.append(found.low <= 1 <= found.high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.035)


def test_images_on_which_a_contender_is_worse_are_counted_over_its_seeds() -> None:
    """Three values of two seeds exceed the other's 2; what the other does not know is left out."""
    values = {(0, "x"): 1.0, (0, "y"): 3.0, (1, "x"): 3.0, (1, "y"): 4.0}
    own = [Figure("a", 1.0, seed, "test", image, "MAE", value) for (seed, image), value in values.items()]
    other = [Figure("b", 0.0, 0, "test", image, "MAE", 2.0) for image in "xy"]
    extra = [Figure("a", 1.0, seed, "test", "z", "MAE", 9.0) for seed in (0, 1)]
    assert share_above([*own, *other, *extra], ("a", 1.0), ("b", 0.0), "MAE") == 0.75
    assert share_above(own, ("a", 1.0), ("b", 0.0), "MAE") is None


def test_trainings_of_the_same_seed_are_compared_with_each_other() -> None:
    """What a seed does to both cancels; without pairs the same figures tell nothing."""
    rng = np.random.default_rng(2)
    covered, widths = [], []
    for _ in range(400):
        image, of_both, differs = rng.normal(0, 0.3, 20), rng.normal(0, 0.3, (3, 1)), rng.normal(0, 0.05, (3, 1))
        first, second = np.exp(image + of_both + differs + rng.normal(0, 0.05, 20)), np.exp(image + of_both)
        paired, apart = ratio(first, second, by_seed=True), ratio(first, second)
        assert paired is not None
        assert apart is not None
        covered.append(paired.low <= 1 <= paired.high)
        widths.append(np.log(paired.high / paired.low) / np.log(apart.high / apart.low))
    assert np.mean(covered) == pytest.approx(0.95, abs=0.035)
    assert np.median(widths) < 0.5


def test_seeds_that_one_contender_lacks_are_left_out_where_seeds_are_pairs() -> None:
    rows = [("a", 0, 2.0), ("a", 1, 40.0), ("b", 0, 4.0)]
    figures = [Figure(name, 4.0, seed, "test", "x", "MAE", value) for name, seed, value in rows]
    found = compare(figures, ("a", 4.0), ("b", 4.0), "MAE", by_seed=True)
    assert found is not None
    assert found.value == pytest.approx(0.5)
    assert found.seeds == (1, 1)
    assert compare(figures, ("a", 4.0), ("c", 4.0), "MAE", by_seed=True) is None
    with pytest.raises(ValueError, match="compared in pairs, but there are 2 and 1"):
        ratio(np.ones((2, 3)), np.ones((1, 3)), by_seed=True)


def test_values_are_those_of_images_that_all_seeds_have() -> None:
    rows = [("a", 0, "x", 1.0), ("a", 0, "y", 2.0), ("a", 1, "y", 4.0), ("b", 0, "y", 8.0)]
    figures = [Figure(name, 4.0, seed, "test", image, "MAE", value) for name, seed, image, value in rows]
    np.testing.assert_array_equal(values_of(figures, "a", 4.0, "MAE"), [[2.0], [4.0]])
    assert values_of(figures, "a", 30.0, "MAE").size == 0


def test_contenders_are_compared_on_the_images_that_both_have() -> None:
    rows = [("a", "x", 1.0), ("a", "y", 2.0), ("a", "z", 6.0), ("b", "y", 4.0), ("b", "z", 3.0), ("b", "w", 9.0)]
    figures = [Figure(name, 4.0, 0, "test", image, "MAE", value) for name, image, value in rows]
    found = compare(figures, ("a", 4.0), ("b", 4.0), "MAE")
    assert found is not None
    assert found.value == pytest.approx((2 / 4 * 6 / 3) ** 0.5)
    assert found.images == 2
    assert compare(figures, ("a", 4.0), ("b", 30.0), "MAE") is None


def test_every_contender_has_a_recipe_for_its_problems(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path)
    names = {cell.name for cell in cells()}
    assert len(names) == len(cells())
    for cell in cells():
        assert Cell.named(cell.name) == cell
        recipe = recipe_of(cell, places)
        assert recipe.train.seed == cell.seed
        is_regression = CONTENDERS[cell.contender].kind == "recipe" and cell.contender in ("regression", "dfcan")
        assert (recipe.model.method == "regression") == is_regression


def test_patches_of_phases_are_small_where_there_is_little_time(tmp_path: Path) -> None:
    """And steps on them are timed apart."""
    places = Places(tmp_path, tmp_path)
    found = {}
    for minutes in (1.0, 4.0, 30.0):
        cell = Cell("phase", "default", minutes, 0)
        found[cell.size] = (recipe_of(cell, places).data.patch, recipe_of(cell, places).model.base)
    assert found == {"quick": (64, 8), "small": (128, 8), "full": (128, 16)}
    assert recipe_of(Cell("phase", "default_0_1", 30.0, 0), places).data.patch == 64
    assert Cell("w2s", "default", 1.0, 0).size == "small"


def test_scores_of_perfect_samples_are_right() -> None:
    generator = torch.Generator().manual_seed(0)
    truth, *samples = torch.randn(17, 1, 64, 64, generator=generator, dtype=torch.float64)
    drawn = torch.stack(samples)
    values = score(Restored(drawn.mean(0), drawn, 0.0), truth, PROBLEMS["phase"])
    assert values["within"] == pytest.approx(15 / 17, abs=0.02)
    assert values["CRPS"] == pytest.approx(1 / np.sqrt(np.pi), abs=0.02)  # of a unit normal, fair
    assert values["spread over error"] == pytest.approx(1, abs=0.05)
    assert [values[f"power {band}"] for band in range(1, BANDS + 1)] == pytest.approx([1] * BANDS, abs=0.5)
    shifted = score(Restored(3 * truth + 5, None, 0.0), truth, PROBLEMS["w2s"])
    assert shifted["MAE"] == pytest.approx(0, abs=1e-9)  # brightness and offset are fitted


def test_samples_are_scored_on_the_central_square_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    truth, *samples = torch.randn(5, 1, 300, 280, generator=generator, dtype=torch.float64)
    whole = torch.stack(samples)
    part = whole[..., 22:278, 12:268]
    everywhere, inside = (score(Restored(truth, drawn, 0.0), truth, PROBLEMS["w2s"]) for drawn in (whole, part))
    assert everywhere == inside
    truth[:, :22] = 100.0
    changed = score(Restored(whole.mean(0), part, 0.0), truth, PROBLEMS["w2s"])
    assert changed["CRPS"] == inside["CRPS"]
    assert changed["RMSE"] > 10


@pytest.mark.skipif("SFUMATO_DATA" not in os.environ, reason="SFUMATO_DATA is not set")
def test_a_filter_is_fitted_and_measured_on_fresh_exposures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "FIELDS", {"train": 2, "validation": 1, "test": 1})
    places = Places.below(tmp_path / "work")
    problems.make_data(places)
    for name in ("filter", "measured"):
        running.run_one(Cell("microscopy", name, 0.0, 0), places)
        running.collect(Cell("microscopy", name, 0.0, 0), places, tmp_path / "results")
    figures = stored.figures("microscopy", tmp_path / "results")
    errors = {name: values_of(figures, name, 0.0, "MAE") for name in ("filter", "measured")}
    assert errors["filter"].shape == (1, 4)
    found = ratio(errors["filter"], errors["measured"])
    assert found is not None
    assert found.value < 0.95


def test_seeds_are_repeated_at_some_budgets_alone() -> None:
    seeds = {minutes: {cell.seed for cell in cells() if (cell.contender, cell.minutes) == ("default", minutes)}
             for minutes in CONTENDERS["default"].budgets}  # fmt: skip
    assert seeds == {0.33: {0}, 1.0: {0}, 4.0: {0, 1, 2}, 30.0: {0, 1, 2}}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("w2s/default/4", "expected problem/contender/minutes/seed"),
        ("w2s/default/four/0", "expected problem/contender/minutes/seed"),
        ("w2s/nobody/4/0", "nobody called 'nobody' competes on 'w2s'"),
        ("w2s/us_tie/0/0", "nobody called 'us_tie' competes on 'w2s'"),
    ],
)
def test_a_name_of_no_cell_is_refused(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Cell.named(name)


def test_a_start_of_no_cells_name_is_refused() -> None:
    assert {cell.problem for cell in per_minute._named(["w2s/default", "phase"])} == {"w2s", "phase"}
    with pytest.raises(SystemExit, match="no cell's name starts with w2s/nobody"):
        per_minute._named(["w2s/nobody"])


@pytest.mark.parametrize("line", ["default,4,0,test,x,MAE", "default,4,0,test,x,MAE,0.0x"])
def test_a_damaged_file_of_figures_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "w2s.csv").write_text(",".join(Figure._fields) + "\ndefault,4,0,test,x,MAE,1\n" + line + "\n")
    with pytest.raises(ValueError, match=r"line 3 of .*w2s\.csv is .*the file is damaged"):
        stored.figures("w2s", tmp_path)


def test_figures_are_read_again_after_they_were_stored(tmp_path: Path) -> None:
    cell, found = Cell("w2s", "default", 4.0, 0), Figure("default", 4.0, 0, "test", "x", "MAE", 1.0)
    stored.store(cell, [found], tmp_path)
    assert stored.figures("w2s", tmp_path) == [found]
    stored.store(cell, [found._replace(value=2.0)], tmp_path)
    assert [figure.value for figure in stored.figures("w2s", tmp_path)] == [2.0]
