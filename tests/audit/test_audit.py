"""The audit: what is planted is marked, what samples lack is counted, what is foreign is told, and nothing else."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

import sfumato
from pair_folders import make_pairs
from sfumato.audit import Optics, audit, write_audit
from sfumato.audit.consistency import check_consistency
from sfumato.audit.disagreement import check_disagreement
from sfumato.audit.forward import blurring, defocusing, imaging
from sfumato.audit.structures import label, smooth
from sfumato.cli import app
from sfumato.data.domain import ASPECTS, Domain, _features_of_all, corners, features, fit_domain
from sfumato.data.images.io import open_image, write_image
from sfumato.models import recipe as recipes
from sfumato.models.model_file import LoadedModel
from sfumato.physics import camera, optics, rendering
from sfumato.physics.rendering import Emitters
from sfumato.problems.phase_settings import Geometry, PhaseSettings, intensities
from sfumato.system.errors import ImageError
from sfumato.training.train import train

Floats = NDArray[np.float64]

SIDE, PIXEL_UM, APERTURE, WAVELENGTH_UM = 64, 0.0626, 1.35, 0.525
CUTOFF = optics.cutoff_frequency(APERTURE, WAVELENGTH_UM)
FORWARD = imaging(
    2, pixel_um=PIXEL_UM, numerical_aperture=APERTURE, wavelength_um=WAVELENGTH_UM, extension=optics.SIM_EXTENSION
)


def scene(seed: int, photons: float = 300.0) -> tuple[Floats, Floats, Floats]:
    """Points as a widefield camera counts them, without noise and with, and as an ideal SIM shows them."""
    generator = torch.Generator().manual_seed(seed)
    extent = SIDE * PIXEL_UM
    emitters = Emitters(
        extent * torch.rand(80, 2, generator=generator, dtype=torch.float64),
        0.5 + torch.rand(80, generator=generator, dtype=torch.float64),
    )
    blurred = rendering.render(emitters, (SIDE, SIDE), pixel_um=PIXEL_UM, cutoff=CUTOFF)
    sharp = rendering.render(
        emitters, (2 * SIDE, 2 * SIDE), pixel_um=PIXEL_UM / 2, cutoff=optics.SIM_EXTENSION * CUTOFF
    )
    light = camera.at_photon_level(blurred.clamp_min(0), photons)
    noisy = camera.Camera(gain=2.0).capture(light, seed=seed)
    return light.numpy(), noisy.numpy(), sharp.numpy()


def spot(row: float, column: float, sigma: float, side: int) -> Floats:
    y, x = np.mgrid[:side, :side]
    return np.asarray(np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * sigma**2)))


def test_a_sim_image_measured_again_is_the_widefield_image() -> None:
    """Two renderings of the same points, by the forward model and directly, agree away from the border."""
    light, _, sharp = scene(1)
    found = FORWARD.predict(torch.from_numpy(sharp)[None])[0].numpy()
    inner = np.s_[8:-8, 8:-8]
    scale = float(light[inner].mean() / found[inner].mean())
    assert np.abs(scale * found - light)[inner].max() < 0.01 * light.max()


def test_a_fitted_blur_has_the_width_of_a_gaussian() -> None:
    point = np.zeros((1, 65, 65))
    point[0, 32, 32] = 1
    spread = blurring(1, 2.0).predict(torch.from_numpy(point))[0].numpy()
    np.testing.assert_allclose(spread, spot(32, 32, 2.0, 65) / (8 * np.pi), atol=1e-6)
    assert blurring(2, 0.0).predict(torch.ones(1, 4, 6, dtype=torch.float64)).shape == (1, 2, 3)


@pytest.mark.parametrize("seed", range(3))
def test_a_true_image_is_not_contradicted_and_a_planted_spot_is(seed: int) -> None:
    """Whatever the units of the restored image; a spot taken out is missing, and both are where they were put."""
    _, noisy, sharp = scene(seed)
    units = 5 - 2 * sharp.min() + 3 * sharp
    clean = check_consistency(noisy[None], units[None], FORWARD)
    assert (clean.unsupported, clean.missing) == ([], [])
    assert clean.rsp > 0.98
    bright = float(np.quantile(units, 0.99) - np.median(units))
    planted = units + 1.5 * bright * spot(70, 41, 3.0, 2 * SIDE)
    found = check_consistency(noisy[None], planted[None], FORWARD)
    assert len(found.unsupported) == 1
    assert np.hypot(found.unsupported[0].row - 35, found.unsupported[0].column - 20) < 2
    assert found.marks[35, 20] == 1
    assert found.error[0, 35, 20] > 5 * np.median(found.error)
    robbed = check_consistency(noisy[None], (units - 1.5 * bright * spot(70, 41, 3.0, 2 * SIDE))[None], FORWARD)
    assert robbed.marks[35, 20] == -1
    assert robbed.unsupported == []


def test_the_noise_is_that_of_the_camera() -> None:
    """The standard deviation of shot noise at the median light, within a tenth."""
    rng = np.random.default_rng(0)
    light = 50 + 400 * smooth(rng.standard_normal((128, 128)), 6) ** 2 * 50
    measured = rng.poisson(light).astype(np.float64)
    found = check_consistency(measured[None], light[None], blurring(1, 0.0))
    assert abs(found.noise[0] / np.sqrt(np.median(light)) - 1) < 0.1


def test_noise_alone_is_rarely_marked() -> None:
    """A hundred measurements of one truth: false discoveries at all in few of them."""
    truth = 100 * np.sum([spot(r, c, 3, 48) for r, c in ((12, 12), (30, 20), (20, 36))], axis=0)
    marked = 0
    for seed in range(100):
        measured = np.random.default_rng(seed).poisson(20 + truth).astype(np.float64)
        marked += bool(check_consistency(measured[None], truth[None], blurring(1, 0.0)).unsupported)
    assert marked <= 5


def test_an_inverted_image_is_refused() -> None:
    _, noisy, sharp = scene(0)
    with pytest.raises(ImageError, match="falls where the restored image rises"):
        check_consistency(noisy[None], -sharp[None], FORWARD)
    with pytest.raises(ImageError, match="shape"):
        check_consistency(noisy[None, :-2], sharp[None], FORWARD)


def test_a_phase_that_was_not_measured_is_marked() -> None:
    """Propagation of the restored phase is compared with both shots."""
    settings = PhaseSettings(side_px=64)
    forward = defocusing(settings)
    phase = 1.5 * spot(20, 24, 5, 64) + 0.8 * spot(45, 40, 7, 64)
    geometry = Geometry((2.0, -2.0), settings.wavelength_um, settings.pixel_um)
    light = intensities(torch.from_numpy(phase), geometry).numpy()
    measured = light + 0.01 * np.random.default_rng(0).standard_normal(light.shape)
    assert check_consistency(measured, phase[None], forward).unsupported == []
    found = check_consistency(measured, (phase + 0.8 * spot(44, 15, 3, 64))[None], forward)
    assert found.unsupported
    assert np.hypot(found.unsupported[0].row - 44, found.unsupported[0].column - 15) < 8
    with pytest.raises(ImageError, match="random geometries"):
        defocusing(PhaseSettings(defocus_max_um=8.0))


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.875])
def test_the_share_of_samples_that_have_a_structure(share: float) -> None:
    """Sixteen exact draws of a posterior in which one of three structures is there with a known frequency."""
    rng = np.random.default_rng(1)
    number = 16
    has = rng.permutation(number) < share * number
    draws = np.stack(
        [
            spot(12, 14, 2, 48) + 1.3 * spot(34, 36, 2, 48) + 0.9 * there * spot(32, 12, 2, 48)
            + 0.02 * rng.standard_normal((48, 48))
            for there in has
        ]
    )  # fmt: skip
    found = check_disagreement(draws, 2.0)
    near = [s for s in found.structures if np.hypot(s.row - 32, s.column - 12) < 3]
    sure = [s for s in found.structures if s not in near]
    assert len(sure) == 2
    assert all(s.share == 1 for s in sure)
    assert [s.share for s in near] == ([share] if share else [])
    assert found.uncertain == near
    assert found.lacking[32, 12] == (1 - share if share else 0)
    assert found.lacking[12, 14] == 0
    if share:
        assert found.relative_std[32, 12] > 4 * found.relative_std[12, 14]
    with pytest.raises(ImageError, match="two"):
        check_disagreement(draws[:1], 2.0)


def test_regions_are_ordered_and_numbered() -> None:
    mask = np.zeros((6, 6), bool)
    mask[0, 0] = mask[1, 1] = mask[4, 3:5] = True
    strength = np.arange(36.0).reshape(6, 6)
    found, numbers = label(mask, strength)
    assert [(s.row, s.column, s.area_px, s.strength) for s in found] == [(4, 4, 2, 28.0), (1, 1, 2, 7.0)]
    assert (numbers[4, 3], numbers[0, 0], numbers[5, 5]) == (1, 2, 0)


def textures(number: int, seed: int, *, noise: float = 5.0, scale: float = 2.0, gain: float = 40.0) -> list[Floats]:
    """Random images (1, 64, 64) of one kind."""
    rng = np.random.default_rng(seed)
    return [
        100 + gain * 7 * smooth(rng.standard_normal((64, 64)), scale)[None] + noise * rng.standard_normal((1, 64, 64))
        for _ in range(number)
    ]


@pytest.fixture(scope="module")
def domain() -> Domain:
    images = textures(60, seed=0)
    found = fit_domain([[image[:, y : y + 32, x : x + 32] for y, x in corners((64, 64), 32)] for image in images], 32)
    assert found is not None
    return found


def test_images_like_the_training_images_pass_at_the_stated_rate(domain: Domain) -> None:
    """Of 300 new images, about 1 of 61 is called unlike; four standard deviations of the calibration are allowed."""
    alarms = np.mean([domain.judge(image).is_unlike for image in textures(300, seed=1)])
    assert domain.false_alarms == 1 / 61
    assert alarms < 1 / 61 + 4 * np.sqrt(1 / 61**2 + 1 / 61 / 300)


@pytest.mark.parametrize(
    ("change", "aspect"), [({"noise": 12.0}, "noise"), ({"scale": 3.5}, "spectrum"), ({"gain": 110.0}, "intensity")]
)
def test_each_aspect_is_noticed(domain: Domain, change: dict[str, float], aspect: str) -> None:
    for image in textures(5, seed=2, **change):
        found = domain.judge(image)
        assert found.is_unlike
        assert aspect in found.reasons


def test_the_map_shows_which_part_is_foreign(domain: Domain) -> None:
    image = textures(1, seed=3)[0]
    image[:, 32:, 32:] += 60 * np.random.default_rng(0).standard_normal((32, 32))
    found = domain.judge(image)
    worst = found.distances.max(0)
    assert found.corners[int(worst.argmax())].tolist() == [32, 32]
    assert worst.max() > 2
    assert np.sort(worst)[-2] < 1.5


def test_a_description_reads_back_and_damage_is_told(domain: Domain) -> None:
    values = json.loads(json.dumps(domain.to_json()))
    image = textures(1, seed=4)[0]
    np.testing.assert_array_equal(Domain.from_json(values).judge(image).distances, domain.judge(image).distances)
    assert Domain.from_json(values).judge(image[:, :20, :16]).sides == (20, 16)
    for broken in ({}, None, {**values, "unit": [1.0, 2.0]}, {**values, "patch": 0}, {**values, "center": "x"}):
        with pytest.raises(ValueError, match="description of the training images"):
            Domain.from_json(broken)
    assert fit_domain([[image], [image]], 32) is None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a few steps; its restorations are poor, which the audit does not mind."""
    folder = tmp_path_factory.mktemp("model")
    inputs, targets = make_pairs(folder, number=6, shape=(64, 64))
    recipe = recipes.Recipe.model_validate(
        {
            "data": {"inputs": str(inputs), "targets": str(targets), "patch": 32},
            "model": {"base": 4, "rate_base": 4, "num_scales": 2},
            "train": {"steps": 2, "batch_size": 2},
        }
    )
    train(recipe, folder / "run")
    return folder / "run" / "model.safetensors"


