"""Recipes of cells with their data, and the images that they are measured on."""

import contextlib
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paper.matrix import CHANNEL, PROBLEMS, SIMULATION, TRIAL_IMAGES, TRIAL_SHARE, Cell
from paper.stored import Places, chosen_settings
from sfumato.cli.settings import recipe_of
from sfumato.models.recipe import Recipe
from sfumato.system.atomic_files import replace_text

if TYPE_CHECKING:
    from sfumato.data.sources import PairSource

__all__ = ["PICTURED", "TestImage", "held_out_images", "make_data", "recipe_for"]

RECIPES = Path(__file__).parents[1] / "recipes" / "small_0_1"
NOISE_SEED = 1000
"""Of the noise of test images: that of no training."""
_VALIDATION_FIELD = "069"
PICTURED = "natural_skimage"
"""Photographs in the public domain, which the pages may show."""

Array = NDArray[Any]


@dataclass(frozen=True)
class TestImage:
    """A test image as its files have it; arrays are (C, H, W).

    Attributes:
        name: Of the file.
        condition: What was measured, on the target's grid.
        truth: Same grid.
    """

    name: str
    condition: Array
    truth: Array


def recipe_for(cell: Cell, places: Places) -> Recipe:
    """The recipe that a cell trains, or whose problem it is measured on.

    Raises:
        SystemExit: If the trials that choose its end points are not all measured.
    """
    problem = PROBLEMS[cell.problem]
    settings = [
        CHANNEL,
        *problem.settings,
        *cell.settings,
        f"train.seed={cell.seed}",
        f"name={cell.problem}_{cell.method}",
    ]
    if cell.kind == "tuned":
        settings += chosen_settings(cell.problem, places)
    base = recipe_of(RECIPES / f"{problem.recipe}.yaml", [*settings, *places.settings])
    data = {"manifest" if cell.problem == "w2s" else "folder": str(_training_data(cell.problem, places))}
    update: dict[str, Any] = {"data": base.data.model_copy(update=data)}
    if cell.kind == "trial":
        update["train"] = base.train.model_copy(update={"steps": max(1, base.train.steps // TRIAL_SHARE)})
    return base.model_copy(update=update)


def _training_data(problem: str, places: Places) -> Path:
    if problem == "microscopy":
        return places.work / "simulated"
    if problem == "w2s":
        return places.work / "w2s" / "pairs.csv"
    return places.data / PROBLEMS[problem].data


def make_data(problem: str, places: Places) -> None:
    """Write what is made once for all cells of a problem: simulated fields, or a list of pairs."""
    if problem == "microscopy" and not (places.work / "simulated").exists():
        from sfumato.problems.microscopy_simulation import simulate

        cells: Any = SIMULATION["cells"]
        side, seed = (int(str(SIMULATION[name])) for name in ("side", "seed"))
        places.work.mkdir(parents=True, exist_ok=True)
        # A folder of each process's own: the first that is done gives the fields, the others' are the same.
        with tempfile.TemporaryDirectory(dir=places.work, prefix="simulated.") as part:
            made = simulate(Path(part) / "fields", seed=seed, cells=cells, side=side, layout="biosr")
            try:
                made.rename(places.work / "simulated")
            except OSError:
                if not (places.work / "simulated").exists():
                    raise
    if problem == "w2s":
        _write_w2s(places)


def _write_w2s(places: Places) -> None:
    """A list of the pairs, one field of the training images kept for validation, beside links to their folders."""
    rows = ["input,target,split"]
    (places.work / "w2s").mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        with contextlib.suppress(FileExistsError):
            (places.work / "w2s" / part).symlink_to(places.data / PROBLEMS["w2s"].data / part)
        for noisy in sorted((places.data / PROBLEMS["w2s"].data / part / "noisy").glob("*.tif")):
            split = "validation" if noisy.name.startswith(_VALIDATION_FIELD) else part
            rows.append(f"{part}/noisy/{noisy.name},{part}/clean/{noisy.name},{split}")
    replace_text(places.work / "w2s" / "pairs.csv", "\n".join(rows) + "\n", untouched="No list was written")


def held_out_images(
    problem: str,
    test_set: str,
    number: int,
    recipe: Recipe,
    places: Places,
    *,
    kept_from_testing: bool = False,
    is_mirrored: bool = False,
) -> list[TestImage]:
    """So many images of a set, spread evenly over it.

    All of microscopy's test fields have the levels of light in turn; every third of them, as in the study of solvers,
    has the middle level alone.

    Args:
        problem: One of ``PROBLEMS``.
        test_set: One of its sets; ``validation``, images kept from training; or ``PICTURED`` for photographs.
        number: How many.
        recipe: From :func:`recipe_for`.
        places: Where data are.
        kept_from_testing: Others of the same kind, to choose settings by.
        is_mirrored: Of phases, whether borders stay that the simulation mirrored.
    """
    is_photograph = recipe.problem in ("phase", "natural")
    split = "validation" if kept_from_testing and not is_photograph else test_set
    source = _source(problem, split, recipe, places, is_mirrored=is_mirrored)
    indices = list(range(len(source)))
    if problem == "microscopy":
        indices = [index for index in indices if _is_wanted(source.name(index))]
    if problem == "qpi" and test_set in PROBLEMS[problem].sets:
        # Defaults were chosen while looking at figures of these; what counts is measured on others.
        looked_at = {*_spread(indices, 12), *_spread(indices, 6)}
        indices = [index for index in indices if (index in looked_at) == kept_from_testing]
    if not indices:
        raise SystemExit(
            f"no image is left of {test_set!r} of {problem} in {places.data}; see its README for the whole set"
        )
    # Fewer images are some of the full set's, and four some of eight, so that what is measured on fewer can be paired.
    full = _spread(indices, PROBLEMS[problem].sets.get(test_set, TRIAL_IMAGES))
    images = []
    wanted = min(number, len(full))
    for index in [full[place * len(full) // wanted] for place in range(wanted)]:
        condition, truth = source.read(index, [0, 0], source.spatial(index))
        name = source.name(index)
        short = name.rpartition("/")[2] if is_photograph else name
        images.append(TestImage(short, np.asarray(condition), np.asarray(truth)))
    return images


def _spread(items: list[int], number: int) -> list[int]:
    """So many of a list, evenly."""
    return [items[int(place)] for place in np.linspace(0, len(items) - 1, min(number, len(items)))]


TestImage.__test__ = False  # type: ignore[attr-defined]


def _is_wanted(name: str) -> bool:
    """One level of light per field, in turn: ``ER/Cell_001/level_02``, ``ER/Cell_002/level_05``."""
    found = re.search(r"Cell_(\d+)/level_(\d+)", name)
    assert found is not None
    levels: Any = SIMULATION["levels"]
    return bool(int(found[2]) == levels[int(found[1]) % len(levels)])


def _source(problem: str, test_set: str, recipe: Recipe, places: Places, *, is_mirrored: bool) -> "PairSource":
    from sfumato.problems.natural import DownsampledPairs, NaturalSettings
    from sfumato.problems.phase import PhasePairs
    from sfumato.problems.phase_settings import PhaseSettings
    from sfumato.problems.photographs import Photographs, find_photographs
    from sfumato.problems.request import parameters
    from sfumato.training.preparation import open_held_out, open_sources

    if test_set == "validation":
        return open_sources(recipe, splits=["validation"], cache_bytes=0)["validation"]
    if recipe.problem not in ("phase", "natural"):
        return open_held_out(recipe, "test")
    name = PICTURED if test_set == PICTURED else "natural_coco" if problem == "qpi" else "natural_kodak"
    paths = find_photographs(places.data / name, validation_fraction=0)["train"]
    if problem == "qpi":
        settings = parameters(PhaseSettings, recipe.forward)
        photographs = Photographs(paths, side_px=settings.side_px)
        return PhasePairs(photographs, settings, seed=NOISE_SEED, is_noisy=test_set == "noisy", is_mirrored=is_mirrored)
    natural = parameters(NaturalSettings, recipe.forward)
    return DownsampledPairs(Photographs(paths, side_px=natural.side_px, channels=3), natural.factor)
