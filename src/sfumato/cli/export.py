"""`sfumato export`."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from sfumato.cli import arguments
from sfumato.system.errors import RunError

__all__ = ["export"]


def export(
    model: arguments.ModelFile,
    bioimageio: Annotated[
        Path | None, Option(help="BioImage.IO package (zip) to write: the sampler with a fixed seed.")
    ] = None,
    onnx: Annotated[Path | None, Option(help="Folder for the networks as plain ONNX, for any image size.")] = None,
    hub: Annotated[Path | None, Option(help="Folder for the files of a Hugging Face repository.")] = None,
    push: Annotated[
        str | None, Option(metavar="OWNER/NAME", help="Upload the folder given by --hub to this repository.")
    ] = None,
    private: Annotated[bool, Option("--private", help="With --push: make the repository private.")] = False,
    licence: Annotated[
        str | None,
        Option("--licence", "--license", help="SPDX identifier of the weights' licence, such as CC-BY-4.0."),
    ] = None,
    author: Annotated[list[str] | None, Option(help="Author of the model; may be repeated.")] = None,
    example: Annotated[
        Path | None, Option(help="With --bioimageio: image whose middle becomes the test input and cover.")
    ] = None,
    samples: Annotated[int | None, Option(help="With --bioimageio: samples; as calibrated, or 16.")] = None,
    steps: Annotated[int | None, Option(help="With --bioimageio: network calls per sample.")] = None,
    seed: Annotated[int, Option(help="With --bioimageio: seed, fixed in the package.")] = 0,
) -> None:
    """Export a model for other programs: BioImage.IO, plain ONNX or the Hugging Face Hub."""
    if push is not None and hub is None:
        raise RunError("--push uploads the folder of --hub, which was not given; give --hub too")
    if bioimageio is None and onnx is None and hub is None:
        raise RunError("nothing to export to; give --bioimageio, --onnx or --hub")
    from sfumato.export.card import Credits
    from sfumato.export.hub import hub_files
    from sfumato.export.networks import network_files
    from sfumato.models.model_file import load
    from sfumato.models.ownership import Written, check_outputs
    from sfumato.system.marks import PACKAGE

    if (bioimageio is not None or hub is not None) and (licence is None or not author):
        raise RunError(
            "a shared model needs a licence and an author, which its file does not contain; give --licence with an "
            "SPDX identifier, such as CC-BY-4.0, and --author with a name"
        )
    credits, loaded = Credits(licence or "", tuple(author or [])), load(model, device="cpu")
    written = [] if bioimageio is None else [Written(bioimageio, PACKAGE)]
    written += [] if onnx is None else network_files(loaded, onnx)
    written += [] if hub is None else hub_files(model, hub)
    check_outputs(written, [model, example])
    if onnx is not None:
        from sfumato.export.networks import export_networks

        for name, off in export_networks(loaded, onnx).items():
            typer.echo(f"{onnx / name}: onnxruntime agrees with torch to {off:.1g} of the largest value")
    if bioimageio is not None:
        from sfumato.export.bioimageio import export_bioimageio

        export_bioimageio(loaded, bioimageio, credits, example=example, num_samples=samples, num_steps=steps, seed=seed)
        typer.echo(f"{bioimageio}: passed the test of bioimageio.core")
    if hub is not None:
        from sfumato.export.hub import export_hub
        from sfumato.export.hub import push as upload

        export_hub(model, hub, credits, address=push or "owner/name")
        typer.echo(f"{hub}: model file and card; look at its README.md before you share it")
        if push is not None:
            typer.echo(f"uploaded: {upload(hub, push, private=private)}")
