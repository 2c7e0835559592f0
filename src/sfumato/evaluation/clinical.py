"""Run the paper's clinical protocol on stacks: every method gets two shots and is compared with the pseudo truth."""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import write_image
from sfumato.models.model_file import LoadedModel
from sfumato.models.ownership import Written, image_with
from sfumato.physics.phase_retrieval import MAX_ITERATIONS, SOLVERS
from sfumato.problems.clinical import Stack, protocol, two_shot_tie
from sfumato.restoration.in_memory import restore
from sfumato.statistics.metrics import ms_ssim, without_offset
from sfumato.system.errors import ImageError, RecipeError
from sfumato.system.escaping import in_spreadsheet
from sfumato.system.marks import text_like
from sfumato.system.version import __version__

__all__ = ["compare", "phase_files"]

_TRUTH, _SHOTS, _TABLE = "pseudo_truth", "two_shot", "ms_ssim.csv"


def compare(
    stacks: Mapping[str, Stack],
    models: Mapping[str, LoadedModel],
    out: str | Path,
    *,
    wavelength_um: float,
    pixel_um: float,
    shot_um: float = 2.0,
    order: int | None = None,
    solver: str = "us_tie",
    max_iterations: int = MAX_ITERATIONS,
    num_samples: int = 16,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, dict[str, float]]:
    """Compare methods on stacks.  [CVDM Sec. 4.2.2, Table 2b]

    Args:
        stacks: Stacks by name.
        models: By name; each takes the two shots as channels, +d first. The solver on the two shots is always included.
        out: Folder for phases, as float TIFF, and the table ``ms_ssim.csv``.
        wavelength_um: Wavelength in the medium.
        pixel_um: Side of a pixel.
        shot_um: Distance d.
        order: Order of the polynomial, see :func:`sfumato.problems.clinical.protocol`.
        solver: Solver for the pseudo truth and the two shots: ``us_tie`` as in the paper, or another of
            :mod:`sfumato.physics.phase_retrieval`.
        max_iterations: Of the solver.
        num_samples: Samples of each model; their mean is compared.
        seed: Seed of the samples.
        progress: Called with the number of finished phases, their total, and what comes next.

    Returns:
        MS-SSIM by stack and method, of phases without their means, over the range of the pseudo truth.
    """
    if solver not in SOLVERS:
        raise RecipeError(f"no solver is called {solver!r}; choose one of {', '.join(SOLVERS)}")
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {
        "wavelength_um": wavelength_um,
        "pixel_um": pixel_um,
        "shot_um": shot_um,
        "solver": solver,
        "max_iterations": max_iterations,
    }
    table: dict[str, dict[str, float]] = {}
    made, total = 0, len(stacks) * (2 + len(models))

    def tell(what: str) -> None:
        nonlocal made
        if progress is not None:
            progress(made, total, what)
        made += 1

    for number, (name, stack) in enumerate(stacks.items()):
        tell(f"{name}: pseudo truth from {len(stack.distances_um)} planes")
        specimen = protocol(stack, order=order, **options)
        tell(f"{name}: {solver} from two shots")
        phases = {solver: two_shot_tie(specimen.two_shot, **options)}
        for title, model in models.items():
            tell(f"{name}: {title}")
            restored = restore(specimen.two_shot.numpy(), model, num_samples=num_samples, seed=seed, image=number)
            phases[title] = torch.from_numpy(np.asarray(restored.mean, np.float32)).reshape(specimen.pseudo_truth.shape)
        truth = specimen.pseudo_truth
        table[name] = {
            title: float(ms_ssim(*without_offset(phase[None, None], truth[None, None])))
            for title, phase in phases.items()
        }
        sizes = {axis: PixelSize(pixel_um, "micrometer") for axis in "YX"}
        images = {_TRUTH: truth, **phases, _SHOTS: specimen.two_shot}
        for title, image in images.items():
            axes, unit = ("CYX", "intensity") if title == _SHOTS else ("YX", "rad")
            notes = {"sfumato": __version__, "unit": unit}
            path = out / f"{name}_{title}.tif"
            write_image(path, image.numpy(), axes=axes, pixel_size=sizes, metadata=notes, overwrite=True)
    tell("written")
    _write_table(out / _TABLE, table)
    return table


def phase_files(stacks: Sequence[str], methods: Sequence[str], out: Path) -> list[Written]:
    """Files that :func:`compare` writes to a folder for stacks and methods by name, the solver first."""
    image = image_with("phase or pair of shots", lambda notes: notes.get("unit") in ("rad", "intensity"))
    table = text_like("table of phases", lambda text: text.startswith(tuple(f"stack,{solver}" for solver in SOLVERS)))
    titles = (_TRUTH, *methods, _SHOTS)
    images = [Written(out / f"{name}_{title}.tif", image) for name in stacks for title in titles]
    return [*images, Written(out / _TABLE, table)]


def _write_table(path: Path, table: Mapping[str, Mapping[str, float]]) -> None:
    methods: Sequence[str] = list(next(iter(table.values()), {}))
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["stack", *map(in_spreadsheet, methods)])
            writer.writerows(
                [in_spreadsheet(name), *(f"{row[method]:.4f}" for method in methods)] for name, row in table.items()
            )
    except OSError as error:
        raise ImageError(f"cannot write {path}: {error}; expected a folder with space; check it") from error
