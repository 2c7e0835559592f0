"""Pictures of trained models, one for each figure of the paper: restorations, schedules, samples.

Photographs in them are in the public domain, and specimens are our own simulator's; test images stay where they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from paper.matrix import CELLS, CVDM_0_1, PROBLEMS, Cell, Draw
from paper.measuring import Array, central, classical, comparable, draws_of, effort_of, in_units
from paper.running import state
from paper.sources import PICTURED, TestImage, held_out_images, recipe_for
from paper.stored import Places
from sfumato.diffusion.uncertainty import integral_of_beta
from sfumato.figures.schedule_and_samples import (
    draw_comparison,
    draw_gamma,
    draw_mean_and_std,
    draw_sample_grid,
    draw_schedule,
)
from sfumato.models.model_file import LoadedModel, load
from sfumato.restoration.conditions import condition_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PICTURES", "Picture", "draw_all"]

SAMPLES, DPI = 16, 80
NAMES = {
    "us_tie": "US-TIE",
    "tie_uniform": "Poisson solve",
    "cddpm_paper": "CDDPM as in the paper",
    "cddpm_tuned": "tuned CDDPM",
    "cvdm_simple": "CVDM-simple",
    CVDM_0_1: "CVDM",
    "cvdm_transport": "CVDM, shown solutions",
    "dfcan": "DFCAN",
}


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes:
        name: Of the file.
        paper: The paper's figure that it stands for; empty if there is none.
        problem: One of ``PROBLEMS``.
        image: Part of the image's name.
        methods: Whose models of the first seed are shown.
        kind: Which function of ``sfumato.figures.schedule_and_samples`` draws it.
        caption: For the page.
    """

    name: str
    paper: str
    problem: str
    image: str
    methods: Sequence[str]
    kind: str
    caption: str

    @property
    def file(self) -> str:
        """Among the figures of the page."""
        return f"results_{self.name}.webp"

    def is_possible(self, places: Places) -> bool:
        """Whether all its models are trained, and their runs still there."""
        return all(
            cell.kind == "classical"
            or (places.model_file(cell).exists() and state(cell, places) in ("trained", "measured"))
            for cell in self.cells()
        )

    def cells(self) -> list[Cell]:
        """Of its methods."""
        return [
            next(c for c in CELLS if (c.problem, c.method, c.seed) == (self.problem, method, 0) and c.kind in _KINDS)
            for method in self.methods
        ]


_KINDS = ("model", "tuned", "classical")


_PHASE, _MICROSCOPY = ("us_tie", "cddpm_paper", CVDM_0_1), "microscopy"

PICTURES: Sequence[Picture] = (
    Picture("qpi_methods", "Fig. 4a", "qpi", "coins", _PHASE, "comparison", "Phase from two defocused images"),
    Picture(
        *("qpi_ablation", "Fig. of App. K", "qpi", "camera", ("cddpm_paper", "cvdm_simple", CVDM_0_1), "comparison"),
        "CDDPM as the paper sets it, one learned schedule for all pixels, and one per pixel",
    ),
    Picture(
        *("qpi_transport", "", "qpi", "coins", ("tie_uniform", CVDM_0_1, "cvdm_transport"), "comparison"),
        "One Poisson solve, CVDM, and CVDM that is shown such solutions",
    ),
    Picture(
        *("qpi_schedule", "Fig. of App. J", "qpi", "coins", (CVDM_0_1,), "schedule"),
        "Beta and gamma of a phase over time, on structure and on background",
    ),
    Picture(
        *("qpi_mean_std", "Fig. of App. J", "qpi", "coins", (CVDM_0_1,), "mean_and_std"),
        f"Mean and standard deviation of {SAMPLES} samples of a phase beside the error",
    ),
    Picture(
        *("qpi_gamma_no_smoothness", "Fig. of App. K", "qpi", "coins", ("cvdm_no_smoothness",), "gamma"),
        "Gamma over time, learned without the smoothness term",
    ),
    *(
        Picture(
            *(f"microscopy_{other}_{structure}", "Figs. of App. I", _MICROSCOPY, structure, (method, CVDM_0_1)),
            *("comparison", f"{structure}: {told}, with their errors"),
        )
        for other, method, told, structures in (
            (
                "cddpm",
                "cddpm_tuned",
                f"tuned CDDPM and CVDM, means of {SAMPLES} samples",
                ("Microtubules", "F-actin", "ER"),
            ),
            (
                "dfcan",
                "dfcan",
                f"DFCAN, and the mean of {SAMPLES} samples of CVDM",
                ("CCPs", "ER", "Microtubules", "F-actin"),
            ),
        )
        for structure in structures
    ),
    *(
        Picture(
            f"microscopy_{kind}_{structure}", figure, _MICROSCOPY, structure, (CVDM_0_1,), kind, f"{structure}: {told}"
        )
        for structure in ("Microtubules", "ER")
        for kind, figure, told in (
            ("schedule", "Fig. 5a and App. J", "beta and gamma over time, on structure and on background"),
            ("mean_and_std", "Fig. 5b", f"mean and standard deviation of {SAMPLES} samples beside the error"),
        )
    ),
    Picture(
        *("microscopy_samples", "App. M", _MICROSCOPY, "Microtubules", (CVDM_0_1,), "samples"),
        "Samples with their errors, their variance beside the integral of beta, and two zones where they differ most",
    ),
    Picture(
        *("natural_samples", "Figs. of App. K and M", "natural_x4", "astronaut", (CVDM_0_1,), "samples"),
        "Super-resolution x4, the red channel: samples with their errors, their variance beside the integral of beta",
    ),
)


