"""The recipe with which held-out pairs are opened for a model."""

from pathlib import Path

from sfumato.data.images.ome_zarr import is_zarr
from sfumato.models.data_recipe import PLACES
from sfumato.models.model_file import ModelInfo
from sfumato.models.recipe import Recipe
from sfumato.system.errors import RecipeError

__all__ = ["held_out_recipe"]


def held_out_recipe(info: ModelInfo, place: Path | tuple[Path, Path]) -> Recipe:
    """A model's recipe with the held-out pairs as its data.

    Args:
        info: The model's.
        place: A folder with `inputs` and `targets`, a manifest, a packed store, or a data set folder of the model's own
            problem; or the two folders.

    Raises:
        RecipeError: If there is nothing of the kind.
    """
    recipe, problem = info.recipe, "pairs"
    for path in place if isinstance(place, tuple) else (place,):
        if not path.exists():
            raise RecipeError(f"{path} does not exist; expected held-out pairs; check its name")
    if isinstance(place, tuple):
        where = {"inputs": str(place[0]), "targets": str(place[1])}
    elif place.suffix.lower() == ".csv":
        where = {"manifest": str(place)}
    elif is_zarr(place):
        where = {"store": str(place)}
    elif (place / "inputs").is_dir() and (place / "targets").is_dir():
        where = {side: str(place / side) for side in ("inputs", "targets")}
    elif recipe.problem != "pairs":
        where, problem = {"folder": str(place)}, recipe.problem
    else:
        raise RecipeError(
            f"{place} has no pairs; expected a folder with `inputs` and `targets`, a manifest (.csv) or a packed store"
        )
    moved = dict.fromkeys(PLACES) | {"upsample": info.upsamples, "scene": None, "times": None} | where
    if "store" in where:
        moved |= {"input_channels": None, "target_channels": None}
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=moved), "problem": problem})
