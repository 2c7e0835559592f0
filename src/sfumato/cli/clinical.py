"""`sfumato clinical`."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from sfumato.cli.messages import say
from sfumato.system.errors import RecipeError

__all__ = ["clinical"]


def clinical(
    stacks: Annotated[
        list[Path],
        Argument(metavar="STACK", help="Through-focus stacks: files, or folders of z-010um.tif and so on."),
    ],
    wavelength_um: Annotated[float, Option(help="Wavelength in the medium.")] = 0.521,
    pixel_um: Annotated[float, Option(help="Size of a pixel in the specimen.")] = 0.21,
    step_um: Annotated[float | None, Option(help="Distance between the planes of a file.")] = None,
    shot_um: Annotated[float, Option(help="Defocus of the two shots, taken at plus and minus this distance.")] = 2.0,
    reach_um: Annotated[float | None, Option(help="Skip planes further from focus than this.")] = None,
    order: Annotated[
        int | None, Option(help="Order of the polynomial; by default 20, or half the number of planes if fewer.")
    ] = None,
    flip: Annotated[bool, Option(help="Flip the sign of the distances.")] = False,
    crop_px: Annotated[int | None, Option(help="Keep only the middle of the planes, this many pixels a side.")] = None,
    solver: Annotated[str, Option(help="us_tie as in the paper, tie_fft, tie_cg or tie_uniform.")] = "us_tie",
    iterations: Annotated[int, Option(help="Most iterations of the solver; each takes eight Fourier transforms.")] = 30,
    model: Annotated[
        list[Path] | None, Option(help="Model to compare, trained on two-shot inputs; may be repeated.")
    ] = None,
    out: Annotated[Path, Option(help="Folder for the phases and the table.")] = Path("clinical"),
) -> None:
    """Compare phase retrieval from two planes of real stacks with a pseudo truth from all planes."""
    from sfumato.data.images.file_names import image_stem
    from sfumato.evaluation.clinical import compare, phase_files
    from sfumato.models.model_file import load
    from sfumato.models.ownership import check_outputs
    from sfumato.problems.clinical import read_stack
    from sfumato.system.progress import Bar

    places = _by_name(stacks, [path.absolute().name if path.is_dir() else image_stem(path) for path in stacks])
    models = _by_name(model or [], [path.parent.name or path.stem for path in model or []])
    written = phase_files([*places], [solver, *models], out)
    check_outputs(written, [*stacks, *models.values()])
    named = {
        name: read_stack(path, step_um=step_um, reach_um=reach_um, flip=flip, crop_px=crop_px)
        for name, path in places.items()
    }
    loaded = {name: load(path, device="cpu") for name, path in models.items()}
    with Bar("phases", 0) as bar:
        table = compare(
            named, loaded, out, wavelength_um=wavelength_um, pixel_um=pixel_um, shot_um=shot_um, order=order,
            solver=solver, max_iterations=iterations,
            progress=lambda done, total, what: bar.show(done, what, total=total),
        )  # fmt: skip
    for name, scores in table.items():
        typer.echo(f"{name}: " + ", ".join(f"{method} {score:.3f}" for method, score in scores.items()))
    say(f"written: {out}")


def _by_name(paths: list[Path], names: list[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name, path in zip(names, paths, strict=True):
        if (other := found.setdefault(name, path)) is not path:
            raise RecipeError(f"{other} and {path} are both called {name!r}; expected names that differ; rename one")
    return found
