"""Arguments and options shared by several commands."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

__all__ = [
    "AllowSeen",
    "BatchWorkers",
    "Channels",
    "DataFolder",
    "Device",
    "FromRecipe",
    "Inputs",
    "Manifest",
    "ModelFile",
    "Most",
    "RecipeFields",
    "Scene",
    "ScoredSamples",
    "Steps",
    "TargetChannels",
    "Targets",
    "TestManifest",
    "TestStore",
    "TestTargets",
    "Times",
    "Unit",
]

ModelFile = Annotated[
    Path, Argument(metavar="MODEL", help="Model file, such as run/model.safetensors, or hf://owner/name.")
]
Device = Annotated[
    str, Option(help="cpu, cuda or mps; auto takes what was begun with, or a GPU if torch can use one by CUDA.")
]
BatchWorkers = Annotated[
    int | None,
    Option(
        "--workers",
        min=0,
        help="Processes that make batches, on Linux; by default none on a CPU, and up to 4 for a GPU. Their number "
        "changes no batch.",
    ),
]
Steps = Annotated[int | None, Option(help="Network calls per sample; the recipe's by default.")]
ScoredSamples = Annotated[int, Option(help="Samples per image; their mean is scored.")]
Most = Annotated[int | None, Option(help="Use at most this many images, spread over the set.")]
RecipeFields = Annotated[
    list[str] | None,
    Option("--set", help="Any field of the recipe, such as data.upsample=true; may be repeated."),
]

# What to take of a file.
Channels = Annotated[
    list[str] | None,
    Option(
        "--channel",
        help="Channel to take of the inputs, by name or number from 0; may be repeated. By default all, or those that "
        "the model was trained on if the file names them.",
    ),
]
TargetChannels = Annotated[
    list[str] | None,
    Option(
        "--target-channel",
        help="Channel of the targets; by default those of the inputs, unless a target has only one; may be repeated.",
    ),
]
Scene = Annotated[
    str | None,
    Option(help="Scene (position, series) of a file with several, by name or number from 0; by default the first."),
]
Times = Annotated[
    str | None, Option("--time", metavar="FIRST:LAST", help="Times to take, such as 0:3 for the first three, or 5.")
]

# Where pairs for training are.
Inputs = Annotated[str | None, Option(help="Folder of inputs, the measured images.")]
Targets = Annotated[str | None, Option(help="Folder of targets, with the same file names.")]
Manifest = Annotated[str | None, Option(help="Instead of folders, a CSV that lists pairs and splits.")]
DataFolder = Annotated[str | None, Option(help="Data set of the recipe's problem, such as BioSR.")]

# Which pairs to test a model on.
TestTargets = Annotated[str | None, Option(help="Folder of targets, the true images, with the same names.")]
TestManifest = Annotated[str | None, Option(help="Instead of folders, a CSV whose `test` pairs are used.")]
TestStore = Annotated[str | None, Option(help="Instead of folders, a packed store whose `test` split is used.")]
FromRecipe = Annotated[
    bool,
    Option(
        "--from-recipe",
        help="Instead, use the pairs that the first model's own recipe names on this machine; remote addresses in it "
        "are never opened.",
    ),
]
Unit = Annotated[
    str | None,
    Option(
        help="Regular expression on file names; images with the same first group count as one unit, such as '(.*)_' "
        "for 069_0.tif and 069_1.tif; '.*' counts each image. By default, the frames of a file count as one unit, and "
        "so do files whose names differ only in a last number, if all files form such groups with the same numbers."
    ),
]
AllowSeen = Annotated[
    bool,
    Option(
        "--allow-seen", help="Also accept images that the model was trained on; the results then carry no guarantee."
    ),
]
