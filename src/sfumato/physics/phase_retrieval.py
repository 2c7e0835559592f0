r"""Retrieve phase from two intensities with a solver of the transport of intensity (:mod:`sfumato.physics.tie`).

.. math:: \frac{\partial I}{\partial z} \approx \frac{I(z_1) - I(z_2)}{z_1 - z_2}, \qquad
          I_0 \approx I(0), \text{ or the line through both}

Only the condition of a phase model is used. Solvers work in float64, because slow structures are differences of large
numbers.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sfumato.physics import through_focus, tie
from sfumato.physics.tie import Solution

__all__ = ["DARKEST", "MAX_ITERATIONS", "ONE_SOLVE", "SOLVERS", "solve", "two_shot_phase"]

SOLVERS = ("tie_fft", "us_tie", "tie_cg", "tie_uniform")
"""One Poisson solve, the universal solution of Zhang et al. (2020), conjugate gradients, and one Poisson solve that
assumes uniform light in focus, as behind a transparent specimen."""

ONE_SOLVE = ("tie_fft", "tie_uniform")
"""Solvers that do not iterate."""

MAX_ITERATIONS = 30
"""With noise and dark pixels the published residual is never reached, and more iterations fit more of the noise."""

DARKEST = 0.05
"""Darker pixels are raised to this share of the mean intensity, since there is no phase without light."""


def solve(
    axial_derivative: Tensor,
    intensity: Tensor,
    *,
    solver: str = "us_tie",
    wavelength_um: float,
    pixel_um: float,
    reg: float = 1e-9,
    max_iterations: int = MAX_ITERATIONS,
) -> Solution:
    """Solve the transport equation of real images with a solver given by name.

    Args:
        axial_derivative: dI/dz in focus, per micrometre, shape (H, W).
        intensity: Intensity in focus, shape (H, W), with a mean above 0.
        solver: One of ``SOLVERS``.
        wavelength_um: In the medium.
        pixel_um: Side of a pixel.
        reg: Damping of slow structures, see :func:`sfumato.physics.tie.solve_tikhonov`.
        max_iterations: Largest number of iterations of the two solvers that iterate.

    Returns:
        Phase of mean 0, in float64; one Poisson solve counts as one iteration, and its residual is measured too.

    Raises:
        ValueError: If the solver is unknown or there is no light.
    """
    if solver not in SOLVERS:
        raise ValueError(f"no solver is called {solver!r}; choose one of {', '.join(SOLVERS)}")
    slope, light = axial_derivative.double(), intensity.double()
    mean = float(light.mean())
    if not mean > 0:
        raise ValueError(
            f"the mean intensity in focus is {mean:g}, expected above 0; subtract no more than the dark level"
        )
    light = torch.full_like(light, mean) if solver == "tie_uniform" else light.clamp_min(DARKEST * mean)
    optics: dict[str, Any] = {"wavelength_um": wavelength_um, "pixel_um": pixel_um}
    if solver in ONE_SOLVE:
        phase = tie.solve_tikhonov(slope, light, reg=reg, **optics)
        wanted = slope - slope.mean()
        left = wanted - tie.transport(phase, light, **optics)
        residual = left.abs().max() / wanted.abs().max().clamp_min(torch.finfo(torch.float64).tiny)
        found = Solution(phase, torch.ones((), dtype=torch.int64), residual)
    else:
        iterate = tie.solve_us_tie if solver == "us_tie" else tie.solve_conjugate_gradients
        found = iterate(slope, light, reg=reg, max_iterations=max_iterations, **optics)
    return found._replace(phase=found.phase - found.phase.mean())


def two_shot_phase(shots: Tensor, distances_um: Sequence[float], **options: Any) -> Solution:
    """Retrieve the phase from two shots.

    Args:
        shots: Intensities (2, H, W), on any common scale.
        distances_um: Distances of the two shots, such as (2, -2), or (0, 2.5) for one in focus and one defocused. A
            shot at 0 is the intensity in focus; without one, it is the value at 0 of the line through both.
        options: Options of :func:`solve`.

    Raises:
        ValueError: If there are not two shots at two distances.

    Example:
        >>> flat = two_shot_phase(torch.ones(2, 8, 8), (1.0, -1.0), wavelength_um=0.5, pixel_um=0.2)
        >>> bool(flat.phase.abs().max() < 1e-9)
        True
    """
    if shots.ndim != 3 or len(shots) != 2 or len(distances_um) != 2:
        raise ValueError(
            f"the shots have shape {tuple(shots.shape)} and there are {len(distances_um)} distances; expected two "
            "channels, (2, H, W), and a distance for each"
        )
    planes, distances = shots.double(), [float(z) for z in distances_um]
    slope = through_focus.axial_derivative(planes, distances, 1)
    in_focus = (
        planes[distances.index(0.0)]
        if 0.0 in distances
        else through_focus.axial_derivative(planes, distances, 1, derivative=0)
    )
    return solve(slope, in_focus, **options)
