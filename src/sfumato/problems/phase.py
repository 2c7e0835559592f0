r"""Quantitative phase imaging: defocused intensities, simulated from photographs that stand for phases.

.. math:: condition_j = \big|P_{z_j} e^{i\varphi}\big|^2 + n_j, \qquad n_j \sim N(\xi, \xi^2), \quad
          \xi \sim U(0, 0.2), \qquad target = \varphi = 3.5\,rad \cdot grey \qquad [CVDM Sec. 4.2]

with unit intensity in focus. Samples are made as they are read: which distance, which noise is a pure function of
(seed, sample, coordinates), so that nothing is stored and a patch equals that part of the whole image.

Note:
    The paper writes the noise as N(xi, xi); its code has a mean of xi and a standard deviation of xi, as here. Noise is
    for training and validation; tests are without it, as in the paper. Its code defocuses by 1 um, the paper by 2.

A sample's intensities are propagated for its whole square, continued by reflection as far as light travels, and kept
in memory; a patch is cut out of them, and so equals that part of the whole to the bit. A patch propagated by itself
would not: the Fresnel kernel of a sampled field falls off slowly, and even a halo of 60 pixels around patches of
photographs leaves errors of 1% of the intensity.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.data.cache import FrameCache
from sfumato.data.completed import Completion
from sfumato.data.order import uniform
from sfumato.data.pixel_hash import PairHashes, pixel_hash, region
from sfumato.data.source_files import SourceFile
from sfumato.data.sources import PairSource
from sfumato.diffusion.noise import NoiseField
from sfumato.physics import fresnel, through_focus, tie
from sfumato.problems.photographs import Photographs, find_photographs
from sfumato.problems.request import Forward, Request, parameters
from sfumato.system.errors import ImageError, RecipeError

__all__ = ["Geometry", "PhasePairs", "PhaseSettings", "completion", "intensities", "open_phase", "transported"]

_NOISE, _DISTANCE, _WAVELENGTH, _PIXEL = range(100, 104)
"""What a random number is for; training draws its own numbers (:mod:`sfumato.data.order`) under other ones."""


@dataclass(frozen=True, kw_only=True)
class PhaseSettings:
    """Parameters of the problem, the paper's by default.

    A geometry is randomised where its ``max`` is given: it is then drawn, for each sample, between the two values,
    evenly in its logarithm. Only the ratio of distance times wavelength to the pixel's area shows in the intensities.

    Attributes:
        phase_range_rad: Phase of white; black is 0.
        pixel_um: Side of a pixel.
        wavelength_um: In the medium.
        defocus_um: The unit of ``planes``; negative for a specimen on the other side of focus.
        planes: Where the conditions' channels are taken: (1, -1) are two shots at plus and minus ``defocus_um``, (0, 1)
            one in focus and one defocused; more make a stack.
        noise: Largest xi.
        side_px: Side of the squares that photographs are brought to.
        draws: Samples of different noise and geometry per photograph.
        defocus_max_um: For random distances; 0 for none.
        wavelength_max_um: For random wavelengths.
        pixel_max_um: For random pixels.
        transport_dampings: For each, the condition has a further channel: the transport equation's solution with this
            damping, from all planes and for the whole image (:func:`transported`). Targets then have the mean 0 over
            their image, as the solutions have. None in the paper.
    """

    phase_range_rad: float = 3.5
    pixel_um: float = 0.21
    wavelength_um: float = 0.521
    defocus_um: float = 2.0
    planes: tuple[float, ...] = (1.0, -1.0)
    noise: float = 0.2
    side_px: int = 256
    draws: int = 1
    defocus_max_um: float = 0.0
    wavelength_max_um: float = 0.0
    pixel_max_um: float = 0.0
    transport_dampings: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if min(self.pixel_um, self.wavelength_um, abs(self.defocus_um), self.side_px, self.draws) <= 0:
            raise ValueError(
                f"pixel_um is {self.pixel_um}, wavelength_um {self.wavelength_um}, defocus_um {self.defocus_um}, "
                f"side_px {self.side_px} and draws {self.draws}; give sizes above 0 and a distance other than 0"
            )
        if not self.planes or self.noise < 0:
            raise ValueError(
                f"planes are {self.planes} and noise is {self.noise}; give a plane, and noise of 0 or more"
            )
        for name in ("defocus", "wavelength", "pixel"):
            low, high = getattr(self, f"{name}_um"), getattr(self, f"{name}_max_um")
            if (high and abs(high) < abs(low)) or high * low < 0:
                raise ValueError(f"{name}_um is {low} and {name}_max_um {high}; give the smaller first, of one sign")
            if high and self.transport_dampings:
                raise ValueError(
                    f"transport_dampings are {self.transport_dampings} and {name}_max_um is {high}; the transport "
                    "equation is solved for one geometry: leave one of them out"
                )
        if self.transport_dampings and (len(set(self.planes)) < 2 or min(self.transport_dampings) <= 0):
            raise ValueError(
                f"transport_dampings are {self.transport_dampings} and planes are {self.planes}; the transport "
                "equation is solved from different planes: give two or more, and dampings above 0"
            )

    @property
    def furthest(self) -> "Geometry":
        """Of all geometries that may be drawn, the one whose light travels furthest sideways."""
        distances = tuple((self.defocus_max_um or self.defocus_um) * plane for plane in self.planes)
        return Geometry(distances, self.wavelength_max_um or self.wavelength_um, self.pixel_um)


class Geometry(NamedTuple):
    """How a sample is imaged.

    Attributes:
        distances_um: Of the channels.
        wavelength_um: In the medium.
        pixel_um: Side of a pixel.
    """

    distances_um: tuple[float, ...]
    wavelength_um: float
    pixel_um: float

    @property
    def reach(self) -> int:
        """Pixels that light of the finest period travels sideways, two pixels wide."""
        furthest = max(map(abs, self.distances_um))
        return math.ceil(furthest * self.wavelength_um / (2 * self.pixel_um) / self.pixel_um)


def intensities(phase: Tensor, geometry: Geometry) -> Tensor:
    """Intensities at some distances from focus, where the intensity is 1.

    Args:
        phase: In radians, shape (H, W); beyond its border it goes on by reflection.
        geometry: With Z distances.

    Returns:
        Shape (Z, H, W).

    Example:
        >>> flat = intensities(torch.ones(32, 32), Geometry((2.0, -2.0), 0.5, 0.2))
        >>> flat.shape, bool((flat - 1).abs().max() < 1e-5)
        (torch.Size([2, 32, 32]), True)
    """
    return fresnel.defocused_intensity(
        phase.expand(len(geometry.distances_um), -1, -1),
        phase.new_ones(()),
        phase.new_tensor(geometry.distances_um)[:, None, None],
        wavelength_um=geometry.wavelength_um,
        pixel_um=geometry.pixel_um,
        margin=geometry.reach,
    )


def transported(light: Tensor, settings: PhaseSettings) -> Tensor:
    r"""Intensities, and after them the transport equation's solutions for uniform light.

    .. math:: condition = (I_1, \dots, I_K, \varphi_1, \dots, \varphi_N), \qquad
              -\frac{k}{\bar I} \frac{\partial I}{\partial z} = \nabla^2 \varphi

    A patch does not tell its slow structures: they come from what lies around it, which a solution for the whole image
    knows. How much of them noise leaves believable is for the networks to find out, hence several dampings.

    Args:
        light: Of K planes and a whole image, of any common scale, shape (K, H, W).
        settings: With N ``transport_dampings``.

    Returns:
        Shape (K + N, H, W), of the type of ``light``.

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


