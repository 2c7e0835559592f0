"""The harness of docs/results.md: one tiny cell end to end, what it resumes, what it reports, and what it compares."""

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from data_sets import make_photographs
from paper import claims, matrix, page, pictures, provenance, running, stored
from paper.claims import Finding, better, bounded, not_worse, ratio_of_means, varies_less, verdict
from paper.matrix import CELLS, PROBLEMS, Cell, cell_named
from paper.measuring import _single, comparable, score_estimate, unknown_share
from paper.sources import held_out_images, make_data, recipe_for
from paper.stored import Figures, Places, Row
from sfumato.diffusion.known import Known
from sfumato.diffusion.model import CVDM
from sfumato.diffusion.schedule import CosineSchedule

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "experiments" / "paper_small.py"
TINY = (
    "forward.side_px=64",
    "model.base=4",
    "model.rate_base=4",
    "model.num_scales=2",
    "data.patch=16",
    "train.steps=6",
    "train.batch_size=2",
    "train.warmup=1",
    "train.save_every=2",
    "sample.steps=2",
    "sample.samples=2",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, number in (("natural_imagenet100", 4), ("natural_coco", 24)):
        make_photographs(folder / name, [f"{place:02}.png" for place in range(number)])
    return folder


def script(folder: Path, data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    settings = [part for setting in TINY for part in ("--set", setting)]
    small = ["--samples", "3", "--images", "2", "--crop", "32", "--work", str(folder / "work"), "--jobs", "1"]
    places = ["--results", str(folder / "results"), "--page", str(folder / "results.md")]
    return subprocess.run(
        [sys.executable, str(SCRIPT), *options, *small, *places, *settings],
        capture_output=True,
        text=True,
        env={**os.environ, "SFUMATO_DATA": str(data), "OMP_NUM_THREADS": "1"},
    )


def test_processes_that_start_together_may_both_simulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(matrix.SIMULATION, "side", 32)
    monkeypatch.setitem(matrix.SIMULATION, "cells", {"train": 1, "validation": 1, "test": 1})
    work = tmp_path / "work"
    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(make_data, "microscopy", Places(work, tmp_path, tmp_path)) for _ in range(2)]:
            done.result()
    assert [path.name for path in work.iterdir()] == ["simulated"]
    assert len([*work.rglob("*.mrc")]) > 0


def test_a_cell_is_trained_measured_resumed_and_reported(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Losing the last checkpoint and half of what was measured changes nothing in the end, nor does doing all anew."""
    first = script(tmp_path, data, "--run", "qpi/cvdm_0_1/0")
    assert first.returncode == 0, first.stdout + first.stderr
    csv = tmp_path / "results" / "qpi.csv"
    before = stored.read(csv)
    assert {row.method for row in before} == {"cvdm_0_1"}
    assert {row.set for row in before} == {"noise-free", "noisy", "training"}
    mine = [row for row in before if row.method == "cvdm_0_1" and row.metric == "MAE"]
    assert len(mine) == 4
    assert all(row.value > 0 for row in mine)

    places = Places(tmp_path / "work", data, tmp_path / "results", TINY, 3, 2, 32)
    cell = cell_named("qpi/cvdm_0_1/0")
    assert running.state(cell, places) == "measured"
    other = dataclasses.replace(places, settings=(*TINY, "model.rate_base=8"))
    assert running.state(cell, other) == "measured with another model.rate_base"
    running.collect(cell, other)  # what is taken in is of the recipe that it was trained with, not of today's
    assert running.state(cell, other) == "measured with another model.rate_base"
    run = tmp_path / "work" / "qpi" / "cvdm_0_1" / "0"
    lines = (run / "measured.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 5  # one head and four images
    (run / "measured.jsonl").write_text("\n".join([*lines[:2], lines[2][:20]]), encoding="utf-8")
    newest = max((run / "checkpoints").iterdir())
    shutil.rmtree(newest) if newest.is_dir() else newest.unlink()
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    kept = [line for line in metrics if line["step"] < 6]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    (run / "rows.csv").unlink()
    csv.unlink()
    assert running.state(cell, places).startswith("training")
    running.run_one("qpi/cvdm_0_1/0", places)
    running.collect(cell, places)
    found, wanted = (
        [repr(row) for row in rows if row.metric not in ("seconds", "minutes")]  # as text, since NaN is not itself
        for rows in (stored.read(csv), before)
    )
    assert found == wanted

    stored.merge(csv, [row._replace(method="us_tie", value=1.1 * row.value) for row in before])
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    (tmp_path / "results.md").write_text(text, encoding="utf-8")
    page.write(tmp_path / "results.md", tmp_path / "results")
    page.check(tmp_path / "results.md", tmp_path / "results")
    written = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "| `us_tie` | 1 | 2 |" in written
    assert "| `cddpm_paper` | | | not measured yet |" in written
    changed = [row._replace(value=2 * row.value) if row.metric == "MAE" else row for row in stored.read(csv)]
    stored.merge(csv, changed)
    with pytest.raises(SystemExit, match="table qpi"):
        page.check(tmp_path / "results.md", tmp_path / "results")

    capsys.readouterr()
    assert not running.rerun("qpi/cvdm_0_1/0", dataclasses.replace(places, work=tmp_path / "new"))
    told = capsys.readouterr().out
    of_mae = [row for row in before if row.metric == "MAE"]
    assert f"qpi/cvdm_0_1/0: {len(found) - len(of_mae)} of {len(found)} numbers are the same" in told
    assert told.count("-50.00%") == 2
    with pytest.raises(SystemExit, match="give a new --work"):
        running.rerun("qpi/cvdm_0_1/0", places)


def test_the_page_says_what_is_stored() -> None:
    page.check(ROOT / "docs" / "results.md", stored.RESULTS)


def test_stored_figures_are_of_the_recipes_of_today(tmp_path: Path) -> None:
    """A default that changes makes figures of models trained before it those of something else."""
    places = Places(tmp_path, tmp_path, stored.RESULTS)
    noted = json.loads((stored.RESULTS / provenance.FILE).read_text(encoding="utf-8"))
    states = {cell.name: running.state(cell, places) for cell in CELLS if cell.trains}
    measured = {name: state for name, state in states.items() if state.startswith("measured")}
    assert {*measured} <= {*noted}
    assert {*measured.values()} == {"measured"}


@pytest.mark.parametrize("test_set", PROBLEMS["qpi"].sets)
def test_settings_are_chosen_on_images_that_are_not_tested(test_set: str, tmp_path: Path, data: Path) -> None:
    places = Places(tmp_path, data, settings=TINY)
    recipe = recipe_for(cell_named("qpi/us_tie/0"), places)
    tested, others = (
        {image.name for image in held_out_images("qpi", test_set, 99, recipe, places, kept_from_testing=kept)}
        for kept in (False, True)
    )
    assert tested
    assert others
    assert not tested & others


def test_fewer_images_are_some_of_more(tmp_path: Path, data: Path) -> None:
    """So that 500 steps on four images can be paired with 16 on eight."""
    places = Places(tmp_path, data, settings=TINY)
    recipe = recipe_for(cell_named("qpi/cvdm_0_1/0"), places)
    names = [{i.name for i in held_out_images("qpi", "noise-free", n, recipe, places)} for n in (2, 4, 8)]
    assert [len(each) for each in names] == [2, 4, 8]
    assert names[0] < names[1] < names[2]


def test_similarity_of_phases_does_not_depend_on_the_sign_of_a_mean() -> None:
    """About a mean of 0 the middles of two images can have unlike signs, which made it 0 for images that are alike."""
    x = np.linspace(0, 2 * np.pi, 176)
    truth = (1.75 + 0.5 * np.sin(7 * x)[:, None] * np.sin(9 * x) + 0.02 * np.cos(x))[None]
    estimate = truth - 0.08 * np.cos(x) + 3
    scores = score_estimate(estimate, truth, PROBLEMS["qpi"])
    assert scores["MS-SSIM"] > 0.9
    assert scores["MAE"] < 0.06
    assert scores["MAE raw"] == pytest.approx(3, abs=0.01)


def test_a_perfect_draw_is_as_bright_as_the_truth() -> None:
    """Fitted by itself it would be darker, by the square of its correlation with the truth."""
    generator = torch.Generator().manual_seed(0)
    signal = torch.randn(1, 64, 64, generator=generator).double()
    truth, *draws = signal + 0.5 * torch.randn(65, 1, 64, 64, generator=generator).double()
    mean = torch.stack(draws).mean(0)
    fitted, against = _single(3 * draws[0] + 1, 3 * mean + 1, truth, PROBLEMS["microscopy"])
    assert float(fitted.std() / against.std()) == pytest.approx(1, abs=0.03)
    by_itself = comparable((3 * draws[0] + 1).numpy(), truth.numpy(), PROBLEMS["microscopy"])[0]
    assert float(by_itself.std() / against.std()) == pytest.approx(0.8, abs=0.03)


def test_names_of_cells_differ() -> None:
    names = [cell.name for cell in CELLS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_diffusion_methods_share_network_steps_and_order(problem: str, tmp_path: Path) -> None:
    """They differ in the schedule, in what is predicted and diffused, and in the paper's normalisation."""
    places = Places(tmp_path, tmp_path, tmp_path)
    cells = [cell for cell in CELLS if cell.problem == problem and cell.kind == "model"]
    recipes = [recipe_for(cell, places) for cell in cells if "model.method=regression" not in cell.settings]
    may_differ = {
        *("schedule", "predicts", "objective", "norm", "residual", "mean_network", "scale", "smoothness_weight"),
        *("beta_ends", "gamma_end", "rate_ends"),
    }
    for recipe in recipes[1:]:
        one, other = (r.model.model_dump(exclude=may_differ) for r in (recipes[0], recipe))
        assert one == other
        assert recipe.data == recipes[0].data
        one, other = (r.train.model_dump(exclude={"seed", "precision"}) for r in (recipes[0], recipe))
        assert one == other
        assert recipe.sample == recipes[0].sample


def made(problem: str, method: str, seed: int, metric: str, values: list[float]) -> list[Row]:
    return [Row(problem, method, seed, "noise-free", f"image {n}", metric, value) for n, value in enumerate(values)]


def test_a_better_method_is_found_better_and_needs_both_seeds() -> None:
    truth = np.linspace(1, 2, 12)
    rows = [
        row
        for seed in (0, 1)
        for method, factor in (("cvdm_0_1", 0.6), ("cddpm", 1.0))
        for row in made("qpi", method, seed, "MAE", (factor * truth).tolist())
    ]
    check = better("qpi", "noise-free", "MAE", "cvdm_0_1", "cddpm", by=0.3, level=0.01, seeds=2)
    assert [finding.holds for finding in check(Figures(rows))] == ["yes", "yes"]
    assert verdict(check(Figures(rows[:24]))) == "not yet measured"
    assert verdict(better("qpi", "noise-free", "MAE", "cvdm_0_1", "cddpm", by=0.5)(Figures(rows))) == "not confirmed"
    assert verdict(better("qpi", "noise-free", "MAE", "cddpm", "cvdm_0_1")(Figures(rows))) == "not confirmed"


@pytest.mark.parametrize(
    ("n", "answers"),
    [(1, ["undecided"] * 4), (5, ["undecided", "no", "yes", "no"]), (6, ["yes", "no", "yes", "no"])],
)
def test_five_images_decide_by_intervals_only(n: int, answers: list[str]) -> None:
    """No sign-flip test of five can be significant."""
    values = np.linspace(1, 2, n)
    rows = made("qpi", "cvdm_0_1", 0, "MAE", values.tolist()) + made("qpi", "cddpm", 0, "MAE", (1.1 * values).tolist())
    checks = (
        better("qpi", "noise-free", "MAE", "cvdm_0_1", "cddpm"),
        not_worse("qpi", "noise-free", "MAE", "cddpm", "cvdm_0_1"),
        ratio_of_means("qpi", "noise-free", ("MAE", "MAE"), ("cvdm_0_1", "cddpm"), high=1),
        bounded("qpi", "noise-free", "MAE", "cvdm_0_1", high=1),
    )
    assert [finding.holds for check in checks for finding in check(Figures(rows))] == answers


def test_what_is_measured_once_decides_by_itself_but_one_image_does_not() -> None:
    one = Row("qpi", "cvdm_0_1", 0, "timing", "best of 5", "ratio", 1.01)
    for test_set, answer in (("timing", "yes"), ("noise-free", "undecided")):
        found = bounded("qpi", test_set, "ratio", "cvdm_0_1", high=1.05)(Figures([one._replace(set=test_set)]))
        assert [finding.holds for finding in found] == [answer]


def test_one_image_has_no_interval() -> None:
    assert page._cell([0.5]) == "0.5"
    assert page._cell([0.5, 0.5]) == "0.5 (0.5 to 0.5)"


def test_a_picture_that_nobody_draws_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="got pictures qpi_method; expected some of qpi_methods"):
        pictures.draw_all(Places(tmp_path, tmp_path, tmp_path), tmp_path, ["qpi_method"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("gap", "answer"), [(0.01, "yes"), (0.5, "undecided"), (2.0, "undecided"), (13.0, "no")])
def test_two_gaps_of_two_seeds_have_to_be_far_apart(gap: float, answer: str) -> None:
    assert pytest.approx(math.sqrt(stats.f.ppf(0.95, 1, 1)), abs=0.01) == claims.GAPS_APART
    rows = [
        row
        for method, each in (("one", gap), ("two", 1.0))
        for seed in (0, 1)
        for row in made("qpi", method, seed, "MAE", [1 + seed * each] * 8)
    ]
    assert [f.holds for f in varies_less("qpi", "noise-free", "MAE", "one", "two")(Figures(rows))] == [answer]


def test_a_margin_on_what_a_score_lacks_is_not_one_on_the_score() -> None:
    """Near 1 a score can get six times worse within 1% of itself."""
    base = np.linspace(0.996, 0.999, 12)
    rows = made("qpi", "one", 0, "MS-SSIM", (1 - 3 * (1 - base)).tolist()) + made(
        "qpi", "two", 0, "MS-SSIM", base.tolist()
    )
    lax, strict = (
        not_worse("qpi", "noise-free", "MS-SSIM", "one", "two", away_from=away_from) for away_from in (None, 1)
    )
    assert verdict(lax(Figures(rows))) == "confirmed"
    assert verdict(strict(Figures(rows))) == "not confirmed"


def test_a_share_is_tested_and_not_only_a_difference() -> None:
    """An error 31% below another's, give or take 20%, is less than it beyond doubt, but not shown to be by 30%."""
    base = np.linspace(1, 2, 12)
    ratios = 0.69 + 0.2 * np.tile([1, -1], 6)
    rows = made("qpi", "one", 0, "MAE", (ratios * base).tolist()) + made("qpi", "two", 0, "MAE", base.tolist())
    for by, answer in ((0.0, "yes"), (0.3, "undecided")):
        found = better("qpi", "noise-free", "MAE", "one", "two", by=by, level=0.01)(Figures(rows))
        assert [finding.holds for finding in found] == [answer]


def test_a_share_of_a_score_is_on_top_of_it() -> None:
    base = np.linspace(1, 2, 12)
    rows = made("qpi", "one", 0, "PSNR", (1.2 * base).tolist()) + made("qpi", "two", 0, "PSNR", base.tolist())
    for by, answer in ((0.1, "yes"), (0.3, "no")):
        found = better("qpi", "noise-free", "PSNR", "one", "two", by=by)(Figures(rows))
        assert [finding.holds for finding in found] == [answer]


def test_finer_than_the_truth_is_not_better_than_as_fine() -> None:
    truth = np.linspace(110, 120, 8)
    rows = [
        Row("microscopy", method, 0, "fields", f"ER/{n}", "resolution", float(value))
        for method, values in (("truth", truth), ("noisy", truth - 20), ("right", truth), ("coarse", truth + 20))
        for n, value in enumerate(values)
    ]
    for second, answer in (("right", "undecided"), ("coarse", "yes")):
        found = better("microscopy", "fields", "resolution", "noisy", second, group="ER")(Figures(rows))
        assert [finding.holds for finding in found] == [answer]
    without = Figures(row for row in rows if row.method != "truth")
    assert verdict(better("microscopy", "fields", "resolution", "noisy", "coarse")(without)) == "not yet measured"


def test_coverage_beyond_the_expected_is_not_better() -> None:
    """Draws that cover everything are as wrong as draws that cover too little."""
    wiggle = np.linspace(-0.005, 0.005, 8)
    rows = [
        row
        for method, mean in (("wide", 0.99), ("narrow", 0.8), ("right", 0.879))
        for row in made("qpi", method, 0, "coverage 90", (mean + wiggle).tolist())
    ]

    def answer(first: str, second: str) -> str:
        check = better("qpi", "noise-free", "coverage 90", first, second, away_from=claims.EXPECTED_COVERAGE)
        return check(Figures(rows))[0].holds

    assert answer("wide", "narrow") == "no"
    assert answer("right", "narrow") == answer("right", "wide") == "yes"


def of_seeds(method: str, factors: tuple[float, ...], base: NDArray[np.float64]) -> list[Row]:
    """A method whose error on every image is a multiple of a base, by seed."""
    return [row for seed, f in enumerate(factors) for row in made("qpi", method, seed, "MAE", (f * base).tolist())]


def test_seeds_that_disagree_decide_nothing() -> None:
    base = np.linspace(1, 2, 12)
    rows = of_seeds("one", (0.9, 1.0), base) + of_seeds("two", (1.0, 0.9), base)
    for check in (
        better("qpi", "noise-free", "MAE", "one", "two", seeds=2),
        not_worse("qpi", "noise-free", "MAE", "one", "two", seeds=2),
        ratio_of_means("qpi", "noise-free", ("MAE", "MAE"), ("one", "two"), high=1),
    ):
        found = check(Figures(rows))
        assert [finding.holds for finding in found] == ["undecided", "undecided"]
        assert ["yes by itself" in finding.found for finding in found] == [True, False]
        assert ["no by itself" in finding.found for finding in found] == [False, True]
    found = bounded("qpi", "noise-free", "MAE", "one", high=1.42)(Figures(of_seeds("one", (0.5, 1.5), base)))
    assert [finding.holds for finding in found] == ["undecided", "undecided"]


def test_one_seed_of_two_decides_nothing() -> None:
    base = np.linspace(1, 2, 12)
    rows = of_seeds("one", (2.0, 2.0), base) + of_seeds("two", (1.0,), base)
    assert verdict(better("qpi", "noise-free", "MAE", "one", "two", seeds=2)(Figures(rows))) == "not yet measured"
    assert verdict(better("qpi", "noise-free", "MAE", "one", "two")(Figures(rows))) == "not confirmed"


@pytest.mark.parametrize("second", ["two", "us_tie"])
def test_a_method_is_better_by_more_than_its_seeds_differ(second: str) -> None:
    """Seeds that agree on a gain of 8% in the mean may be lucky if the same method differs from itself by 10%."""
    base = np.linspace(1, 2, 12)
    other = (1.0,) if second == "us_tie" else (1.0, 1.0)
    for factors, answer in (((0.97, 0.87), "undecided"), ((0.87, 0.88), "yes")):
        rows = of_seeds("one", factors, base) + of_seeds(second, other, base)
        check = better("qpi", "noise-free", "MAE", "one", second, seeds=2)
        assert [finding.holds for finding in check(Figures(rows))] == [answer, answer]
    swapped = of_seeds("one", (1.0, 1.0), base) + of_seeds("two", (1.03, 1.13), base)
    found = better("qpi", "noise-free", "MAE", "one", "two", seeds=2)(Figures(swapped))
    assert [finding.holds for finding in found] == ["undecided", "undecided"]


def test_a_gap_between_seeds_is_that_on_the_images_compared() -> None:
    """Images that the other method lacks may differ as they will."""
    base = np.linspace(1, 2, 12)
    rows = of_seeds("one", (0.97, 0.96), base) + of_seeds("two", (1.0, 1.0), base[:8])
    rows = [row._replace(value=9.0) if (row.image, row.seed) == ("image 11", 1) else row for row in rows]
    found = better("qpi", "noise-free", "MAE", "one", "two", seeds=2)(Figures(rows))
    assert [finding.holds for finding in found] == ["yes", "yes"]


def test_methods_are_compared_on_seeds_that_both_have() -> None:
    """A better second seed of one method says nothing of the other's."""
    base = np.linspace(1, 2, 6)
    rows = of_seeds("cvdm_simple", (1.0,), base) + of_seeds("cvdm_0_1", (1.1,), base)
    second = made("qpi", "cvdm_0_1", 1, "MAE", (0.1 * base).tolist())
    assert (
        page.blocks(Figures(rows), stored.RESULTS, ROOT)["gain"]
        == page.blocks(Figures(rows + second), stored.RESULTS, ROOT)["gain"]
    )
    assert "+10.0%" in page.blocks(Figures(rows + second), stored.RESULTS, ROOT)["gain"]


def test_the_luck_of_a_training_is_shown() -> None:
    """Another seed of the same method is significantly different on the same images."""
    base = np.linspace(1, 2, 12)
    rows = of_seeds("cvdm_0_1", (1.0, 0.9), base) + of_seeds("cvdm_simple", (1.0,), base)
    _, _, *lines = page.blocks(Figures(rows), stored.RESULTS, ROOT)["seeds"].splitlines()
    assert lines == ["| qpi, noise-free | `cvdm_0_1` | 1.5 | 1.35 | -10.0% | 0.00049 | 12 |"]


def test_attempts_are_compared_on_images_in_common() -> None:
    """Another seed keeps other images for validation: what they have in common is too little to compare on."""
    rows = [
        Row("qpi", method, seed, "validation", f"image {first + n}", "MAE", value * (1 + n / 8))
        for method, seed, first, value in (
            ("attempt_default", 0, 0, 1.0),
            ("attempt_default", 1, 7, 2.0),
            ("attempt_fixed", 0, 0, 1.1),
        )
        for n in range(8)
    ]
    lines = page.blocks(Figures(rows), stored.RESULTS, ROOT)["attempts"].splitlines()
    other_seed = next(line for line in lines if line.startswith("| qpi | `attempt_default`, seed 1"))
    assert other_seed.endswith("| |  | 1 |")
    assert next(line for line in lines if "| `attempt_fixed`" in line).endswith("| +10.0% | 0.0078 | 8 |")


def test_a_choice_is_shown_beside_cvdm_on_what_both_have() -> None:
    """Not one seed beside the mean of two, nor images that only one was measured on."""
    rows = [
        Row("qpi", method, seed, "noise-free", f"image {n}", "MAE", value * (1 + n / 8))
        for method, seed, number, value in (
            ("cvdm_0_1", 0, 8, 1.0),
            ("cvdm_0_1", 1, 8, 9.0),
            ("cvdm_population", 0, 6, 0.9),
        )
        for n in range(number)
    ]
    lines = page.blocks(Figures(rows), stored.RESULTS, ROOT)["ablations"].splitlines()
    shown = next(line for line in lines if line.startswith("| qpi, noise-free | `cvdm_population`"))
    assert (
        shown
        == "| qpi, noise-free | `cvdm_population`, `cvdm_0_1` | 1.181 | -10.0% | 0.031 | not measured yet | |  | 6 |"
    )
    assert not any("`cvdm_0_1`, `cvdm_0_1`" in line for line in lines)
    assert len({line.count("|") for line in lines}) == 1


def test_a_draw_is_shown_beside_the_default_solver_on_what_both_have() -> None:
    rows = [
        Row("qpi", f"cvdm_0_1:{draw}", 0, "noise-free", f"image {n}", metric, value * (1 + n / 8))
        for draw, number, value in (("2m 16", 8, 1.0), ("ddim 16", 7, 0.9), ("ancestral 500", 4, 0.9))
        for metric in ("MAE", "MS-SSIM", "CRPS", "coverage 90")
        for n in range(number)
    ]
    lines = page.blocks(Figures(rows), stored.RESULTS, ROOT)["solvers beside"].splitlines()
    assert lines[2:] == [f"| qpi | ddim 16 |{' 1.238 | -10.0% | 0.016 |' * 4} 7 |"]  # of four images no test is one
    assert len({line.count("|") for line in lines}) == 1


def test_the_efforts_of_every_classical_method_have_a_name() -> None:
    rows = [Row("qpi", method, 0, "noise-free", "image", "effort", 1.0) for method in matrix.EFFORTS]
    shown = page.blocks(Figures(rows), stored.RESULTS, ROOT)["tuning"]
    assert all(f"| qpi, noise-free | `{method}` |" in shown for method in matrix.EFFORTS)


def test_draws_are_shown_on_the_images_that_all_have() -> None:
    """Not the mean of eight images beside that of the first four."""
    rows = [
        Row("qpi", f"cvdm_0_1:{draw}", 0, "noise-free", f"image {n}", "MAE", float(n))
        for draw, number in (("2m 16", 8), ("ancestral 500", 4))
        for n in range(number)
    ]
    lines = page.blocks(Figures(rows), stored.RESULTS, ROOT)["solvers"].splitlines()
    shown = {line.split(" | ")[1]: line.split(" | ")[2:4] for line in lines if line.startswith("| qpi")}
    assert shown["2m 16"] == shown["ancestral 500"]
    assert shown["2m 16"][0] == "4"
    assert shown["2m 16"][1] == "1.5"
    assert shown["2m 32"][1] == "not measured yet"
    assert len({line.count("|") for line in lines}) == 1


def test_noise_that_looks_finer_than_the_truth_is_no_nearer_to_it() -> None:
    """Draws 5 nm finer than the truth are finer than an estimate 3 nm coarser, and further from the truth."""
    truth = np.linspace(110, 120, 12)
    of = {("truth", "resolution"): 0.0, ("cvdm_0_1", "resolution single"): -5.0, ("regression", "resolution"): 3.0}
    rows = [
        row._replace(set="fields")
        for (method, metric), beyond in of.items()
        for row in made("microscopy", method, 0, metric, (truth + beyond).tolist())
    ]
    finer, nearer = (
        better("microscopy", "fields", claims.SINGLE_TO_WHOLE, "cvdm_0_1", "regression", away_from=away_from)
        for away_from in claims.FINER_AND_NEARER
    )
    assert [finding.holds for finding in finer(Figures(rows))] == ["yes"]
    assert [finding.holds for finding in nearer(Figures(rows))] == ["no"]
    assert "from the truth's of" in nearer(Figures(rows))[0].what


def test_a_step_of_the_gain_is_measured_on_all_images_of_its_ends() -> None:
    """A method with fewer images shortens its own steps alone."""
    base = np.linspace(1, 2, 12)
    rows = of_seeds("cddpm_paper:ancestral", (1.0,), base[:6]) + of_seeds("cddpm_paper", (1.1,), base)
    rows += of_seeds("cddpm_noise", (1.1,), base)
    first, second = page.blocks(Figures(rows), stored.RESULTS, ROOT)["gain"].splitlines()[2:4]
    assert first.endswith("| 6 |")
    assert "+10.0%" in first
    assert second.endswith("| 12 |")


def test_images_of_one_field_count_once() -> None:
    rows = [
        Row("w2s", "cvdm_0_1", 0, "test", name, "MAE", value)
        for name, value in (("085_0.tif", 1.0), ("085_1.tif", 3.0), ("086_0.tif", 5.0))
    ]
    assert Figures(rows).images("w2s", "cvdm_0_1", 0, "test", "MAE") == {"085": 2.0, "086": 5.0}


def test_non_inferiority_looks_at_the_end_of_the_interval() -> None:
    generator = np.random.default_rng(0)
    base = generator.uniform(1, 2, 12)
    close, noisy = base * 1.002, base * (1.002 + 0.1 * generator.standard_normal(12))
    for values, holds in ((close, "yes"), (noisy, "undecided"), (base * 1.02, "no")):
        rows = made("qpi", "one", 0, "MAE", values.tolist()) + made("qpi", "two", 0, "MAE", base.tolist())
        assert [f.holds for f in not_worse("qpi", "noise-free", "MAE", "one", "two")(Figures(rows))] == [holds]


def test_a_verdict_needs_every_finding() -> None:
    answers: tuple[claims.Answer, ...] = ("yes", "no", "undecided", "not measured")
    yes, no, open_, missing = (Finding("", "", "", holds) for holds in answers)
    assert verdict([yes, yes]) == "confirmed"
    assert verdict([yes, open_]) == "undecided"
    assert verdict([yes, open_, missing]) == "not yet measured"
    assert verdict([yes, open_, missing, no]) == "not confirmed"
    assert verdict([]) == "not yet measured"


def test_every_method_of_a_claim_is_in_the_matrix() -> None:
    """A claim on a method that no cell makes would stay unmeasured for ever."""
    known = {
        (cell.problem, name) for cell in CELLS for name in (cell.method, *(stored.label(cell, d) for d in cell.draws))
    }
    known.add(("qpi", "cddpm"))
    for claim in (*claims.CLAIMS, *claims.GOALS):
        for finding in (found for check in claim.checks for found in check(Figures([]))):
            problem, _, rest = finding.what.partition(",")
            for method in rest.split("`")[1::2]:
                assert (problem, method) in known, finding.what


def test_the_schedules_of_claim_1_differ_in_nothing_else(tmp_path: Path) -> None:
    """What is diffused has about the same size with either scale."""
    methods = {
        method
        for check in next(claim for claim in claims.CLAIMS if claim.number == "1").checks
        for finding in check(Figures([]))
        for method in finding.what.split("`")[1::2]
        if method not in claims.SEEDLESS
    }
    recipes = [recipe_for(cell_named(f"qpi/{m}/0"), Places(tmp_path, tmp_path, tmp_path)).model for m in methods]
    left = [recipe.model_dump(exclude={"schedule", "scale"}) for recipe in recipes]
    assert len(left) == 3
    assert all(one == left[0] for one in left)


def test_rules_name_the_cddpm_they_mean() -> None:
    """There are several."""
    for claim in (*claims.CLAIMS, *claims.GOALS):
        if "CDDPM" in claim.text:
            assert "CDDPM is" in claim.rule or "cddpm_" in claim.rule, claim.number


def test_merged_rows_take_the_place_of_older_ones(tmp_path: Path) -> None:
    path = tmp_path / "qpi.csv"
    stored.merge(path, made("qpi", "cvdm_0_1", 0, "MAE", [1.0, math.nan]))
    stored.merge(path, made("qpi", "cvdm_0_1", 0, "MAE", [3.0]))
    values = [row.value for row in stored.read(path)]
    assert sorted(values, key=lambda value: (math.isnan(value), value))[0] == 3.0
    assert len(values) == 2
    assert any(math.isnan(value) for value in values)


def test_merged_rows_leave_those_of_another_problem_alone(tmp_path: Path) -> None:
    """Trials of all problems share a file and have names in common."""
    path = tmp_path / "tuning.csv"
    for problem, minutes in (("qpi", 3.0), ("microscopy", 4.0)):
        stored.merge(path, [Row(problem, "attempt_default", 0, "training", "all", "minutes", minutes)])
    assert {row.problem: row.value for row in stored.read(path)} == {"qpi": 3.0, "microscopy": 4.0}


class _Knows:
    """What is best known of white noise of variance 1/4 after division by ``scale``."""

    def read(self, condition: Tensor) -> Known:
        return Known(condition, None, 2.0, CosineSchedule()(condition))

    def predict(self, noisy: Tensor, log_gamma: Tensor, seen: Tensor) -> Tensor:
        signal, noise = log_gamma.exp() / 4, -torch.expm1(log_gamma)
        return (log_gamma / 2).exp() / 4 / (signal + noise) * noisy


def test_what_is_not_known_of_white_noise_is_what_theory_says() -> None:
    target = torch.randn(1, 1, 256, 256, generator=torch.Generator().manual_seed(0))
    found = unknown_share(cast("CVDM", _Knows()), target, target, seed=1)
    for level in matrix.LEVELS:
        assert found[f"unknown {level:+d}"] == pytest.approx(1 / (1 + math.exp(level) / 4), rel=0.03)


def test_the_best_trial_is_chosen_once_all_are_measured() -> None:
    trials = matrix.trials("qpi")

    def rows(cells: list[Cell]) -> list[Row]:
        return [Row("qpi", c.method, 0, "validation", "a", "MAE", float(n != 2)) for n, c in enumerate(cells)]

    assert stored.chosen_trial("qpi", Figures(rows(trials))) == trials[2]
    assert stored.chosen_trial("qpi", Figures(rows(trials[:-1]))) is None
