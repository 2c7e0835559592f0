"""Phases simulated from photographs: the transport equation holds, noise is as stated, a patch is part of the whole."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from data_sets import make_photographs
from optical_images import WAVE, band_limited
from sfumato.data.images.io import write_image
from sfumato.physics import fresnel, tie
from sfumato.problems.clinical import Stack, protocol, read_stack, two_shot_tie
from sfumato.problems.phase import PhasePairs, transported
from sfumato.problems.phase_settings import Geometry, PhaseSettings, intensities
from sfumato.problems.photographs import Photographs, find_photographs
from sfumato.problems.registry import open_problem
from sfumato.problems.request import ForwardParameters, Request
from sfumato.system.errors import PairingError, RecipeError


def opened(folder: Path, **forward: float | tuple[float, ...]) -> dict[str, PhasePairs]:
    values: ForwardParameters = {"side_px": 48.0, **forward}
    found = open_problem("phase", Request(folder=folder, forward=values, seed=7))
    assert all(isinstance(source, PhasePairs) for source in found.values())
    return found  # type: ignore[return-value]


def specimen_on_a_flat_ground(side: int, seed: int) -> torch.Tensor:
    """A phase that is 0 at the border, so that it does not matter how it goes on beyond."""
    place = torch.linspace(0, torch.pi, side, dtype=torch.float64)
    window = place.sin().square()[:, None] * place.sin().square()
    return window * band_limited(side, side, seed=seed, high=1.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = [*(f"train/n{k}/{k}.png" for k in range(4)), "val/v.png", "test/t.png"]
    return make_photographs(tmp_path / "photographs", names)


def test_two_shots_give_the_phase_back_by_the_transport_equation() -> None:
    phase = specimen_on_a_flat_ground(96, seed=0)
    shots = intensities(phase, Geometry((0.2, -0.2), WAVE["wavelength_um"], WAVE["pixel_um"]))
    slope = (shots[0] - shots[1]) / 0.4
    found = tie.solve_tikhonov(slope, torch.ones(()), **WAVE)
    assert float((found - phase).std()) < 0.001 * float(phase.std())


def test_patches_are_parts_of_the_whole_to_the_bit(folder: Path) -> None:
    source = opened(folder)["train"]
    whole = source.read(2, (0, 0), (48, 48))
    for side, part in zip(whole, source.read(2, (5, 9), (17, 22)), strict=True):
        np.testing.assert_array_equal(part, side[:, 5:22, 9:31])


def test_noise_has_the_mean_and_deviation_of_its_level_and_none_in_tests(folder: Path) -> None:
    noisy, clean = opened(folder)["train"], opened(folder, noise=0.0)["train"]
    levels = {noisy.noise_level(sample) for sample in range(4)}
    assert len(levels) == 4
    assert all(0 < level < 0.2 for level in levels)
    for sample in range(4):
        noise = np.subtract(*(np.asarray(s.read(sample, (0, 0), (48, 48))[0], float) for s in (noisy, clean)))
        level, number = noisy.noise_level(sample), noise.size
        assert noise.mean() == pytest.approx(level, abs=4 * level / number**0.5)
        assert noise.std() == pytest.approx(level, rel=4 / (2 * number) ** 0.5)
        assert abs(np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]) < 4 / (number / 2) ** 0.5
    assert opened(folder)["test"].noise_level(0) == 0


def test_views_are_other_squares_of_the_same_photographs(folder: Path) -> None:
    """The first is the central one; each is a function of its number, whatever was read before."""
    central, several = opened(folder, noise=0.0)["train"], opened(folder, noise=0.0, views=3.0, draws=9.0)["train"]
    whole = ((0, 0), (48, 48))
    for photograph in range(4):
        phases = [np.asarray(several.read(4 * draw + photograph, *whole)[1], float) for draw in range(4)]
        np.testing.assert_array_equal(phases[0], central.read(photograph, *whole)[1])
        np.testing.assert_array_equal(phases[0], phases[3])
        assert all(np.abs(a - b).max() > 0.1 for a, b in itertools.combinations(phases[:3], 2))
    assert several.num_images == 4


def test_a_part_of_a_photograph_lies_where_it_was_asked_for(tmp_path: Path) -> None:
    ramp = np.arange(64, dtype=np.uint8)[:, None] + np.zeros((64, 64), np.uint8)
    write_image(tmp_path / "ramp.png", ramp, axes="YX")
    photographs = Photographs([str(tmp_path / "ramp.png")], side_px=32)
    part = 255 * photographs.read_part(0, 0.5, (1.0, 0.0))
    np.testing.assert_allclose(part[0], ramp[32:, :32], atol=1e-4)
    np.testing.assert_allclose(255 * photographs.read_part(0, 1.0, (0.3, 0.9)), 255 * photographs.read(0), atol=1e-4)


def test_random_geometry_stays_between_its_ends_and_draws_differ(folder: Path) -> None:
    source = opened(folder, defocus_um=1.0, defocus_max_um=4.0, pixel_max_um=0.42, draws=50.0, side_px=96.0)["train"]
    assert len(source) == 200
    distances = [source.geometry(sample).distances_um[0] for sample in range(200)]
    assert 1 <= min(distances) < 1.1 < 3.7 < max(distances) <= 4
    # Even in the logarithm: half of them below the geometric mean, within four standard errors.
    assert np.mean(np.array(distances) < 2) == pytest.approx(0.5, abs=4 * 0.5 / 200**0.5)
    assert distances == [source.geometry(sample).distances_um[0] for sample in range(200)]
    one, two = (source.read(sample, (0, 0), (48, 48)) for sample in (1, 5))
    np.testing.assert_array_equal(one[1], two[1])
    assert not np.array_equal(one[0], two[0])


def test_planes_are_channels(folder: Path) -> None:
    source = opened(folder, planes=(0.0, 1.0, -0.5), noise=0.0)["train"]
    condition, phase = (torch.from_numpy(side) for side in source.read(0, (0, 0), (48, 48)))
    assert source.condition_channels == 3
    torch.testing.assert_close(condition[0], torch.ones(48, 48))
    margin = source.geometry(0).reach
    expected = fresnel.defocused_intensity(phase[0], torch.ones(()), 2.0, margin=margin, **WAVE)
    torch.testing.assert_close(condition[1], expected)


def test_solutions_are_channels_too_computed_from_noisy_light_and_for_the_whole_image(folder: Path) -> None:
    dampings = (1e-8, 1e-4)
    source, plain = opened(folder, transport_dampings=dampings)["train"], opened(folder)["train"]
    border = source.geometry(2).reach  # what light from the mirrored photograph reaches is left out
    size = source.spatial(2)
    assert size == (48 - 2 * border, 48 - 2 * border)
    whole, phase = (np.asarray(side, np.float64) for side in source.read(2, (0, 0), size))
    light, same = (np.asarray(side, np.float64) for side in plain.read(2, (border, border), size))
    assert source.condition_channels == 4
    assert source.noise_level(2) > 0
    np.testing.assert_allclose(whole[:2], light, atol=1e-5)
    np.testing.assert_allclose(phase, same - same.mean(), atol=1e-6)
    slope = torch.from_numpy(light[0] - light[1]) / 4
    for solution, damping in zip(whole[2:], dampings, strict=True):
        expected = tie.solve_tikhonov(slope, torch.tensor(light.mean()), reg=damping, **WAVE)
        np.testing.assert_allclose(solution, expected - expected.mean(), atol=1e-5)
    np.testing.assert_array_equal(source.read(2, (5, 9), (17, 12))[0], whole[:, 5:22, 9:21])


def test_no_light_of_a_mirrored_border_is_left_where_solvers_are_compared(folder: Path) -> None:
    """What lies beyond the photograph hardly changes the light of validation and test, but that of training."""
    distances = opened(folder)["test"].geometry(0)
    for split, is_mirrored in (("train", True), ("validation", False), ("test", False)):
        source = opened(folder, noise=0.0)[split]
        size, border = source.spatial(0), distances.reach * (not is_mirrored)
        condition, phase = (torch.from_numpy(side) for side in source.read(0, (0, 0), size))
        photograph = 3.5 * torch.from_numpy(source.photographs.read(0))[0]
        beyond = torch.nn.functional.pad(photograph, (distances.reach,) * 4)  # black, and not mirrored
        middle = slice(distances.reach + border, distances.reach + border + size[0])
        light = intensities(beyond, distances)[:, middle, middle]
        assert torch.equal(phase[0], beyond[middle, middle])
        change = float((condition - light)[:, :2].abs().mean() / condition.std())  # of the outermost rows that are left
        assert change > 0.5 if is_mirrored else change < 0.15, split


def test_a_solution_tells_slow_structures_that_a_patch_does_not() -> None:
    phase = specimen_on_a_flat_ground(96, seed=0)
    settings = PhaseSettings(defocus_um=0.2, transport_dampings=(1e-9,), **WAVE)
    light = intensities(phase, Geometry((0.2, -0.2), **WAVE))
    patch = (slice(None), slice(20, 52), slice(20, 52))
    truth = phase[patch[1:]] - phase[patch[1:]].mean()
    of_whole, of_patch = transported(light, settings)[patch][-1], transported(light[patch], settings)[-1]
    errors = [float((found - found.mean() - truth).std() / truth.std()) for found in (of_whole, of_patch)]
    assert errors[0] < 0.01 < 0.1 < errors[1]


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        ({"pixel_nm": 210.0}, "did you mean 'pixel_um'"),
        ({"defocus_um": 0.0}, "distance other than 0"),
        ({"planes": 2.0}, "expected a list"),
        ({"wavelength_max_um": 0.4}, "give the smaller first"),
        ({"side_px": 48.5}, "whole number"),
        ({"transport_dampings": 1e-6}, "expected a list"),
        ({"transport_dampings": [1e-6], "planes": [1.0, 1.0]}, "give two or more"),
        ({"transport_dampings": [0.0]}, "dampings above 0"),
        ({"transport_dampings": [1e-6], "pixel_max_um": 0.5}, "solved for one geometry"),
    ],
)
def test_wrong_parameters_say_what_is_expected(folder: Path, forward: ForwardParameters, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        open_problem("phase", Request(folder=folder, forward=forward))


def test_layouts_of_photographs(folder: Path, tmp_path: Path) -> None:
    counts = {split: len(paths) for split, paths in find_photographs(folder).items()}
    assert counts == {"train": 4, "validation": 1, "test": 1}
    flat = make_photographs(tmp_path / "flat", [f"{k}.png" for k in range(10)])
    assert {split: len(paths) for split, paths in find_photographs(flat).items()} == {"train": 9, "validation": 1}
    hcoco = make_photographs(tmp_path / "hcoco", [f"real_images/c{k}.png" for k in range(3)])
    for path in (hcoco / "real_images").iterdir():
        path.rename(path.with_suffix(".jpg"))  # read by content, not by name
    (hcoco / "HCOCO_test.txt").write_text("c0_11_1.jpg\nc0_12_2.jpg\nc2_7_1.jpg\n")
    tested = find_photographs(hcoco)
    assert {split: [Path(p).name for p in paths] for split, paths in tested.items()} == {"test": ["c0.jpg", "c2.jpg"]}
    (hcoco / "HCOCO_test.txt").write_text("c9_1_1.jpg\n")
    with pytest.raises(PairingError, match=r"not in real_images, such as c9\.jpg"):
        find_photographs(hcoco)
    (tmp_path / "empty").mkdir()
    with pytest.raises(PairingError, match="holds no images"):
        find_photographs(tmp_path / "empty")


def test_any_picture_becomes_a_square(tmp_path: Path) -> None:
    shapes: dict[str, tuple[tuple[int, ...], str]] = {
        "grey": ((30, 50), "YX"),
        "tiny": ((3, 2, 3), "YXC"),
        "clear": ((40, 40, 4), "YXC"),
    }
    for name, (shape, axes) in shapes.items():
        write_image(tmp_path / f"{name}.png", np.full(shape, 255, np.uint8), axes=axes)
    paths = find_photographs(tmp_path, validation_fraction=0)["train"]
    for channels in (1, 3):
        photographs = Photographs(paths, side_px=32, channels=channels)
        for index in range(3):
            np.testing.assert_allclose(photographs.read(index), np.ones((channels, 32, 32)), atol=1e-5)


def test_the_clinical_protocol_finds_a_known_phase(tmp_path: Path) -> None:
    """From a stack of 11 planes the pseudo truth is close; two shots at 2 um are less so."""
    phase = specimen_on_a_flat_ground(64, seed=4).float()
    distances = [0.4 * k for k in range(-5, 6)]
    stack = fresnel.defocused_intensity(phase, torch.ones(()), torch.tensor(distances)[:, None, None], **WAVE)
    specimen = protocol(Stack(stack, distances), shot_um=2.0, **WAVE)
    assert specimen.order == 5
    torch.testing.assert_close(specimen.two_shot, stack[[10, 0]])

    def error(found: torch.Tensor) -> float:
        return float((found - phase).std() / phase.std())

    simple = two_shot_tie(specimen.two_shot, shot_um=2.0, **WAVE)
    assert error(specimen.pseudo_truth) < 0.005
    assert error(specimen.pseudo_truth) < error(simple) / 5
    write_image(tmp_path / "stack.tif", stack.numpy(), axes="ZYX")
    read = read_stack(tmp_path / "stack.tif", step_um=0.4, reach_um=1.3, flip=True)
    assert read.distances_um == pytest.approx(distances[2:9])
    torch.testing.assert_close(read.planes, stack[2:9].flip(0) / stack[5].mean())
    with pytest.raises(PairingError, match="no plane at 3 um"):
        protocol(read, shot_um=3.0, **WAVE)


def test_settings_are_those_of_the_paper() -> None:
    paper = PhaseSettings()
    assert (paper.pixel_um, paper.wavelength_um, paper.defocus_um, paper.phase_range_rad) == (0.21, 0.521, 2, 3.5)
    assert (paper.planes, paper.noise) == ((1, -1), 0.2)
