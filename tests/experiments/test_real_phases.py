"""The figures of merit of real phases, on simulated ones: known phases have known errors."""

import math

import pytest
import torch

from optical_images import WAVE, even_band_limited
from phase_zero_shot import agreement
from real_phases import Field, damping, forward_error, high_pass, solved
from sfumato.physics import fresnel, grid

SIDE = 96


def field(defocus_um: float = 0.5) -> tuple[Field, torch.Tensor]:
    phase = even_band_limited(SIDE, SIDE, seed=0, high=1.5)
    light = even_band_limited(SIDE, SIDE, seed=1, low=0.6)
    light = light / light.mean()
    shot = fresnel.defocused_intensity(phase, light, defocus_um, margin=128, **WAVE)
    return Field("drawn", light, shot / shot.mean(), defocus_um, WAVE["wavelength_um"], WAVE["pixel_um"]), phase


def test_the_filter_halves_its_period_and_takes_the_constant() -> None:
    """Cosines of whole half periods are even about the borders, so each keeps its shape and is scaled by the filter."""
    place = (torch.arange(SIDE, dtype=torch.float64) + 0.5) / SIDE
    for half_periods, period in ((4, 48.0), (4, 24.0), (8, 48.0)):
        wave = (math.pi * half_periods * place).cos().expand(SIDE, SIDE)
        f = half_periods / 2 / SIDE
        kept = f**4 / (f**4 + period**-4)
        torch.testing.assert_close(high_pass(5 + wave, period), kept * wave)


def test_damping_is_that_of_the_filter() -> None:
    """In uniform light, a damped solve is the undamped one behind the filter of the same period."""
    known, phase = field()
    shot = fresnel.defocused_intensity(phase, torch.ones_like(phase), 0.05, margin=128, **WAVE)
    thin = Field("thin", torch.ones_like(phase), shot, 0.05, known.wavelength_um, known.pixel_um)
    period_um = 8.0
    damped = solved(thin, "tie_fft", reg=damping(thin, period_um))
    plain = high_pass(solved(thin, "tie_fft", reg=0.0), period_um / thin.pixel_um)
    torch.testing.assert_close(damped, plain - plain.mean(), atol=1e-6, rtol=1e-6)


def test_the_true_phase_explains_the_measured_plane_and_a_flat_one_does_not() -> None:
    known, phase = field()
    flat = torch.zeros_like(phase)
    errors = [forward_error(known, found, known.defocus_um, known.defocused) for found in (phase, phase + 3, flat)]
    assert errors[0] < 1e-9
    assert errors[1] < 1e-9
    inner = [grid.crop(image, 32) for image in (known.in_focus, known.defocused)]
    assert errors[2] > 0.05
    unpropagated = float((inner[0] - inner[1]).square().mean().sqrt() / inner[1].std(correction=0))
    assert errors[2] == pytest.approx(unpropagated, rel=0.2)


def test_agreement_forgives_what_is_slow_and_nothing_else() -> None:
    _, phase = field()
    place = (torch.arange(SIDE, dtype=torch.float64) + 0.5) / SIDE
    slow = phase + 7 + 2 * (math.pi * place).cos()
    correlation, error = agreement(slow, phase)
    assert correlation > 0.97
    assert error < 0.25
    assert agreement(phase, phase) == pytest.approx((1, 0), abs=1e-9)
    assert agreement(-phase, phase) == pytest.approx((-1, 2), abs=1e-9)


def test_resampling_gives_the_geometry_that_was_asked_for() -> None:
    """And a field whose phase was resampled looks as the resampled field does."""
    known, phase = field()
    fine = known.resampled(known.blur * 1.5**2)
    assert tuple(fine.in_focus.shape) == (144, 144)
    assert fine.pixel_um == pytest.approx(known.pixel_um / 1.5)
    assert fine.blur == pytest.approx(known.blur * 2.25)
    wide = torch.nn.functional.interpolate(phase[None, None], size=(144, 144), mode="bicubic", antialias=True)[0, 0]
    assert forward_error(fine, wide, fine.defocus_um, fine.defocused) < 0.02
