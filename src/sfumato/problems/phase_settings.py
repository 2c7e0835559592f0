"""Parameters of the phase problem, and the intensities that a phase makes with them."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from sfumato.physics import fresnel

__all__ = ["GEOMETRY", "Geometry", "PhaseSettings", "intensities"]

GEOMETRY = {"defocus": 101, "wavelength": 102, "pixel": 103}
"""Purposes of the random numbers that draw a geometry, different from all others."""


@dataclass(frozen=True, kw_only=True)
class PhaseSettings:
    """Parameters of the problem, the paper's by default.

    A geometry parameter is randomised if its ``max`` is given: it is then drawn for each sample between the two values,
    uniformly in its logarithm. Intensities depend only on the ratio of distance times wavelength to the pixel's area.

    Attributes:
        phase_range_rad: Phase of white; black is 0.
        pixel_um: Side of a pixel.
        wavelength_um: Wavelength in the medium.
        defocus_um: The unit of ``planes``; negative for a specimen on the other side of focus.
        planes: Positions of the condition's channels: (1, -1) are two shots at plus and minus ``defocus_um``, (0, 1)
            one in focus and one defocused; more make a stack.
        noise: Largest xi.
        side_px: Side of the squares that photographs are resized to.
        draws: Number of samples with different noise and geometry per photograph; above 1,000, in training alone.
        views: Number of squares of each photograph that training draws from: the central one, and others of at least
            half its side anywhere in it. The paper has 1; few photographs are learned by heart without more.
        defocus_max_um: Upper end for random distances; 0 for none.
        wavelength_max_um: Upper end for random wavelengths; 0 for none.
        pixel_max_um: Upper end for random pixel sizes; 0 for none.
        transport_dampings: Each adds a channel to the condition: the transport equation's solution with this damping,
            from all planes and for the whole image (:func:`transported`). Targets then have mean 0 over their image,
            as the solutions do. The paper has none.
    """

    phase_range_rad: float = 3.5
    pixel_um: float = 0.21
    wavelength_um: float = 0.521
    defocus_um: float = 2.0
    planes: tuple[float, ...] = (1.0, -1.0)
    noise: float = 0.2
    side_px: int = 256
    draws: int = 1
    views: int = 1
    defocus_max_um: float = 0.0
    wavelength_max_um: float = 0.0
    pixel_max_um: float = 0.0
    transport_dampings: tuple[float, ...] = ()

    @property
    def is_random(self) -> bool:
        """Whether the draws of a photograph differ in their geometry."""
        return bool(self.defocus_max_um or self.wavelength_max_um or self.pixel_max_um)

    def __post_init__(self) -> None:
        if min(self.pixel_um, self.wavelength_um, abs(self.defocus_um), self.side_px, self.draws, self.views) <= 0:
            raise ValueError(
                f"pixel_um is {self.pixel_um}, wavelength_um {self.wavelength_um}, defocus_um {self.defocus_um}, "
                f"side_px {self.side_px}, draws {self.draws} and views {self.views}; give numbers above 0, and a "
                "distance other than 0"
            )
        if not self.planes or self.noise < 0:
            raise ValueError(
                f"planes are {self.planes} and noise is {self.noise}; give a plane, and noise of 0 or more"
            )
        for name in GEOMETRY:
            low, high = self.ends_um(name)
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

    def ends_um(self, name: str) -> tuple[float, float]:
        """The two ends of a parameter of the geometry, such as ``defocus``; the upper one is 0 if it is not random."""
        return getattr(self, f"{name}_um"), getattr(self, f"{name}_max_um")

    @property
    def furthest(self) -> "Geometry":
        """The geometry, of all that may be drawn, whose light travels furthest sideways."""
        distances = tuple((self.defocus_max_um or self.defocus_um) * plane for plane in self.planes)
        return Geometry(distances, self.wavelength_max_um or self.wavelength_um, self.pixel_um)


class Geometry(NamedTuple):
    """How a sample is imaged.

    Attributes:
        distances_um: Distances of the channels from focus.
        wavelength_um: Wavelength in the medium.
        pixel_um: Side of a pixel.
    """

    distances_um: tuple[float, ...]
    wavelength_um: float
    pixel_um: float

    @property
    def reach(self) -> int:
        """Pixels that light of the finest period, two pixels, travels sideways."""
        furthest = max(map(abs, self.distances_um))
        return math.ceil(furthest * self.wavelength_um / (2 * self.pixel_um) / self.pixel_um)


def intensities(phase: Tensor, geometry: Geometry) -> Tensor:
    """Compute the intensities at some distances from focus, with intensity 1 in focus.

    Args:
        phase: Phase in radians, shape (H, W); continued by reflection beyond its border.
        geometry: Geometry with Z distances.

    Returns:
        Shape (Z, H, W).

    Example:
        >>> import torch
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
