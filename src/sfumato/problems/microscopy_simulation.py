r"""Simulate pairs from a SIM microscope: the four BioSR structures at nine light levels, with known truth.

.. math:: raw_j = camera\big(K_{wf} * (s\,(1 + m \cos(2\pi f_j \cdot r + \phi_j)))\big), \quad j = 1 \ldots 9, \qquad
          condition = \tfrac19\sum_j raw_j, \qquad target = K_{SIM} * s

with three directions and three phases of the light pattern, as in two-dimensional SIM; the three phases of a direction
cancel, so the mean of the frames is a widefield image. The condition has the pixel size of BioSR, 62.6 nm, the target
half of it. Everything drawn depends only on (seed, structure, cell, level).
"""

import csv
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import write_image
from sfumato.physics import camera, optics, rendering, structures
from sfumato.physics.camera import Camera
from sfumato.physics.rendering import Emitters
from sfumato.problems.microscopy import BIOSR_FOLDERS, BIOSR_SPLITS
from sfumato.system.errors import ImageError

__all__ = [
    "PHOTON_LEVELS",
    "TARGET_LEVEL",
    "Field",
    "Microscope",
    "check_simulation",
    "image_field",
    "simulate",
    "specimen",
]

PHOTON_LEVELS = (15, 25, 40, 65, 100, 160, 250, 400, 600)
"""Mean photons per pixel of the structure in one raw frame: nine levels between BioSR's ends, in steps of about 1.6."""

_NUM_ANGLES, _NUM_PHASES = 3, 3
TARGET_LEVEL = 2000.0
"""Mean grey level of structures in targets, high enough that rounding does not show."""
_PLANES_UM = 0.16

Grey = NDArray[np.uint16]


@dataclass(frozen=True, kw_only=True)
class Microscope:
    """A microscope with structured illumination; by default the one of BioSR.

    Attributes:
        numerical_aperture: Numerical aperture of the objective.
        wavelength_um: Wavelength of the emitted light.
        pixel_um: Side of a camera pixel in the specimen.
        pattern: Frequency of the light pattern relative to the widefield cut-off.
        modulation: Contrast m of the light pattern.
        camera: Converts photons to grey levels.
    """

    numerical_aperture: float = 1.35
    wavelength_um: float = 0.525
    pixel_um: float = 0.0626
    pattern: float = 0.85
    modulation: float = 0.8
    camera: Camera = Camera(gain=2.0)  # noqa: RUF009  (frozen)

    @property
    def cutoff(self) -> float:
        """Highest frequency of widefield images, in cycles per micrometre."""
        return optics.cutoff_frequency(self.numerical_aperture, self.wavelength_um)


class Field(NamedTuple):
    """One field of view.

    Attributes:
        raw: Nine frames at each light level, shape (levels, 9, H, W).
        target: The specimen at SIM resolution and twice the sampling, without noise, shape (2H, 2W).
    """

    raw: Grey
    target: Grey


def image_field(
    structure: str,
    *,
    side: int,
    seed: int,
    cell: int = 0,
    levels: Sequence[float] = PHOTON_LEVELS,
    microscope: Microscope | None = None,
) -> Field:
    """Draw a specimen and image it.

    Args:
        structure: One of ``sfumato.physics.structures.STRUCTURES``.
        side: H and W of the raw frames.
        seed: Seed of the whole data set.
        cell: Number of the field.
        levels: Mean photons per pixel of the structure in one raw frame.
        microscope: Settings of the microscope; those of BioSR by default.

    Example:
        >>> field = image_field("microtubules", side=24, seed=0, levels=[100])
        >>> field.raw.shape, field.target.shape
        ((1, 9, 24, 24), (48, 48))
    """
    microscope = microscope or Microscope()
    extent_um = (side * microscope.pixel_um,) * 2
    emitters = specimen(structure, extent_um, seed=seed, cell=cell)
    frames = torch.stack(
        [
            rendering.render(lit, (side, side), pixel_um=microscope.pixel_um, cutoff=microscope.cutoff)
            for lit in _patterns(emitters, microscope, _key(seed, structure, cell, "pattern"))
        ]
    )
    widefield = frames.mean(0)
    raw = [
        microscope.camera.capture(
            frames * (camera.at_photon_level(widefield, level).sum() / widefield.sum()),
            seed=_key(seed, structure, cell, f"level {level}"),
        )
        for level in levels
    ]
    sharp = rendering.render(
        emitters,
        (2 * side, 2 * side),
        pixel_um=microscope.pixel_um / 2,
        cutoff=optics.SIM_EXTENSION * microscope.cutoff,
    )
    target = camera.at_photon_level(sharp.clamp_min(0), TARGET_LEVEL).round().clamp(0, 2**16 - 1)
    return Field(torch.stack(raw).numpy().astype(np.uint16), target.numpy().astype(np.uint16))


def specimen(structure: str, extent_um: tuple[float, float], *, seed: int, cell: int) -> Emitters:
    """Draw a specimen with light in the field; a tiny field may need several attempts."""
    for attempt in range(100):
        emitters = structures.STRUCTURES[structure](extent_um, seed=_key(seed, structure, cell, f"draw {attempt}"))
        here = ((emitters.positions_um >= 0) & (emitters.positions_um < torch.tensor(extent_um))).all(-1)
        if float(emitters.brightness[here].sum()) > 0:
            return emitters
    raise ImageError(f"a field of {extent_um} um has no {structure} in it; expected some; choose a larger side")


