"""Steps chosen by calibration: against closed forms where the posterior is known, and the rule case by case."""

import csv
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from typer.testing import CliRunner

from calibrated_draws import GaussianDraws
from exact_problems import sampler_moments
from pair_folders import make_pairs
from sfumato import load, restore
from sfumato.cli import app
from sfumato.data.images.io import open_image, write_image
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.sampling import sample
from sfumato.evaluation.inspection import crops
from sfumato.evaluation.sampler_settings import Comparison, Setting, compare_settings, recommend, summarise_settings
from sfumato.evaluation.sampler_settings_page import draw_steps, explain, step_table
from sfumato.models.intervals import Correction, Sampled
from sfumato.models.model_updates import set_calibration, set_sampling
from sfumato.statistics.rank_histogram import central_interval
from sfumato.system.errors import RecipeError
from sfumato.training.preparation import open_test_set
from sfumato.training.train import train
from small_runs import recipe

STEPS = (2, 4, 8, 16)
NUM_SAMPLES, NUM_IMAGES, SIDE, LEVEL = 15, 24, 6, 0.9
TOLERANCE = 0.02


class Exact:
    """A blurred Gaussian inverse problem: its truths, and what a sampler with the exact denoiser draws."""

    def __init__(self) -> None:
        self.made = GaussianDraws(SIDE, blur=0.8, noise=0.3)
        self.problem = self.made.problem
        generator = torch.Generator().manual_seed(1)
        unit = torch.randn(2, NUM_IMAGES, SIDE**2, generator=generator, dtype=torch.float64)
        truths = unit[0] @ self.made.prior_root.T
        measured = truths @ self.made.operator.T + self.made.noise * unit[1]
        shape = (NUM_IMAGES, 1, SIDE, SIDE)
        self.truths, self.measured = truths.view(shape), measured.view(shape)

    def draw(self, setting: Setting, image: int) -> Tensor:
        condition = self.measured[image : image + 1]
        noise = NoiseField(3, image=image)
        settings: dict[str, Any] = {"num_steps": setting.num_steps, "solver": setting.solver, "eta": setting.eta}
        return sample(self.problem, condition, num_samples=NUM_SAMPLES, seed=noise, **settings)[:, 0]

    def expected(self, setting: Setting) -> tuple[float, float]:
        """Mean CRPS and coverage in closed form: of every pixel the draws are Gaussian, and so is the truth.

        With draws N(m, s^2) and a truth N(m, v^2): E|x - y| - E|x - x'|/2 = sqrt(2 (s^2 + v^2) / pi) - s / sqrt(pi).
        A truth at y has a binomial number of draws below it.
        """
        condition = torch.zeros(1, 1, SIDE, SIDE, dtype=torch.float64)
        settings = {"num_steps": setting.num_steps, "solver": setting.solver, "eta": setting.eta}
        _, covariance = sampler_moments(self.problem, condition, **settings)
        s, v = covariance.diagonal().sqrt(), self.problem.covariance.diagonal().sqrt()
        crps = (2 * (s**2 + v**2) / math.pi).sqrt() - s / math.sqrt(math.pi)
        i, j = central_interval(NUM_SAMPLES, LEVEL)
        z = torch.linspace(-8, 8, 4001, dtype=torch.float64)
        density = torch.distributions.Normal(0.0, 1.0).log_prob(z).exp()
        below = torch.special.ndtr(z * (v / s)[:, None])
        inside = sum(math.comb(NUM_SAMPLES, k) * below**k * (1 - below) ** (NUM_SAMPLES - k) for k in range(i, j))
        coverage = torch.trapezoid(inside * density, z, dim=1)
        return float(crps.mean()), float(coverage.mean())


@pytest.fixture(scope="module")
def exact() -> Exact:
    return Exact()


