"""Build recipes from a file and from command-line options."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.cli.messages import say
from sfumato.system.errors import RecipeError

if TYPE_CHECKING:
    from sfumato.data.images.choice import Choice
    from sfumato.data.sources import PairSource
    from sfumato.models.model_file import LoadedModel
    from sfumato.models.presets import Preset
    from sfumato.models.recipe import DataRecipe, Recipe, TrainRecipe

__all__ = [
    "choice_of",
    "data_of_student",
    "open_tested",
    "open_tuned",
    "places",
    "recipe_of",
    "tested_recipe",
    "training_of_student",
    "with_choice",
]

_NO_STAGES = {"mean_share": 0.0, "scale_share": 0.0, "extended_at": []}
"""Of a student, which has stages of its own."""

_OWN_TEST = (
    "test pairs: those of the model's own recipe or, if none is marked `test`, its validation pairs, on which its "
    "weights were chosen"
)


def places(given: dict[str, str | None]) -> list[str]:
    """Turn the options that say where data is into settings; if any is given, they replace the recipe's.

    Names are quoted: a folder may be called 20240312, no, or exp #2, which YAML would read as something else.

    Example:
        >>> places({"folder": "20240312"})[3]
        'data.folder="20240312"'
    """
    from sfumato.models.data_recipe import PLACES

    if not any(given.values()):
        return []
    return [f"data.{name}={json.dumps(given.get(name) or None, ensure_ascii=False)}" for name in PLACES]


def choice_of(channels: list[str] | None, scene: str | None, times: str | None) -> "Choice":
    """What the options `--channel`, `--scene` and `--time` choose of a file.

    Raises:
        RecipeError: If the times are no range.

    Example:
        >>> choice_of(["DAPI"], None, "0:3").times, choice_of(None, None, "5").times, choice_of(None, None, "2:").times
        ((0, 3), (5, 6), (2, None))
    """
    from sfumato.data.images.choice import Choice

    return Choice(tuple(channels or ()), scene, None if times is None else _range(times))


def _range(text: str) -> tuple[int, int | None]:
    first, colon, last = (part.strip() for part in text.partition(":"))
    is_range = all(part.isdigit() or not part for part in (first, last)) and bool(first or colon)
    start = int(first or 0)
    stop = (int(last) if last else None) if colon else start + 1
    if not is_range or (stop is not None and stop <= start):
        raise RecipeError(f"--time is {text!r}; expected a range such as 0:3, 2: or :3, or a single time such as 5")
    return start, stop


def with_choice(
    recipe: "Recipe", channels: list[str] | None, targets: list[str] | None, scene: str | None, times: str | None
) -> "Recipe":
    """The recipe with what the options `--channel`, `--target-channel`, `--scene` and `--time` choose of its files."""
    found = choice_of(channels, scene, times)
    kept: dict[str, Any] = {"scene": found.scene, "times": found.times, "target_channels": tuple(targets or ())}
    kept = {name: value for name, value in kept.items() if value not in (None, ())}
    if channels:  # the targets' are then the same, unless they are given too
        kept = {"target_channels": None, **kept, "input_channels": found.channels}
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=kept)})


def recipe_of(path: Path | None, settings: list[str], *, preset: "Preset | None" = None) -> "Recipe":
    """Return the recipe in a file, or an empty one, with a preset and with single fields replaced."""
    import yaml

    from sfumato.models import recipe as recipes
    from sfumato.system import strict_yaml

    values: dict[str, Any] = {}
    if path is not None:
        recipes.load(path)  # complains with line numbers, which the merged text below no longer has
        values = strict_yaml.read(path.read_text(encoding="utf-8"), source=str(path)).values or {}
    if preset is not None:
        values["preset"] = preset
    _set_fields(values, settings)
    return recipes.parse(yaml.safe_dump(values), source="the settings")


def _set_fields(values: dict[str, Any], settings: list[str]) -> None:
    """Replace single fields of a recipe's values."""
    from sfumato.system import strict_yaml

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


def training_of_student(recipe: "Recipe", settings: list[str]) -> "TrainRecipe":
    """The teacher's training, with single fields replaced."""
    import yaml

    from sfumato.models import recipe as recipes

    for setting in settings:
        if not setting.startswith("train."):
            raise RecipeError(
                f"--set got {setting!r}; a student is like its teacher except for its training: give fields of train, "
                "such as train.steps=1000"
            )
    values: dict[str, Any] = {"train": recipe.train.model_dump(mode="json") | _NO_STAGES}
    _set_fields(values, settings)
    return recipes.parse(yaml.safe_dump(values), source="the settings").train