def _patterns(emitters: Emitters, microscope: Microscope, seed: int) -> Iterator[Emitters]:
    """Yield the specimen under the light pattern of each raw frame, by direction and then by phase."""
    start, shift = torch.rand(2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).tolist()
    for angle in range(_NUM_ANGLES):
        heading = math.pi * (start + angle / _NUM_ANGLES)
        wave = 2 * math.pi * microscope.pattern * microscope.cutoff
        along = emitters.positions_um @ torch.tensor([math.sin(heading), math.cos(heading)], dtype=torch.float64)
        for phase in range(_NUM_PHASES):
            light = 1 + microscope.modulation * (wave * along + 2 * math.pi * (shift + phase / _NUM_PHASES)).cos()
            yield Emitters(emitters.positions_um, emitters.brightness * light)


def _key(seed: int, structure: str, cell: int, use: str) -> int:
    """Derive a seed of 63 bits for one use."""
    digest = hashlib.sha256(f"{seed}/{structure}/{cell}/{use}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def simulate(
    out: str | Path,
    *,
    seed: int,
    cells: Mapping[str, int],
    side: int = 128,
    layout: Literal["pairs", "biosr"] = "pairs",
    levels: Sequence[float] = PHOTON_LEVELS,
    names: Sequence[str] = tuple(structures.STRUCTURES),
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write pairs of simulated images.

    Args:
        out: Folder to create; an existing one must be empty.
        seed: Determines every pixel.
        cells: Number of fields of each structure, by split; at most as many as BioSR has.
        side: Side of the raw frames in pixels; targets have twice as many.
        layout: ``pairs`` writes widefield and SIM images as TIFF with ``manifest.csv``; ``biosr`` writes raw frames and
            SIM images as MRC, in the folders of BioSR.
        levels: Mean photons per pixel of the structure in one raw frame.
        names: Names of the structures.
        progress: Called with the number of fields written and their total.

    Returns:
        The path to train on: the manifest, or the folder.

    Raises:
        ImageError: If the folder is not empty or cannot be written, or more cells are requested than BioSR has.
    """
    out = Path(out)
    check_simulation(out, names)
    work = [(name, split, cell) for name in names for split, cell in _numbered(cells)]
    rows: list[tuple[str, str, str]] = []
    for done, (name, split, cell) in enumerate(work):
        field = image_field(name, side=side, seed=seed, cell=cell, levels=levels)
        folder = out / BIOSR_FOLDERS[name] / f"Cell_{cell:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        if layout == "biosr":
            _write_biosr(folder, field)
        else:
            rows += [(*files, split) for files in _write_pairs(folder, out, field)]
        if progress is not None:
            progress(done + 1, len(work))
    if layout == "biosr":
        return out
    with (out / "manifest.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("input", "target", "split"), *rows])
    return out / "manifest.csv"


def check_simulation(out: Path, names: Sequence[str]) -> None:
    """Raise ImageError if a folder to write to is not new or empty, or a structure is unknown."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ImageError(f"{out} exists and is not an empty folder; expected a new name; choose one or remove it")
    unknown = [name for name in names if name not in structures.STRUCTURES]
    if unknown:
        raise ImageError(f"structure {unknown[0]!r} is unknown; choose one of {', '.join(structures.STRUCTURES)}")


def _numbered(cells: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield the split and BioSR's number of each cell."""
    for split, number in cells.items():
        known = BIOSR_SPLITS.get(split, range(0))
        if not 0 <= number <= len(known):
            most = ", ".join(f"{len(cells)} {split}" for split, cells in BIOSR_SPLITS.items())
            raise ImageError(f"{number} cells were asked for {split!r}; BioSR has {most}; choose at most that many")
        yield from ((split, cell) for cell in known[:number])


def _write_biosr(folder: Path, field: Field) -> None:
    """Write one cell in BioSR's layout: the reticulum in folders with a target per level, others with one target."""
    from sfumato.data.images.mrc import write_deltavision  # loads mrcfile, which only this layout needs

    microscope = Microscope()
    per_level = folder.parent.name == BIOSR_FOLDERS["endoplasmic_reticulum"]
    places = [folder / part for part in ("RawSIMData", "GTSIM")] if per_level else [folder, folder]
    for place in places:
        place.mkdir(exist_ok=True)

    write = partial(write_deltavision, wavelength_um=microscope.wavelength_um, title="simulated by sfumato")
    levels = [f"level_{level:02d}.mrc" for level in range(1, len(field.raw) + 1)]
    for level, raw in zip(levels, field.raw, strict=True):
        write(places[0] / f"RawSIMData_{level}", raw, pixel_um=(microscope.pixel_um, _PLANES_UM))
    for name in [f"GTSIM_{level}" for level in levels] if per_level else ["SIM_gt.mrc"]:
        write(places[1] / name, field.target, pixel_um=(microscope.pixel_um / 2, _PLANES_UM))


def _write_pairs(folder: Path, out: Path, field: Field) -> Iterator[tuple[str, str]]:
    """Write one cell as TIFF files; yields the paths of each pair, relative to ``out``."""
    fine = Microscope().pixel_um / 2
    write_image(folder / "sim.tif", field.target, axes="YX", pixel_size=_sizes(fine))
    for level, raw in enumerate(field.raw, start=1):
        path = folder / f"widefield_level_{level:02d}.tif"
        widefield = raw.mean(0, dtype=np.float64).astype(np.float32)
        write_image(path, widefield, axes="YX", pixel_size=_sizes(2 * fine))
        yield path.relative_to(out).as_posix(), (folder / "sim.tif").relative_to(out).as_posix()


def _sizes(pixel_um: float) -> dict[str, PixelSize]:
    return {axis: PixelSize(pixel_um, "micrometer") for axis in "YX"}
