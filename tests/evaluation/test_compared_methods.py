"""The transport equation as a baseline of `sfumato evaluate`: a known phase comes back, from both geometries."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from optical_images import WAVE, even_band_limited
from sfumato.cli import app
from sfumato.data.images.io import write_image
from sfumato.data.pairs import find_pairs
from sfumato.data.sources import FilePairs
from sfumato.evaluation.compared_methods import Method, TwoShots, classical_method, phase_method
from sfumato.evaluation.evaluate import evaluate, summarise
from sfumato.evaluation.report_page import markdown
from sfumato.physics import fresnel, tie
from sfumato.physics.phase_retrieval import SOLVERS, solve, two_shot_phase
from sfumato.statistics import metrics
from sfumato.system.errors import ImageError, RecipeError

DEFOCUS = 0.1
GEOMETRIES: dict[str, tuple[float, ...]] = {"1,-1": (1.0, -1.0), "0,1": (0.0, 1.0), "-1,0": (-1.0, 0.0)}


def known_phase(seed: int = 0, side: int = 64) -> Tensor:
    """In radians, mean 0; its even continuation is smooth, as solvers and propagation take it."""
    phase = even_band_limited(side, side, seed=seed, high=2.0)
    return phase - phase.mean()


def shots(phase: Tensor, planes: tuple[float, ...], intensity: Tensor | None = None) -> Tensor:
    distances = DEFOCUS * torch.tensor(planes, dtype=torch.float64)[:, None, None]
    light = torch.ones_like(phase) if intensity is None else intensity
    stacked = phase.expand(2, -1, -1)
    return fresnel.defocused_intensity(stacked, light, distances, margin=len(phase) // 2, **WAVE)


def error(found: Tensor, phase: Tensor) -> float:
    return float((found - found.mean() - phase).std() / phase.std())


def method(name: str, planes: tuple[float, ...] = (1.0, -1.0), **options: Any) -> Method:
    return phase_method(name, TwoShots(WAVE["pixel_um"], WAVE["wavelength_um"], DEFOCUS, planes, **options))


@pytest.mark.parametrize("planes", GEOMETRIES.values(), ids=list(GEOMETRIES))
@pytest.mark.parametrize("name", SOLVERS)
def test_a_known_phase_comes_back(name: str, planes: tuple[float, ...]) -> None:
    """A central difference errs with the square of the distance, a one-sided one with the distance."""
    phase = known_phase()
    found = torch.from_numpy(method(name, planes).run(shots(phase, planes).numpy(), 0))
    assert found.shape == (1, 64, 64)
    assert found.dtype == torch.float32
    assert error(found[0].double(), phase) < (0.005 if 0 not in planes else 0.05)
    assert float(found.mean()) == pytest.approx(0, abs=1e-5)


def test_results_are_those_of_the_solvers_themselves() -> None:
    phase, light = known_phase(1), even_band_limited(64, 64, seed=2, low=0.4)
    pair = shots(phase, (1.0, -1.0), light)
    slope, focus = (pair[0] - pair[1]) / (2 * DEFOCUS), pair.mean(0)
    direct = {
        "tie_fft": tie.solve_tikhonov(slope, focus, reg=1e-8, **WAVE),
        "us_tie": tie.solve_us_tie(slope, focus, reg=1e-8, max_iterations=7, **WAVE).phase,
        "tie_cg": tie.solve_conjugate_gradients(slope, focus, reg=1e-8, max_iterations=7, **WAVE).phase,
        "tie_uniform": tie.solve_tikhonov(slope, focus.mean(), reg=1e-8, **WAVE),
    }
    assert set(direct) == set(SOLVERS)
    for name, expected in direct.items():
        found = method(name, reg=1e-8, max_iterations=7).run(pair.numpy(), 0)[0]
        np.testing.assert_allclose(found, (expected - expected.mean()).float(), atol=1e-6)


def test_uneven_light_needs_iterations() -> None:
    phase, light = known_phase(1), even_band_limited(64, 64, seed=2, low=0.3)
    pair = shots(phase, (0.0, 1.0), light).numpy()
    found = {
        name: error(torch.from_numpy(method(name, (0.0, 1.0)).run(pair, 0)[0]).double(), phase) for name in SOLVERS
    }
    iterated = max(found["us_tie"], found["tie_cg"])
    assert min(found["tie_fft"], found["tie_uniform"]) > 5 * iterated
    assert iterated < 0.05


def test_behind_a_transparent_specimen_uniform_light_is_the_better_guess() -> None:
    """Far from focus the mean of two shots is not uniform, though the light in focus is."""
    phase, far = known_phase(1), (8.0, -8.0)
    pair = shots(phase, far).numpy()
    found = {name: error(torch.from_numpy(method(name, far).run(pair, 0)[0]).double(), phase) for name in SOLVERS}
    assert found["tie_uniform"] < 0.7 * found["tie_fft"]


def test_the_scale_of_intensities_does_not_matter_nor_do_dark_pixels_stop_it() -> None:
    pair = shots(known_phase(), (1.0, -1.0))
    one, other = (method("tie_cg").run((scale * pair).numpy(), 0) for scale in (1.0, 1000.0))
    np.testing.assert_allclose(one, other, atol=1e-5)
    pair[:, 3, 4] = 0
    assert np.isfinite(method("tie_fft").run(pair.numpy(), 0)).all()


def test_the_residual_of_a_single_solve_is_what_it_leaves_unexplained() -> None:
    """None in uniform light; nearly all where the light is as uneven as the phase."""
    phase, light = known_phase(1), even_band_limited(64, 64, seed=2, low=0.3)
    for intensity, low, high in ((torch.ones_like(light), 0.0, 1e-6), (light, 0.01, 10.0)):
        slope = tie.transport(phase, intensity, **WAVE)
        assert low <= float(solve(slope, intensity, solver="tie_fft", reg=0.0, **WAVE).residual) < high


def test_what_is_missing_or_wrong_is_said() -> None:
    with pytest.raises(RecipeError, match="give --pixel-um, --wavelength-um and --defocus-um"):
        phase_method("us_tie", None)
    with pytest.raises(RecipeError, match="choose one of tie_fft, us_tie, tie_cg"):
        phase_method("magic", TwoShots(0.2, 0.5, 1.0))
    with pytest.raises(RecipeError, match="tie_cg"):
        classical_method("magic")
    with pytest.raises(RecipeError, match="a distance other than 0"):
        TwoShots(0.2, 0.5, 0.0)
    with pytest.raises(RecipeError, match="give 1,-1 or 0,1"):
        TwoShots(0.2, 0.5, 1.0, (1.0, 0.0, -1.0))
    with pytest.raises(ImageError, match=r"us_tie cannot run: the shots have shape \(1, 8, 8\).*expected two channels"):
        method("us_tie").run(np.ones((1, 8, 8)), 0)
    with pytest.raises(ImageError, match="mean intensity in focus is 0, expected above 0"):
        method("us_tie").run(np.zeros((2, 8, 8)), 0)
    with pytest.raises(ValueError, match="no solver is called"):
        two_shot_phase(torch.ones(2, 8, 8), (1.0, -1.0), solver="magic", **WAVE)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs in focus and defocused, and phases with a constant that no method can know."""
    folder = tmp_path_factory.mktemp("phases")
    for number in range(3):
        phase = known_phase(number)
        for name, image, axes in (
            ("shots", shots(phase, (0.0, 1.0)), "CYX"),
            ("phases", phase + 7 * number - 3, "YX"),
        ):
            (folder / name).mkdir(exist_ok=True)
            write_image(folder / name / f"cell{number}.tif", image.float().numpy(), axes=axes)
    return folder


