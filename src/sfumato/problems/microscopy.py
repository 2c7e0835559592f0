"""Read super-resolution microscopy data sets that pair a diffraction-limited image with a sharper one.

Each function returns the pairs of one data set, split by field of view, as views of its files. The mean over the frames
of a raw structured-illumination (SIM) stack, whose light patterns cancel, is the widefield condition.
[CVDM Sec. 4.1]
"""

from dataclasses import dataclass
from pathlib import Path

from sfumato.data.images.view import View
from sfumato.data.pairs import Pair
from sfumato.data.sources import PairSource
from sfumato.problems.request import Request, check_folder, parameters, sources
from sfumato.system.errors import PairingError

__all__ = [
    "BIOSR_FOLDERS",
    "BIOSR_SPLITS",
    "biosr",
    "dlsim",
    "open_biosr",
    "open_dlsim",
    "open_sted",
    "open_storm",
    "open_tsim",
    "sted",
    "storm",
    "tsim",
]

BIOSR_FOLDERS = {
    "coated_pits": "CCPs",
    "endoplasmic_reticulum": "ER",
    "microtubules": "Microtubules",
    "f_actin": "F-actin",
}
"""Folders of the four structures. `F-actin_Nonlinear`, another modality at three times the sampling, is not read."""

BIOSR_SPLITS = {"test": range(1, 16), "train": range(16, 46), "validation": range(46, 51)}
"""Cells of each split; other cells are not used."""

_FRAMES = "STCZ"
"""Possible names of the axis of raw frames."""


@dataclass(frozen=True, kw_only=True)
class BioSRSettings:
    """The range of BioSR's signal levels to use; level 1 has the least light.

    Attributes:
        min_level: First level.
        max_level: Last level; the reticulum has 6, F-actin 12 and the others 9.
    """

    min_level: int = 1
    max_level: int = 99


def biosr(folder: Path, *, min_level: int = 1, max_level: int = 99) -> list[Pair]:
    """Find the pairs of the BioSR data set: the mean of nine raw SIM frames, and the SIM image at twice the sampling.

    The folders have the layout of the published archives, ``structure/Cell_001/RawSIMData_level_01.mrc`` with
    ``SIM_gt.mrc`` beside it, or, for the reticulum, ``RawSIMData/RawSIMData_level_01.mrc`` with
    ``GTSIM/GTSIM_level_01.mrc``.

    Args:
        folder: Parent of the folders of the structures, or one of them.
        min_level: First signal level to use.
        max_level: Last signal level to use.

    Returns:
        Pairs named like ``ER/Cell_016/level_03``.

    Raises:
        PairingError: If there are no raw files, or a raw file has no target.
    """
    check_folder(folder, expected="the BioSR data set, or one of its structures")
    structures = [found for name in BIOSR_FOLDERS.values() if (found := folder / name).is_dir()] or [folder]
    pairs = []
    for structure in structures:
        for cell in sorted(structure.glob("Cell_[0-9]*")):
            split = _biosr_split(cell)
            for raw in sorted(cell.rglob("RawSIMData_level_*.mrc")) if split else []:
                level = raw.stem.rpartition("_")[2]
                if min_level <= int(level) <= max_level:
                    name = f"{structure.name}/{cell.name}/level_{level}"
                    target = _biosr_target(cell, level)
                    pairs.append(Pair(name, View(raw, average=_FRAMES), View(target, average=_FRAMES), split))
    if not pairs:
        raise PairingError(
            f"{folder} has no raw SIM files of the levels {min_level} to {max_level}; expected folders such as "
            "Microtubules/Cell_016 with RawSIMData_level_01.mrc in them; set data.folder to where BioSR was unpacked"
        )
    return pairs


def _biosr_split(cell: Path) -> str:
    number = int(cell.name.removeprefix("Cell_"))
    return next((split for split, cells in BIOSR_SPLITS.items() if number in cells), "")


def _biosr_target(cell: Path, level: str) -> Path:
    candidates = [cell / "SIM_gt.mrc", cell / "GTSIM" / f"GTSIM_level_{level}.mrc"]
    for target in candidates:
        if target.exists():
            return target
    raise PairingError(
        f"{cell} has raw frames of level {level} but no SIM image; expected {candidates[0].name} or "
        f"GTSIM/{candidates[1].name}; unpack the archive again"
    )


def open_biosr(request: Request) -> dict[str, PairSource]:
    """Open BioSR, or a folder that `sfumato simulate microscopy --layout biosr` wrote."""
    settings = parameters(BioSRSettings, request.forward)
    pairs = biosr(request.folder, min_level=settings.min_level, max_level=settings.max_level)
    return sources(pairs, request)


def tsim(folder: Path) -> list[Pair]:
    """Find the pairs of the T-SIM endoplasmic reticulum: ``er1_raw.tif`` (time, frame, y, x) and ``er1_sim.tif`` at 2x.

    Each time point of a field is a condition for the field's single target. The last field is the test.
    """
    check_folder(folder, expected="er1_raw.tif, er1_sim.tif and so on")
    raws = sorted(folder.glob("er*_raw.tif"))
    pairs = []
    for raw in raws:
        target = _partner(raw, raw.name.replace("_raw", "_sim"))
        split = "test" if raw == raws[-1] and len(raws) > 1 else "train"
        for time in range(View(raw, axes="TZYX").open().shape[0]):
            condition = View(raw, axes="TZYX", pick={"T": time}, average="Z")
            pairs.append(Pair(f"{raw.stem.removesuffix('_raw')}/time_{time}", condition, target, split))
    return _some(pairs, folder, "er1_raw.tif")


