"""`sfumato inspect`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer import Argument, Option

from sfumato.cli import arguments
from sfumato.cli.messages import counting, say, say_device, say_what_is_unknown
from sfumato.cli.settings import open_tested, tested_recipe
from sfumato.system.errors import RecipeError

if TYPE_CHECKING:
    from sfumato.diffusion.solvers import Solver
    from sfumato.evaluation.sampler_settings import Setting
    from sfumato.models.model_file import LoadedModel
    from sfumato.models.recipe import Recipe

__all__ = ["inspect"]

_SOLVERS = ("2m", "2m:1", "first_order", "first_order:1")


def inspect(
    model: arguments.ModelFile,
    source: Annotated[
        Path | None, Argument(metavar="IMAGE", help="Image whose schedule and samples are drawn.")
    ] = None,
    target: Annotated[Path | None, Option(help="Target of the image, if known.")] = None,
    out: Annotated[Path, Option(help="Folder for the figures.")] = Path("inspection"),
    samples: Annotated[int, Option(help="Number of samples; the paper uses 20.")] = 20,
    steps: Annotated[
        str | None,
        Option(
            help="Network calls per sample, the recipe's by default; several numbers, such as 4,8,16,32, are compared "
            "on test pairs, and one is recommended.",
        ),
    ] = None,
    solvers: Annotated[
        list[str] | None,
        Option(
            "--solver",
            help=f"Solver to compare: 2m, first_order (each with :ETA, such as 2m:1), gaussian or algorithm2; may be "
            f"repeated; by default {', '.join(_SOLVERS)}.",
        ),
    ] = None,
    last_noise: Annotated[
        list[float] | None,
        Option(
            help="Noise variance at the last network call to compare, such as 0.01 for a network that leaves noise in "
            "its samples; may be repeated; the recipe's by default."
        ),
    ] = None,
    adopt: Annotated[
        bool, Option("--adopt", help="Write the recommended setting into the model file; `restore` then uses it.")
    ] = False,
    reach: Annotated[
        bool,
        Option("--reach", help="Measure on pairs how far the model looks; with --adopt, `restore` takes it as halo."),
    ] = False,
    inputs: Annotated[str | None, Option(help="To compare steps, or for --reach: folder of measured images.")] = None,
    targets: arguments.TestTargets = None,
    manifest: arguments.TestManifest = None,
    store: arguments.TestStore = None,
    folder: Annotated[str | None, Option(help="Instead, the data set of the model's problem.")] = None,
    from_recipe: arguments.FromRecipe = False,
    most: Annotated[int, Option(help="Pairs to compare on, spread over the set.")] = 8,
    crop: Annotated[int | None, Option(help="Compare on the middle of each image, this many pixels a side.")] = None,
    level: Annotated[float, Option(help="Nominal coverage.")] = 0.9,
    crps_tolerance: Annotated[float, Option(help="How much worse than the best a CRPS may be.")] = 0.02,
    coverage_tolerance: Annotated[float, Option(help="How far from the best a coverage may be.")] = 0.02,
    seed: Annotated[int, Option(help="The same seed gives the same samples.")] = 0,
    allow_seen: arguments.AllowSeen = False,
    device: arguments.Device = "auto",
) -> None:
    """Draw a model's networks, schedule and samples for an image, or find how many steps it needs.

    Given several values of --steps or --last-noise, it samples test pairs with each and measures error, coverage, time
    and the CRPS (continuous ranked probability score: one number for error and spread, lower is better). Too few steps
    make a sampler over-confident, so it recommends the cheapest setting that is as calibrated as the best. With
    --from-recipe, the pairs are the test split of the model's own recipe, or its validation pairs if none is marked as
    test. Images that the model was trained on are refused, since they make it look better than it is.
    """
    from sfumato.evaluation.inspection import describe, draw_diagrams, draw_posterior, figure_files, read_image
    from sfumato.models.hub import is_address
    from sfumato.models.model_file import load
    from sfumato.models.ownership import check_outputs

    counts, ends = _counts(steps), _ends(last_noise)
    given = {"inputs": inputs, "targets": targets, "manifest": manifest, "store": store, "folder": folder}
    compares = len(counts) > 1 or len(ends) > 1
    if reach and (source is not None or steps or solvers or ends):
        raise RecipeError(
            "--reach measures on pairs with the recipe's sampling, and an image or sampler settings were given; leave "
            "them out"
        )
    if not (compares or reach) and (solvers or ends or adopt or crop or from_recipe or any(given.values())):
        raise RecipeError(
            f"--steps is {steps}, but options that compare steps were given; expected several numbers, such as "
            "--steps 4,8,16,32 or --last-noise 1e-6 --last-noise 0.01"
        )
    if compares and source is not None:
        raise RecipeError(
            f"--steps is {steps} and --last-noise {', '.join(map(str, ends)) or None}, which are compared on test "
            "pairs, and an image was given too; give one number of steps for the image, or remove the image"
        )
    if adopt and is_address(model):
        raise RecipeError(f"{model} is on the Hub, where --adopt cannot write; download it and give its path")
    loaded = load(model, device=say_device(device))
    typer.echo("\n".join(describe(loaded)))
    if reach:
        _measure_reach(model, loaded, tested_recipe(None, given, [loaded], from_recipe=from_recipe), adopt=adopt)
        return
    if compares or source is not None:
        say_what_is_unknown([(model, loaded.info)])
        if allow_seen:
            say("note: results on images that the model was trained on carry no guarantee")
    if compares:
        test = tested_recipe(None, given, [loaded], from_recipe=from_recipe)
        settings = _settings(loaded, counts, solvers or _SOLVERS, ends)
        asked = {"num_samples": samples, "most": most, "crop": crop, "level": level, "allow_seen": allow_seen}
        tolerances = {"crps_tolerance": crps_tolerance, "coverage_tolerance": coverage_tolerance}
        best = _compare(model, loaded, test, settings, out, asked, tolerances, seed)
        if adopt:
            _adopt(model, loaded, best)
        return
    check_outputs(figure_files(out, with_image=source is not None), [model, source, target])
    pair = None if source is None else read_image(loaded, source, target, allow_seen=allow_seen)
    paths = draw_diagrams(loaded, out)
    if pair is not None:
        measured, truth = pair
        number = counts[0] if counts else None
        paths += draw_posterior(loaded, measured, out, target=truth, num_samples=samples, num_steps=number, seed=seed)
    say(f"drawn: {', '.join(map(str, paths))}")


def _compare(
    model: Path,
    loaded: "LoadedModel",
    tested: "tuple[Recipe, bool]",
    settings: "list[Setting]",
    out: Path,
    asked: dict[str, Any],
    tolerances: dict[str, float],
    seed: int,
) -> "Setting":
    """Measure, print and draw every setting, and return the recommended one."""
    from sfumato.evaluation.inspection import compare_steps
    from sfumato.evaluation.sampler_settings import recommend, summarise_settings
    from sfumato.evaluation.sampler_settings_page import draw_steps, explain, step_files, step_table, write_steps_csv
    from sfumato.figures.plotting import matplotlib, save_figure
    from sfumato.models.ownership import check_outputs, data_places

    matplotlib()  # report a missing library before hours of sampling
    test, is_own = tested
    check_outputs(step_files(out), [model, *data_places(test.data)])
    # Truths on the scale of the model's output: samples are measured as they are, without a fit to the truth.
    matched = test.data.model_copy(update={"match_intensity": loaded.info.recipe.data.match_intensity})
    pairs = open_tested(test.model_copy(update={"data": matched}), is_own, [loaded])
    with counting("comparing steps", "sets of samples") as progress:
        found = compare_steps(loaded, pairs, settings, seed=seed, progress=progress, **asked)
    rows, chosen = summarise_settings(found, seed=seed), recommend(found, seed=seed, **tolerances)
    typer.echo("\n".join([*step_table(found, rows, chosen), "", *explain(found, rows, chosen)]))
    out.mkdir(parents=True, exist_ok=True)
    write_steps_csv(found, rows, chosen, out / "steps.csv")
    save_figure(draw_steps(found, rows, chosen), out / "steps.png")
    say(f"drawn: {out / 'steps.png'}, figures: {out / 'steps.csv'}")
    return found.settings[chosen.chosen]


def _measure_reach(model: Path, loaded: "LoadedModel", tested: "tuple[Recipe, bool]", *, adopt: bool) -> None:
    """Measure how far a model looks and, if it is adopted, write it into the model file."""
    from sfumato.evaluation.inspection import reach_on
    from sfumato.models.model_updates import set_reach

    test, is_own = tested
    found = reach_on(loaded, open_tested(test, is_own, [loaded]))
    typer.echo(f"reach: {found or 'further than can be measured on these images'}")
    if adopt and found is not None:
        set_reach(model, found, sha256=loaded.sha256)
        say(f"adopted: `restore` takes it as halo; restorations begun with {model} as it was need that file")


def _adopt(model: Path, loaded: "LoadedModel", best: "Setting") -> None:
    """Write a setting into the model file."""
    from sfumato.evaluation.inspection import drawn_by
    from sfumato.models.model_updates import set_sampling

    now = set_sampling(model, drawn_by(best, loaded.info.recipe.sample), sha256=loaded.sha256)
    say(f"adopted: {model} now samples with {best}")
    if loaded.info.calibration is not None and now.calibration is None:
        say("its calibration was for other settings and was removed: calibrate it again")


def _counts(text: str | None) -> list[int]:
    if text is None:
        return []
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts) or len({*map(int, parts)}) < len(parts):
        raise RecipeError(
            f"--steps is {text!r}; expected a number of network calls, or several that differ, such as 4,8,16,32"
        )
    return sorted(map(int, parts))


def _ends(last_noise: list[float] | None) -> list[float]:
    ends = sorted(last_noise or [])
    if not all(0 < end < 1 for end in ends) or len(set(ends)) < len(ends):
        raise RecipeError(
            f"--last-noise is {', '.join(map(str, ends))}; expected variances between 0 and 1 that differ, such as "
            "--last-noise 1e-6 --last-noise 0.01"
        )
    return ends


def _settings(model: "LoadedModel", counts: list[int], solvers: Sequence[str], ends: list[float]) -> "list[Setting]":
    """Combine the values to compare; the recipe has the one that was not given."""
    from sfumato.evaluation.sampler_settings import Setting

    usual = model.info.recipe.sample
    return [
        Setting(solver, count, eta, end)
        for solver, eta in map(_solver, solvers)
        for end in ends or [usual.last_noise]
        for count in counts or [usual.steps]
    ]


def _solver(text: str) -> "tuple[Solver, float]":
    """Read a solver and its eta, such as 2m:1."""
    from sfumato.diffusion.solvers import WITHOUT_ETA, Solver

    name, _, eta = text.partition(":")
    try:
        amount = float(eta or 0)
    except ValueError:
        amount = -1.0
    for solver in get_args(Solver):
        if name == solver and 0 <= amount <= (0 if solver in WITHOUT_ETA else 1):
            return solver, amount
    raise RecipeError(
        f"--solver is {text!r}; expected 2m, first_order, gaussian or algorithm2, the first two with an eta from 0 to "
        "1 after a colon if not 0, such as 2m:1"
    )