def test_the_unknown_constant_is_removed_on_request(folders: Path) -> None:
    source = FilePairs(find_pairs(folders / "shots", folders / "phases"))
    found = evaluate([method("tie_fft", (0.0, 1.0))], source, remove_mean=True, num_examples=3)
    plain = evaluate([method("tie_fft", (0.0, 1.0))], source)
    for number in range(3):
        condition, truth = (
            torch.from_numpy(np.asarray(side, np.float64)) for side in source.read(number, [0, 0], (64, 64))
        )
        estimate = torch.from_numpy(method("tie_fft", (0.0, 1.0)).run(condition.numpy(), 0)).double()
        expected = metrics.mae((estimate - estimate.mean())[None], (truth - truth.mean())[None])
        assert found.values[0, 0, number] == pytest.approx(float(expected), rel=1e-6)
        constant = abs(7 * number - 3)
        assert plain.values[0, 0, number] == pytest.approx(constant, rel=0.1)
        shown = found.examples[number]
        assert shown.truth.min() == 0
        assert shown.estimates[0].mean() == pytest.approx(shown.truth.mean(), abs=1e-9)
    assert "given its truth's mean" in markdown(found, summarise(found))
    assert "given its truth's mean" not in markdown(plain, summarise(plain))


def test_the_command_evaluates_all_solvers(folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    places = ["--inputs", str(folders / "shots"), "--targets", str(folders / "phases"), "--out", str(out)]
    optics = ["--pixel-um", str(WAVE["pixel_um"]), "--wavelength-um", str(WAVE["wavelength_um"])]
    names = [part for name in SOLVERS for part in ("--baseline", name)]
    geometry = ["--defocus-um", str(DEFOCUS), "--planes", "0,1", "--remove-mean"]
    done = CliRunner().invoke(app, ["evaluate", *names, *places, *optics, *geometry])
    assert done.exit_code == 0, done.output
    assert f"| metric | {' | '.join(SOLVERS)} |" in done.output
    assert "shots at 0 and 0.1 um" in done.output
    with (out / "scores.csv").open(encoding="utf-8") as file:
        errors = [float(row["MAE"]) for row in csv.DictReader(file)]
    assert len(errors) == 3 * len(SOLVERS)
    assert max(errors) < 0.05
    failed = CliRunner().invoke(app, ["evaluate", *names, *places, *optics])
    assert failed.exit_code == 2
    assert "--defocus-um" in failed.output
    wrong = CliRunner().invoke(app, ["evaluate", *names, *places, *optics, "--defocus-um", "1", "--planes", "a"])
    assert wrong.exit_code == 2
    assert "expected numbers with commas" in wrong.output
