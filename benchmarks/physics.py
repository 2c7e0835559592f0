"""The forward models against theory: propagation, phase retrieval, optics, camera.

    python benchmarks/physics.py --check

Phase imaging as in the paper: wavelength 0.521 um, pixels of 0.21 um, a phase of 3.5 rad; 128 x 128 pixels, float64,
frequencies up to 0.1 cycles per pixel. Figures of phase retrieval are the worst of forty random specimens. All errors
of a phase are root mean squares in radians, after the constant that no intensity shows is removed.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

from bars import Bars
from sfumato.physics import camera, fresnel, optics, structures, through_focus, tie
from sfumato.problems import microscopy_simulation as simulation
from sfumato.statistics.resolution import decorrelation

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the known images are test code
from optical_images import WAVE, band_limited

SEEDS, SIDE = range(40), 128
PERIODIC = {**WAVE, "boundary": "periodic"}


def rmse(phase: Tensor, truth: Tensor) -> float:
    """The worst of a batch."""
    difference = phase - truth
    centred = difference - difference.mean((-2, -1), keepdim=True)
    return float(centred.square().mean((-2, -1)).sqrt().max())


def specimens() -> tuple[Tensor, Tensor]:
    """Phases and intensities, (40, H, W)."""
    phases = torch.stack([band_limited(SIDE, SIDE, seed=2 * seed, high=3.5) for seed in SEEDS])
    intensities = torch.stack([band_limited(SIDE, SIDE, seed=2 * seed + 1, low=0.2) for seed in SEEDS])
    return phases, intensities


def report_propagation(bars: Bars) -> None:
    field = torch.randn(4, 200, 311, generator=torch.Generator().manual_seed(0), dtype=torch.complex64)
    there = fresnel.propagate(field, 40.0, **WAVE)
    energy = there.abs().double().square().sum() / field.abs().double().square().sum()
    bars.report("Fresnel: change of energy, float32", abs(float(energy) - 1), high=1e-6)
    field = field.to(torch.complex128)
    there = fresnel.propagate(field, 40.0, **WAVE)
    twice = fresnel.propagate(fresnel.propagate(field, 25.0, **WAVE), 15.0, **WAVE)
    bars.report("Fresnel: 25 um then 15 against 40, largest error", float((twice - there).abs().max()), high=1e-6)
    back = fresnel.propagate(there, -40.0, **WAVE)
    bars.report("Fresnel: there and back, largest error", float((back - field).abs().max()), high=1e-6)


def report_exact_derivative(bars: Bars) -> None:
    phases, intensities = specimens()
    uniform = torch.ones_like(phases)
    slope = tie.transport(phases, uniform, **PERIODIC)
    bars.report("TIE, uniform light: Tikhonov", rmse(tie.solve_tikhonov(slope, uniform, **PERIODIC), phases), high=1e-3)
    for name, solve in (("US-TIE", tie.solve_us_tie), ("conjugate gradients", tie.solve_conjugate_gradients)):
        bars.report(f"TIE, uniform light: {name}", rmse(solve(slope, uniform, **PERIODIC).phase, phases), high=1e-3)
    slope = tie.transport(phases, intensities, **PERIODIC)
    for tolerance in (1e-3, 1e-5):
        us_tie = tie.solve_us_tie(slope, intensities, **PERIODIC, tolerance=tolerance)
        gradients = tie.solve_conjugate_gradients(slope, intensities, **PERIODIC, tolerance=tolerance)
        light = f"TIE, light from 0.2 to 1, residual {tolerance:g}"
        bars.report(f"{light}: US-TIE", rmse(us_tie.phase, phases), high=1e-3)
        bars.report(f"{light}: conjugate gradients", rmse(gradients.phase, phases), high=1e-3)
        slow, fast = (found.num_iterations.double() for found in (us_tie, gradients))
        bars.report(f"{light}: mean iterations of US-TIE", float(slow.mean()))
        bars.report(f"{light}: of conjugate gradients", float(fast.mean()))
        bars.report(f"{light}: their mean ratio", float((fast / slow).mean()), high=0.5)
        # At the published residual both stop early, and one iteration decides: for one specimen in 60 it is 9 of 17.
        bar = {} if tolerance == 1e-3 else {"high": 0.5}
        bars.report(f"{light}: largest ratio", float((fast / slow).max()), **bar)


def report_defocused_pairs(bars: Bars) -> None:
    phases, intensities = specimens()
    for distance, bar in ((0.1, 1e-3), (2.0, float("inf"))):
        for light, focus in (("uniform light", torch.ones_like(phases)), ("light from 0.2 to 1", intensities)):
            planes = torch.tensor([-distance, distance], dtype=torch.float64)[:, None, None]
            pairs = fresnel.defocused_intensity(phases[:, None], focus[:, None], planes, **WAVE)
            slope = through_focus.axial_derivative(pairs, [-distance, distance], 1)
            name = f"TIE from pairs at {distance:g} um, {light}"
            bars.report(f"{name}: US-TIE", rmse(tie.solve_us_tie(slope, focus, **PERIODIC).phase, phases), high=bar)
            gradients = tie.solve_conjugate_gradients(slope, focus, **PERIODIC)
            bars.report(f"{name}: conjugate gradients", rmse(gradients.phase, phases), high=bar)


def report_optics(bars: Bars) -> None:
    cutoff, pixel_um, canvas = optics.cutoff_frequency(1.35, 0.525), 0.0313, torch.zeros(256, 256, dtype=torch.float64)
    for name, extension in (("widefield", 1.0), ("SIM", optics.SIM_EXTENSION)):
        transfer = optics.otf(canvas, cutoff=extension * cutoff, pixel_um=pixel_um)
        reach = torch.fft.fftfreq(256, pixel_um, dtype=torch.float64)[transfer[0] > 1e-12].abs().max()
        bins = (extension * cutoff - float(reach)) * 256 * pixel_um
        bars.report(f"{name}: cut-off below {extension:g} x 2 NA / wavelength, in frequency bins", bins, low=0, high=1)
    spread = optics.psf(canvas, cutoff=cutoff, pixel_um=pixel_um)
    v = torch.pi * cutoff * pixel_um * torch.arange(1, 40, dtype=torch.float64)
    airy = (2 * torch.special.bessel_j1(v) / v).square()
    error = (spread[128, 129:168] / spread[128, 128] - airy).abs().max()
    bars.report("PSF against the Airy pattern, largest error of the peak", float(error), high=0.01)


def report_resolution(bars: Bars) -> None:
    """Resolution of simulated widefield images by our estimator, against both theories; the bar is Rayleigh's."""
    microscope = simulation.Microscope()
    airy = microscope.wavelength_um / microscope.numerical_aperture
    theories = {"0.61 wavelength / NA": 0.61 * airy, "wavelength / (2 NA)": airy / 2}
    for name in structures.STRUCTURES:
        fields = [simulation.image_field(name, side=160, seed=0, cell=cell, levels=[600]) for cell in range(3)]
        found = [
            decorrelation(torch.from_numpy(field.raw[0].mean(0)), pixel_um=microscope.pixel_um).resolution_um
            for field in fields
        ]
        bars.report(f"widefield resolution, {name}: mean of 3 fields, nm", 1000 * sum(found) / len(found))
        for theory, expected in theories.items():
            worst = max(abs(value / expected - 1) for value in found)
            limit = {"high": 0.15} if theory.startswith("0.61") else {}
            bars.report(f"widefield resolution, {name}: largest departure from {theory}", worst, **limit)


def report_camera(bars: Bars) -> None:
    scientific = camera.Camera(gain=0.46, offset=100.0, read_noise=1.6, bit_depth=16)
    for level in (15.0, 600.0):
        photons = torch.full((1000, 1000), level, dtype=torch.float64)
        grey = scientific.capture(photons, seed=0)
        mean, variance = float(scientific.mean(photons)[0, 0]), float(scientific.variance(photons)[0, 0])
        bars.report(f"camera, {level:g} photons: mean / model", float(grey.mean()) / mean, low=0.999, high=1.001)
        bars.report(f"camera, {level:g} photons: variance / model", float(grey.var()) / variance, low=0.99, high=1.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    bars, arguments = Bars(), parser.parse_args()
    for report in (
        report_propagation,
        report_exact_derivative,
        report_defocused_pairs,
        report_optics,
        report_resolution,
        report_camera,
    ):
        report(bars)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
