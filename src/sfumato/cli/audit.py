"""`sfumato audit`."""

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.app import plain_errors
from sfumato.cli.arguments import Device, ModelFile

__all__ = ["audit"]


def audit(
    model: ModelFile,
    source: Annotated[str, typer.Argument(metavar="IMAGE", help="What was measured.")],
    restored: Annotated[
        Path | None,
        typer.Argument(
            metavar="RESTORED", help="Its restored image, with samples of --keep-samples beside it; else made here."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for report.html, audit.png and maps.tif.")] = Path("audit"),
    samples: Annotated[int, typer.Option(help="Draws, if there is no restored image.")] = 16,
    steps: Annotated[int | None, typer.Option(help="Network calls per draw; the recipe's by default.")] = None,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    axes: Annotated[str | None, typer.Option(help="Axes of the image out of STCZYX, if it does not say.")] = None,
    frame: Annotated[int, typer.Option(help="Which frame of the image, from 0.")] = 0,
    pixel_um: Annotated[float | None, typer.Option(help="Side of a measured pixel; the file's by default.")] = None,
    numerical_aperture: Annotated[float | None, typer.Option(help="Of the objective.")] = None,
    wavelength_um: Annotated[float | None, typer.Option(help="Of the light.")] = None,
    finer: Annotated[
        float | None,
        typer.Option(
            help="Resolution of the restored image over the measured one, such as 2 for SIM; by default the "
            "enlargement of the pixel grid."
        ),
    ] = None,
    defocus_um: Annotated[float | None, typer.Option(help="Distance d of defocused shots, for phases.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if there is a warning.")] = False,
    device: Device = "cpu",
) -> None:
    """Audit a restored image: against its measurement, among its samples, and the model against the image.

    Without numerical aperture, wavelength and pixel size the blur of the measurement is fitted.
    """
    with plain_errors():
        from sfumato.audit import Optics, write_audit
        from sfumato.audit import audit as run_audit
        from sfumato.audit.files import read_measured, read_restored
        from sfumato.audit.report import audit_files
        from sfumato.models.model_file import load
        from sfumato.models.ownership import check_outputs

        check_outputs(audit_files(out), [model, source, restored])
        loaded = load(model, device=device)
        measured, pixel_of_file = read_measured(loaded, source, axes=axes, frame=frame)
        image, draws = (None, None) if restored is None else read_restored(loaded, restored, source, frame=frame)
        optics = Optics(
            pixel_um=pixel_um or pixel_of_file,
            numerical_aperture=numerical_aperture,
            wavelength_um=wavelength_um,
            finer=finer,
            defocus_um=defocus_um,
        )
        found = run_audit(
            measured,
            loaded,
            restored=image,
            draws=draws,
            optics=optics,
            num_samples=samples,
            num_steps=steps,
            seed=seed,
        )
        page = write_audit(found, out, title=Path(source).name)
        for sentence in found.warnings:
            typer.echo(f"warning: {sentence}")
        for sentence in [*found.verdicts, *found.unchecked]:
            typer.echo(sentence)
        typer.echo(f"audited: {page}", err=True)
        if strict and found.warnings:
            raise typer.Exit(1)
