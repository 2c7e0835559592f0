"""The command line: parses, calls, prints; no science.

Nothing here imports torch at the top, so ``--help`` and ``--version`` answer at once.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sfumato import __version__
from sfumato.errors import RecipeError, SfumatoError

if TYPE_CHECKING:
    from sfumato.recipe import Recipe

__all__ = ["app", "main"]

app = typer.Typer(
    name="sfumato",
    help="Restore scientific images with conditional variational diffusion models.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sfumato {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors that a user can mend are printed as one text, without a traceback."""
    try:
        yield
    except SfumatoError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except ImportError as error:
        if "sfumato[" not in str(error):  # only those that name the extra to install are for users
            raise
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as interrupt:
        typer.echo(str(interrupt) or "interrupted", err=True)
        raise typer.Exit(130) from None


@app.command()
def train(
    recipe: Annotated[Path | None, typer.Argument(help="Recipe in YAML; without one, the defaults.")] = None,
    inputs: Annotated[str | None, typer.Option(help="Folder of what was measured.")] = None,
    targets: Annotated[str | None, typer.Option(help="Folder of what is sought, with the same names.")] = None,
    manifest: Annotated[str | None, typer.Option(help="In their place, a CSV that lists pairs and splits.")] = None,
    folder: Annotated[str | None, typer.Option(help="Data set of the recipe's problem, such as BioSR.")] = None,
    store: Annotated[str | None, typer.Option(help="In place of all these, a store of `sfumato pack`.")] = None,
    out: Annotated[Path, typer.Option(help="Run folder; a run of the same recipe in it goes on.")] = Path("run"),
    minutes: Annotated[float | None, typer.Option(help="Train as many steps as fit into this time.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
    start_from: Annotated[Path | None, typer.Option("--from", help="Model file whose weights to start from.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any field of the recipe, such as train.steps=1000.")
    ] = None,
) -> None:
    """Train a model on image pairs; killed, the same command goes on where it was."""
    with _plain_errors():
        from sfumato.train import train as run

        given = {"inputs": inputs, "targets": targets, "manifest": manifest, "folder": folder, "store": store}
        chosen = _recipe(recipe, [*_places(given), *(settings or [])])
        trained = run(chosen, out, device=device, minutes=minutes, start_from=start_from)
        if os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0":
            typer.echo(f"trained: {trained.model_file}", err=True)


@app.command()
def pack(
    recipe: Annotated[Path | None, typer.Argument(help="Recipe in YAML, whose `data` section is packed.")] = None,
    inputs: Annotated[str | None, typer.Option(help="Folder of what was measured.")] = None,
    targets: Annotated[str | None, typer.Option(help="Folder of what is sought, with the same names.")] = None,
    manifest: Annotated[str | None, typer.Option(help="In their place, a CSV that lists pairs and splits.")] = None,
    folder: Annotated[str | None, typer.Option(help="Data set of the recipe's problem, such as BioSR.")] = None,
    out: Annotated[Path, typer.Option(help="Store to write.")] = Path("pairs.zarr"),
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any field of the recipe, such as data.upsample=true.")
    ] = None,
) -> None:
    """Write image pairs into one sharded Zarr store, for training from many nodes; killed, the same command goes on."""
    with _plain_errors():
        from sfumato.data.pack import pack as write
        from sfumato.preparation import open_sources
        from sfumato.progress import Bar

        given = {"inputs": inputs, "targets": targets, "manifest": manifest, "folder": folder}
        chosen = _recipe(recipe, [*_places(given), *(settings or [])])
        sources = open_sources(chosen, cache_bytes=0)
        with Bar("packing", 0) as bar:
            write(sources, out, progress=lambda done, total: bar.show(done, "shards", total=total))
        counts = ", ".join(f"{len(source)} {split}" for split, source in sources.items())
        typer.echo(f"packed: {out} ({counts} samples)", err=True)


@app.command()
def restore(
    model: Annotated[Path, typer.Argument(help="Model file, such as run/model.safetensors.")],
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="Image to restore.")],
    output: Annotated[Path, typer.Argument(help="Where the restored image goes; its suffix is the format.")],
    samples: Annotated[int, typer.Option(help="Draws; their mean is the result, their spread the uncertainty.")] = 16,
    steps: Annotated[int | None, typer.Option(help="Network calls per draw; the recipe's by default.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.")] = 0,
    axes: Annotated[str | None, typer.Option(help="Axes of the input out of STCZYX, if it does not say.")] = None,
    picture: Annotated[Path | None, typer.Option(help="PNG to draw: measured, restored, uncertainty.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
) -> None:
    """Restore an image; writes its mean and, beside it, its standard deviation."""
    with _plain_errors():
        from sfumato.model_file import load
        from sfumato.progress import Bar
        from sfumato.restoration.file import restore_file

        with Bar("restoring", 0) as bar:
            mean, std = restore_file(
                load(model, device=device),
                source,
                output,
                axes=axes,
                num_samples=samples,
                num_steps=steps,
                seed=seed,
                picture=picture,
                progress=lambda done, total: bar.show(done, "draws", total=total),
            )
        typer.echo(f"restored: {mean}, uncertainty: {std or 'none, since this model is a regression'}", err=True)


@app.command()
def evaluate(
    models: Annotated[list[str] | None, typer.Argument(help="Model files, each as PATH or NAME=PATH.")] = None,
    baselines: Annotated[
        list[str] | None, typer.Option("--baseline", help="bicubic, wiener or richardson_lucy; may be repeated.")
    ] = None,
    inputs: Annotated[str | None, typer.Option(help="Folder of what was measured.")] = None,
    targets: Annotated[str | None, typer.Option(help="Folder of the truth, with the same names.")] = None,
    manifest: Annotated[str | None, typer.Option(help="In their place, a CSV whose `test` pairs are taken.")] = None,
    store: Annotated[str | None, typer.Option(help="In their place, the `test` split of a packed store.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for scores.csv, table.md and report.html.")] = Path("evaluation"),
    samples: Annotated[int, typer.Option(help="Draws per image, whose mean is scored.")] = 16,
    steps: Annotated[int | None, typer.Option(help="Network calls per draw; each recipe's by default.")] = None,
    seed: Annotated[int, typer.Option(help="Of draws and of statistics.")] = 0,
    most: Annotated[int | None, typer.Option(help="Only so many images, spread over the set.")] = None,
    affine: Annotated[bool, typer.Option(help="Fit scale and offset of each estimate to the truth first.")] = False,
    resolution: Annotated[bool, typer.Option(help="Measure resolution too; needs --pixel-um.")] = False,
    pixel_um: Annotated[float | None, typer.Option(help="Side of a target pixel.")] = None,
    numerical_aperture: Annotated[float | None, typer.Option(help="For wiener and richardson_lucy.")] = None,
    wavelength_um: Annotated[float | None, typer.Option(help="For wiener and richardson_lucy.")] = None,
    noise_to_signal: Annotated[float, typer.Option(help="For wiener.")] = 0.01,
    iterations: Annotated[int, typer.Option(help="For richardson_lucy.")] = 20,
    offset: Annotated[float, typer.Option(help="Grey levels without light, for wiener and richardson_lucy.")] = 0.0,
    unit: Annotated[
        str | None, typer.Option(help="Pattern whose group names what is independent, such as '(.*)_' for fields.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
) -> None:
    """Compare models and baselines on test pairs: scores per image, a table with tests, a page with pictures."""
    with _plain_errors():
        from sfumato import evaluate as evaluation
        from sfumato.methods import Microscope, classical_method, model_method, open_model
        from sfumato.progress import Bar
        from sfumato.report import markdown, write_csv, write_report

        if resolution and pixel_um is None:
            raise RecipeError("--resolution needs the size of a pixel; give --pixel-um")
        opened = [open_model(text, device=device) for text in models or []]
        microscope = None
        if pixel_um is not None and numerical_aperture is not None and wavelength_um is not None:
            microscope = Microscope(pixel_um, numerical_aperture, wavelength_um, noise_to_signal, iterations, offset)
        methods = [
            *(classical_method(name, microscope) for name in baselines or []),
            *(model_method(name, model, num_samples=samples, num_steps=steps, seed=seed) for name, model in opened),
        ]
        told = [model.info.recipe.data for _, model in opened]
        upsample = not told or any(data.upsample for data in told)
        given = {"inputs": inputs, "targets": targets, "manifest": manifest, "store": store}
        settings = [f"data.{key}={value}" for key, value in given.items() if value]
        data = _recipe(None, [*settings, f"data.upsample={str(upsample).lower()}"]).data
        if told:
            data = data.model_copy(update={side: getattr(told[0], side) for side in ("input_axes", "target_axes")})
        with Bar("evaluating", 0) as bar:
            found = evaluation.evaluate(
                methods,
                evaluation.open_test_set(data),
                affine=affine,
                pixel_um=pixel_um if resolution else None,
                most=most,
                progress=lambda done, total: bar.show(done, "estimates", total=total),
            )
        units = found if unit is None else evaluation.pool(found, unit)
        rows = evaluation.summarise(units, seed=seed)
        page = write_report(units, rows, out)
        write_csv(found, out / "scores.csv")  # of every image, whatever the unit
        typer.echo(markdown(units, rows))
        typer.echo(f"evaluated: {page}", err=True)


@app.command()
def sweep(
    recipe: Annotated[Path, typer.Argument(help="Recipe in YAML with a linear or the cosine schedule.")],
    out: Annotated[Path, typer.Option(help="Folder of the trainings and of best.yaml.")] = Path("sweep"),
    steps: Annotated[int | None, typer.Option(help="Of each training; the recipe's by default.")] = None,
    metric: Annotated[str, typer.Option(help="mae, nrmse, psnr, ssim or ms-ssim, on validation images.")] = "mae",
    starts: Annotated[list[float] | None, typer.Option("--start", help="First beta; may be repeated.")] = None,
    ends: Annotated[list[float] | None, typer.Option("--end", help="Last beta; may be repeated.")] = None,
    gamma_ends: Annotated[
        list[float] | None, typer.Option("--gamma-end", help="What the cosine schedule leaves; may be repeated.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Draws per image, whose mean is scored.")] = 8,
    most: Annotated[int, typer.Option(help="Validation images, at most.")] = 16,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any field of the recipe, such as data.inputs=low.")
    ] = None,
) -> None:
    """Tune the end points of a fixed schedule on validation images; killed, the same command goes on."""
    with _plain_errors():
        from sfumato.sweep import candidates, choose_metric, table
        from sfumato.sweep import sweep as run

        chosen, judge = _recipe(recipe, settings or []), choose_metric(metric)
        models = candidates(chosen.model, starts=starts or (), ends=ends or (), gamma_ends=gamma_ends or ())
        trials = run(
            chosen, models, out, metric=judge, steps=steps, num_samples=samples, most=most, device=device,
            progress=lambda done, total: typer.echo(f"{done} of {total} end points", err=True),
        )  # fmt: skip
        typer.echo(table(trials, judge))
        typer.echo(f"best: {out / 'best.yaml'}", err=True)


@app.command()
def inspect(
    model: Annotated[Path, typer.Argument(help="Model file, such as run/model.safetensors.")],
    source: Annotated[
        Path | None, typer.Argument(metavar="[IMAGE]", help="Image to show schedule and samples of.")
    ] = None,
    target: Annotated[Path | None, typer.Option(help="Its truth, if known.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("inspection"),
    samples: Annotated[int, typer.Option(help="Draws; the paper has 20.")] = 20,
    steps: Annotated[int | None, typer.Option(help="Network calls per draw; the recipe's by default.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same draws.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
) -> None:
    """Look into a model: diagrams of its networks and, for an image, its schedule, samples and their spread."""
    with _plain_errors():
        from sfumato.inspection import describe, draw_diagrams, draw_posterior, read_image
        from sfumato.model_file import load

        loaded = load(model, device=device)
        for line in describe(loaded):
            typer.echo(line)
        paths = draw_diagrams(loaded, out)
        if source is not None:
            measured, truth = read_image(loaded, source, target)
            paths += draw_posterior(
                loaded, measured, out, target=truth, num_samples=samples, num_steps=steps, seed=seed
            )
        typer.echo(f"drawn: {', '.join(map(str, paths))}", err=True)


simulations = typer.Typer(help="Write simulated image pairs with known truth.", no_args_is_help=True)
app.add_typer(simulations, name="simulate")


@simulations.callback()
def _simulations() -> None:
    pass


@simulations.command()
def microscopy(
    out: Annotated[Path, typer.Option(help="Folder to make.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same images.")] = 0,
    layout: Annotated[Literal["pairs", "biosr"], typer.Option(help="TIFF pairs with a manifest, or BioSR's MRC.")] = (
        "pairs"
    ),
    side: Annotated[int, typer.Option(help="Pixels of the widefield images; the targets have twice as many.")] = 128,
    train: Annotated[int, typer.Option(help="Fields per structure for training, at most 30.")] = 6,
    validation: Annotated[int, typer.Option(help="For validation, at most 5.")] = 2,
    test: Annotated[int, typer.Option(help="For testing, at most 15.")] = 2,
) -> None:
    """Widefield and SIM images of coated pits, reticulum, microtubules and F-actin, at nine levels of light."""
    with _plain_errors():
        from sfumato.problems.microscopy_simulation import simulate
        from sfumato.progress import Bar

        with Bar("simulating", 0) as bar:
            made = simulate(
                out,
                seed=seed,
                cells={"train": train, "validation": validation, "test": test},
                side=side,
                layout=layout,
                progress=lambda done, total: bar.show(done, "fields", total=total),
            )
        option = "--manifest" if layout == "pairs" else "--folder"
        typer.echo(f"simulated: {made}; train on it with {option} {made}", err=True)


@app.command()
def clinical(
    stacks: Annotated[list[Path], typer.Argument(help="Through-focus stacks: files, or folders of z-010um.tif ...")],
    wavelength_um: Annotated[float, typer.Option(help="In the medium.")] = 0.521,
    pixel_um: Annotated[float, typer.Option(help="Side of a pixel in the specimen.")] = 0.21,
    step_um: Annotated[float | None, typer.Option(help="Distance of the planes of a file.")] = None,
    shot_um: Annotated[float, typer.Option(help="Where the two shots are taken, at plus and minus this.")] = 2.0,
    reach_um: Annotated[float | None, typer.Option(help="Leave out planes further from focus.")] = None,
    order: Annotated[int | None, typer.Option(help="Of the polynomial; 20, or half the planes if fewer.")] = None,
    flip: Annotated[bool, typer.Option(help="Turn the sign of the distances.")] = False,
    model: Annotated[list[Path] | None, typer.Option(help="Model to compare, of two-shot conditions.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for phases and the table.")] = Path("clinical"),
) -> None:
    """Compare phase retrieval on real stacks: pseudo truth from all planes, methods from two of them."""
    with _plain_errors():
        from sfumato.clinical import compare
        from sfumato.model_file import load
        from sfumato.problems.clinical import read_stack

        table = compare(
            {path.stem: read_stack(path, step_um=step_um, reach_um=reach_um, flip=flip) for path in stacks},
            {path.parent.name or path.stem: load(path) for path in model or []},
            out,
            wavelength_um=wavelength_um,
            pixel_um=pixel_um,
            shot_um=shot_um,
            order=order,
        )
        for name, scores in table.items():
            typer.echo(f"{name}: " + ", ".join(f"{method} {score:.3f}" for method, score in scores.items()))
        typer.echo(f"written: {out}", err=True)


@app.command()
def doctor() -> None:
    """Print versions, devices and speed, and what is missing for each extra."""
    from sfumato.doctor import examine

    for line in examine().lines():
        typer.echo(line)


def _places(given: dict[str, str | None]) -> list[str]:
    """Options that say where data is, as settings; one of them takes the place of what the recipe says."""
    if not any(given.values()):
        return []
    names = ("inputs", "targets", "manifest", "folder", "store")
    return [f"data.{name}={given.get(name) or 'null'}" for name in names]


def _recipe(path: Path | None, settings: list[str]) -> "Recipe":
    """The recipe of a file, or the default one, with single fields replaced."""
    import yaml

    from sfumato import recipe as recipes

    text = path.read_text(encoding="utf-8") if path is not None and path.is_file() else ""
    if path is not None:
        recipes.load(path)  # complains with line numbers, which the merged text below no longer has
    values = yaml.safe_load(text) or {}
    for setting in settings:
        key, found, value = setting.partition("=")
        if not found:
            raise RecipeError(f"--set got {setting!r}; expected a field and its value, such as train.steps=1000")
        *sections, field = key.split(".")
        place = values
        for section in sections:
            place = place.setdefault(section, {})
        place[field] = yaml.safe_load(value)
    return recipes.parse(yaml.safe_dump(values), source="the settings")


def main() -> None:
    """Run the command line."""
    app(prog_name="sfumato", args=sys.argv[1:])
