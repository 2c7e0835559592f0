"""Recipes from a file and from options."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.system.errors import RecipeError

if TYPE_CHECKING:
    from sfumato.models.model_file import LoadedModel
    from sfumato.models.recipe import DataRecipe, Recipe

__all__ = ["OWN_TEST", "places", "recipe_of", "tested_recipe"]


_PLACES = ("inputs", "targets", "manifest", "folder", "store")

OWN_TEST = (
    "test pairs: those of the model's own recipe or, where none is marked `test`, its validation pairs, which chose "
    "its weights"
)


def places(given: dict[str, str | None]) -> list[str]:
    """Options that say where data is, as settings; one of them takes the place of what the recipe says.

    Names are quoted: a folder may be called 20240312, no, or exp #2, which YAML would take for something else.

    Example:
        >>> places({"folder": "20240312"})[3]
        'data.folder="20240312"'
    """
    if not any(given.values()):
        return []
    return [f"data.{name}={json.dumps(given.get(name) or None, ensure_ascii=False)}" for name in _PLACES]


def recipe_of(path: Path | None, settings: list[str]) -> "Recipe":
    """The recipe of a file, or the default one, with single fields replaced."""
    import yaml

    from sfumato.models import recipe as recipes
    from sfumato.system import strict_yaml

    text = path.read_text(encoding="utf-8") if path is not None and path.is_file() else ""
    if path is not None:
        recipes.load(path)  # complains with line numbers, which the merged text below no longer has
    values = strict_yaml.read(text, source=str(path)).values or {}
    for setting in settings:
        key, found, value = setting.partition("=")
        if not found:
            raise RecipeError(f"--set got {setting!r}; expected a field and its value, such as train.steps=1000")
        *sections, field = key.split(".")
        place = values
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise RecipeError(f"--set got {setting!r}, but {section} is {place!r}, which has no fields; remove one")
        place[field] = strict_yaml.read(value, source=f"--set {setting}").values
    return recipes.parse(yaml.safe_dump(values), source="the settings")


def tested_recipe(
    path: Path | None, given: dict[str, str | None], models: "list[LoadedModel]", *, from_recipe: bool
) -> "tuple[Recipe, bool]":
    """The recipe whose test pairs are meant: of a file, of the first model, or one of pairs in the places given.

    And whether its data are those that a model was trained on, of which not all may be taken. A model file may come
    from anybody: what its recipe names is opened only if ``from_recipe`` asks for it, and an address never.
    """
    if from_recipe and (path is not None or any(given.values())):
        raise RecipeError("--from-recipe was given, and another place of the test images too; keep one of them")
    told = [model.info.recipe.data for model in models]
    if path is not None:
        chosen = recipe_of(path, places(given))
        return chosen, not any(given.values()) and chosen.data in told
    if given["folder"] or not any(given.values()):
        if not models:
            raise RecipeError(
                "nothing says where the test images are; give inputs and targets, a manifest, a store, a recipe with "
                "its folder, or a model whose recipe says it"
            )
        if not given["folder"]:
            _check_own(told[0], from_recipe)
        moved = given if given["folder"] else {}
        return models[0].info.recipe.model_copy(update={"data": told[0].model_copy(update=moved)}), not moved
    upsample = not told or any(model.info.enlarges for model in models)
    ndim = models[0].info.recipe.model.ndim if models else 2
    chosen = recipe_of(None, [*places(given), f"data.upsample={str(upsample).lower()}", f"model.ndim={ndim}"])
    axes = {side: getattr(told[0], side) for side in ("input_axes", "target_axes")} if told else {}
    return chosen.model_copy(update={"data": chosen.data.model_copy(update=axes)}), False


def _check_own(data: "DataRecipe", from_recipe: bool) -> None:
    """Refuse to open what a model's recipe names, unless it was asked for and is on this machine."""
    named = {name: str(getattr(data, name)) for name in _PLACES if getattr(data, name)}
    shown = ", ".join(f"{name} {place!r:.100}" for name, place in named.items()) or "none"
    if not from_recipe:
        raise RecipeError(
            f"nothing says where the test images are; the model's own recipe names {shown}, which is opened only on "
            "request; give --from-recipe for that, or --inputs and --targets, --manifest, --store or --folder"
        )
    if any("://" in place or place.startswith(("//", "\\\\")) for place in named.values()):
        raise RecipeError(
            f"the model's own recipe names {shown}; an address in a model file is never opened; if you trust it, give "
            "it yourself, such as --store s3://bucket/pairs.zarr"
        )
