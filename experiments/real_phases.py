"""Real intensities of phase objects, and what the transport equation makes of them.

    python experiments/real_phases.py      # draws docs/figures/phase_real.png

The images are found through the environment variable SFUMATO_DATA: HeLa cells and microlenses as pairs of one image in
focus and one defocused (`qpi_tie_pairs`), a cheek cell as a stack through focus in laser light (`qpi_stack_cheek`).
"""

import math
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from sfumato.data.images.io import open_image
from sfumato.physics import fresnel, grid
from sfumato.physics.phase_retrieval import DARKEST, SOLVERS, two_shot_phase
from sfumato.problems.clinical import read_stack

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # where figures are held against bars
from bars import DOCS

__all__ = ["Field", "cheek", "forward_error", "hela", "high_pass", "microlenses", "solved"]


@dataclass(frozen=True)
class Field:
    """Intensities of one specimen, in units of their means.

    Attributes:
        name: For tables.
        in_focus: Shape (H, W).
        defocused: What methods get beside it, shape (H, W).
        defocus_um: Where that was taken.
        wavelength_um: Of the light.
        pixel_um: Side of a pixel.
        unseen: Images at other distances, which no method gets.
    """

    name: str
    in_focus: Tensor
    defocused: Tensor
    defocus_um: float
    wavelength_um: float
    pixel_um: float
    unseen: tuple[tuple[float, Tensor], ...] = ()

    @property
    def optics(self) -> dict[str, float]:
        """Arguments of propagation and solvers."""
        return {"wavelength_um": self.wavelength_um, "pixel_um": self.pixel_um}

    @property
    def blur(self) -> float:
        """Distance times wavelength over the pixel's area: all that intensities show of a geometry."""
        return abs(self.defocus_um) * self.wavelength_um / self.pixel_um**2

    def resampled(self, blur: float) -> "Field":
        """The field on the grid where its geometry is that of another microscope."""
        factor = math.sqrt(blur / self.blur)
        size = [round(factor * side) for side in self.in_focus.shape]

        def resize(image: Tensor) -> Tensor:
            return interpolate(image[None, None], size=size, mode="bicubic", antialias=True)[0, 0]

        return replace(
            self,
            in_focus=resize(self.in_focus),
            defocused=resize(self.defocused),
            pixel_um=self.pixel_um * self.in_focus.shape[0] / size[0],
            unseen=tuple((z, resize(image)) for z, image in self.unseen),
        )


def data(name: str) -> Path:
    if "SFUMATO_DATA" not in os.environ:
        sys.exit(f"set SFUMATO_DATA to the folder that holds {name}")
    return Path(os.environ["SFUMATO_DATA"]).resolve() / name


def _pair(name: str, files: tuple[str, str], defocus_um: float, rows: slice, columns: slice) -> Field:
    images = (np.asarray(open_image(data("qpi_tie_pairs") / file).read({}), np.float64) for file in files)
    light = [torch.from_numpy(image[rows, columns].copy()) for image in images]
    return Field(name, light[0] / light[0].mean(), light[1] / light[1].mean(), defocus_um, 0.55, 0.2325)


def hela(rows: slice = slice(380, 892), columns: slice = slice(380, 892)) -> Field:
    return _pair("HeLa cells", ("hela_I0.tif", "hela_Iz.tif"), 2.5, rows, columns)


def microlenses(rows: slice = slice(100, 900), columns: slice = slice(120, 1160)) -> Field:
    """As much as lies inside the black frame: a lens that the border cuts comes out too high."""
    return _pair("microlenses", ("microlens_I0.tiff", "microlens_Iz.tiff"), -1.0, rows, columns)


def cheek() -> Field:
    """Distances are turned: as named they give a cell that is thinner than nothing, which its authors turn too."""
    stack = read_stack(data("qpi_stack_cheek"), reach_um=20, flip=True)
    planes = {round(z): plane.double() / plane.double().mean() for z, plane in zip(*reversed(stack), strict=True)}
    unseen = tuple((float(z), planes[z]) for z in (-10, 20))
    return Field("cheek cell", planes[0], planes[10], 10.0, 0.532, 0.16, unseen)


