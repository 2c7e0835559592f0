"""The camera's mean, variance and third moment match its model; seeds decide; limits hold."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.physics.camera import Camera, at_photon_level

NUM_PIXELS = 200_000


@pytest.mark.parametrize("level", [0.0, 0.7, 15.0, 600.0])
@pytest.mark.parametrize(
    "camera",
    [
        Camera(gain=1.0, offset=100.0, read_noise=1.5, bit_depth=16),
        Camera(gain=0.46, offset=100.0, read_noise=1.6, bit_depth=12),
        Camera(gain=2.2, offset=0.0, read_noise=3.0, bit_depth=None),
    ],
)
def test_mean_and_variance_match_the_model(camera: Camera, level: float) -> None:
    """Within 4.5 standard errors; that of a variance follows from the fourth moments of Poisson and normal noise."""
    photons = torch.full((NUM_PIXELS,), level, dtype=torch.float64)
    grey = camera.capture(photons, seed=3)
    variance = float(camera.variance(photons)[0])
    fourth_cumulant = camera.gain**4 * level
    assert abs(float(grey.mean() - camera.mean(photons)[0])) < 4.5 * (variance / NUM_PIXELS) ** 0.5
    error = ((2 * variance**2 + fourth_cumulant) / NUM_PIXELS) ** 0.5
    assert abs(float(grey.var()) - variance) < 4.5 * error


def test_signal_noise_is_poisson_not_normal() -> None:
    """The third central moment of a Poisson number is its mean; a normal one's is 0."""
    photons = torch.full((NUM_PIXELS,), 4.0, dtype=torch.float64)
    electrons = Camera(gain=1, offset=0, read_noise=0, bit_depth=None).capture(photons, seed=0)
    assert torch.equal(electrons, electrons.round())
    third = float((electrons - electrons.mean()).pow(3).mean())
    # Its variance is mu_6 - mu_3^2 - 6 mu_4 mu_2 + 9 mu_2^3, over the number of pixels.
    mu = 4.0
    sixth, fourth = mu + 25 * mu**2 + 15 * mu**3, mu + 3 * mu**2
    error = ((sixth - mu**2 - 6 * fourth * mu + 9 * mu**3) / NUM_PIXELS) ** 0.5
    assert abs(third - mu) < 4.5 * error


def test_grey_levels_are_whole_and_within_the_bit_depth() -> None:
    grey = Camera(gain=50, offset=2, read_noise=3, bit_depth=8).capture(torch.linspace(0, 20, 1000), seed=0)
    assert torch.equal(grey, grey.round())
    assert (float(grey.min()), float(grey.max())) == (0, 255)


def test_seeds_decide_and_global_state_does_not() -> None:
    photons = torch.full((2, 8, 8), 20.0)
    camera = Camera()
    first = camera.capture(photons, seed=1)
    torch.rand(3)
    assert torch.equal(first, camera.capture(photons, seed=1))
    assert not torch.equal(first, camera.capture(photons, seed=2))
    assert not torch.equal(first[0], first[1])
    assert first.dtype == photons.dtype


@given(shape=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)), photons=st.floats(1, 600))
@settings(deadline=None, max_examples=30)
def test_photon_level_is_the_mean_of_the_structure(shape: tuple[int, int, int], photons: float) -> None:
    image = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.01
    scaled = at_photon_level(image, photons)
    torch.testing.assert_close(scaled, at_photon_level(7 * image, photons))
    for one in scaled:
        assert float(one[one >= one.mean()].mean()) == pytest.approx(photons)


def test_an_empty_margin_does_not_change_the_photon_level_of_a_structure() -> None:
    image = torch.zeros(8, 8)
    image[2:4, 2:6] = 3.0
    wider = torch.nn.functional.pad(image, [20, 20, 20, 20])
    torch.testing.assert_close(at_photon_level(wider, 50.0)[20:28, 20:28], at_photon_level(image, 50.0))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="lowest expected photon number is -1"):
        Camera().capture(torch.tensor([-1.0, 3.0]), seed=0)
    with pytest.raises(ValueError, match="no light"):
        at_photon_level(torch.zeros(4, 4), 10.0)
    with pytest.raises(ValueError, match="bit_depth is 40"):
        Camera(bit_depth=40)
    with pytest.raises(ValueError, match="gain is 0"):
        Camera(gain=0)
