"""Tune the end points of a fixed schedule on validation images, so that a baseline gets its best chance.

Every pair of end points is trained with the same shortened recipe and judged by its restorations: losses of different
schedules are means over different noise levels and cannot be compared. Finished trainings and scores are kept, so an
interrupted sweep resumes.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.diffusion.schedule import LinearSchedule
from sfumato.evaluation.compared_methods import model_method
from sfumato.evaluation.evaluate import METRICS, Metric, evaluate
from sfumato.models.build import build_model
from sfumato.models.model_file import load
from sfumato.models.ownership import Written
from sfumato.models.recipe import ModelRecipe, Recipe, dump, parse
from sfumato.statistics.significance import interval, ranking
from sfumato.system.atomic_files import replace_text
from sfumato.system.errors import RecipeError
from sfumato.system.marks import json_with, text_like
from sfumato.system.version import __version__
from sfumato.training.preparation import open_sources
from sfumato.training.run_folder import RunFolder
from sfumato.training.train import train

__all__ = ["Trial", "candidates", "choose_metric", "sweep", "sweep_files", "table"]

_STARTS = (1e-4, 1e-3)
_END_FACTORS = (0.5, 1.0, 2.0, 4.0)
_GAMMA_ENDS = (1e-2, 1e-3, 1e-4, 1e-5)
_BEST, _CHOSEN = "best.yaml", "# chosen by sfumato "


class Trial(NamedTuple):
    """One pair of end points and its scores."""

    model: ModelRecipe
    values: NDArray[np.float64]
    """The metric on each validation image."""


def candidates(
    model: ModelRecipe, *, starts: Sequence[float] = (), ends: Sequence[float] = (), gamma_ends: Sequence[float] = ()
) -> list[ModelRecipe]:
    """The recipe's fixed schedule with every pair of end points.

    Args:
        model: With a linear or the cosine schedule.
        starts: First :math:`b_0` of a linear schedule; by default 1e-4, the paper's, and ten times that.
        ends: Last :math:`b_1`; by default half to four times the paper's.
        gamma_ends: Signal variance left by the cosine schedule; by default 1e-2 to 1e-5.
    """
    if model.method != "cvdm" or not (model.schedule == "cosine" or model.schedule.startswith("linear")):
        raise RecipeError(
            f"model.method is {model.method} and model.schedule {model.schedule}; a sweep tunes the end points of "
            "fixed schedules: give linear_biosr, linear_qpi or cosine"
        )
    if model.schedule == "cosine":
        grid: list[dict[str, object]] = [{"gamma_end": end} for end in gamma_ends or _GAMMA_ENDS]
    else:
        _, paper_end, _ = LinearSchedule.SETTINGS[model.schedule.removeprefix("linear_")]
        last = ends or [factor * paper_end for factor in _END_FACTORS]
        grid = [{"beta_ends": (start, end)} for start in starts or _STARTS for end in last]
    return [ModelRecipe.model_validate({**model.model_dump(), **point}) for point in grid]


def choose_metric(name: str) -> Metric:
    """Find a metric by the first word of its name, ignoring case."""
    known = {metric.name.split()[0].lower(): metric for metric in METRICS}
    if name.lower() not in known:
        raise RecipeError(f"no metric is called {name!r}; choose one of {', '.join(known)}")
    return known[name.lower()]


def sweep(
    recipe: Recipe,
    models: Sequence[ModelRecipe],
    out: str | Path,
    *,
    metric: Metric,
    steps: int | None = None,
    num_samples: int = 8,
    most: int = 16,
    device: str = "auto",
    quiet: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Trial]:
    """Train and score every candidate and write the recipe with the best end points to `best.yaml`.

    Args:
        recipe: A recipe with validation images.
        models: From :func:`candidates`.
        out: Folder; each candidate is a run folder in it.
        metric: The candidate with the best mean over validation images wins.
        steps: Steps of the short trainings; by default the recipe's. `best.yaml` keeps the recipe's.
        num_samples: Samples whose mean is scored.
        most: Largest number of validation images.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        quiet: Show no training progress.
        progress: Called with the number of finished candidates and their total.

    Returns:
        The trials, in the order of ``models``.
    """
    out = Path(out)
    short = recipe.train if steps is None else recipe.train.model_copy(update={"steps": steps})
    trials = []
    for number, model in enumerate(models):
        trial = recipe.model_copy(update={"model": model, "train": short})
        values = _score(trial, out / _name(model), metric, num_samples, most, device, quiet)
        trials.append(Trial(model, np.array(values)))
        if progress is not None:
            progress(number + 1, len(models))
    best = recipe.model_copy(update={"model": trials[_best(trials, metric)].model})
    replace_text(out / _BEST, f"{_CHOSEN}{__version__}\n{dump(best)}", untouched="No recipe was chosen")
    return trials


def sweep_files(recipe: Recipe, models: Sequence[ModelRecipe], out: Path, metric: Metric) -> list[Written]:
    """Files that :func:`sweep` writes to a folder; an unmarked `best.yaml` counts if it is one of the recipes."""

    def is_chosen(text: str) -> bool:
        if text.startswith(_CHOSEN):
            return True
        try:
            return parse(text) in [recipe.model_copy(update={"model": model}) for model in models]
        except RecipeError:
            return False

    folders = [out / _name(model) for model in models]
    runs = [file for folder in folders for file in RunFolder(folder).files()]
    scores = json_with("scores of a trial", ("asked", "values"))
    kept = [Written(folder / _scores_name(metric), scores) for folder in folders]
    return [*runs, *kept, Written(out / _BEST, text_like("chosen recipe", is_chosen))]


def table(trials: Sequence[Trial], metric: Metric) -> str:
    """The trials as Markdown, the best in bold, each with its p against the best, Holm-corrected over all pairs."""
    best = _best(trials, metric)
    places = ranking(np.stack([trial.values for trial in trials]), higher_is_better=metric.higher_is_better)
    lines = [f"| end points | gamma(1) | {metric.name} | 95% interval | p against the best |", "|---" * 5 + "|"]
    for number, trial in enumerate(trials):
        low, high = interval(trial.values)
        mean = f"{trial.values.mean():.4g}"
        p = "" if number == best else f"{places.p_values[min(best, number), max(best, number)]:.3f}"
        score = f"**{mean}**" if number == best else mean
        lines.append(f"| {_words(trial.model)} | {_left(trial.model):.2g} | {score} | {low:.4g} to {high:.4g} | {p} |")
    note = (
        f"Mean over {len(trials[0].values)} validation images. The best of several is flattered by having been chosen: "
        "report its score on test images."
    )
    return "\n".join([*lines, "", note, ""])


def _score(
    recipe: Recipe, folder: Path, metric: Metric, num_samples: int, most: int, device: str, quiet: bool
) -> list[float]:
    """The metric of one candidate on each validation image, read from its file if it was scored before."""
    run = train(recipe, folder, device=device, quiet=quiet)
    # If each image is scaled separately, estimates are known only up to scale.
    affine = recipe.data.scales_each_image
    asked = {"metric": metric.name, "samples": num_samples, "most": most, "steps": recipe.train.steps, "affine": affine}
    kept = folder / _scores_name(metric)
    if kept.exists():
        held = json.loads(kept.read_text(encoding="utf-8"))
        if held["asked"] == asked:
            return [float(value) for value in held["values"]]
    source = open_sources(recipe, splits=["validation"]).get("validation")
    if source is None:
        raise RecipeError("the recipe keeps no validation images to choose by; raise data.validation_fraction")
    model = load(run.model_file, device=device)
    trial = model_method("trial", model, num_samples=num_samples)
    found = evaluate([trial], source, affine=affine, most=most, num_examples=0)
    if metric not in found.metrics:
        raise RecipeError(f"the validation images are too small for {metric.name}; choose another metric")
    values: list[float] = found.values[found.metrics.index(metric), 0].tolist()
    replace_text(kept, json.dumps({"asked": asked, "values": values}), untouched="No score was written")
    return values


def _best(trials: Sequence[Trial], metric: Metric) -> int:
    means = [trial.values.mean() * (-1 if metric.higher_is_better else 1) for trial in trials]
    return int(np.argmin(means))


def _scores_name(metric: Metric) -> str:
    return f"validation_{metric.name.split()[0].lower()}.json"


def _name(model: ModelRecipe) -> str:
    ends = (model.gamma_end,) if model.beta_ends is None else model.beta_ends
    return "_".join([model.schedule, *(f"{end:.3g}" for end in ends if end is not None)])


def _words(model: ModelRecipe) -> str:
    if model.beta_ends is None:
        return f"{model.schedule}, gamma_end {model.gamma_end:g}"
    return f"{model.schedule}, beta {model.beta_ends[0]:g} to {model.beta_ends[1]:g}"


def _left(model: ModelRecipe) -> float:
    """Gamma at t = 1."""
    with torch.device("meta"):
        schedule = build_model(model, 1, 1).schedule
    return float(schedule(torch.zeros(1, 1, 1, 1)).gamma(torch.ones(())))