@pytest.fixture(scope="module")
def found(exact: Exact) -> Comparison:
    settings = [Setting(solver, steps) for solver in ("2m", "first_order") for steps in STEPS]
    return compare_settings(exact.draw, lambda image: exact.truths[image], settings, num_images=NUM_IMAGES, level=LEVEL)


def test_coverage_rises_with_steps_to_what_exact_draws_have(found: Comparison, exact: Exact) -> None:
    """Two-step extrapolation may overshoot a little once it is there, so rising is asked for below only."""
    for first in (0, len(STEPS)):
        coverage = found.coverage[first : first + len(STEPS)].mean(1)
        below = coverage[:-1] < found.expected - 0.03
        assert bool((np.diff(coverage)[below] > 0.02).all())
        assert coverage[0] < found.expected - 0.2
    two_step = found.coverage[: len(STEPS)].mean(1)
    np.testing.assert_allclose(two_step[-2:], found.expected, atol=0.03)
    assert found.expected == pytest.approx(14 / 16)


def test_figures_are_those_of_the_closed_forms(found: Comparison, exact: Exact) -> None:
    """Within the bootstrap's own width; coverage is only rarely further than that."""
    rows = summarise_settings(found)
    for setting, row in zip(found.settings, rows, strict=True):
        crps, coverage = exact.expected(setting)
        assert row.crps.value == pytest.approx(crps, abs=2 * (row.crps.high - row.crps.low))
        assert row.coverage.value == pytest.approx(coverage, abs=2 * (row.coverage.high - row.coverage.low))
    converged = rows[len(STEPS) - 1]
    assert converged.spread_over_error.low < 1 < converged.spread_over_error.high
    assert rows[0].spread_over_error.high < 0.8
    v = exact.problem.covariance.diagonal().mean()
    assert converged.rmse.value == pytest.approx(math.sqrt(v * (1 + 1 / NUM_SAMPLES)), rel=0.05)


def test_the_recommended_setting_is_the_one_that_the_closed_forms_recommend(found: Comparison, exact: Exact) -> None:
    truth = [exact.expected(setting) for setting in found.settings]
    lowest = min(crps for crps, _ in truth)
    right = min(
        (setting.num_steps, crps, place)
        for place, (setting, (crps, coverage)) in enumerate(zip(found.settings, truth, strict=True))
        if crps <= lowest * (1 + TOLERANCE) and abs(coverage - found.expected) <= TOLERANCE
    )[2]
    chosen = recommend(found, crps_tolerance=TOLERANCE, coverage_tolerance=TOLERANCE)
    assert found.settings[chosen.chosen] == found.settings[right]
    assert found.settings[right].num_steps not in (STEPS[0], STEPS[-1])  # else the test would show little
    text = "\n".join(explain(found, summarise_settings(found), chosen))
    assert f"recommended: {found.settings[right]}" in text
    assert "not 2m, eta 0, 2 steps: its CRPS is" in text
    assert "confident" not in text


def test_few_steps_cost_calibration_before_they_cost_error(found: Comparison, exact: Exact) -> None:
    """The reason for all this: the error of the mean would have chosen fewer steps."""
    chosen = recommend(found, crps_tolerance=TOLERANCE, coverage_tolerance=TOLERANCE)
    rmse = np.sqrt(found.error.mean(1))
    by_error = min(
        setting.num_steps for setting, value in zip(found.settings, rmse, strict=True) if value <= 1.02 * rmse.min()
    )
    assert by_error < found.settings[chosen.chosen].num_steps


def made(crps: list[list[float]], coverage: list[list[float]], steps: list[int]) -> Comparison:
    values: NDArray[np.float64] = np.array(crps)
    settings = tuple(Setting("2m", number) for number in steps)
    rest = {name: np.ones_like(values) for name in ("spread", "error", "seconds")}
    return Comparison(
        settings=settings, num_samples=9, level=0.9, expected=0.8, crps=values, coverage=np.array(coverage), **rest
    )


