"""`sfumato evaluate`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from sfumato.cli import arguments
from sfumato.cli.messages import counting, say, say_device, say_what_is_unknown
from sfumato.cli.settings import open_tested, open_tuned, tested_recipe, with_choice
from sfumato.system.bounds import seed_of
from sfumato.system.errors import RecipeError

__all__ = ["evaluate"]


def evaluate(
    models: Annotated[
        list[str] | None, Argument(metavar="MODEL", help="Model files, each as PATH or NAME=PATH.")
    ] = None,
    baselines: Annotated[
        list[str] | None,
        Option(
            "--baseline",
            help="bicubic, gaussian, wiener, richardson_lucy; for phases tie_fft, us_tie, tie_cg, tie_uniform; may be "
            "repeated.",
        ),
    ] = None,
    inputs: arguments.Inputs = None,
    targets: arguments.TestTargets = None,
    manifest: arguments.TestManifest = None,
    store: arguments.TestStore = None,
    folder: Annotated[
        str | None, Option(help="Instead, the data set of the problem of --recipe or of the first model.")
    ] = None,
    channels: arguments.Channels = None,
    target_channels: arguments.TargetChannels = None,
    scene: arguments.Scene = None,
    times: arguments.Times = None,
    recipe: Annotated[Path | None, Option(help="Recipe in YAML whose test split is used.")] = None,
    from_recipe: arguments.FromRecipe = False,
    out: Annotated[Path, Option(help="Folder for scores.csv, table.md and report.html.")] = Path("evaluation"),
    samples: arguments.ScoredSamples = 16,
    steps: Annotated[int | None, Option(help="Network calls per sample; each recipe's by default.")] = None,
    seed: Annotated[int, Option(help="Seed of the samples and the statistics.")] = 0,
    most: arguments.Most = None,
    affine: Annotated[bool, Option(help="First fit scale and offset of each estimate to the truth.")] = False,
    remove_mean: Annotated[bool, Option(help="Shift estimates to the mean of their truth, as for phases.")] = False,
    resolution: Annotated[bool, Option(help="Also measure the resolution; needs --pixel-um.")] = False,
    pixel_um: Annotated[float | None, Option(help="Size of a target pixel.")] = None,
    numerical_aperture: Annotated[float | None, Option(help="For wiener and richardson_lucy.")] = None,
    wavelength_um: Annotated[float | None, Option(help="For all baselines except bicubic and gaussian.")] = None,
    blur_pixels: Annotated[
        float | None,
        Option(min=0, help="Width of the gaussian; by default the best on validation images, if the data has some."),
    ] = None,
    noise_to_signal: Annotated[float, Option(help="For wiener.")] = 0.01,
    iterations: Annotated[
        int | None, Option(help="Most iterations; by default 20 for richardson_lucy, 30 for us_tie and tie_cg.")
    ] = None,
    offset: Annotated[float, Option(help="Grey levels without light, for wiener and richardson_lucy.")] = 0.0,
    defocus_um: Annotated[
        float | None, Option(help="Defocus distance d of the shots, for solvers of the transport equation.")
    ] = None,
    planes: Annotated[
        str, Option(help="Defocus of the two channels, in units of d: 1,-1, or 0,1 if one is in focus.")
    ] = "1,-1",
    damping: Annotated[float, Option(help="Damping of slow structures, for solvers of the transport equation.")] = 1e-9,
    unit: arguments.Unit = None,
    allow_seen: arguments.AllowSeen = False,
    device: arguments.Device = "auto",
) -> None:
    """Compare models and baselines on test pairs: scores per image, a table with tests, a page with pictures.

    With --from-recipe, the pairs are the test split of the first model's own recipe, or its validation pairs if none is
    marked as test. Images that a model was trained on are refused; images that it was validated on are listed.
    """
    from sfumato.evaluation import evaluate as evaluation
    from sfumato.evaluation.compared_methods import (
        Deconvolution,
        Method,
        TwoShots,
        classical_method,
        gaussian_method,
        model_method,
        open_model,
        phase_method,
    )
    from sfumato.evaluation.report_page import markdown, report_files, write_csv, write_report
    from sfumato.models.ownership import check_outputs, data_places
    from sfumato.physics.phase_retrieval import SOLVERS

    seed_of(seed)
    if resolution and pixel_um is None:
        raise RecipeError("--resolution needs the size of a pixel; give --pixel-um")
    at = say_device(device) if models else device
    opened = [open_model(text, device=at) for text in models or []]
    microscope = shots = None
    if pixel_um is not None and numerical_aperture is not None and wavelength_um is not None:
        optics = (pixel_um, numerical_aperture, wavelength_um)
        effort = {} if iterations is None else {"num_iterations": iterations}
        microscope = Deconvolution(*optics, noise_to_signal=noise_to_signal, offset=offset, **effort)
    if pixel_um is not None and wavelength_um is not None and defocus_um is not None:
        effort = {} if iterations is None else {"max_iterations": iterations}
        shots = TwoShots(pixel_um, wavelength_um, defocus_um, _numbers(planes), damping, **effort)
    given = {"inputs": inputs, "targets": targets, "manifest": manifest, "store": store, "folder": folder}
    loaded = [model for _, model in opened]
    test, is_own = tested_recipe(recipe, given, loaded, from_recipe=from_recipe)
    test = with_choice(test, channels, target_channels, scene, times)

    def baseline(name: str) -> Method:
        if name == "gaussian":
            tuned_on = None if blur_pixels is not None else open_tuned(test, is_own, loaded)
            return gaussian_method(blur_pixels, tuned_on, affine=affine)
        return phase_method(name, shots) if name in SOLVERS else classical_method(name, microscope)

    methods = [baseline(name) for name in baselines or []]
    drawn: dict[str, Any] = {"num_samples": samples, "num_steps": steps, "seed": seed}
    methods += [model_method(name, model, **drawn) for name, model in opened]
    files = [path for text in models or [] for path in (text, text.rpartition("=")[2])]
    check_outputs(report_files(out), [*files, recipe, *data_places(test.data)])
    say_what_is_unknown((name, model.info) for name, model in opened)
    with counting("evaluating", "estimates") as progress:
        found = evaluation.evaluate(
            methods,
            open_tested(test, is_own, loaded),
            affine=affine,
            remove_mean=remove_mean,
            pixel_um=pixel_um if resolution else None,
            most=most,
            allow_seen=allow_seen,
            progress=progress,
            scored=lambda place, scores: write_csv(scores, out / "scores.csv", more=place > 0),
        )
    units = evaluation.average_units(found, unit)
    if units.units is not None:
        say(f"tested: {units.units.line}")
    rows = evaluation.summarise(units, seed=seed)
    page = write_report(units, rows, out)
    write_csv(found, out / "scores.csv")  # one row per image, whatever the unit
    typer.echo(markdown(units, rows))
    say(f"evaluated: {page}")


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise RecipeError(f"--planes is {text!r}; expected numbers with commas between them, such as 0,1") from error
