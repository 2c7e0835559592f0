r"""Simulated microscopy with fresh camera noise: fields are stored as light, and every sample is a new exposure.

.. math:: condition = \tfrac1F \sum_{j=1}^{F} camera_j(\lambda), \qquad \lambda = level \cdot light, \qquad
          target = K_{SIM} * s

A stored noisy field shows a network the same noise each time it is drawn, and the network learns it. Here the noise of
a sample is a pure function of (seed, sample), and there are as many samples as fields times `draws`. The mean of F
frames is drawn at once: a sum of Poisson numbers is a Poisson number, a sum of read noises is normal, and rounding adds
a variance of 1/12 per frame. The light patterns of the frames cancel in their mean, as in
:mod:`sfumato.problems.microscopy_simulation`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.frames import FrameCache, region, upsample
from sfumato.data.images.io import open_image, write_image
from sfumato.data.pixel_hash import PairHashes, array_hash
from sfumato.data.source_files import SourceFile
from sfumato.data.sources import PairSource
from sfumato.physics import camera, optics, rendering, structures
from sfumato.problems.microscopy_simulation import PHOTON_LEVELS, TARGET_LEVEL, Microscope, check_simulation, specimen
from sfumato.problems.request import Request, check_folder, parameters
from sfumato.system.errors import ImageError, PairingError

__all__ = ["PhotonPairs", "PhotonSettings", "open_photons", "simulate_light"]

Array = NDArray[np.generic]
_FIRST_CELL = {"train": 0, "validation": 10**6, "test": 2 * 10**6}
"""Numbers of the fields of each split, so that no specimen is in two of them."""
_FACTOR = (2, 2)
_NOISY_BYTES = 2**24
"""A few exposures are kept: a patch and the range of its whole image are read one after the other."""


@dataclass(frozen=True, kw_only=True)
class PhotonSettings:
    """Parameters of the exposures; the camera is the simulated microscope's.

    Attributes:
        draws: Number of exposures of each field in training. Draw d has the light level d modulo 9, so with 9 draws a
            field is exposed once at each level, and its noise stays the same from epoch to epoch.
        frames: Number of camera frames whose mean is the condition.
    """

    draws: int = 10**6
    frames: int = 9

    def __post_init__(self) -> None:
        if min(self.draws, self.frames) < 1:
            raise ValueError(f"draws is {self.draws} and frames {self.frames}; give at least 1 of each")


def simulate_light(
    out: str | Path,
    *,
    seed: int,
    cells: Mapping[str, int],
    side: int = 64,
    names: Sequence[str] = tuple(structures.STRUCTURES),
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write fields as light without noise, beside their sharp targets: `SPLIT/STRUCTURE_NUMBER/light.tif, sim.tif`.

    Args:
        out: Folder to create; an existing one must be empty.
        seed: Determines every specimen.
        cells: Number of fields of each structure, by split.
        side: Side of the light images in pixels; targets have twice as many.
        names: Names of the structures.
        progress: Called with the number of fields written and their total.

    Returns:
        The folder, to train on with the problem `photons`.

    Raises:
        ImageError: If the folder is not empty, or a structure is unknown.
    """
    out = Path(out)
    check_simulation(out, names)
    work = [(split, name, number) for split, most in cells.items() for name in names for number in range(most)]
    microscope = Microscope()
    for done, (split, name, number) in enumerate(work):
        emitters = specimen(name, (side * microscope.pixel_um,) * 2, seed=seed, cell=_FIRST_CELL[split] + number)
        optical: dict[str, Any] = {"pixel_um": microscope.pixel_um, "cutoff": microscope.cutoff}
        light = rendering.render(emitters, (side, side), **optical).clamp_min(0)
        fine = {"pixel_um": optical["pixel_um"] / 2, "cutoff": optics.SIM_EXTENSION * optical["cutoff"]}
        sharp = rendering.render(emitters, (2 * side, 2 * side), **fine).clamp_min(0)
        folder = out / split / f"{name}_{number:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        for file, image, level in (("light", light, 1.0), ("sim", sharp, TARGET_LEVEL)):
            write_image(folder / f"{file}.tif", camera.at_photon_level(image, level).float().numpy(), axes="YX")
        if progress is not None:
            progress(done + 1, len(work))
    return out


