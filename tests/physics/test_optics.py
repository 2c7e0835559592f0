"""PSF and OTF against the Airy pattern, the pupil's autocorrelation and the psfmodels package."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import j1

from sfumato.physics import camera, grid, optics
from sfumato.physics.grid import Boundary

SHAPES = st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 9))

MICROSCOPES = [(1.35, 1.515, 0.525, 0.0313), (0.8, 1.0, 0.6, 0.06)]
"""Numerical aperture, index of the immersion, wavelength and pixel in um."""

PSFMODELS_ROWS = [
    [1.0, 0.93774, 0.76995, 0.54553, 0.32337, 0.15016, 0.04623, 0.00464, 0.00169, 0.01154, 0.01739, 0.01471, 0.00749],
    [1.0, 0.93847, 0.77243, 0.54974, 0.3283, 0.1544, 0.04879, 0.00543, 0.00136, 0.01102, 0.01729, 0.0151, 0.00803],
]
"""From the peak along a row: psfmodels 0.3.3, make_psf(1, nx=41, model="scalar", oversample_factor=1, ns=ni=ni0)."""


def canvas(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float64)


@pytest.mark.parametrize(("microscope", "row"), list(zip(MICROSCOPES, PSFMODELS_ROWS, strict=True)))
def test_psf_agrees_with_stored_values_of_psfmodels(
    microscope: tuple[float, float, float, float], row: list[float]
) -> None:
    aperture, _, wavelength, pixel = microscope
    spread = optics.psf(canvas(255, 256), cutoff=optics.cutoff_frequency(aperture, wavelength), pixel_um=pixel)
    found = spread[127, 128 : 128 + len(row)] / spread.max()
    np.testing.assert_allclose(found.numpy(), row, atol=1e-3)


@pytest.mark.parametrize("microscope", MICROSCOPES)
def test_psf_agrees_with_psfmodels_itself(microscope: tuple[float, float, float, float]) -> None:
    psfmodels = pytest.importorskip("psfmodels", reason="psfmodels is not installed; its stored values are tested")
    aperture, index, wavelength, pixel = microscope
    immersion = dict.fromkeys(["ns", "ni", "ni0"], index)
    # psfmodels interpolates between radii one pixel apart, so it is asked for pixels ten times as fine.
    fine = psfmodels.make_psf(
        1, nx=401, dxy=pixel / 10, NA=aperture, wvl=wavelength, model="scalar", oversample_factor=1, **immersion
    )[0]
    theirs = fine[::10, ::10]
    ours = optics.psf(canvas(255, 255), cutoff=optics.cutoff_frequency(aperture, wavelength), pixel_um=pixel)
    middle = ours[107:148, 107:148]
    np.testing.assert_allclose((middle / middle.max()).numpy(), theirs / theirs.max(), atol=1e-3)


def test_psf_is_the_airy_pattern() -> None:
    r""":math:`[2 J_1(v)/v]^2` with :math:`v = 2\pi NA\,r/\lambda`; only the wrapped tails differ."""
    aperture, wavelength, pixel = 1.2, 0.6, 0.05
    spread = optics.psf(canvas(400, 401), cutoff=optics.cutoff_frequency(aperture, wavelength), pixel_um=pixel)
    rows, columns = (pixel * (np.arange(size) - size // 2) for size in (400, 401))
    v = 2 * np.pi * aperture / wavelength * np.hypot(rows[:, None], columns)
    v[200, 200] = 1e-9
    np.testing.assert_allclose((spread / spread.max()).numpy(), (2 * j1(v) / v) ** 2, atol=2e-5)


def test_otf_is_the_autocorrelation_of_the_pupil() -> None:
    """The overlap of two discs on a fine grid, as far apart as the frequency says."""
    places = torch.linspace(-2, 2, 2001, dtype=torch.float64)
    image = canvas(1, 64)
    transfer = optics.otf(image, cutoff=5.0, pixel_um=0.08)
    for column in (0, 3, 10, 20, 25):
        shift = 2 * float(grid.frequencies(image, 0.08)[1][column]) / 5.0
        overlap = (places.square() + places[:, None].square() < 1) & (
            (places - shift).square() + places[:, None].square() < 1
        )
        expected = float(overlap.double().mean()) * 16.016 / torch.pi
        assert float(transfer[0, column]) == pytest.approx(expected, abs=3e-3)


@pytest.mark.parametrize("extension", [1.0, optics.SIM_EXTENSION])
@pytest.mark.parametrize("shape", [(64, 64), (33, 90)])
def test_cutoff_within_one_frequency_bin(extension: float, shape: tuple[int, int]) -> None:
    aperture, wavelength, pixel = 1.35, 0.525, 0.0313
    cutoff = optics.cutoff_frequency(aperture, wavelength, extension=extension)
    assert cutoff == pytest.approx(extension * 2 * aperture / wavelength)
    transfer = optics.otf(canvas(*shape), cutoff=cutoff, pixel_um=pixel)
    assert float(transfer[0, 0]) == pytest.approx(1)
    for axis, values in ((0, transfer[:, 0]), (1, transfer[0])):
        size = shape[axis]
        bins = 1 / (size * pixel)
        reach = torch.fft.fftfreq(size, pixel, dtype=torch.float64)[values > 1e-12].abs().max()
        assert cutoff - bins <= float(reach) < cutoff


@given(shape=SHAPES, boundary=st.sampled_from(["even", "periodic"]))
@settings(deadline=None, max_examples=40)
def test_blur_is_self_adjoint_keeps_the_sum_and_nonnegative(shape: tuple[int, int, int], boundary: Boundary) -> None:
    first, second = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    images = [optics.blur(image, cutoff=4.0, pixel_um=0.1, boundary=boundary) for image in (first, second)]
    torch.testing.assert_close((second * images[0]).sum(), (first * images[1]).sum())
    torch.testing.assert_close(images[0].sum((-2, -1)), first.sum((-2, -1)))
    assert images[0].min() > -1e-9


def test_blur_is_convolution_with_the_psf() -> None:
    image = canvas(40, 51)
    image[20, 25] = 3.0
    blurred = optics.blur(image, cutoff=5.0, pixel_um=0.08, boundary="periodic")
    torch.testing.assert_close(blurred, 3 * optics.psf(image, cutoff=5.0, pixel_um=0.08))


@given(shape=st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 4)), factor=st.integers(1, 3))
@settings(deadline=None, max_examples=20)
def test_binning_is_the_adjoint_of_repeating(shape: tuple[int, int, int], factor: int) -> None:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(shape, generator=generator, dtype=torch.float64)
    repeated = coarse.repeat_interleave(factor, -1).repeat_interleave(factor, -2)
    fine = torch.randn(repeated.shape, generator=generator, dtype=torch.float64)
    torch.testing.assert_close((camera.bin_pixels(fine, factor) * coarse).sum(), (fine * repeated).sum())


def test_gradients() -> None:
    image = torch.rand(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: optics.blur(x, cutoff=4.0, pixel_um=0.1), image)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"pixel_um is 0\.2.*at most 0\.1"):
        optics.psf(canvas(8, 8), cutoff=5.0, pixel_um=0.2)
    with pytest.raises(ValueError, match="numerical_aperture is 0"):
        optics.cutoff_frequency(0, 0.5)
    with pytest.raises(ValueError, match="cutoff is -1"):
        optics.otf(canvas(8, 8), cutoff=-1, pixel_um=0.1)
    with pytest.raises(ValueError, match="5 x 6 pixels has no blocks of 2 x 2"):
        camera.bin_pixels(canvas(5, 6), 2)
