"""Simulated and real pairs of microscopes: layouts, splits, physics."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from sfumato.cli import app
from sfumato.data.pairs import read_manifest
from sfumato.data.sources import FilePairs
from sfumato.physics import structures
from sfumato.problems import microscopy
from sfumato.problems.microscopy_simulation import PHOTON_LEVELS, Microscope, image_field, simulate
from sfumato.problems.registry import open_problem
from sfumato.problems.request import Request
from sfumato.statistics.resolution import decorrelation
from sfumato.system.errors import ImageError, PairingError, RecipeError

NAMES = list(structures.STRUCTURES)
needs_data = pytest.mark.skipif("SFUMATO_DATA" not in os.environ, reason="needs SFUMATO_DATA")


def data(name: str) -> Path:
    return Path(os.environ["SFUMATO_DATA"]) / name


@pytest.mark.parametrize("name", NAMES)
def test_light_patterns_cancel_and_photons_are_as_stated(name: str) -> None:
    """The mean of the raw frames has the level's photons; the frames of a direction have the widefield's mean."""
    settings = Microscope()
    field = image_field(name, side=64, seed=3, levels=[600])
    electrons = (field.raw[0].astype(float) - settings.camera.offset) / settings.camera.gain
    widefield = electrons.mean(0)
    structure = widefield >= widefield.mean()
    assert widefield[structure].mean() == pytest.approx(600, rel=0.02)
    frames = np.stack([electrons[3 * angle : 3 * angle + 3].mean(0) for angle in range(3)])
    error = (frames - widefield).std() / np.sqrt(widefield.mean() * 2 / 9)
    assert error == pytest.approx(1, rel=0.05)
    assert electrons.std(0).mean() > 2 * np.sqrt(widefield.mean())  # each frame shows its pattern, beyond its noise


def test_the_target_is_the_specimen_at_twice_the_cutoff() -> None:
    field = image_field("microtubules", side=128, seed=0, levels=[600])
    spectrum = np.abs(np.fft.fft2((field.target - field.target.mean()) * np.outer(*[np.hanning(256)] * 2)))
    frequency = np.fft.fftfreq(256, 0.0313)
    radius = np.hypot(frequency[:, None], frequency)
    cutoff = Microscope().cutoff
    inside, beyond = (
        spectrum[(radius > low) & (radius < high)].mean()
        for low, high in ((1.2 * cutoff, 1.6 * cutoff), (2.1 * cutoff, 2.4 * cutoff))
    )
    assert inside > 30 * beyond


@pytest.mark.parametrize("name", NAMES)
def test_resolution_of_widefield_images_is_that_of_the_optics(name: str) -> None:
    """By decorrelation analysis, against Rayleigh's 0.61 wavelength / NA.

    Against the cut-off itself, wavelength / 2 NA, it is 17 to 31% longer: the transfer function fades out before it,
    and the estimator finds the last frequency above the noise. `benchmarks/physics.py` prints both.
    """
    settings = Microscope()
    widefield = image_field(name, side=160, seed=0, levels=[600]).raw[0].mean(0)
    found = decorrelation(torch.from_numpy(widefield), pixel_um=settings.pixel_um).resolution_um
    assert found == pytest.approx(0.61 * settings.wavelength_um / settings.numerical_aperture, rel=0.15)


def test_only_seed_structure_cell_and_level_decide() -> None:
    first = image_field("coated_pits", side=32, seed=1, cell=2)
    again = image_field("coated_pits", side=32, seed=1, cell=2, levels=PHOTON_LEVELS[4:6])
    np.testing.assert_array_equal(first.raw[4:6], again.raw)
    for other in (
        image_field("coated_pits", side=32, seed=2, cell=2),
        image_field("coated_pits", side=32, seed=1, cell=3),
    ):
        assert not np.array_equal(first.raw, other.raw)


def test_both_layouts_hold_the_same_pairs(tmp_path: Path) -> None:
    cells = {"train": 1, "validation": 1, "test": 1}
    manifest = simulate(tmp_path / "pairs", seed=5, cells=cells, side=32)
    tree = simulate(tmp_path / "biosr", seed=5, cells=cells, side=32, layout="biosr")
    assert (tree / "ER" / "Cell_016" / "GTSIM" / "GTSIM_level_09.mrc").is_file()
    assert (tree / "F-actin" / "Cell_046" / "SIM_gt.mrc").is_file()
    listed, found = read_manifest(manifest), microscopy.biosr(tree)
    assert len(listed) == len(found) == 4 * 3 * 9
    for split in cells:
        one, two = (FilePairs([p for p in pairs if p.split == split], upsample=True) for pairs in (listed, found))
        order = {two.name(n).replace("level", "widefield_level") + ".tif": n for n in range(len(two))}
        for sample in range(0, len(one), 5):
            other = order[one.name(sample)]
            for a, b in zip(one.read(sample, (0, 0), (64, 64)), two.read(other, (0, 0), (64, 64)), strict=True):
                np.testing.assert_array_equal(a, b)


def test_one_structure_and_some_levels_of_biosr(tmp_path: Path) -> None:
    tree = simulate(
        tmp_path / "biosr", seed=0, cells={"train": 1}, side=24, layout="biosr", levels=[50, 90], names=["f_actin"]
    )
    (tree / "F-actin" / "Cell_051").mkdir()
    assert [pair.name for pair in microscopy.biosr(tree / "F-actin", min_level=2)] == ["F-actin/Cell_016/level_02"]
    opened = open_problem("biosr", Request(folder=tree, forward={"max_level": 1.0}, upsample=True))
    assert {split: len(source) for split, source in opened.items()} == {"train": 1}
    (tree / "F-actin" / "Cell_016" / "SIM_gt.mrc").unlink()
    with pytest.raises(PairingError, match="no SIM image; expected SIM_gt"):
        microscopy.biosr(tree)
    with pytest.raises(PairingError, match="expected folders such as Microtubules"):
        microscopy.biosr(tree, min_level=5)


def test_wrong_requests_say_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="did you mean 'biosr'"):
        open_problem("biosrs", Request(folder=tmp_path))
    with pytest.raises(RecipeError, match="did you mean 'min_level'"):
        open_problem("biosr", Request(folder=tmp_path, forward={"minlevel": 1.0}))
    with pytest.raises(RecipeError, match="whole number"):
        open_problem("biosr", Request(folder=tmp_path, forward={"min_level": 1.5}))
    with pytest.raises(PairingError, match="does not exist"):
        open_problem("tsim", Request(folder=tmp_path / "nowhere"))
    with pytest.raises(ImageError, match="BioSR has 15 test, 30 train"):
        simulate(tmp_path / "many", seed=0, cells={"train": 31})
    (tmp_path / "file").touch()
    with pytest.raises(ImageError, match="not an empty folder"):
        simulate(tmp_path, seed=0, cells={"train": 1})


def test_the_command_simulates(tmp_path: Path) -> None:
    command = ["simulate", "microscopy", "--out", str(tmp_path / "set"), "--side", "24", "--train", "1"]
    result = CliRunner().invoke(app, [*command, "--validation", "0", "--test", "0"])
    assert result.exit_code == 0, result.output
    assert len(read_manifest(tmp_path / "set" / "manifest.csv")) == 4 * 9


@needs_data
@pytest.mark.parametrize(
    ("word", "folder", "counts"),
    [
        ("tsim", "fluor_sim_pairs/tsim_er", {"train": 6, "test": 3}),
        ("dlsim", "fluor_sim_pairs/dlsim_mt", {"test": 2}),
        ("sted", "fluor_sted", {"train": 5, "validation": 5, "test": 1}),
        ("storm", "fluor_wf_storm", {"train": 1, "test": 1}),
    ],
)
def test_real_pairs_show_the_same_thing(word: str, folder: str, counts: dict[str, int]) -> None:
    """By the correlation of both images between fine noise and slow background; of another field it would be 0."""
    opened = open_problem(word, Request(folder=data(folder), upsample=True))
    assert {split: len(source) for split, source in opened.items()} == counts
    for source in opened.values():
        for sample in range(len(source)):
            sides = source.read(sample, (0, 0), source.spatial(sample))
            one, two = (detail(torch.from_numpy(side.astype(np.float32))[None]) for side in sides)
            correlation = float((one * two).mean() / (one.std() * two.std()))
            assert correlation > 0.5, f"{source.name(sample)}: {correlation}"


def detail(image: torch.Tensor) -> torch.Tensor:
    coarse = torch.nn.functional.avg_pool2d(image, 4)
    detail = coarse - torch.nn.functional.avg_pool2d(coarse, 15, stride=1, padding=7, count_include_pad=False)
    return detail - detail.mean()


@pytest.mark.parametrize(
    ("word", "forward", "message"),
    [
        ("biosr", {"max_level": 2.5}, "forward.max_level is 2.5; expected a whole number"),
        ("storm", {"bin": 3}, "forward.bin is 3; choose 1, 2 or 4"),
        ("tsim", {"bin": 2}, "forward has no parameter 'bin'; known: none"),
        ("sted", {"folder": 1}, "forward has no parameter 'folder'"),
    ],
)
def test_wrong_parameters_of_data_sets(word: str, forward: dict[str, float], message: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=message):
        open_problem(word, Request(folder=tmp_path, forward=forward))


@needs_data
def test_fields_do_not_cross_splits() -> None:
    for function, folder in ((microscopy.tsim, "fluor_sim_pairs/tsim_er"), (microscopy.sted, "fluor_sted")):
        pairs = function(data(folder))
        fields = {split: {p.name.split("/")[0] for p in pairs if p.split == split} for split in ("train", "test")}
        assert not fields["train"] & fields["test"]
