"""Tiny data sets in the layouts that problems read, made from a seed."""

from pathlib import Path

import numpy as np

from pair_folders import make_pairs
from sfumato.data.images.io import write_image
from sfumato.problems.microscopy_simulation import simulate

__all__ = ["make_data_set", "make_photographs"]


def make_photographs(folder: Path, names: list[str], *, side: int = 96) -> Path:
    """Write colour pictures of smooth random fields; a name may have folders in it."""
    for number, name in enumerate(names):
        generator = np.random.default_rng(number)
        coarse = generator.random((side // 8, side // 8, 3))
        pixels = (255 * np.kron(coarse, np.ones((8, 8, 1)))).astype(np.uint8)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_image(folder / name, pixels, axes="YXC")
    return folder


def _tsim(folder: Path, generator: np.random.Generator) -> None:
    for field in (1, 2):
        raw = generator.integers(100, 4000, (2, 9, 40, 44), dtype=np.uint16)
        write_image(folder / f"er{field}_raw.tif", raw, axes="TZYX")
        write_image(folder / f"er{field}_sim.tif", np.kron(raw[0, 0], np.ones((2, 2), np.uint16)), axes="YX")


def _sted(folder: Path, generator: np.random.Generator) -> None:
    write_image(folder / "axonal_rings_train.tif", generator.integers(0, 99, (3, 80, 80), dtype=np.uint16), axes="CYX")


def _storm(folder: Path, generator: np.random.Generator) -> None:
    pixels = generator.integers(0, 255, (40, 40), dtype=np.uint8)
    write_image(folder / "mitochondria_wf.tif", pixels, axes="YX")
    write_image(folder / "mitochondria_storm.tif", np.kron(pixels, np.ones((4, 4), np.uint8)), axes="YX")


def make_data_set(folder: Path, problem: str) -> list[str]:
    """Write training samples of a problem, none for validation, and return the options that name them."""
    if problem == "pairs":
        inputs, targets = make_pairs(folder, number=1, shape=(72, 80))
        return ["--inputs", inputs, "--targets", targets]
    if problem == "biosr":
        simulate(folder, seed=0, cells={"train": 1}, side=40, layout="biosr")
    elif problem in ("phase", "natural"):
        make_photographs(folder, ["one.png"])
    else:
        folder.mkdir()
        {"tsim": _tsim, "sted": _sted, "storm": _storm}[problem](folder, np.random.default_rng(0))
    return ["--folder", str(folder)]
