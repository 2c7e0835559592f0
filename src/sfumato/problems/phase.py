r"""Quantitative phase imaging: simulate defocused intensities from photographs used as phases.

.. math:: condition_j = \big|P_{z_j} e^{i\varphi}\big|^2 + n_j, \qquad n_j \sim N(\xi, \xi^2), \quad
          \xi \sim U(0, 0.2), \qquad target = \varphi = 3.5\,rad \cdot grey \qquad [CVDM Sec. 4.2]

with unit intensity in focus. Samples are simulated when they are read: distance and noise are pure functions of
(seed, sample, coordinates), so nothing is stored and a patch equals the same part of the whole image.

Note:
    The paper writes the noise as N(xi, xi); its code has a mean of xi and a standard deviation of xi, as here. Training
    and validation have noise; tests have none, as in the paper. Its code defocuses by 1 um, the paper by 2.

The intensities of a sample are propagated for its whole square, continued by reflection as far as light travels, and
kept in memory; patches are cut out of them, so they equal that part of the whole to the bit. Patches propagated
separately would not: the Fresnel kernel of a sampled field falls off slowly, and even a halo of 60 pixels around
patches of photographs leaves errors of 1% of the intensity.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.data.frames import Completion, FrameCache, region
from sfumato.data.order import uniform
from sfumato.data.pairs import SPLITS
from sfumato.data.pixel_hash import PairHashes, array_hash
from sfumato.data.sources import PairSource
from sfumato.diffusion.noise import NoiseField
from sfumato.physics import through_focus, tie
from sfumato.problems.phase_settings import GEOMETRY, Geometry, PhaseSettings, intensities
from sfumato.problems.photographs import PhotographPairs, Photographs, central_square, open_photographs
from sfumato.problems.request import ForwardParameters, Request, parameters
from sfumato.system.errors import ImageError, RecipeError

__all__ = [
    "PhasePairs",
    "open_phase",
    "transport_solutions",
    "transported",
]

Array = NDArray[np.generic]
_SOLUTION_BYTES = 2**24
"""A few solutions are kept: a sample may be read part by part."""
_MOST_HELD_OUT = 1000
"""Draws of a photograph outside training: more are only given so that training shows no noise twice."""
_NOISE = 100
_VIEW = 104
"""Purposes of random numbers, different from those that training draws (:mod:`sfumato.data.order`)."""


def transported(light: Tensor, settings: PhaseSettings) -> Tensor:
    r"""Append the transport equation's solutions for uniform light to intensities.

    .. math:: condition = (I_1, \dots, I_K, \varphi_1, \dots, \varphi_N), \qquad
              -\frac{k}{\bar I} \frac{\partial I}{\partial z} = \nabla^2 \varphi

    The slow structures of a patch cannot be seen from the patch alone: they depend on its surroundings, which a
    solution for the whole image includes. The networks learn how far to trust them under noise, hence several dampings.

    Args:
        light: Intensities of K planes of a whole image, on any common scale, shape (K, H, W).
        settings: Settings with N ``transport_dampings``.

    Returns:
        Shape (K + N, H, W), in the type of ``light``.

    Raises:
        ValueError: If there are not as many planes as in the settings, or no light.

    Example:
        >>> transported(torch.ones(2, 16, 16), PhaseSettings(transport_dampings=(1e-8, 1e-4)))[:, 0, 0].tolist()
        [1.0, 1.0, 0.0, 0.0]
    """
    if len(light) != len(settings.planes):
        raise ValueError(
            f"the image has {len(light)} channels, and the model knows {len(settings.planes)} planes; give one for each"
        )
    planes, distances = light.double(), [settings.defocus_um * plane for plane in settings.planes]
    slope = through_focus.axial_derivative(planes, distances, 1)
    optics: dict[str, Any] = {"wavelength_um": settings.wavelength_um, "pixel_um": settings.pixel_um}
    dampings = settings.transport_dampings
    found = torch.stack([tie.solve_tikhonov(slope, planes.mean(), reg=damping, **optics) for damping in dampings])
    return torch.cat([light, (found - found.mean((1, 2), keepdim=True)).to(light)])


def transport_solutions(forward: ForwardParameters) -> Completion | None:
    """Return the completion that appends solutions to measured images (K, H, W); None if the recipe uses none.

    The completion raises ImageError if an image has other channels or no light.
    """
    settings = parameters(PhaseSettings, forward)
    if not settings.transport_dampings:
        return None

    def complete(measured: Array) -> NDArray[np.float32]:
        light = torch.from_numpy(np.ascontiguousarray(measured).astype(np.float32))
        try:
            return transported(light, settings).numpy()
        except ValueError as error:
            raise ImageError(f"the transport equation, which this model is shown, cannot be solved: {error}") from error

    planes = len(settings.planes)
    return Completion(planes, planes + len(settings.transport_dampings), complete)


class PhasePairs(PhotographPairs):
    """Defocused intensities and phases in radians.

    Args:
        photographs: Grey photographs.
        settings: Settings of the simulation.
        seed: Seed of noise and geometry.
        is_noisy: Whether noise is added.
        is_mirrored: Whether to keep border pixels that receive light from beyond the photograph, which is mirrored
            there. No camera sees such borders, but the Poisson solvers of the transport equation assume them. So they
            must be cut off for comparisons with solvers and for models that are given solutions; for the latter this
            is automatic.
        cache_bytes: Largest amount of simulated data kept in memory.
    """

    target_channels = 1
    factor = (1, 1)

    def __init__(
        self,
        photographs: Photographs,
        settings: PhaseSettings,
        *,
        seed: int = 0,
        is_noisy: bool = True,
        is_mirrored: bool = True,
        cache_bytes: int = 2**31,
    ) -> None:
        self._border = 0 if is_mirrored and not settings.transport_dampings else settings.furthest.reach
        super().__init__(photographs, draws=settings.draws, border=self._border)
        self.settings, self.seed, self.is_noisy = settings, seed, is_noisy
        if self.side_px <= 0:
            raise RecipeError(
                f"photographs have {photographs.side_px} pixels a side, and light travels {self._border} sideways; "
                "expected pixels that see no border; give a larger forward.side_px, or less defocus"
            )
        self._cache, self._solutions = FrameCache(cache_bytes), FrameCache(_SOLUTION_BYTES)
        self.condition_channels = len(settings.planes) + len(settings.transport_dampings)

    def geometry(self, sample: int) -> Geometry:
        """How a sample is imaged."""
        defocus, wavelength, pixel = (self._drawn_um(name, sample) for name in GEOMETRY)
        return Geometry(tuple(defocus * plane for plane in self.settings.planes), wavelength, pixel)

    def noise_level(self, sample: int) -> float:
        """The sample's xi."""
        return self.settings.noise * self._drawn(_NOISE, sample) if self.is_noisy else 0.0

    def read(self, sample: int, corner: Sequence[int], size: Sequence[int]) -> tuple[Array, Array]:
        """Read condition (K, *size) and phase (1, *size)."""
        # Draws of a square in one geometry differ only by the noise added below.
        key = sample if self.settings.is_random else sample % (len(self.photographs) * self.settings.views)
        whole = self._cache.get(key, lambda: self._simulate(sample))
        part = region(whole, corner, size).astype(np.float32)
        channels = [self._noisy(torch.from_numpy(part[:-1]), sample, corner).numpy()]
        if self.settings.transport_dampings:
            solved = self._solutions.get(sample, lambda: self._solve(torch.from_numpy(whole[:-1]), sample))
            channels.append(region(solved, corner, size))
        return np.concatenate(channels), part[-1:]

    def hashes(self, sample: int) -> PairHashes:
        """Hashes of the photograph, as the condition's noise and geometry are random, and of the phase."""
        photograph = self.photographs.hash(sample % len(self.photographs))
        return PairHashes(photograph, array_hash(self._phases(sample)[1].numpy()))

    def _simulate(self, sample: int) -> NDArray[np.float32]:
        """Simulate intensities without noise, and the phase; (planes + 1, H, W)."""
        whole, phase = self._phases(sample)
        light = central_square(intensities(whole[0], self.geometry(sample)), self.side_px)
        return torch.cat([light, phase]).numpy()

    def _solve(self, light: Tensor, sample: int) -> NDArray[np.float32]:
        """Solutions of the transport equation for noisy intensities; (dampings, H, W)."""
        return transported(self._noisy(light, sample, (0, 0)), self.settings)[len(light) :].numpy()

    def _phases(self, sample: int) -> tuple[Tensor, Tensor]:
        """Phase of the whole photograph, and of the part used as the target; each (1, H, W)."""
        whole = self.settings.phase_range_rad * torch.from_numpy(self._grey(sample))
        phase = central_square(whole, self.side_px)
        # Mean 0, like the solutions; otherwise each part of a large image would get a mean of its own.
        return whole, phase - phase.mean() if self.settings.transport_dampings else phase

    def _grey(self, sample: int) -> NDArray[np.float32]:
        """The square of a photograph that a sample shows; the first is its central one."""
        square, photograph = divmod(sample % (len(self.photographs) * self.settings.views), len(self.photographs))
        if not square:
            return self.photographs.read(photograph)
        size, *place = uniform(self.seed, _VIEW, photograph, square, np.arange(3, dtype=np.uint64))
        return self.photographs.read_part(photograph, float(1 + size) / 2, place)

    def _noisy(self, light: Tensor, sample: int, corner: Sequence[int]) -> Tensor:
        """Add camera noise to the part of a sample that starts at a corner."""
        xi = self.noise_level(sample)
        if xi == 0:
            return light
        origin = tuple(self._border + first for first in corner)  # in the photograph
        noise = NoiseField(self.seed, image=sample, origin=origin)(0, torch.Size([1, 1, *light.shape]))
        return light + xi * (1 + noise[0, 0])

    def _drawn(self, use: int, sample: int) -> float:
        return float(uniform(self.seed, use, sample)[0])

    def _drawn_um(self, name: str, sample: int) -> float:
        low, high = self.settings.ends_um(name)
        return low * (high / low) ** self._drawn(GEOMETRY[name], sample) if high else low


def open_phase(request: Request) -> dict[str, PairSource]:
    """Open phases from the photographs of a folder (ImageNet, HCOCO or any), by split; tests have no noise."""
    settings = parameters(PhaseSettings, request.forward)
    # With one draw, a photograph is read once: the simulated sample is kept instead.
    options = {"side_px": settings.side_px, "cache_bytes": request.cache_bytes if settings.draws > 1 else 0}
    held_out = replace(settings, draws=1) if settings.draws > _MOST_HELD_OUT else settings
    return {
        split: PhasePairs(
            photographs,
            settings if split == "train" else held_out,
            # Splits have separate seeds; otherwise sample 0 of each would have the same noise.
            seed=(request.seed + SPLITS.index(split) * 2**32) % 2**64,
            is_noisy=split != "test",
            is_mirrored=split == "train",
            cache_bytes=request.cache_bytes,
        )
        for split, photographs in open_photographs(request, **options).items()
    }