def completion(forward: Forward) -> Completion | None:
    """What appends solutions to measured images (K, H, W), if a recipe's models are shown any.

    It raises:
        ImageError: If an image has other channels, or no light.
    """
    settings = parameters(PhaseSettings, forward)
    if not settings.transport_dampings:
        return None

    def complete(measured: NDArray[np.generic]) -> NDArray[np.float32]:
        light = torch.from_numpy(np.ascontiguousarray(measured).astype(np.float32))
        try:
            return transported(light, settings).numpy()
        except ValueError as error:
            raise ImageError(f"the transport equation, which this model is shown, cannot be solved: {error}") from error

    planes = len(settings.planes)
    return Completion(planes, planes + len(settings.transport_dampings), complete)


class PhasePairs:
    """A :class:`~sfumato.data.sources.PairSource` of defocused intensities and phases in radians.

    Args:
        photographs: Grey.
        settings: Of the simulation.
        seed: Of noise and geometry.
        is_noisy: Whether noise is added.
        is_mirrored: Whether pixels stay into which light came from beyond the photograph, which is mirrored there. No
            camera sees such borders, and the Poisson solvers of the transport equation assume them: a comparison with
            solvers, or a model that is shown solutions, needs them cut off (which the latter do by themselves).
        cache_bytes: How much of what was simulated may stay in memory.
    """

    ndim = 2
    target_channels = 1
    dtypes: tuple[np.dtype[Any], np.dtype[Any]] = (np.dtype(np.float32), np.dtype(np.float32))
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
        self.photographs, self.settings, self.seed, self.is_noisy = photographs, settings, seed, is_noisy
        self._border = 0 if is_mirrored and not settings.transport_dampings else settings.furthest.reach
        if photographs.side_px <= 2 * self._border:
            raise RecipeError(
                f"photographs have {photographs.side_px} pixels a side, and light travels {self._border} sideways; "
                "expected pixels that see no border; give a larger forward.side_px, or less defocus"
            )
        self._cache = FrameCache(cache_bytes)
        self.condition_channels = len(settings.planes) + len(settings.transport_dampings)

    def __len__(self) -> int:
        return len(self.photographs) * self.settings.draws

    def name(self, sample: int) -> str:
        """The photograph's, with the number of the draw where it has several."""
        draw, photograph = divmod(sample, len(self.photographs))
        name = self.photographs.name(photograph)
        return f"{name}[{draw}]" if self.settings.draws > 1 else name

    def spatial(self, sample: int) -> tuple[int, ...]:
        """The same for all."""
        return (self.photographs.side_px - 2 * self._border,) * 2

    def smallest(self) -> int:
        """Any is the smallest."""
        return 0

    def geometry(self, sample: int) -> Geometry:
        """How a sample is imaged."""
        settings = self.settings
        defocus = self._between(settings.defocus_um, settings.defocus_max_um, _DISTANCE, sample)
        wavelength = self._between(settings.wavelength_um, settings.wavelength_max_um, _WAVELENGTH, sample)
        pixel = self._between(settings.pixel_um, settings.pixel_max_um, _PIXEL, sample)
        return Geometry(tuple(defocus * plane for plane in settings.planes), wavelength, pixel)

    def noise_level(self, sample: int) -> float:
        """The sample's xi."""
        return self.settings.noise * self._drawn(_NOISE, sample) if self.is_noisy else 0.0

    def read(
        self, sample: int, corner: Sequence[int], size: Sequence[int]
    ) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """Condition (K, *size) and phase (1, *size)."""
        whole = self._cache.get(sample, lambda: self._simulate(sample))
        part = whole[:, corner[0] : corner[0] + size[0], corner[1] : corner[1] + size[1]].astype(np.float32)
        planes = len(self.settings.planes)
        light = self._noisy(torch.from_numpy(part[:planes]), sample, corner)
        return np.concatenate([light.numpy(), part[planes:-1]]), part[-1:]

    def files(self) -> Iterator[SourceFile]:
        """The photographs'."""
        return self.photographs.files()

    def hashes(self, sample: int) -> PairHashes:
        """Of the photograph, since noise and geometry of its condition are drawn, and of the phase."""
        phase = self._phases(sample)[1].numpy()
        return PairHashes(
            self.photographs.hash(sample % len(self.photographs)),
            pixel_hash(partial(region, phase), 1, phase.shape[1:]),
        )

    def _simulate(self, sample: int) -> NDArray[np.float32]:
        """Intensities without noise; solutions from those with noise, where wanted; the phase; (K + 1, H, W)."""
        whole, phase = self._phases(sample)
        light = self._middle(intensities(whole[0], self.geometry(sample)))
        solutions = light[:0]
        if self.settings.transport_dampings:
            solutions = transported(self._noisy(light, sample, (0, 0)), self.settings)[len(light) :]
        return torch.cat([light, solutions, phase]).numpy()

    def _phases(self, sample: int) -> tuple[Tensor, Tensor]:
        """Of the whole photograph, and of what is shown of it: the target; each (1, H, W)."""
        grey = torch.from_numpy(self.photographs.read(sample % len(self.photographs)))
        whole = self.settings.phase_range_rad * grey
        phase = self._middle(whole)
        # No mean, as solutions have none; else each part of a large image would get one of its own.
        return whole, phase - phase.mean() if self.settings.transport_dampings else phase

    def _middle(self, whole: Tensor) -> Tensor:
        """What no light from beyond the photograph reaches, if that is cut off."""
        inside: tuple[Any, ...] = (..., *(slice(self._border, length - self._border) for length in whole.shape[1:]))
        return whole[inside]

    def _noisy(self, light: Tensor, sample: int, corner: Sequence[int]) -> Tensor:
        """Intensities of the part of a sample that starts at a corner, as a camera gives them."""
        xi = self.noise_level(sample)
        if xi == 0:
            return light
        origin = tuple(self._border + first for first in corner)  # in the photograph
        noise = NoiseField(self.seed, image=sample, origin=origin)(0, torch.Size([1, 1, *light.shape]))
        return light + xi * (1 + noise[0, 0])

    def _drawn(self, use: int, sample: int) -> float:
        return float(uniform(self.seed, use, sample)[0])

    def _between(self, low: float, high: float, use: int, sample: int) -> float:
        return low * (high / low) ** self._drawn(use, sample) if high else low


def open_phase(request: Request) -> dict[str, PairSource]:
    """Phases from the photographs of a folder (ImageNet, HCOCO or any), by split; tests are without noise."""
    settings = parameters(PhaseSettings, request.forward)
    found = find_photographs(request.folder, validation_fraction=request.validation_fraction, seed=request.seed)
    return {
        split: PhasePairs(
            Photographs(paths, side_px=settings.side_px, cache_bytes=request.cache_bytes if settings.draws > 1 else 0),
            settings,
            # Splits have noise of their own: sample 0 of each would else have the same.
            seed=(request.seed + {"train": 0, "validation": 1, "test": 2}[split] * 2**32) % 2**64,
            is_noisy=split != "test",
            is_mirrored=split == "train",
            cache_bytes=request.cache_bytes,
        )
        for split, paths in found.items()
    }
