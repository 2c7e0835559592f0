"""Coloured noise: its variance and spectrum, its place in an image, and a Gaussian posterior that it makes exact."""

import math

import pytest
import torch
from torch import Tensor, nn

from sfumato.diffusion.colour import Colour, noise_for
from sfumato.diffusion.gaussian import clean_from_velocity, gaussian_velocity, velocity
from sfumato.diffusion.model import CVDM
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.sampling import sample
from sfumato.diffusion.schedule import LearnedSchedule

SIDE = 64


def spectrum(images: Tensor) -> Tensor:
    """Mean power at all frequencies of periodic images (B, C, H, W), shape (H, W)."""
    power: Tensor = torch.fft.fft2(images.double()).abs().square().mean((0, 1))
    return power / images[0, 0].numel()


def smooth(white: Tensor, width: float = 1.5) -> Tensor:
    """Periodic noise of unit variance with a Gaussian amplitude in frequency, down to a floor."""
    frequency = torch.fft.fftfreq(SIDE, dtype=white.dtype)
    amplitude = (-2 * (math.pi * width) ** 2 * (frequency[:, None] ** 2 + frequency**2)).exp() + 0.05
    amplitude = amplitude / amplitude.square().mean().sqrt()
    result: Tensor = torch.fft.ifft2(torch.fft.fft2(white) * amplitude).real
    return result


def white(number: int, seed: int = 0) -> Tensor:
    return NoiseField(seed)(0, torch.Size([1, number, 1, SIDE, SIDE]), dtype=torch.float64)[0]


@pytest.fixture(scope="module")
def fitted() -> Colour:
    return Colour(1).double().fit([smooth(white(256))])


def test_an_unfitted_colour_leaves_noise_and_errors_white() -> None:
    colour, noise = Colour(2), NoiseField(3, sample=1, origin=(5, 7))
    shape = torch.Size([2, 1, 2, 9, 12])
    assert torch.equal(noise_for(nn.Module(), noise)(4, shape), noise(4, shape))
    assert torch.equal(colour.of(noise)(4, shape), noise(4, shape))
    error = noise(1, shape)[0]
    torch.testing.assert_close(colour.of_patches(error), error)
    torch.testing.assert_close(colour.evened(error), error)


def test_the_spectrum_of_what_is_left_is_found(fitted: Colour) -> None:
    impulse = torch.zeros(SIDE, SIDE, dtype=torch.float64)
    impulse[0, 0] = 1
    amplitude = torch.fft.fft2(smooth(impulse)).real
    kernel = fitted._periodic(torch.Size([SIDE, SIDE]))[0, 0]
    found = torch.fft.fft2(kernel).real
    # 256 patches give the power at a frequency within 6%, its root within 3%, and neighbours are averaged.
    assert (found / amplitude - 1).abs().max() < 0.15
    assert (found / amplitude - 1).square().mean().sqrt() < 0.03


def test_coloured_noise_has_unit_variance_and_the_spectrum(fitted: Colour) -> None:
    whole = fitted.of(NoiseField(1))(0, torch.Size([64, 1, 1, 96, 96]), dtype=torch.float64)
    patches = fitted.of_patches(white(64, seed=2))
    for drawn in (whole, patches):
        # Neighbours are correlated, so the number of independent pixels is that over the sum of squared correlations.
        kernel = fitted.kernel[0, 0]
        together = float(torch.fft.fft2(kernel, s=(61, 61)).abs().pow(4).mean())
        error = math.sqrt(2 * together / drawn.numel())
        assert abs(float(drawn.square().mean()) - 1) < 4 * error
    amplitude = torch.fft.fft2(fitted._periodic(torch.Size([SIDE, SIDE]))[0, 0]).abs().square()
    ratio = spectrum(patches) / amplitude
    assert abs(float(ratio.mean()) - 1) < 4 / math.sqrt(64 * SIDE * SIDE / 2)


def test_the_noise_of_a_crop_is_the_crop_of_the_noise(fitted: Colour) -> None:
    whole = fitted.of(NoiseField(7))(2, torch.Size([2, 1, 1, 40, 48]))
    part = fitted.of(NoiseField(7, sample=1, origin=(9, 13)))(2, torch.Size([1, 1, 1, 16, 20]))
    torch.testing.assert_close(part[0], whole[1:, 0][..., 9:25, 13:33], atol=1e-5, rtol=0)