def data_of_student(recipe: "Recipe", given: dict[str, str | None], *, is_trusted: bool) -> "DataRecipe":
    """Where a student finds its pairs: in the given places, or where its teacher's recipe says.

    A model file may come from anybody: the places in it are opened only if ``is_trusted`` is true, and remote addresses
    never.
    """
    if not any(given.values()):
        _check_own(recipe.data, is_trusted, what="training pairs")
        return recipe.data
    if recipe.problem != "pairs" and not (given["folder"] or given["store"]):
        raise RecipeError(
            f"the teacher learned the problem {recipe.problem!r}, which reads a data set; give --folder, or a packed "
            "--store"
        )
    # A packed store holds what was chosen when it was packed.
    unchosen = dict.fromkeys(("input_channels", "target_channels", "scene", "times")) if given["store"] else {}
    return recipe.data.model_copy(update={**given, **unchosen})


def tested_recipe(
    path: Path | None, given: dict[str, str | None], models: "list[LoadedModel]", *, from_recipe: bool
) -> "tuple[Recipe, bool]":
    """Return the recipe whose test pairs to use: a file's, the first model's, or one for pairs in the given places.

    Also return whether its data is what a model was trained on, in which case only some of the pairs may be used. A
    model file may come from anybody: the places in its recipe are opened only if ``from_recipe`` is true, and remote
    addresses never.
    """
    if from_recipe and (path is not None or any(given.values())):
        raise RecipeError("--from-recipe and another place for the test images were given; keep one of them")
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
    upsample = not told or any(model.info.upsamples for model in models)
    ndim = models[0].info.recipe.model.ndim if models else 2
    chosen = recipe_of(None, [*places(given), f"data.upsample={str(upsample).lower()}", f"model.ndim={ndim}"])
    sides = [] if given["store"] else ["input_channels", "target_channels"]
    kept = {field: getattr(told[0], field) for field in ("input_axes", "target_axes", *sides)} if told else {}
    return chosen.model_copy(update={"data": chosen.data.model_copy(update=kept)}), False


def open_tested(recipe: "Recipe", is_own: bool, models: "list[LoadedModel]") -> "PairSource":
    """Open the test pairs that :func:`tested_recipe` found, and say so if they are a model's own."""
    from sfumato.training.preparation import open_test_set

    if is_own:
        say(_OWN_TEST)
    return open_test_set(recipe, is_own=is_own, **_as_trained(models))


def open_tuned(recipe: "Recipe", is_own: bool, models: "list[LoadedModel]") -> "PairSource | None":
    """Open the validation pairs beside the test pairs that :func:`tested_recipe` found, if there are any."""
    from sfumato.training.preparation import open_tuning

    return open_tuning(recipe, is_own=is_own, **_as_trained(models))


def _as_trained(models: "list[LoadedModel]") -> dict[str, Any]:
    """What the models were trained on decides how pairs of files are opened for them."""
    from sfumato.problems.registry import takes_shares

    shares = any(takes_shares(model.info.recipe.problem) for model in models)
    return {"shares": shares, "named": next((model.info.channels for model in models), None) or ()}


def _check_own(data: "DataRecipe", from_recipe: bool, *, what: str = "test images") -> None:
    """Refuse to open the data that a model's recipe names, unless the user asked for it and it is on this machine."""
    from sfumato.models.data_recipe import PLACES

    named = {name: str(getattr(data, name)) for name in PLACES if getattr(data, name)}
    shown = ", ".join(f"{name} {place!r:.100}" for name, place in named.items()) or "none"
    if not from_recipe:
        raise RecipeError(
            f"nothing says where the {what} are; the model's own recipe names {shown}, which is opened only on "
            "request; give --from-recipe for that, or --inputs and --targets, --manifest, --store or --folder"
        )
    if any("://" in place or place.startswith(("//", "\\\\")) for place in named.values()):
        raise RecipeError(
            f"the model's own recipe names {shown}; an address in a model file is never opened; if you trust it, give "
            "it yourself, such as --store s3://bucket/pairs.zarr"
        )
