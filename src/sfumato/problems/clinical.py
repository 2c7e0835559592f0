r"""The paper's clinical protocol: pseudo truth from a through-focus stack, and two of its planes as the condition.

.. math:: \frac{\partial I}{\partial z}\Big|_0 \text{ by a polynomial through all planes}, \qquad
          \varphi = \text{TIE}\Big(\frac{\partial I}{\partial z}, I_0\Big), \qquad condition = (I_d, I_{-d})

[CVDM Sec. 4.2.2]: order 20 over planes at +-2k um, k = 1 to 20, and d = 2 um. It is only a pseudo truth: a polynomial
of high order amplifies noise, and no solver can recover the constant or, with noise, the slowest structures. The
paper's solver is US-TIE.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sfumato.data.images.file_names import image_stem
from sfumato.data.images.image import arrange
from sfumato.data.images.io import open_image
from sfumato.physics import through_focus
from sfumato.physics.phase_retrieval import solve, two_shot_phase
from sfumato.problems.photographs import central_square
from sfumato.system.errors import ImageError, PairingError

__all__ = ["ClinicalSpecimen", "Stack", "protocol", "read_stack", "two_shot_tie"]

_PAPER_ORDER = 20


class Stack(NamedTuple):
    """Intensities through focus.

    Attributes:
        planes: Shape (Z, H, W); about 1 in focus.
        distances_um: Distances of the planes, increasing; 0 is in focus.
    """

    planes: Tensor
    distances_um: list[float]


class ClinicalSpecimen(NamedTuple):
    """The result of the protocol for one stack.

    Attributes:
        two_shot: Intensities at +d and -d, shape (2, H, W).
        pseudo_truth: Phase in radians, mean 0, shape (H, W).
        order: Order of the polynomial.
        residual: Largest part of dI/dz that the solver leaves unexplained, relative to the largest dI/dz.
    """

    two_shot: Tensor
    pseudo_truth: Tensor
    order: int
    residual: float


def read_stack(
    path: Path,
    *,
    step_um: float | None = None,
    reach_um: float | None = None,
    flip: bool = False,
    crop_px: int | None = None,
) -> Stack:
    """Read a stack from one file, or from a folder of planes named by their distance.

    Args:
        path: A file with a Z axis whose middle plane is in focus; or a folder of files such as ``z-010um.tif``, which
            are divided by ``reference.tif`` if it exists.
        step_um: Distance between the planes of a file.
        reach_um: Leave out planes further from focus than this.
        flip: Invert the sign of the distances, for microscopes that count them the other way.
        crop_px: Keep a central square of each plane with this side in pixels.

    Raises:
        ImageError: If the planes are smaller than ``crop_px``.
        PairingError: If there are fewer than two planes or none near focus, or distances are unknown.
    """
    if path.is_dir():
        named = _planes_of(path)
        reference = _plane(path / "reference.tif") if (path / "reference.tif").is_file() else torch.ones(())
        planes = {z: _plane(p) / reference.clamp_min(1e-6) for z, p in named.items()}
    else:
        if step_um is None or step_um <= 0:
            raise PairingError(f"{path} does not say how far its planes are apart; give step_um, above 0")
        image = open_image(path)
        sections = arrange(image.read(), image.axes, "ZYX").astype(np.float32)
        middle = (len(sections) - 1) / 2
        planes = {(place - middle) * step_um: torch.from_numpy(s) for place, s in enumerate(sections)}
    kept = {(-z if flip else z): plane for z, plane in planes.items() if reach_um is None or abs(z) <= reach_um}
    if len(kept) < 2 or not min(kept) <= 0 <= max(kept):
        raise PairingError(
            f"{path} has planes at {sorted(kept)} um; expected several, on both sides of focus; name files like "
            "z-010um.tif, or raise reach_um"
        )
    distances = sorted(kept)
    stack = _middle(torch.stack([kept[z] for z in distances]), crop_px)
    in_focus = stack[_nearest(distances, 0.0)]
    return Stack(stack / in_focus.mean(), distances)


def _planes_of(folder: Path) -> dict[float, Path]:
    """Find the files of a folder by the distance in their names."""
    named: dict[float, Path] = {}
    for path in sorted(folder.iterdir()):
        if found := re.fullmatch(r"z([+-]?\d+\.?\d*)um", image_stem(path)):
            other = named.setdefault(float(found[1]), path)
            if other is not path:
                raise PairingError(f"{other} and {path.name} are both at {found[1]} um; expected one plane; remove one")
    return named


def _middle(stack: Tensor, side: int | None) -> Tensor:
    if side is None:
        return stack
    if not 0 < side <= min(stack.shape[-2:]):
        raise ImageError(
            f"the planes have {stack.shape[-2]} x {stack.shape[-1]} pixels and crop_px is {side}; give a side from 1 "
            "to the shorter of them"
        )
    return central_square(stack, side)


def _plane(path: Path) -> Tensor:
    image = open_image(path)
    if image.axes != "YX":
        raise ImageError(f"{path} has axes {image.axes}; expected one grey plane, YX; convert it")
    return torch.from_numpy(image.read().astype(np.float32))


def protocol(stack: Stack, *, shot_um: float = 2.0, order: int | None = None, **options: Any) -> ClinicalSpecimen:
    """Compute the pseudo truth of a stack, and pick the two shots that methods are given.

    Args:
        stack: The through-focus stack.
        shot_um: Distance d of the two shots; the stack must have planes at +d and -d.
        order: Order of the polynomial; by default half the number of planes, and at most the paper's 20.
        options: Options of :func:`sfumato.physics.phase_retrieval.solve` for the pseudo truth: the wavelength, the
            pixel and the solver, which is the paper's by default.

    Raises:
        PairingError: If the planes of the two shots are not in the stack.
    """
    missing = [z for z in (shot_um, -shot_um) if not np.isclose(stack.distances_um, z).any()]
    if missing:
        raise PairingError(
            f"the stack has no plane at {missing[0]:g} um, but at {', '.join(f'{z:g}' for z in stack.distances_um)}; "
            "choose a shot_um that is there"
        )
    chosen = order if order is not None else max(1, min(_PAPER_ORDER, (len(stack.distances_um) - 1) // 2))
    planes = stack.planes.double()
    slope = through_focus.axial_derivative(planes, stack.distances_um, chosen)
    focus, *shots = (planes[_nearest(stack.distances_um, z)] for z in (0.0, shot_um, -shot_um))
    found = solve(slope, focus, **options)
    return ClinicalSpecimen(torch.stack(shots).float(), found.phase.float(), chosen, float(found.residual))


def two_shot_tie(two_shot: Tensor, *, shot_um: float, **options: Any) -> Tensor:
    """Solve for the phase of two shots (2, H, W) at plus and minus ``shot_um``; their mean counts as in focus.

    Args:
        two_shot: The shots.
        shot_um: Their distance from focus.
        options: Options of :func:`sfumato.physics.phase_retrieval.solve`, whose solver is the paper's by default.
    """
    return two_shot_phase(two_shot, (shot_um, -shot_um), **options).phase.float()


def _nearest(distances_um: list[float], z: float) -> int:
    return int(np.argmin(np.abs(np.subtract(distances_um, z))))