def test_training_describes_its_images(model: Path) -> None:
    described = Domain.from_json(sfumato.load(model).info.audit["domain"])
    assert (described.patch, len(described.unit)) == (32, 1)


def test_a_file_of_an_earlier_version_is_audited_as_far_as_it_can_be(model: Path, tmp_path: Path) -> None:
    loaded = sfumato.load(model)
    info = dataclasses.replace(loaded.info, audit={k: v for k, v in loaded.info.audit.items() if k != "domain"})
    measured = np.random.default_rng(0).poisson(50 + 50 * spot(30, 30, 4, 64)).astype(np.float32)
    found = audit(measured, LoadedModel(loaded.model, info, loaded.sha256), restored=spot(30, 30, 4, 64))
    assert found.domain is None
    assert [sentence.split(":")[0] for sentence in found.unchecked] == [
        "Samples were not compared",
        "Whether the image is like the training images was not checked",
    ]
    assert write_audit(found, tmp_path).exists()


def test_optics_are_used_where_they_are_known(model: Path) -> None:
    _, noisy, sharp = scene(0)
    known = Optics(pixel_um=PIXEL_UM, numerical_aperture=APERTURE, wavelength_um=WAVELENGTH_UM, finer=2.0)
    loaded = sfumato.load(model)
    found = audit(noisy, loaded, restored=sharp, optics=known)
    assert found.forward is not None
    assert "numerical aperture 1.35" in found.forward.about
    fitted = audit(noisy, loaded, restored=sharp)
    assert fitted.forward is not None
    assert "fitted" in fitted.forward.about
    assert fitted.consistency is not None
    assert fitted.consistency.rsp > 0.97
    inverted = audit(noisy, loaded, restored=-sharp, optics=known)
    assert inverted.consistency is None
    assert any("contradicts the measurement" in sentence for sentence in inverted.warnings)
    with pytest.raises(ImageError, match="whole multiple"):
        audit(noisy, loaded, restored=sharp[:-1])


