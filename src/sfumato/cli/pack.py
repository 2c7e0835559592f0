"""`sfumato pack`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from sfumato.cli import arguments
from sfumato.cli.messages import counting, say
from sfumato.cli.settings import places, recipe_of
from sfumato.system.errors import RecipeError

if TYPE_CHECKING:
    from sfumato.models.recipe import Recipe

__all__ = ["pack"]

_MOST_DRAWS = 1000
"""Of an image that a store may hold."""


def pack(
    recipe: Annotated[
        Path | None,
        Argument(metavar="RECIPE", help="Recipe in YAML; the pairs of its `data` section are packed."),
    ] = None,
    inputs: arguments.Inputs = None,
    targets: arguments.Targets = None,
    manifest: arguments.Manifest = None,
    folder: arguments.DataFolder = None,
    out: Annotated[Path, Option(help="Store to write.")] = Path("pairs.zarr"),
    settings: arguments.RecipeFields = None,
) -> None:
    """Write image pairs into one sharded Zarr store, for training from many nodes.

    If interrupted, rerun the command to resume. An existing store of other files is refused.
    """
    from sfumato.data.pack import pack as write
    from sfumato.data.pair_checks import check_sizes, doubts_of_orientation
    from sfumato.data.pair_middles import middles
    from sfumato.models.ownership import Written, check_outputs, data_places
    from sfumato.system.marks import ANYTHING
    from sfumato.training.preparation import open_sources

    given = {"inputs": inputs, "targets": targets, "manifest": manifest, "folder": folder}
    chosen = recipe_of(recipe, [*places(given), *(settings or [])])
    check_outputs([Written(out, ANYTHING)], [recipe, *data_places(chosen.data)])
    sources = open_sources(chosen, cache_bytes=0)
    for source in sources.values():
        _check_draws(len(source), source.num_images)
    for source in sources.values() if chosen.problem == "pairs" else ():
        check_sizes(source)
        for sentence in doubts_of_orientation(middles(source)):
            say(f"warning: {sentence}")
    with counting("packing", "shards") as progress:
        packing = write(sources, out, settings=_settings(chosen), progress=progress)
    if packing.note:
        say(f"note: {packing.note}")
    counts = ", ".join(f"{len(source)} {split}" for split, source in sources.items())
    say(f"packed{'' if packing.is_new else ' already'}: {out} ({counts} samples)")


def _check_draws(samples: int, images: int) -> None:
    """Refuse samples that are simulated anew for every draw: a store would hold each of them."""
    if samples > _MOST_DRAWS * images:
        raise RecipeError(
            f"the recipe simulates {samples // images:,} draws of each of {images} images, and a store would hold them "
            "all; train from the folder itself, which stores none, or choose fewer: --set forward.draws=9"
        )


def _settings(recipe: "Recipe") -> dict[str, Any]:
    """Return the settings that the packed samples depend on besides their files."""
    values = recipe.model_dump(mode="json")
    names = ("input_axes", "target_axes", "upsample", "match_intensity")
    chosen = ("input_channels", "target_channels", "scene", "times")  # noted only if given, as stores of before are
    of_problem = {"forward": values["forward"], "train.seed": values["train"]["seed"]}
    return {
        "problem": recipe.problem,
        **{f"data.{name}": values["data"][name] for name in names},
        **{f"data.{name}": values["data"][name] for name in chosen if values["data"][name] is not None},
        **(of_problem if recipe.problem != "pairs" else {}),
    }