def open_tsim(request: Request) -> dict[str, PairSource]:
    """Open widefield to SIM pairs of the endoplasmic reticulum (T-SIM)."""
    parameters(NoSettings, request.forward)
    return sources(tsim(request.folder), request)


def dlsim(folder: Path) -> list[Pair]:
    """Find the DL-SIM test pairs: microtubules at low and high light, ``mt1_le_raw15.tif`` etc., and one SIM image."""
    check_folder(folder, expected="mt1_le_raw15.tif, mt1_he_raw15.tif and mt1_he_sim.tif")
    pairs = [
        Pair(
            raw.stem, View(raw, axes="ZYX", average="Z"), _partner(raw, f"{raw.stem.split('_')[0]}_he_sim.tif"), "test"
        )
        for raw in sorted(folder.glob("mt*_raw15.tif"))
    ]
    return _some(pairs, folder, "mt1_le_raw15.tif")


def open_dlsim(request: Request) -> dict[str, PairSource]:
    """Open widefield to SIM pairs of microtubules (DL-SIM), one field for testing."""
    parameters(NoSettings, request.forward)
    return sources(dlsim(request.folder), request)


_STED_CHANNELS = {
    "axonal_rings": [(0, 1)],
    "dendritic_factin": [(0, 1)],
    "live_factin": [(0, 1)],
    "synaptic": [(0, 1), (3, 4)],
}
"""Channels of the confocal and STED images in each kind of file; the other channels are labels."""


def sted(folder: Path) -> list[Pair]:
    """Find the confocal to STED pairs of TA-GAN: channels of ``axonal_rings_train.tif`` etc., split by file name."""
    check_folder(folder, expected="axonal_rings_train.tif and so on")
    pairs = []
    for kind, channels in _STED_CHANNELS.items():
        for ending, split in (("train", "train"), ("valid", "validation"), ("test", "test")):
            if not (path := folder / f"{kind}_{ending}.tif").is_file():
                continue
            for number, places in enumerate(channels):
                condition, target = (View(path, axes="CYX", pick={"C": place}) for place in places)
                pairs.append(Pair(f"{path.stem}/{number}", condition, target, split))
    return _some(pairs, folder, "axonal_rings_train.tif")


def open_sted(request: Request) -> dict[str, PairSource]:
    """Open confocal to STED pairs."""
    parameters(NoSettings, request.forward)
    return sources(sted(request.folder), request)


@dataclass(frozen=True, kw_only=True)
class StormSettings:
    """How STORM targets are binned, so that each pixel holds a few localisations.

    Attributes:
        bin: Side in STORM pixels of the blocks that become one pixel; four STORM pixels make one widefield pixel.
    """

    bin: int = 2

    def __post_init__(self) -> None:
        if self.bin not in (1, 2, 4):
            raise ValueError(f"bin is {self.bin}; choose 1, 2 or 4")


_STORM_SHIFT, _STORM_SAMPLING = 2, 4
"""By cross-correlation, STORM images are 2 of their pixels lower than widefield; 4 of them make a widefield pixel."""


def storm(folder: Path, *, bin: int = 2) -> list[Pair]:
    """Find and align the widefield to STORM pairs of SFSRM, ``mitochondria_wf.tif`` and ``mitochondria_storm.tif``.

    STORM images are sparse, so targets are means over blocks of pixels. The field of mitochondria is for training, the
    field of the endoplasmic reticulum for testing.

    Args:
        folder: Folder of the files.
        bin: Side in STORM pixels of the blocks that become one pixel.
    """
    check_folder(folder, expected="mitochondria_wf.tif, mitochondria_storm.tif and so on")
    pairs = []
    for path in sorted(folder.glob("*_wf.tif")):
        target = _partner(path, path.name.replace("_wf", "_storm"))
        rows = View(path, axes="YX").open().shape[0]
        condition = View(path, axes="YX", crop={"Y": (0, rows - 1)})
        kept = (_STORM_SHIFT, _STORM_SHIFT + (rows - 1) * _STORM_SAMPLING)
        sought = View(target, axes="YX", crop={"Y": kept}, bin=bin)
        split = "train" if path.name.startswith("mitochondria") else "test"
        pairs.append(Pair(path.stem.removesuffix("_wf"), condition, sought, split))
    return _some(pairs, folder, "mitochondria_wf.tif")


def open_storm(request: Request) -> dict[str, PairSource]:
    """Open widefield to STORM pairs."""
    return sources(storm(request.folder, bin=parameters(StormSettings, request.forward).bin), request)


@dataclass(frozen=True)
class NoSettings:
    """A problem without parameters."""


def _partner(path: Path, name: str) -> Path:
    if not (found := path.with_name(name)).is_file():
        raise PairingError(f"{path} has no partner; expected {name} beside it; copy the data set again")
    return found


def _some(pairs: list[Pair], folder: Path, example: str) -> list[Pair]:
    if not pairs:
        raise PairingError(
            f"{folder} holds none of the files; expected some such as {example}; set data.folder to them"
        )
    return pairs
