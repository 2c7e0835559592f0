"""Decorrelation analysis against known cut-offs and two published implementations."""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
import torch

from sfumato.physics import camera, optics, rendering, structures
from sfumato.statistics import resolution

DATA = os.environ.get("SFUMATO_DATA")

REFERENCES: dict[str, tuple[float, float]] = {
    "resolution/imdecorr_test_image.tif": (8.167, 7.538),
    "resolution/pyres_img_gt_0.tif": (3.161, 3.229),
    "resolution/pyres_img_generated_1.tif": (3.630, 3.866),
    "er1 widefield": (4.083, 3.704),
    "er2 widefield": (3.267, 3.681),
    "er3 widefield": (3.769, 3.866),
    "er1 sim": (2.882, 3.192),
    "er2 sim": (2.882, 3.025),
    "actin1 sim": (3.630, 3.719),
    "actin2 sim": (3.769, 3.813),
    "actin3 sim": (3.630, 3.769),
}
"""Resolution in pixels by casus/pyres b780739 and nanopyx 2.1.5; ER3's SIM image, where they disagree, is left out."""

SYNTHETIC = {0.2: 10.889, 0.3: 7.538, 0.4: 5.765, 0.5: 4.455, 0.6: 3.769, 0.7: 3.267}
"""Cut-off over the Nyquist frequency, and the resolution in pixels by casus/pyres b780739."""


def real_image(name: str) -> npt.NDArray[np.float64]:
    root = Path(DATA or "")
    if name.endswith(".tif"):
        image = tifffile.imread(root / name)
    else:
        stem, kind = name.split()
        if stem.startswith("actin"):
            image = tifffile.imread(root / f"fluor_sim_pairs/tsim_actin_hr_only/{stem}_sim.tif")[:, 256:768]
        elif kind == "sim":
            image = tifffile.imread(root / f"fluor_sim_pairs/tsim_er/{stem}_sim.tif")[:, 200:424]
        else:
            image = tifffile.imread(root / f"fluor_sim_pairs/tsim_er/{stem}_raw.tif")[1].mean(0)[:, 100:212]
    return np.asarray(image, dtype=np.float64)


def points(cutoff: float, *, light: float = 2000.0, seed: int = 0) -> torch.Tensor:
    """800 points through an incoherent OTF on 256 x 256 pixels: expected photons, up to ``light`` plus 20."""
    rng = np.random.default_rng(seed)
    image = np.zeros((256, 256))
    places, weights = rng.integers(0, 256, (800, 2)), rng.uniform(0.5, 1.5, 800)
    np.add.at(image, (places[:, 0], places[:, 1]), weights)
    blurred = optics.blur(torch.from_numpy(image), cutoff=cutoff / 2, pixel_um=1.0, boundary="periodic").clamp_min(0)
    return blurred / blurred.max() * light + 20


@pytest.mark.skipif(DATA is None, reason="set SFUMATO_DATA to the folder of image sets")
@pytest.mark.parametrize("name", REFERENCES)
def test_real_images_within_a_tenth_of_a_reference(name: str) -> None:
    found = resolution.decorrelation(torch.from_numpy(real_image(name)), pixel_um=1.0)
    assert min(abs(found.resolution_um / reference - 1) for reference in REFERENCES[name]) < 0.1
    assert 0.05 < found.peak < 1


@pytest.mark.parametrize("cutoff", SYNTHETIC)
def test_known_cutoffs(cutoff: float) -> None:
    """Within a tenth of the truth once the estimator's bias of 13% is taken off, and of the published code."""
    image = torch.poisson(points(cutoff), torch.Generator().manual_seed(0))
    found = resolution.decorrelation(image, pixel_um=0.05)
    assert found.resolution_um == pytest.approx(2 * 0.05 / found.cutoff)
    assert found.resolution_um / 1.13 == pytest.approx(2 * 0.05 / cutoff, rel=0.1)
    assert found.resolution_um / 0.05 == pytest.approx(SYNTHETIC[cutoff], rel=0.1)


def test_less_light_resolves_less() -> None:
    found = [
        resolution.decorrelation(
            torch.poisson(points(0.5, light=light), torch.Generator().manual_seed(1)), pixel_um=1.0
        )
        for light in (2000.0, 40.0)
    ]
    assert found[0].resolution_um < found[1].resolution_um
    assert found[0].peak > found[1].peak


@pytest.mark.parametrize("name", list(structures.STRUCTURES))
def test_simulated_widefield_has_the_resolution_of_theory(name: str) -> None:
    """Within 15% of Rayleigh's distance 0.61 wavelength / NA, at high light."""
    cutoff = optics.cutoff_frequency(1.35, 0.525)
    emitters = structures.STRUCTURES[name]((16.0, 16.0), seed=0)
    light = rendering.render(emitters, (256, 256), pixel_um=0.0626, cutoff=cutoff).clamp_min(0)
    grey = camera.Camera().capture(camera.at_photon_level(light, 600.0), seed=0)
    found = resolution.decorrelation(grey, pixel_um=0.0626)
    assert found.resolution_um == pytest.approx(0.61 * 0.525 / 1.35, rel=0.15)


def test_what_cannot_be_measured_is_refused() -> None:
    image = points(0.5)
    with pytest.raises(ValueError, match="at least 64 pixels"):
        resolution.decorrelation(image[:40], pixel_um=1.0)
    with pytest.raises(ValueError, match="no border between signal and noise"):
        resolution.decorrelation(torch.zeros(64, 64), pixel_um=1.0)