def test_a_kernel_larger_than_a_patch_overlaps_itself() -> None:
    colour = Colour(1, side=9).double()
    colour.kernel.copy_(
        torch.rand(colour.kernel.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    )
    drawn = colour.of_patches(white(4096)[..., :6, :4].contiguous())
    assert abs(float(drawn.square().mean()) - 1) < 0.1
    assert float(drawn.mean((-2, -1)).square().mean()) > 0.5  # nearly constant over so small a patch


def test_evened_errors_keep_their_size_and_half_of_their_contrast(fitted: Colour) -> None:
    kernel = fitted._periodic(torch.Size([SIDE, SIDE]))  # what an error of the noise's spectrum is on average
    evened = fitted.evened(kernel)
    assert float(evened.square().sum()) == pytest.approx(float(kernel.square().sum()), rel=1e-9)
    before, after = (spectrum(images).log() for images in (kernel, evened))
    slope = ((after - after.mean()) * (before - before.mean())).mean() / before.var(correction=0)
    assert float(slope) == pytest.approx(0.5, abs=1e-9)


def test_the_velocity_of_a_gaussian_is_its_regression_on_the_noisy_image() -> None:
    std, log_gamma = 0.5, torch.tensor([-1e-3, -0.5, -2.0, -9.0], dtype=torch.float64).reshape(-1, 1, 1, 1)
    a, s = (log_gamma / 2).exp(), (-log_gamma.expm1()).sqrt()
    clean = std * NoiseField(0)(0, torch.Size([1, 4, 1, 400, 500]), dtype=torch.float64)[0]
    eps = NoiseField(1)(0, torch.Size([1, 4, 1, 400, 500]), dtype=torch.float64)[0]
    noisy = a * clean + s * eps
    left = velocity(clean, eps, log_gamma) - gaussian_velocity(noisy, log_gamma, std)
    # What is left of a regression is uncorrelated with the noisy image: 4 standard errors of 200,000 pixels.
    correlation = (left * noisy).mean((1, 2, 3)) / (
        left.square().mean((1, 2, 3)) * noisy.square().mean((1, 2, 3))
    ).sqrt()
    assert float(correlation.abs().max()) < 4 / math.sqrt(200_000)
    expected = a * std**2 / (a**2 * std**2 + s**2) * noisy
    torch.testing.assert_close(
        clean_from_velocity(noisy, gaussian_velocity(noisy, log_gamma, std), log_gamma), expected
    )


class Zero(nn.Module):
    """A network that has learned nothing, so that a model is the Gaussian it starts from."""

    in_channels = 5

    def forward(self, images: Tensor) -> Tensor:
        return torch.zeros_like(images[:, :1])


class Same(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images[:, :1]


@pytest.mark.parametrize("calls", [2, 4, 32])
def test_a_gaussian_posterior_is_exact_at_any_number_of_calls(fitted: Colour, calls: int) -> None:
    """Pixels of widths .01 to 1, rates 8 and 20, a spectrum: widths and correlations of samples are the posterior's."""

    class Rates(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            rate = torch.full_like(images[:, :1], math.log((8 - 4) / (60 - 8)))
            rate[..., SIDE // 2 :] = math.log((20 - 4) / (60 - 20))
            return rate

    model = CVDM(
        LearnedSchedule(Rates(), rate_min=4.0, rate_max=60.0),
        Zero(),
        mean_network=nn.Identity(),
        scale_network=Same(),
        colour=fitted,
    ).double()
    log_width = torch.linspace(math.log(0.01), 0, SIDE, dtype=torch.float64).expand(1, 1, SIDE, SIDE)
    number = 200
    drawn = sample(
        model, log_width.clone(), num_samples=number, num_steps=calls, solver="gaussian", last_noise=1e-4, seed=5
    )[:, 0]
    known = model.read(log_width.clone())
    left = (drawn - log_width) / (known.scale / 2)
    width = left.square().mean((0, 1)).sqrt().mean(0)  # of each column, whose pixels have one width and rate
    assert float((width - 1).abs().max()) < 4 / math.sqrt(2 * number * SIDE / 20) + 2e-3
    half = [left[..., : SIDE // 2], left[..., SIDE // 2 :]]
    for part in half:
        near = (part[..., 1:] * part[..., :-1]).mean()
        kernel = fitted.kernel[0, 0]
        expected = (kernel[:, 1:] * kernel[:, :-1]).sum()
        assert abs(float(near - expected)) < 0.02