def high_pass(phase: Tensor, period_px: float) -> Tensor:
    r"""A phase without its constant and its slow part, :math:`f^4/(f^4 + 1/period^4)`, continued by reflection.

    It is what a damped Poisson solve does to a phase, so that it takes from all methods what that one cannot know.
    """
    height, width = phase.shape
    wide = grid.continued(phase.double(), "even")
    f4 = grid.squared_frequency(wide, 1.0, half=True).square()
    return grid.filtered(wide, f4 / (f4 + period_px**-4.0))[:height, :width]


def damping(field: Field, period_um: float) -> float:
    """The solvers' ``reg`` that halves structures of this period."""
    return (2 * math.pi * field.pixel_um / period_um) ** 4


def solved(field: Field, solver: str, *, reg: float = 1e-9, max_iterations: int = 30) -> Tensor:
    shots = torch.stack([field.in_focus, field.defocused])
    distances = (0.0, field.defocus_um)
    return two_shot_phase(shots, distances, solver=solver, reg=reg, max_iterations=max_iterations, **field.optics).phase


def forward_error(field: Field, phase: Tensor, distance_um: float, measured: Tensor, *, margin: int = 32) -> float:
    """Root mean square of computed minus measured intensity, over the deviation of the measured one.

    The estimate and the measured intensity in focus are propagated together; a border of ``margin`` pixels, where what
    lies beyond the image matters, is not counted.
    """
    light = field.in_focus.clamp_min(DARKEST)
    made = fresnel.defocused_intensity(phase.double(), light, distance_um, margin=128, **field.optics)
    inner = [grid.crop(image, margin) for image in (made / made.mean(), measured)]
    return float((inner[0] - inner[1]).square().mean().sqrt() / inner[1].std(correction=0))


def candidates(field: Field) -> dict[str, Tensor]:
    """All solvers, undamped and with slow structures damped from 40 um on."""
    return {
        f"{solver}, {about}": solved(field, solver, reg=reg)
        for solver in SOLVERS
        for about, reg in (("undamped", 1e-9), ("damped from 40 um", damping(field, 40.0)))
    }


def draw() -> None:
    """In focus, defocused and solved, with bars in micrometres and radians."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    fields, slowest_um = [hela(), microlenses()], [80.0, 320.0]
    phases = [
        high_pass(solved(field, "tie_cg"), period / field.pixel_um)
        for field, period in zip(fields, slowest_um, strict=True)
    ]
    figure, axes = plt.subplots(2, 3, figsize=(11, 6.6), layout="constrained")
    for row, field, phase, slowest in zip(axes, fields, phases, slowest_um, strict=True):
        height, width = (side * field.pixel_um for side in phase.shape)
        span = {"extent": (0, width, height, 0)}
        low, high = np.quantile(torch.stack([field.in_focus, field.defocused]), [0.002, 0.998])
        for axis, image in zip(row, (field.in_focus, field.defocused), strict=False):
            shown = axis.imshow(image, cmap="gray", vmin=low, vmax=high, **span)
        figure.colorbar(shown, ax=row[:2], label="intensity / mean", shrink=0.9, pad=0.01)
        level = phase - phase.median()
        ends = np.quantile(level, [0.005, 0.995])
        shown = row[2].imshow(level, cmap="viridis", vmin=ends[0], vmax=ends[1], **span)
        figure.colorbar(shown, ax=row[2], label="phase - median (rad)", shrink=0.9)
        row[0].set_ylabel(f"{field.name}\num")
        for axis, title in zip(
            row, ("in focus", f"at {field.defocus_um:+g} um", f"phase (TIE), periods to {slowest:g} um"), strict=True
        ):
            axis.set_title(title)
    for axis in axes[1]:
        axis.set_xlabel("um")
    figure.savefig(DOCS / "figures" / "phase_real.png", dpi=80)


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    draw()
