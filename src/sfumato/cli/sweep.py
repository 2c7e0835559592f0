"""`sfumato sweep`."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from sfumato.cli import arguments
from sfumato.cli.messages import say
from sfumato.cli.settings import recipe_of

__all__ = ["sweep"]


def sweep(
    recipe: Annotated[Path, Argument(metavar="RECIPE", help="Recipe in YAML with a linear or the cosine schedule.")],
    out: Annotated[Path, Option(help="Folder for the training runs and best.yaml.")] = Path("sweep"),
    steps: Annotated[int | None, Option(help="Steps of each training run; the recipe's by default.")] = None,
    metric: Annotated[str, Option(help="Metric on validation images: mae, nrmse, psnr, ssim or ms-ssim.")] = "mae",
    starts: Annotated[
        list[float] | None,
        Option(
            "--start",
            help="Noise variance of the first step of a linear schedule; may be repeated; by default 1e-4 and 1e-3.",
        ),
    ] = None,
    ends: Annotated[
        list[float] | None,
        Option(
            "--end",
            help="Noise variance of its last step; may be repeated; by default 0.5, 1, 2 and 4 times the paper's.",
        ),
    ] = None,
    gamma_ends: Annotated[
        list[float] | None,
        Option(
            "--gamma-end",
            help="Signal variance left at the end of the cosine schedule; may be repeated; by default 1e-2, 1e-3, 1e-4 "
            "and 1e-5.",
        ),
    ] = None,
    samples: arguments.ScoredSamples = 8,
    most: Annotated[int, Option(help="Use at most this many validation images.")] = 16,
    device: arguments.Device = "auto",
    settings: arguments.RecipeFields = None,
) -> None:
    """Tune the end points of a fixed schedule on validation images. If interrupted, rerun the command to resume."""
    from sfumato.evaluation.sweep import candidates, choose_metric, sweep_files, table
    from sfumato.evaluation.sweep import sweep as run
    from sfumato.models.ownership import check_outputs, data_places

    chosen, judge = recipe_of(recipe, settings or []), choose_metric(metric)
    models = candidates(chosen.model, starts=starts or (), ends=ends or (), gamma_ends=gamma_ends or ())
    check_outputs(sweep_files(chosen, models, out, judge), [recipe, *data_places(chosen.data)])
    trials = run(
        chosen, models, out, metric=judge, steps=steps, num_samples=samples, most=most, device=device,
        progress=lambda done, total: say(f"{done} of {total} end points"),
    )  # fmt: skip
    typer.echo(table(trials, judge))
    say(f"best: {out / 'best.yaml'}")