def test_differences_are_paired() -> None:
    """Images of very different difficulty: the means' own intervals overlap, the paired difference does not hide."""
    base = np.array([0.1, 1.0, 3.0, 10.0])
    level = np.array([0.5, 0.7, 0.9, 0.95])
    worse = made([(1.05 * base).tolist(), base.tolist()], [level.tolist()] * 2, [4, 8])
    assert recommend(worse, crps_tolerance=0.02).chosen == 1
    assert recommend(worse, crps_tolerance=0.06).chosen == 0
    shifted = made([base.tolist()] * 2, [(level - 0.03).tolist(), level.tolist()], [4, 8])
    assert recommend(shifted, coverage_tolerance=0.02).chosen == 1
    assert recommend(shifted, coverage_tolerance=0.04).chosen == 0


def test_a_tolerance_must_hold_the_interval_and_not_the_middle() -> None:
    sure = made([[1.01] * 6, [1.0] * 6], [[0.8] * 6] * 2, [4, 8])
    assert recommend(sure, crps_tolerance=0.02).chosen == 0
    unsure = made([[1.1, 0.92, 1.1, 0.92, 1.1, 0.92], [1.0] * 6], [[0.8] * 6] * 2, [4, 8])
    assert recommend(unsure, crps_tolerance=0.02).chosen == 1
    alone = made([[1.01], [1.0]], [[0.8], [0.8]], [4, 8])  # one image: no interval
    assert recommend(alone, crps_tolerance=0.02).chosen == 0
    assert "give more images" in "\n".join(explain(alone, summarise_settings(alone), recommend(alone)))


def test_a_coverage_that_is_right_by_accident_does_not_count() -> None:
    """The first has the nearest coverage, but a CRPS far from the best: it is no reference."""
    accident = made([[2.0, 2.1], [1.0, 1.0], [1.0, 1.0]], [[0.8, 0.8], [0.6, 0.6], [0.6, 0.6]], [2, 4, 8])
    chosen = recommend(accident)
    assert (chosen.reference, chosen.chosen) == (1, 1)
    assert "over-confident, and more steps will not fix it" in "\n".join(
        explain(accident, summarise_settings(accident), chosen)
    )


def test_the_largest_number_of_steps_may_be_too_small() -> None:
    rising = made([[2.0, 2.1], [1.0, 1.0]], [[0.3, 0.3], [0.6, 0.6]], [2, 4])
    text = "\n".join(explain(rising, summarise_settings(rising), recommend(rising)))
    assert "4 is the largest number of steps that was tried" in text
    assert "over-confident" in text
    assert "will not fix" not in text


