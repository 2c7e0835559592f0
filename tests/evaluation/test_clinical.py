"""`sfumato clinical` on a stack of known phase: what it writes and scores is what a direct computation gives."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from optical_images import WAVE, even_band_limited
from sfumato.cli import app
from sfumato.data.images.io import open_image, write_image
from sfumato.physics import fresnel, through_focus, tie
from sfumato.problems.clinical import read_stack
from sfumato.statistics.metrics import ms_ssim
from sfumato.system.errors import ImageError

SIDE, SHOT, DISTANCES = 180, 2, list(range(-4, 5))
OPTICS = ["--wavelength-um", str(WAVE["wavelength_um"]), "--pixel-um", str(WAVE["pixel_um"])]
SOLVERS = {"us_tie": tie.solve_us_tie, "tie_cg": tie.solve_conjugate_gradients}


@pytest.fixture(scope="module")
def phase() -> Tensor:
    return even_band_limited(SIDE, SIDE, seed=3, high=2.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, phase: Tensor) -> Path:
    """Nine planes in uneven light, and the lamp's own unevenness as the reference."""
    folder = tmp_path_factory.mktemp("stacks") / "cell"
    folder.mkdir()
    light, lamp = (even_band_limited(SIDE, SIDE, seed=seed, low=0.6) for seed in (4, 5))
    for z in DISTANCES:
        plane = fresnel.defocused_intensity(phase, light, float(z), margin=SIDE // 2, **WAVE)
        write_image(folder / f"z{z:+04d}um.tif", (500 * lamp * plane).float().numpy(), axes="YX")
    write_image(folder / "reference.tif", (500 * lamp).float().numpy(), axes="YX")
    return folder


def run(*options: str) -> str:
    done = CliRunner().invoke(app, ["clinical", *options])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_scores_are_those_of_a_direct_computation(solver: str, folder: Path, phase: Tensor, tmp_path: Path) -> None:
    """Written out from the files on: flat field, polynomial of order 4, solver, two shots, and the similarity."""
    options = ["--shot-um", str(SHOT), "--solver", solver, "--iterations", "9", "--out", str(tmp_path)]
    said = run(str(folder), *OPTICS, *options)
    lamp = torch.from_numpy(open_image(folder / "reference.tif").read({}))
    planes = torch.stack([torch.from_numpy(open_image(folder / f"z{z:+04d}um.tif").read({})) / lamp for z in DISTANCES])
    planes = (planes / planes[4].mean()).double()
    slope = through_focus.axial_derivative(planes, DISTANCES, 4)
    truth = SOLVERS[solver](slope, planes[4], max_iterations=9, **WAVE).phase
    above, below = planes[DISTANCES.index(SHOT)], planes[DISTANCES.index(-SHOT)]
    guess = SOLVERS[solver]((above - below) / (2 * SHOT), (above + below) / 2, max_iterations=9, **WAVE).phase
    centred = [(found - found.mean())[None, None] for found in (guess, truth)]
    least = centred[1].min()
    expected = float(ms_ssim(centred[0] - least, centred[1] - least))
    with (tmp_path / "ms_ssim.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["stack"] == "cell"
    assert float(row[solver]) == pytest.approx(expected, abs=2e-4)
    assert f"cell: {solver} {expected:.3f}" in said
    np.testing.assert_allclose(open_image(tmp_path / "cell_pseudo_truth.tif").read({}), centred[1][0, 0], atol=1e-4)
    np.testing.assert_allclose(open_image(tmp_path / f"cell_{solver}.tif").read({}), centred[0][0, 0], atol=1e-4)
    # The known phase itself: the polynomial is closer to it than two shots are.
    errors = [float((found[0, 0] - phase).std() / phase.std()) for found in centred]
    assert errors[1] < 0.05
    assert errors[1] < errors[0]


def test_turned_distances_give_the_negative_phase_and_crops_are_of_the_middle(folder: Path, tmp_path: Path) -> None:
    for name, extra in (("plain", []), ("turned", ["--flip"])):
        options = ["--shot-um", "2", "--crop-px", "176", "--reach-um", "3", "--solver", "tie_fft"]
        run(str(folder), *OPTICS, *options, *extra, "--out", str(tmp_path / name))
    plain, turned = (open_image(tmp_path / name / "cell_pseudo_truth.tif").read({}) for name in ("plain", "turned"))
    assert plain.shape == (176, 176)
    np.testing.assert_allclose(plain, -turned, atol=1e-5)
    whole, cut = read_stack(folder), read_stack(folder, crop_px=176)
    middle = whole.planes[:, 2:178, 2:178]
    torch.testing.assert_close(cut.planes, middle / middle[4].mean())


def test_what_is_wrong_is_said(folder: Path, tmp_path: Path) -> None:
    for options, message in (
        (["--solver", "magic"], "choose one of tie_fft, us_tie, tie_cg"),
        (["--shot-um", "2.5"], "no plane at 2.5 um"),
    ):
        failed = CliRunner().invoke(app, ["clinical", str(folder), *OPTICS, *options, "--out", str(tmp_path)])
        assert failed.exit_code == 2
        assert message in failed.output
    with pytest.raises(ImageError, match=r"180 x 180 pixels and crop_px is 200"):
        read_stack(folder, crop_px=200)
