"""Open the data of a recipe by split, wherever it is: pairs of files, a packed store, or the data set of a problem."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeAlias

from sfumato.data.images.choice import Choice
from sfumato.data.intensity import MatchedPairs
from sfumato.data.packed import PackedPairs, packed_splits
from sfumato.data.pairs import Pair, find_pairs, read_manifest, split_pairs
from sfumato.data.sources import FilePairs, PairSource
from sfumato.models.recipe import DataRecipe, Recipe
from sfumato.problems.registry import open_problem
from sfumato.problems.request import Request
from sfumato.system.errors import RecipeError

__all__ = ["Divide", "divided", "marked", "open_splits", "own_test"]

Divide: TypeAlias = Callable[[list[Pair], Recipe], dict[str, list[Pair]]]
"""Assigns pairs of files to splits."""


def open_splits(
    recipe: Recipe,
    splits: Collection[str],
    cache_bytes: int,
    divide: Divide,
    shares: bool = False,
    named: Sequence[str] = (),
) -> dict[str, PairSource]:
    """The data of a recipe's requested splits, wherever it is stored; ``divide`` assigns pairs of files to splits."""
    data = recipe.data
    if data.chooses and (data.store or recipe.problem != "pairs"):
        raise RecipeError(
            "data.input_channels, target_channels, scene or times are given for a packed store or for the problem "
            f"{recipe.problem!r}; expected them for pairs of files; leave them out, or choose before packing"
        )
    if data.store:
        sources = _open_store(data.store, recipe.model.ndim, splits)
    elif recipe.problem != "pairs":
        opened = _open_problem(recipe, cache_bytes)
        sources = {split: source for split, source in opened.items() if split in splits}
    else:
        parts = divide(_pairs(data), recipe)
        axes = (data.input_axes, data.target_axes)
        sources = {
            split: FilePairs(
                part,
                ndim=recipe.model.ndim,
                axes=axes,
                upsample=data.upsample,
                shares=shares,
                cache_bytes=cache_bytes,
                choices=_choices(data),
                named=named,
            )
            for split, part in parts.items()
            if part and split in splits
        }
    if data.match_intensity:
        return {split: MatchedPairs(source) for split, source in sources.items()}
    return sources


def _choices(data: DataRecipe) -> tuple[Choice, Choice]:
    """What to take of inputs and of targets, which share scenes and times."""
    inputs = data.input_channels or ()
    targets = inputs if data.target_channels is None else data.target_channels
    return Choice(inputs, data.scene, data.times), Choice(targets, data.scene, data.times)


def _pairs(data: DataRecipe) -> list[Pair]:
    if data.folder:
        raise RecipeError("data.folder is given, but no problem that reads it; set problem, such as `biosr` or `phase`")
    if data.inputs and data.targets:
        return find_pairs(data.inputs, data.targets)
    if data.manifest:
        return read_manifest(data.manifest)
    raise RecipeError(
        "the recipe does not say where images are; give data.inputs and data.targets, a manifest or a store"
    )


def divided(pairs: list[Pair], recipe: Recipe) -> dict[str, list[Pair]]:
    """Pairs for training and for validation, and those that are marked as test."""
    kept, held_out = split_pairs(pairs, recipe.data.validation_fraction, seed=recipe.train.seed)
    if not kept:
        raise RecipeError("no pair is left for training; lower data.validation_fraction or mark pairs as `train`")
    return {"train": kept, "validation": held_out, "test": [pair for pair in pairs if pair.split == "test"]}


def marked(pairs: list[Pair], split: str) -> dict[str, list[Pair]]:
    """Pairs of a split as marked; two folders, and lists without marks, belong to it entirely."""
    if not any(pair.split for pair in pairs):
        return {split: pairs}
    return {split: [pair for pair in pairs if pair.split == split]}


def own_test(pairs: list[Pair], recipe: Recipe) -> dict[str, list[Pair]]:
    """Of the pairs that a model was trained on, the test pairs or, if none is marked, the validation pairs."""
    if any(pair.split for pair in pairs):
        return marked(pairs, "test")
    return {"test": divided(pairs, recipe)["validation"]}


def _open_problem(recipe: Recipe, cache_bytes: int) -> dict[str, PairSource]:
    data = recipe.data
    if not data.folder:
        raise RecipeError(
            f"the problem {recipe.problem!r} reads a data set, and the recipe does not say where it is; set data.folder"
        )
    if recipe.model.ndim != 2:
        raise RecipeError(f"the problem {recipe.problem!r} has images, and model.ndim is 3; set it to 2")
    request = Request(
        folder=Path(data.folder),
        forward=recipe.forward,
        seed=recipe.train.seed,
        validation_fraction=data.validation_fraction,
        upsample=data.upsample,
        cache_bytes=cache_bytes,
    )
    return open_problem(recipe.problem, request)


def _open_store(path: str, ndim: int, splits: Collection[str]) -> dict[str, PairSource]:
    packed = {split: PackedPairs(path, split) for split in packed_splits(path) if split in splits}
    for source in packed.values():
        if source.ndim != ndim:
            raise RecipeError(
                f"the store {path} holds {source.ndim}-D samples and model.ndim is {ndim}; make them the same"
            )
    return dict(packed)
