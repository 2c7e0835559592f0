"""With which recipe each stored cell was trained, so that no figure of former defaults is taken for one of today."""

import json
from collections.abc import Mapping
from typing import Any

from paper.matrix import Cell
from paper.sources import recipe_for
from paper.stored import Places
from sfumato.models.recipe import Recipe
from sfumato.system.atomic_files import replace_text
from sfumato.training.run_folder import RunFolder

__all__ = ["outdated", "record"]

FILE = "recipes.json"
_PLACES = {"name", "data.folder", "data.manifest"}
"""What may differ from machine to machine."""


def record(cell: Cell, places: Places) -> None:
    """Note beside the figures of a cell the recipe that its run was trained with, whatever today's is."""
    trained = RunFolder(places.work / cell.run).recipe()
    if trained is None:
        raise SystemExit(f"{places.work / cell.run} has figures but no recipe; remove it, and run the cell again")
    known = _known(places) | {cell.name: _settings(trained)}
    lines = [f"{json.dumps(name)}: {json.dumps(known[name], sort_keys=True)}" for name in sorted(known)]
    places.results.mkdir(parents=True, exist_ok=True)
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    replace_text(places.results / FILE, text, untouched="The recipes noted are as they were")


def outdated(cell: Cell, places: Places) -> list[str]:
    """Settings in which the stored figures' recipe is not that of today.

    Those that did not exist then do not count, nor those that are left to training, which writes down what it chose.
    """
    then = _known(places).get(cell.name, {})
    now = _settings(recipe_for(cell, places)) if then else {}
    return [name for name, value in now.items() if name in then and value not in (None, then[name])]


def _known(places: Places) -> dict[str, dict[str, Any]]:
    path = places.results / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _settings(recipe: Recipe) -> dict[str, Any]:
    return {name: value for name, value in _flat(recipe.model_dump(mode="json")) if name not in _PLACES}


def _flat(section: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """``model.base`` and its value, and so on."""
    found: list[tuple[str, Any]] = []
    for name, value in section.items():
        found += _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else [(before + name, value)]
    return found