def test_truths_are_brought_to_the_scale_of_models_that_were_trained_so(tmp_path: Path) -> None:
    """Truths stretched a hundredfold: an error in their scale would be some fifty times as large."""
    folders = make_pairs(tmp_path)
    for path in list(Path(folders[1]).iterdir()):
        stretched = 100 * open_image(path).read({})
        path.unlink()
        write_image(path, stretched, axes="YX")
    settings = {"train_steps": 2, "data_match_intensity": True}
    model = train(recipe(folders, **settings), tmp_path / "run", quiet=True).model_file
    command = ["inspect", str(model), "--inputs", folders[0], "--targets", folders[1], "--allow-seen", "--samples", "4"]
    command += ["--solver", "2m", "--most", "2", "--steps", "1,2", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    with (tmp_path / "out" / "steps.csv").open(newline="", encoding="utf-8") as file:
        assert all(float(row["rmse"]) < 3 for row in csv.DictReader(file))


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(RecipeError, match="settings that differ"):
        compare_settings(
            lambda *_: torch.zeros(2, 1, 1), lambda _: torch.zeros(1, 1), [Setting("2m", 4)] * 2, num_images=1
        )
    with pytest.raises(RecipeError, match="tolerances are -1"):
        recommend(made([[1.0]], [[0.8]], [4]), crps_tolerance=-1)


def test_the_figure_has_a_line_per_solver_and_a_ring(found: Comparison) -> None:
    rows, chosen = summarise_settings(found), recommend(found)
    figure = draw_steps(found, rows, chosen)
    for panel, name in zip(figure.axes, ("rmse", "crps", "coverage"), strict=True):
        curves = [line for line in panel.lines if line.get_label() in ("2m, eta 0", "first_order, eta 0")]
        np.testing.assert_allclose(
            np.asarray(curves[0].get_ydata(), float), [getattr(row, name).value for row in rows[: len(STEPS)]]
        )
        ring = [mark for mark in panel.collections if mark.get_label() == "recommended"]
        assert np.asarray(ring[0].get_offsets())[0, 1] == getattr(rows[chosen.chosen], name).value
    lines = step_table(found, rows, chosen)
    assert sum(line.startswith("| **") for line in lines) == 1


def test_the_command_compares_and_recommends(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path)
    model = train(recipe(folders, train_steps=2), tmp_path / "run", quiet=True).model_file
    command = ["inspect", str(model), "--inputs", folders[0], "--targets", folders[1], "--allow-seen", "--samples", "4"]
    command += ["--solver", "2m", "--solver", "first_order:0.5", "--most", "2", "--crop", "16"]
    done = CliRunner().invoke(app, [*command, "--steps", "4,2", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "recommended: " in done.output
    with (tmp_path / "out" / "steps.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["solver"], row["eta"], row["steps"]) for row in rows] == [
        ("2m", "0.0", "2"), ("2m", "0.0", "4"), ("first_order", "0.5", "2"), ("first_order", "0.5", "4"),
    ]  # fmt: skip
    assert [row["recommended"] for row in rows].count("True") == 1
    assert all(float(row["seconds_per_draw"]) > 0 for row in rows)
    assert (tmp_path / "out" / "steps.png").stat().st_size > 1000
    for wrong, message in (
        (["--steps", "4"], "expected several numbers"),
        (["--steps", "4,4"], "several that differ"),
        (["--steps", "4,x"], "expected a number of network calls"),
        (["--steps", "4,8", "--solver", "euler"], "expected 2m, first_order, gaussian or algorithm2"),
        (["--steps", "4,8", "--solver", "algorithm2:1"], "expected 2m, first_order, gaussian or algorithm2"),
    ):
        refused = CliRunner().invoke(app, [*command, *wrong])
        assert refused.exit_code == 2
        assert message in " ".join(refused.output.split())


def inspect_two(model: Path, folders: tuple[str, str], *, num_samples: int) -> list[str]:
    """The command that looks at two of a model's own training pairs."""
    pairs = ["--inputs", folders[0], "--targets", folders[1], "--allow-seen", "--most", "2"]
    return ["inspect", str(model), *pairs, "--samples", str(num_samples)]


def test_steps_of_volumes_are_compared_too(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path, number=3, shape=(16, 20, 24))
    model = train(recipe(folders, train_steps=2, model_ndim=3), tmp_path / "run", quiet=True).model_file
    command = inspect_two(model, folders, num_samples=2)
    done = CliRunner().invoke(app, [*command, "--solver", "2m", "--steps", "2,3", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output


def test_the_recommended_setting_is_adopted(tmp_path: Path) -> None:
    """A model file that adopted a setting is one whose recipe says so, and promises nothing of other draws."""
    folders = make_pairs(tmp_path)
    settings = {"train_steps": 2, "sample_steps": 3}
    model = train(recipe(folders, **settings), tmp_path / "run", quiet=True).model_file
    calibrated = Correction("risk_control", 0.9, 1.5, 30, 30, 0.5, Sampled(4, 3, "2m", 0.0))
    set_calibration(model, calibrated)
    command = inspect_two(model, folders, num_samples=4)
    command += ["--solver", "2m:0.5", "--out", str(tmp_path / "out")]
    before = model.read_bytes()
    noises = ["--last-noise", "0.02", "--last-noise", "0.3"]
    done = CliRunner().invoke(app, [*command, *noises])
    assert done.exit_code == 0, done.output
    assert "draws by: 2m, eta 0, 3 steps" in done.output
    assert model.read_bytes() == before
    with (tmp_path / "out" / "steps.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["eta"], row["last_noise"], row["steps"]) for row in rows] == [
        ("0.5", "0.02", "3"),
        ("0.5", "0.3", "3"),
    ]
    assert rows[0]["crps"] != rows[1]["crps"]

    done = CliRunner().invoke(app, [*command, *noises, "--adopt"])
    assert done.exit_code == 0, done.output
    assert "calibrate it again" in done.output
    best = next(row for row in rows if row["recommended"] == "True")
    last_noise = float(best["last_noise"])
    adopted = load(model)
    told = recipe(folders, **settings, sample_eta=0.5, sample_last_noise=last_noise)
    assert adopted.info.recipe.sample == told.sample
    assert adopted.info.calibration is None
    (tmp_path / "before.safetensors").write_bytes(before)
    image = np.asarray(open_image(Path(folders[0]) / "image0.tif").read())
    was, now = (restore(image, each, num_samples=2).mean for each in (load(tmp_path / "before.safetensors"), adopted))
    assert not np.array_equal(was, now)

    drawn_so = dataclasses.replace(calibrated, sampled=Sampled(4, 3, "2m", 0.5, last_noise))
    set_calibration(model, drawn_so)
    assert set_sampling(model, adopted.info.recipe.sample).calibration == drawn_so
    for wrong, message in (
        (["--last-noise", "0.1", "--last-noise", "0.1"], "between 0 and 1 that differ"),
        (["--last-noise", "0", "--last-noise", "0.1"], "between 0 and 1 that differ"),
        (["--adopt"], "expected several numbers"),
    ):
        refused = CliRunner().invoke(app, [*command, *wrong])
        assert refused.exit_code == 2
        assert message in " ".join(refused.output.split())


def test_crops_have_the_range_of_the_whole(tmp_path: Path) -> None:
    """A crop of an image that is scaled by its own range is that part of the scaled image."""
    folders = make_pairs(tmp_path)
    whole = recipe(folders, train_steps=2, data_normalize="image")
    model = load(train(whole, tmp_path / "run", quiet=True).model_file)
    pairs = open_test_set(whole)
    for (small, small_truth), (large, large_truth) in zip(
        crops(model, pairs, most=3, crop=16), crops(model, pairs, most=3), strict=True
    ):
        torch.testing.assert_close(small, large[:, :, 4:20, 8:24])
        torch.testing.assert_close(small_truth, large_truth[:, 4:20, 8:24])
        assert small_truth.shape == (1, 16, 16)


def test_the_documented_example_is_the_stored_one() -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs" / "calibration_vs_steps.md").read_text(encoding="utf-8")
    with (root / "experiments" / "results" / "steps_w2s.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            eta = "" if row["solver"] == "gaussian" else f", eta {float(row['eta']):g}"
            name = f"{row['solver']}{eta}, {row['steps']} steps"
            name = f"**{name}**" if row["recommended"] == "True" else name
            line = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
            # Compared as numbers: the page rounds what was measured, the file six digits of it.
            rmse, crps, coverage = (float(cell.split()[0]) for cell in _cells(line, 1, 2, 4))
            assert coverage == pytest.approx(float(row["coverage"]), abs=6e-4)
            assert crps == pytest.approx(float(row["crps"]), rel=6e-4)
            assert rmse == pytest.approx(float(row["rmse"]), rel=6e-4)


def _cells(line: str, *columns: int) -> list[str]:
    """Cells of a row of a Markdown table."""
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    return [cells[column] for column in columns]
