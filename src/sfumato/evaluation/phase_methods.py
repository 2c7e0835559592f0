"""Phase retrieval by the transport equation, as methods that can be evaluated beside models."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.evaluation.methods import Image, Method
from sfumato.physics.phase_retrieval import MAX_ITERATIONS, ONE_SOLVE, SOLVERS, two_shot_phase
from sfumato.system.errors import ImageError, RecipeError

__all__ = ["TwoShots", "phase_method"]


@dataclass(frozen=True)
class TwoShots:
    """What the transport equation must know of a two-shot condition.

    Attributes:
        pixel_um: Side of a pixel.
        wavelength_um: In the medium.
        defocus_um: The unit of ``planes``, as in a phase recipe.
        planes: Where the two channels were taken: (1, -1) at plus and minus ``defocus_um``, (0, 1) in focus and
            defocused.
        reg: Damping of slow structures.
        max_iterations: Of the iterative solvers.
    """

    pixel_um: float
    wavelength_um: float
    defocus_um: float
    planes: tuple[float, ...] = (1.0, -1.0)
    reg: float = 1e-9
    max_iterations: int = MAX_ITERATIONS

    def __post_init__(self) -> None:
        if min(self.pixel_um, self.wavelength_um) <= 0 or self.defocus_um == 0 or self.reg < 0:
            raise RecipeError(
                f"pixel_um is {self.pixel_um:g}, wavelength_um {self.wavelength_um:g}, defocus_um {self.defocus_um:g} "
                f"and the damping {self.reg:g}; give sizes above 0, a distance other than 0 and no negative damping"
            )
        if len(self.planes) != 2 or self.planes[0] == self.planes[1]:
            raise RecipeError(
                f"planes are {', '.join(f'{plane:g}' for plane in self.planes)}; the transport equation is solved from "
                "two different ones: give 1,-1 or 0,1"
            )

    @property
    def distances_um(self) -> tuple[float, ...]:
        """Distances of the two channels, in micrometres."""
        return tuple(self.defocus_um * plane for plane in self.planes)


def phase_method(name: str, shots: TwoShots | None) -> Method:
    """One of the solvers of :mod:`sfumato.physics.phase_retrieval` on two channels; the phase has mean 0.

    Raises:
        RecipeError: If the solver is unknown, or the shots are not described.
    """
    if name not in SOLVERS:
        raise RecipeError(f"no solver is called {name!r}; choose one of {', '.join(SOLVERS)}")
    if shots is None:
        raise RecipeError(
            f"{name} solves the transport equation, which needs the pixel size, the wavelength and the defocus "
            "distance; give --pixel-um, --wavelength-um and --defocus-um"
        )

    def run(measured: Image, _: int) -> NDArray[np.float32]:
        light = torch.from_numpy(np.asarray(measured, np.float64))
        try:
            found = two_shot_phase(
                light,
                shots.distances_um,
                solver=name,
                wavelength_um=shots.wavelength_um,
                pixel_um=shots.pixel_um,
                reg=shots.reg,
                max_iterations=shots.max_iterations,
            )
        except ValueError as error:
            raise ImageError(f"{name} cannot run: {error}") from error
        return found.phase[None].float().numpy()

    effort = "" if name in ONE_SOLVE else f"at most {shots.max_iterations} iterations, "
    planes = " and ".join(f"{distance:g}" for distance in shots.distances_um)
    optics = f"wavelength {shots.wavelength_um:g} um, pixel {shots.pixel_um:g} um"
    return Method(name, run, f"{effort}damping {shots.reg:g}, shots at {planes} um, {optics}")
