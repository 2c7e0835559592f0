"""Recipes from a file and from options."""

from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import RecipeError

if TYPE_CHECKING:
    from sfumato.recipe import Recipe

__all__ = ["places", "recipe_of"]


def places(given: dict[str, str | None]) -> list[str]:
    """Options that say where data is, as settings; one of them takes the place of what the recipe says."""
    if not any(given.values()):
        return []
    names = ("inputs", "targets", "manifest", "folder", "store")
    return [f"data.{name}={given.get(name) or 'null'}" for name in names]


def recipe_of(path: Path | None, settings: list[str]) -> "Recipe":
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
