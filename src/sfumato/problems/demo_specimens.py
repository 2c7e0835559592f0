"""Simulate the specimens of the demo: one field of each structure, none of which was used in training."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import write_image
from sfumato.problems.microscopy_simulation import Microscope, image_field

__all__ = ["FIELDS", "SEED", "DemoField", "Specimen", "simulate_specimens", "write_specimens"]

SEED = 8
"""Seed of the demo; the data of the bundled model have other seeds (experiments/zoo_data.py)."""
_SIDE = 64


class DemoField(NamedTuple):
    """The number of a field of a structure, and its light level."""

    cell: int
    photons: int
    """Mean number per pixel of the structure in a raw frame."""


FIELDS = {
    "microtubules": DemoField(0, 15),
    "f_actin": DemoField(0, 160),
    "endoplasmic_reticulum": DemoField(0, 65),
    "coated_pits": DemoField(5, 40),  # earlier ones are nearly empty
}
"""One field of each structure, in the order of the demo."""


@dataclass(frozen=True)
class Specimen:
    """A simulated field of view.

    Attributes:
        name: Name of its structure.
        measured: The widefield image in camera grey levels, shape (H, W).
        truth: The same field at the resolution of structured illumination, shape (2H, 2W).
        pixel_um: Side of a pixel of the truth.
    """

    name: str
    measured: NDArray[np.float32]
    truth: NDArray[np.uint16]
    pixel_um: float


def simulate_specimens(progress: Callable[[str], None] | None = None) -> list[Specimen]:
    """Simulate all specimens of the demo; every call gives the same."""
    found = []
    for name, (cell, photons) in FIELDS.items():
        if progress is not None:
            progress(name)
        imaged = image_field(name, side=_SIDE, seed=SEED, cell=cell, levels=[photons])
        measured = imaged.raw[0].mean(0, dtype=np.float64).astype(np.float32)
        found.append(Specimen(name, measured, imaged.target, Microscope().pixel_um / 2))
    return found


def write_specimens(specimens: list[Specimen], measured: Path, truth: Path) -> None:
    """Write OME-TIFF files with pixel sizes, under the same names in two new folders."""
    for folder, part, pixels in ((measured, "measured", 2), (truth, "truth", 1)):
        folder.mkdir()
        for specimen in specimens:
            size = PixelSize(pixels * specimen.pixel_um, "micrometer")
            image = getattr(specimen, part)
            write_image(folder / f"{specimen.name}.tif", image, axes="YX", pixel_size={"Y": size, "X": size})
