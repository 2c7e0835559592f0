"""`sfumato calibrate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from sfumato.cli import arguments
from sfumato.cli.messages import counting, say, say_device, say_what_is_unknown
from sfumato.cli.settings import with_choice
from sfumato.system.errors import RecipeError

if TYPE_CHECKING:
    from sfumato.models.ownership import Written

__all__ = ["calibrate"]

_REPORT_SIDE = 96
"""Side in pixels of the part of each image that a report uses: its cost grows with pixels, its power with images."""


def calibrate(
    model: Annotated[
        Path,
        Argument(metavar="MODEL", help="Model file, such as run/model.safetensors; the calibration is stored in it."),
    ],
    held_out: Annotated[
        Path,
        Argument(
            metavar="HELD_OUT",
            help="Pairs that training never saw: a folder with `inputs` and `targets`, a manifest, a packed store, or "
            "a data set folder of the model's own problem.",
        ),
    ],
    level: Annotated[float, Option(help="Fraction of pixels that intervals should cover.")] = 0.9,
    method: Annotated[
        Literal["risk_control", "rcps", "recalibrated"],
        Option(help="Coverage guaranteed on average, guaranteed with confidence 1 - delta, or without a guarantee."),
    ] = "risk_control",
    delta: Annotated[float, Option(help="For rcps: how often the guarantee may fail.")] = 0.1,
    samples: Annotated[int | None, Option(help="Samples per image; restoring must then use as many.")] = None,
    fast: Annotated[
        bool, Option("--fast", help="Calibrate what `restore --fast` gives without samples; stored beside the other.")
    ] = False,
    steps: arguments.Steps = None,
    seed: Annotated[int, Option(help="The same seed gives the same result.")] = 0,
    split: Annotated[
        str,
        Option(
            help="Split to use, where pairs are marked; not the validation pairs, on which the weights were chosen."
        ),
    ] = "test",
    channels: arguments.Channels = None,
    target_channels: arguments.TargetChannels = None,
    scene: arguments.Scene = None,
    times: arguments.Times = None,
    unit: arguments.Unit = None,
    most: arguments.Most = None,
    allow_seen: arguments.AllowSeen = False,
    out: Annotated[Path | None, Option(help="Another model file to write; the given one by default.")] = None,
    page: Annotated[Path | None, Option(help="PNG to draw: coverage and reliability, before and after.")] = None,
    report: Annotated[Path | None, Option(help="PNG to draw: all measures of the samples, before.")] = None,
    device: arguments.Device = "auto",
) -> None:
    """Compute intervals with a guaranteed coverage from images with known truth; `restore` then writes them.

    Images that the model was trained or validated on are refused, since they would give no guarantee.
    """
    from sfumato.data.pairs import find_units
    from sfumato.data.sources import evenly_spread
    from sfumato.evaluation.calibrate import calibrate as correct
    from sfumato.evaluation.calibrate import cross_validate, restore_held_out
    from sfumato.evaluation.held_out_pairs import held_out_recipe
    from sfumato.figures.plotting import matplotlib
    from sfumato.models.hub import is_address
    from sfumato.models.model_file import load
    from sfumato.models.model_updates import set_calibration
    from sfumato.models.ownership import check_outputs, data_places
    from sfumato.problems.registry import takes_shares
    from sfumato.restoration.intervals import check_fast
    from sfumato.restoration.restorer import Restorer
    from sfumato.training.preparation import open_held_out

    if not 0 < level < 1 or not 0 < delta < 1:
        raise RecipeError(f"--level is {level} and --delta {delta}; give numbers between 0 and 1")
    if out is None and is_address(model):
        raise RecipeError(f"{model} is on the Hub, where nothing is written; give --out for the calibrated model")
    if fast:
        check_fast({"samples": samples, "steps": steps, "report": report})
    if page is not None or report is not None:
        matplotlib()  # report a missing library before hours of sampling
    loaded = load(model, device=say_device(device))
    sampled = Restorer.of(loaded, samples, steps, fast=fast).sampled
    asked = with_choice(held_out_recipe(loaded.info, held_out), channels, target_channels, scene, times)
    check_outputs(_outputs(model, out, [page, report]), [model, *data_places(asked.data)])
    source = open_held_out(
        asked, split, shares=takes_shares(loaded.info.recipe.problem), named=loaded.info.channels or ()
    )
    say_what_is_unknown([(model, loaded.info)])
    names = [source.name(index) for index in range(len(source))]
    used = [names[index] for index in evenly_spread(len(source), most)]
    say(f"held out: {find_units(used, unit, among=names).line}")
    with counting("restoring", "held-out images") as progress:
        images = restore_held_out(
            loaded, source, sampled=sampled, level=level, seed=seed, most=most,
            keep_side=_REPORT_SIDE if report else 0, allow_seen=allow_seen, progress=progress,
        )  # fmt: skip
    found = correct(images, sampled=sampled, method=method, level=level, delta=delta, unit=unit)
    changed = set_calibration(model, found, out, sha256=loaded.sha256)  # before pictures, which can fail
    checked = cross_validate(images, found, unit=unit)
    typer.echo("\n".join(checked.lines(level, is_fast=fast)))
    if report is not None:
        from sfumato.evaluation.calibrate import measure_middles
        from sfumato.evaluation.calibration_page import draw_report

        measured = measure_middles(images, level=level, seed=seed)
        typer.echo("\n".join(measured.lines()))
        draw_report(measured, report, unit="normalised units")
    if page is not None:
        from sfumato.evaluation.calibration_page import draw_calibration

        draw_calibration(images, found, checked, page)
    typer.echo(found.formula)
    say(f"calibrated: {changed}: {found.label}")


def _outputs(model: Path, out: Path | None, pictures: list[Path | None]) -> "list[Written]":
    """List all files that calibrating writes, except the model file that it reads."""
    from sfumato.models.model_updates import has_weights_of
    from sfumato.models.ownership import Written
    from sfumato.system.marks import PICTURE, Kind

    written = [Written(path, PICTURE) for path in pictures if path is not None]
    if out is not None and not (out.exists() and model.exists() and out.samefile(model)):
        written.append(Written(out, Kind("copy of this model", lambda path: has_weights_of(path, model))))
    return written
