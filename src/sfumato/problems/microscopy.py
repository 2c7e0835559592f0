"""Read super-resolution microscopy data sets that pair a diffraction-limited image with a sharper one.

Each function returns the pairs of one data set, split by field of view, as views of its files. The mean over the frames
of a raw structured-illumination (SIM) stack, whose light patterns cancel, is the widefield condition.
[CVDM Sec. 4.1]
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from sfumato.data.images.view import View
from sfumato.data.pairs import SPLITS, Pair
from sfumato.data.sources import FilePairs, PairSource
from sfumato.problems.request import Request, check_folder, keywords
from sfumato.system.errors import PairingError, RecipeError

__all__ = ["BIOSR_FOLDERS", "BIOSR_SPLITS", "DATA_SETS", "biosr", "dlsim", "open_data_set", "sted", "storm", "tsim"]

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


def biosr(folder: Path, *, min_level: int = 1, max_level: int = 99) -> list[Pair]:
    """Find the pairs of the BioSR data set: the mean of nine raw SIM frames, and the SIM image at twice the sampling.

    The folders have the layout of the published archives, ``structure/Cell_001/RawSIMData_level_01.mrc`` with
    ``SIM_gt.mrc`` beside it, or, for the reticulum, ``RawSIMData/RawSIMData_level_01.mrc`` with
    ``GTSIM/GTSIM_level_01.mrc``.

    Args:
        folder: Parent of the folders of the structures, or one of them.
        min_level: First signal level to use; level 1 has the least light.
        max_level: Last signal level to use; the reticulum has 6, F-actin 12 and the others 9.

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
    names = ("SIM_gt.mrc", f"GTSIM/GTSIM_level_{level}.mrc")
    for name in names:
        if (cell / name).exists():
            return cell / name
    raise PairingError(
        f"{cell} has raw frames of level {level} but no SIM image; expected {' or '.join(names)}; unpack the archive "
        "again"
    )


def tsim(folder: Path) -> list[Pair]:
    """Find the pairs of the T-SIM endoplasmic reticulum: ``er1_raw.tif`` (time, frame, y, x) and ``er1_sim.tif`` at 2x.

    Each time point of a field is a condition for the field's single target. The last field is the test.
    """
    raws = sorted(folder.glob("er*_raw.tif"))
    pairs = []
    for raw in raws:
        target = _partner(raw, raw.name.replace("_raw", "_sim"))
        split = "test" if raw == raws[-1] and len(raws) > 1 else "train"
        for time in range(View(raw, axes="TZYX").open().shape[0]):
            condition = View(raw, axes="TZYX", pick={"T": time}, average="Z")
            pairs.append(Pair(f"{raw.stem.removesuffix('_raw')}/time_{time}", condition, target, split))
    return _some(pairs, folder, "er1_raw.tif")


def dlsim(folder: Path) -> list[Pair]:
    """Find the DL-SIM test pairs: microtubules at low and high light, ``mt1_le_raw15.tif`` etc., and one SIM image."""
    pairs = []
    for raw in sorted(folder.glob("mt*_raw15.tif")):
        target = _partner(raw, f"{raw.stem.partition('_')[0]}_he_sim.tif")
        pairs.append(Pair(raw.stem, View(raw, axes="ZYX", average="Z"), target, "test"))
    return _some(pairs, folder, "mt1_le_raw15.tif")


_STED_CHANNELS = {
    "axonal_rings": [(0, 1)],
    "dendritic_factin": [(0, 1)],
    "live_factin": [(0, 1)],
    "synaptic": [(0, 1), (3, 4)],
}
"""Channels of the confocal and STED images in each kind of file; the other channels are labels."""


def sted(folder: Path) -> list[Pair]:
    """Find the confocal to STED pairs of TA-GAN: channels of ``axonal_rings_train.tif`` etc., split by file name."""
    pairs = []
    for kind, channels in _STED_CHANNELS.items():
        for ending, split in (("train", "train"), ("valid", "validation"), ("test", "test")):
            if not (path := folder / f"{kind}_{ending}.tif").is_file():
                continue
            for number, places in enumerate(channels):
                condition, target = (View(path, axes="CYX", pick={"C": place}) for place in places)
                pairs.append(Pair(f"{path.stem}/{number}", condition, target, split))
    return _some(pairs, folder, "axonal_rings_train.tif")


_STORM_SHIFT, _STORM_SAMPLING = 2, 4
"""By cross-correlation, STORM images are 2 of their pixels lower than widefield; 4 of them make a widefield pixel."""


def storm(folder: Path, *, bin: int = 2) -> list[Pair]:
    """Find and align the widefield to STORM pairs of SFSRM, ``mitochondria_wf.tif`` and ``mitochondria_storm.tif``.

    STORM images are sparse, so targets are means over blocks of pixels, each of which then holds a few localisations.
    The field of mitochondria is for training, the field of the endoplasmic reticulum for testing.

    Args:
        folder: Folder of the files.
        bin: Side in STORM pixels of the blocks that become one pixel; four STORM pixels make one widefield pixel.

    Raises:
        RecipeError: If ``bin`` is not 1, 2 or 4.
        PairingError: If there are no such files, or one has no partner.
    """
    if bin not in (1, 2, 4):
        raise RecipeError(f"forward.bin is {bin}; choose 1, 2 or 4")
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


def _partner(path: Path, name: str) -> Path:
    if not (found := path.with_name(name)).is_file():
        raise PairingError(f"{path} has no partner; expected {name} beside it; copy the data set again")
    return found


def _some(pairs: list[Pair], folder: Path, example: str) -> list[Pair]:
    check_folder(folder, expected=f"files such as {example}")
    if not pairs:
        raise PairingError(
            f"{folder} holds none of the files; expected some such as {example}; set data.folder to them"
        )
    return pairs


DATA_SETS: Mapping[str, Callable[..., list[Pair]]] = {
    "biosr": biosr,
    "tsim": tsim,
    "dlsim": dlsim,
    "sted": sted,
    "storm": storm,
}
"""The function that finds the pairs of each data set; its keyword arguments are the parameters in a recipe."""


def open_data_set(name: str, request: Request) -> dict[str, PairSource]:
    """Open a data set by split; pairs without a split are left out.

    BioSR may also be a folder that `sfumato simulate microscopy --layout biosr` wrote.
    """
    find = DATA_SETS[name]
    pairs = find(request.folder, **keywords(find, request.forward))
    parts = {split: [pair for pair in pairs if pair.split == split] for split in SPLITS}
    return {
        split: FilePairs(part, upsample=request.upsample, cache_bytes=request.cache_bytes)
        for split, part in parts.items()
        if part
    }