def run(*options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["audit", *options])
    return done.exit_code, done.output


def test_the_command_restores_by_itself(model: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    write_image(tmp_path / "cell.tif", rng.poisson(40 + 60 * spot(30, 30, 4, 64)).astype(np.uint16), axes="YX")
    code, said = run(str(model), str(tmp_path / "cell.tif"), "--samples", "3", "--steps", "2", "--out", str(tmp_path))
    assert code == 0, said
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Audit of cell.tif" in page
    assert not re.search(r"src='(?!data:)|<script|<link|url\(|http", page)
    maps = open_image(tmp_path / "maps.tif")
    assert (maps.axes, maps.shape[1:]) == ("CYX", (64, 64))


def test_the_command_marks_and_can_fail(model: Path, tmp_path: Path) -> None:
    """A planted spot in a given image: a warning with its place, 1 with --strict, and named channels of maps."""
    truth = np.sum([spot(r, c, 3, 64) for r, c in ((14, 14), (30, 50), (50, 24))], axis=0)
    write_image(tmp_path / "cell.tif", np.random.default_rng(0).poisson(40 + 90 * truth).astype(np.uint16), axes="YX")
    planted = (truth + spot(46, 48, 3, 64)).astype(np.float32)
    write_image(tmp_path / "restored.tif", planted, axes="YX")
    for number, extra in enumerate([1.0, 0.0, 1.0, 1.0]):
        sample = (truth + extra * spot(46, 48, 3, 64)).astype(np.float32)
        write_image(tmp_path / f"restored_sample{number:03}.tif", sample, axes="YX")
    given = [str(model), str(tmp_path / "cell.tif"), str(tmp_path / "restored.tif"), "--out", str(tmp_path / "out")]
    code, said = run(*given)
    assert code == 0
    assert re.search(r"warning: 1 structure is not supported by the measurement: row 4[567], column 4[789]", said)
    assert re.search(r"warning: 1 structure is lacking .* row 4[567], column 4[789], in 3 of 4", said)
    assert run(*given, "--strict")[0] == 1
    import tifffile

    with tifffile.TiffFile(tmp_path / "out" / "maps.tif") as file:
        assert file.ome_metadata is not None
        for name in ("measured", "error", "correlation", "marks", "lacking_share", *(f"domain_{a}" for a in ASPECTS)):
            assert f'Name="{name}"' in file.ome_metadata
    code, said = run(str(model), str(tmp_path / "cell.tif"), "--frame", "3")
    assert code == 2
    assert "count from 0" in said


@pytest.mark.parametrize("shape", [(1, 32, 32), (2, 17, 40), (3, 8, 16, 16)])
def test_patches_measured_together_have_the_features_of_each_to_the_bit(shape: tuple[int, ...]) -> None:
    draw, unit = np.random.default_rng(0), np.arange(1.0, shape[0] + 1)
    patches = [draw.gamma(2, 100, shape).astype(np.float32) for _ in range(16)]
    each = np.stack([features(patch, unit.tolist()) for patch in patches])
    assert _features_of_all(patches, unit).tobytes() == each.tobytes()
