"""`sfumato audit`."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from sfumato.cli import arguments
from sfumato.cli.messages import say, say_device
from sfumato.cli.settings import choice_of

__all__ = ["audit"]


def audit(
    model: arguments.ModelFile,
    source: Annotated[str, Argument(metavar="IMAGE", help="The measured image.")],
    restored: Annotated[
        Path | None,
        Argument(
            metavar="RESTORED",
            help="Its restored image, next to the samples that --keep-samples wrote; by default, the image is restored "
            "here.",
        ),
    ] = None,
    out: Annotated[Path, Option(help="Folder for report.html, audit.png and maps.tif.")] = Path("audit"),
    samples: Annotated[int, Option(help="Number of samples, if no restored image is given.")] = 16,
    steps: arguments.Steps = None,
    seed: Annotated[int, Option(help="Seed of the samples.")] = 0,
    axes: Annotated[
        str | None, Option(help="Axes of the image, letters of STCZYX, if the file does not name them.")
    ] = None,
    channels: arguments.Channels = None,
    scene: arguments.Scene = None,
    times: arguments.Times = None,
    frame: Annotated[int, Option(help="Frame of the image to audit, from 0.")] = 0,
    pixel_um: Annotated[float | None, Option(help="Size of a measured pixel; the file's by default.")] = None,
    numerical_aperture: Annotated[float | None, Option(help="Numerical aperture of the objective.")] = None,
    wavelength_um: Annotated[float | None, Option(help="Wavelength of the light.")] = None,
    finer: Annotated[
        float | None,
        Option(
            help="How many times finer the restored image's resolution is, such as 2 for SIM; by default the factor "
            "by which the pixel grid is upsampled."
        ),
    ] = None,
    defocus_um: Annotated[float | None, Option(help="Defocus distance d of the two shots, for phases.")] = None,
    strict: Annotated[bool, Option("--strict", help="Exit with 1 if there is a warning.")] = False,
    device: arguments.Device = "auto",
) -> None:
    """Check a restored image against its measurement, its samples and the images that the model was trained on.

    The blur of the measurement is fitted unless numerical aperture, wavelength and pixel size are given.
    """
    from sfumato.audit import Optics, write_audit
    from sfumato.audit import audit as run_audit
    from sfumato.audit.files import read_measured, read_restored
    from sfumato.audit.report import audit_files
    from sfumato.models.model_file import load
    from sfumato.models.ownership import check_outputs

    check_outputs(audit_files(out), [model, source, restored])
    loaded = load(model, device=say_device(device))
    chosen = choice_of(channels, scene, times)
    measured, pixel_of_file = read_measured(loaded, source, axes=axes, frame=frame, choice=chosen)
    image, draws = (None, None) if restored is None else read_restored(loaded, restored, source, frame=frame)
    optics = Optics(
        pixel_um=pixel_um or pixel_of_file,
        numerical_aperture=numerical_aperture,
        wavelength_um=wavelength_um,
        finer=finer,
        defocus_um=defocus_um,
    )
    found = run_audit(
        measured, loaded, restored=image, draws=draws, optics=optics, num_samples=samples, num_steps=steps, seed=seed
    )
    page = write_audit(found, out, title=Path(source).name)
    for sentence in (*(f"warning: {text}" for text in found.warnings), *found.verdicts, *found.unchecked):
        typer.echo(sentence)
    say(f"audited: {page}")
    if strict and found.warnings:
        raise typer.Exit(1)
