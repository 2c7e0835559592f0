"""Arguments and options that several commands have, each said once."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AllowSeen", "Device", "FromRecipe", "ModelFile", "Unit"]

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model file, such as run/model.safetensors, or hf://owner/name.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps.")]
FromRecipe = Annotated[
    bool,
    typer.Option(
        "--from-recipe",
        help="In their place, the pairs that the first model's own recipe names on this machine; addresses in it are "
        "never opened.",
    ),
]
Unit = Annotated[
    str | None,
    typer.Option(
        help="Regular expression on file names; images whose first group is the same count as one, such as '(.*)_' for "
        "069_0.tif and 069_1.tif; '.*' counts each. Without it the frames of a file count as one, and so do files "
        "whose names differ in a last number alone, if all form such groups with the same numbers."
    ),
]
AllowSeen = Annotated[
    bool,
    typer.Option("--allow-seen", help="Take images that the model was trained on, too; nothing is promised then."),
]