def draw_all(places: Places, folder: Path, names: Sequence[str] = ()) -> None:
    """Draw what can be drawn, all or what is named, and say what cannot."""
    known = [picture.name for picture in PICTURES]
    if unknown := sorted({*names}.difference(known)):
        raise SystemExit(f"got pictures {', '.join(unknown)}; expected some of {', '.join(known)}")
    for picture in PICTURES:
        if names and picture.name not in names:
            continue
        if picture.is_possible(places):
            path = folder / picture.file
            _draw(picture, places).savefig(path, dpi=DPI, pil_kwargs={"quality": 85})
            print(f"{path.name}: drawn, {path.stat().st_size / 1e3:.0f} kB", flush=True)
        else:
            print(f"{picture.name}: not all of {', '.join(picture.methods)} are trained", flush=True)


def _draw(picture: Picture, places: Places) -> "Figure":
    """By the function of its kind."""
    cells = picture.cells()
    last = cells[-1]
    recipe = recipe_for(last, places)
    image = _image(picture, last, places)
    side = places.side(last)
    truth = in_units(central(image.truth, side), recipe)
    shown = central(image.condition, side)[0]
    if picture.kind == "comparison":
        estimates = {
            NAMES[cell.method]: _estimate(cell, _image(picture, cell, places), truth, places) for cell in cells
        }
        sought = comparable(truth, truth, PROBLEMS[picture.problem])[1]
        return draw_comparison(shown, estimates, np.asarray(sought[0, 0]), unit=PROBLEMS[picture.problem].unit)
    model = load(places.model_file(last))
    condition = _condition(image, model, side)
    with torch.no_grad():
        schedule = model.model.schedule(condition)
    if picture.kind == "gamma":
        return draw_gamma(schedule)
    if picture.kind == "schedule":
        return draw_schedule(schedule, truth[0], what="truth")
    draws = draws_of(model, condition, 0, Draw(), SAMPLES).numpy()[:, 0]
    sought = truth[0]
    if PROBLEMS[picture.problem].remove_mean:
        draws, sought = draws - draws.mean((1, 2), keepdims=True), sought - sought.mean()
    if picture.kind == "samples":
        return draw_sample_grid(shown, draws, integral_of_beta(schedule)[0, 0].numpy(), sought)
    return draw_mean_and_std(shown, draws, sought)


def _image(picture: Picture, cell: Cell, places: Places) -> TestImage:
    """The named one with what a cell is shown; of simulated fields, one with much light."""
    recipe = recipe_for(cell, places)
    is_photograph = recipe.problem in ("phase", "natural")
    test_set = PICTURED if is_photograph else next(iter(PROBLEMS[picture.problem].sets))
    images = held_out_images(picture.problem, test_set, 99, recipe, places)
    named = [image for image in images if picture.image in image.name]
    bright = [image for image in named if "level_08" in image.name]
    if not named:
        raise SystemExit(f"no image of {test_set} is called {picture.image}; there are {[i.name for i in images]}")
    return (bright or named)[0]


def _condition(image: TestImage, model: LoadedModel, side: int) -> torch.Tensor:
    return condition_of(central(image.condition, side), model, on_target_grid=True).condition()


def _estimate(cell: Cell, image: TestImage, truth: Array, places: Places) -> Array:
    """(H, W), as its metrics see it: without what no method can know."""
    side = places.side(cell)
    if cell.kind == "classical":
        recipe = recipe_for(cell, places)
        effort = effort_of(cell, next(iter(PROBLEMS[cell.problem].sets)), recipe, places)
        estimate = central(classical(cell.method, recipe, effort).run(image.condition, 0), side)
    else:
        model = load(places.model_file(cell))
        estimate = draws_of(model, _condition(image, model, side), 0, Draw(), SAMPLES).mean(0).numpy()
    return np.asarray(comparable(estimate, truth, PROBLEMS[cell.problem])[0][0, 0])