class PhotonPairs:
    """A :class:`~sfumato.data.sources.PairSource` of exposures, on the target's grid, and sharp targets.

    Args:
        fields: Folders written by :func:`simulate_light`.
        settings: Number of exposures and of frames.
        seed: Seed of the noise.
        cache_bytes: Largest amount of decoded data kept in memory.
    """

    ndim = 2
    condition_channels = target_channels = 1
    dtypes: tuple[np.dtype[Any], np.dtype[Any]] = (np.dtype(np.float32), np.dtype(np.float32))
    factor = _FACTOR

    def __init__(
        self, fields: Sequence[Path], settings: PhotonSettings, *, seed: int = 0, cache_bytes: int = 2**31
    ) -> None:
        self.fields, self.settings, self.seed = list(fields), settings, seed
        self.camera = Microscope().camera
        self._files, self._exposures = FrameCache(cache_bytes), FrameCache(_NOISY_BYTES)
        self._spatial = tuple(open_image(self.fields[0] / "sim.tif").shape)

    def __len__(self) -> int:
        return len(self.fields) * self.settings.draws

    @property
    def num_images(self) -> int:
        """Number of fields."""
        return len(self.fields)

    def name(self, sample: int) -> str:
        """Name of the field, with its light level and the number of the draw."""
        draw, field = divmod(sample, len(self.fields))
        return f"{self.fields[field].name}/level_{self._level(sample) + 1:02d}[{draw}]"

    def spatial(self, sample: int) -> tuple[int, ...]:
        """Size of every sample."""
        return self._spatial

    def smallest(self) -> int:
        """All samples have the same size."""
        return 0

    def read(self, sample: int, corner: Sequence[int], size: Sequence[int]) -> tuple[Array, Array]:
        """Read the exposure (1, *size) and the target (1, *size)."""
        exposed = self._exposures.get(sample, lambda: upsample(self.expose(sample), _FACTOR))
        return region(exposed, corner, size), region(self._sharp(sample % len(self.fields)), corner, size)

    def expose(self, sample: int) -> NDArray[np.float32]:
        """The mean of the frames in grey levels, on the camera's own grid, shape (1, H, W)."""
        light = np.asarray(self._read(sample % len(self.fields), "light"), np.float64)
        frames = self.settings.frames
        rng = np.random.default_rng([self.seed & (2**63 - 1), sample])
        electrons = rng.poisson(frames * PHOTON_LEVELS[self._level(sample)] * light)
        rounding = 0.0 if self.camera.bit_depth is None else 1 / 12
        spread = math.sqrt(frames * (self.camera.gain**2 * self.camera.read_noise**2 + rounding))
        total = self.camera.gain * electrons + spread * rng.standard_normal(light.shape)
        return np.asarray(total / frames + self.camera.offset, np.float32)

    def files(self) -> Iterator[SourceFile]:
        """Files of all fields."""
        for folder in self.fields:
            for name in ("light", "sim"):
                yield SourceFile(f"{name} of {folder.name}", folder / f"{name}.tif")

    def hashes(self, sample: int) -> PairHashes:
        """Hashes of the field without noise."""
        field = sample % len(self.fields)
        sides = (self._read(field, "light"), self._sharp(field))
        return PairHashes(*map(array_hash, sides))

    def _level(self, sample: int) -> int:
        draw, field = divmod(sample, len(self.fields))
        return (draw + field) % len(PHOTON_LEVELS)

    def _sharp(self, field: int) -> Array:
        return self._read(field, "sim")

    def _read(self, field: int, name: str) -> Array:
        path = self.fields[field] / f"{name}.tif"
        return self._files.get(path, lambda: self._checked(path, open_image(path).read({})[None].astype(np.float32)))

    def _checked(self, path: Path, image: Array) -> Array:
        factor = 1 if path.stem == "sim" else _FACTOR[0]
        expected = tuple(length // factor for length in self._spatial)
        if image.shape[1:] != expected:
            raise ImageError(
                f"{path} has {image.shape[1:]} pixels; expected {expected}, as the first field has: simulate all "
                "fields of a folder with one command"
            )
        return image


def open_photons(request: Request) -> dict[str, PairSource]:
    """Open the fields of a folder written by :func:`simulate_light`, by split; held-out fields are exposed once.

    Raises:
        PairingError: If the folder holds no fields.
    """
    settings = parameters(PhotonSettings, request.forward)
    check_folder(request.folder, expected="fields written by `sfumato simulate microscopy --layout light`")
    found: dict[str, PairSource] = {}
    for place, split in enumerate(_FIRST_CELL):
        fields = sorted(path.parent for path in (request.folder / split).glob("*/light.tif"))
        draws = settings.draws if split == "train" else 1
        # Splits have separate seeds, so that field 0 of each has noise of its own.
        seed = (request.seed + place * 2**32) % 2**63
        if fields:
            exposures = PhotonSettings(draws=draws, frames=settings.frames)
            found[split] = PhotonPairs(fields, exposures, seed=seed, cache_bytes=request.cache_bytes)
    if not found:
        raise PairingError(
            f"{request.folder} holds no fields; expected train/NAME/light.tif and sim.tif, as "
            "`sfumato simulate microscopy --layout light` writes them; set data.folder to their folder"
        )
    return found
