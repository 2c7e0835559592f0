"""Turn a recipe into samples: find and split pairs, and compute training statistics once and keep them with the run."""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from sfumato.data.batches import check_patch_fits
from sfumato.data.domain import corners, fingerprint, fit_domain
from sfumato.data.intensity import MatchedPairs, ScaledPairs
from sfumato.data.normalize import Normalization, fit_together
from sfumato.data.packed import PackedPairs, packed_splits
from sfumato.data.pair_checks import check_pairs
from sfumato.data.pairs import SPLITS, Pair, find_pairs, read_manifest, split_pairs
from sfumato.data.seen import SeenImages, look_at
from sfumato.data.sources import FilePairs, PairSource
from sfumato.models.model_file import ModelInfo
from sfumato.models.recipe import DataRecipe, Recipe
from sfumato.problems.registry import completion, open_problem
from sfumato.problems.request import Request
from sfumato.system.atomic_files import replace_text
from sfumato.system.errors import PairingError, RecipeError
from sfumato.training.drawn_frames import drawn, frames, patches
from sfumato.training.run_folder import RunFolder

__all__ = ["Prepared", "open_held_out", "open_sources", "open_test_set", "prepare"]

_MOST_IMAGES, _PATCHES_PER_IMAGE = 200, 16
"""Patches used to describe the training images."""


@dataclass(frozen=True)
class Prepared:
    """Samples and their statistics.

    Attributes:
        train: Samples to learn from.
        validation: Samples that select the best weights.
        condition: Normalisation of conditions.
        target: Normalisation of targets.
        audit: Information that a later audit needs.
        seen: Fingerprints that recognise the images later; None in a run of an earlier version.
        notes: Messages for the user.
    """

    train: PairSource
    validation: PairSource | None
    condition: Normalization
    target: Normalization
    audit: dict[str, Any]
    seen: SeenImages | None = None
    notes: tuple[str, ...] = ()
    doubts: list[str] = field(default_factory=list)
    """Messages for the user who is about to train."""

    @property
    def sources(self) -> dict[str, PairSource]:
        """Samples by split."""
        return {"train": self.train} | ({} if self.validation is None else {"validation": self.validation})

    def write(self, folder: RunFolder) -> None:
        """Save the statistics with the run, so that a resumed run uses exactly the same."""
        values = {"condition": self.condition.to_json(), "target": self.target.to_json(), "audit": self.audit}
        if self.seen is not None:
            values["seen"] = self.seen.to_json()
        replace_text(folder.statistics_file, json.dumps(values), untouched="No statistics were written")


def prepare(recipe: Recipe, run: RunFolder | None = None, teacher: ModelInfo | None = None) -> Prepared:
    """Open the recipe's pairs, and compute statistics of the training set.

    Args:
        recipe: Says where the pairs are.
        run: A resumed run, whose statistics are loaded.
        teacher: A student's teacher, whose statistics are taken.
    """
    sources = open_sources(recipe, splits=("train", "validation"))
    if "train" not in sources:
        raise RecipeError(
            f"the data has samples for {', '.join(sources) or 'no split'} and none for training; mark some as `train`, "
            "or give a data set that has some"
        )
    if recipe.data.scales_each_image:
        sources = {split: ScaledPairs(source, recipe.data.quantiles) for split, source in sources.items()}
    train, validation = sources["train"], sources.get("validation")
    if validation is not None and validation.factor != train.factor:
        raise PairingError(
            f"targets have {train.factor} times as many pixels as inputs for training and {validation.factor} times "
            "for validation; expected the same in both: leave some pairs out, or resample them"
        )
    check_patch_fits(train, recipe.data.patch)
    if run is not None and run.statistics_file.exists():
        return _resumed(run, train, validation)
    doubts = check_pairs(sources.values()) if recipe.problem == "pairs" else []
    if teacher is not None:
        return _of_teacher(teacher, train, validation, recipe.train.seed, doubts)
    condition, target = _statistics(recipe, train)
    condition = _with_guesses(recipe, condition, target)
    seen, notes = look_at(train, validation, seed=recipe.train.seed)  # some of the frames that are now in memory
    audit = {
        **fingerprint(list(patches(train, recipe))),
        "domain": _domain(train, recipe),
        "problem": recipe.problem,
        "forward": dict(recipe.forward),
    }
    return Prepared(train, validation, condition, target, audit, seen, tuple(notes), doubts)


def _resumed(run: RunFolder, train: PairSource, validation: PairSource | None) -> Prepared:
    """Samples with the statistics saved in the run."""
    held = json.loads(run.statistics_file.read_text(encoding="utf-8"))
    condition, target = (Normalization.from_json(held[side]) for side in ("condition", "target"))
    seen = SeenImages.from_json(held["seen"]) if "seen" in held else None
    missing = (
        "this run was started by an earlier version, which did not note its images: its model cannot tell later "
        "whether it is calibrated on images that it was trained on",
    )
    return Prepared(train, validation, condition, target, held["audit"], seen, () if seen is not None else missing)


def _of_teacher(
    teacher: ModelInfo, train: PairSource, validation: PairSource | None, seed: int, doubts: list[str]
) -> Prepared:
    """Samples with the teacher's statistics; the student has seen the teacher's images too."""
    traits = (train.condition_channels, train.target_channels, train.factor)
    wanted = (teacher.condition_channels, teacher.target_channels, teacher.factor or train.factor)
    if traits != wanted:
        raise PairingError(
            f"the pairs have {traits[0]} input channels, {traits[1]} target channels and {traits[2]} target pixels per "
            f"input pixel, and the teacher's had {wanted[0]}, {wanted[1]} and {wanted[2]}; give the pairs that it was "
            "trained on, or others of their kind"
        )
    seen, notes = look_at(train, validation, seed=seed)
    known = None if teacher.seen is None else teacher.seen.joined(seen)
    if known is not teacher.seen:
        notes.append("some of these pairs are not the teacher's; the student counts as trained on both")
    return Prepared(train, validation, teacher.condition, teacher.target, teacher.audit, known, tuple(notes), doubts)


def open_sources(
    recipe: Recipe, *, splits: Collection[str] = SPLITS, cache_bytes: int = 2**31
) -> dict[str, PairSource]:
    """The recipe's samples by split: `train`, `validation` and `test`; splits may be missing.

    Pairs without a mark are divided between training and validation.

    Args:
        recipe: Its `data` section says where the images are, its `problem` how they are read.
        splits: The requested splits; files of others are not opened.
        cache_bytes: How many bytes of decoded image files may stay in memory, per split.
    """
    return _open(recipe, splits, cache_bytes, _divided)


def open_test_set(recipe: Recipe, *, shares: bool = False, is_own: bool = False) -> PairSource:
    """The samples of a recipe marked `test`; if no pair of files is marked, all pairs are taken.

    Args:
        recipe: As for :func:`open_sources`.
        shares: For a model that takes pictures divided by their largest possible value: divide pairs of files by it.
        is_own: Whether the recipe belongs to the model under test. Then, if no pair is marked, only the pairs that
            its training used for validation are taken, since it has learned from all others.

    Raises:
        RecipeError: If nothing says where the images are.
        PairingError: If there are no test samples.
    """
    if not is_own:
        return open_held_out(recipe, "test", shares=shares)
    sources = _open(recipe, ["test"], 0, _own_test, shares)
    if "test" not in sources:
        raise PairingError(
            "the model's recipe has no samples of the split `test`, and no validation samples to use instead; "
            "give pairs that it was not trained on"
        )
    return sources["test"]


def open_held_out(recipe: Recipe, split: str, *, shares: bool = False) -> PairSource:
    """The samples of any split, such as `validation`; images are as in the recipe's training, but not scaled.

    Raises:
        RecipeError: If nothing says where the images are.
        PairingError: If the split is empty.
    """
    sources = _open(recipe, [split], 0, lambda pairs, _: _marked(pairs, split), shares)
    if split not in sources:
        raise PairingError(
            f"the data has no samples of the split `{split}`; mark some, or give a data set that has some"
        )
    return sources[split]


_Divide = Callable[[list[Pair], Recipe], dict[str, list[Pair]]]


def _open(
    recipe: Recipe, splits: Collection[str], cache_bytes: int, divide: _Divide, shares: bool = False
) -> dict[str, PairSource]:
    """The data of a recipe's requested splits, wherever it is stored; ``divide`` assigns pairs of files to splits."""
    data = recipe.data
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
            )
            for split, part in parts.items()
            if part and split in splits
        }
    if data.match_intensity:
        return {split: MatchedPairs(source) for split, source in sources.items()}
    return sources


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


def _divided(pairs: list[Pair], recipe: Recipe) -> dict[str, list[Pair]]:
    kept, held_out = split_pairs(pairs, recipe.data.validation_fraction, seed=recipe.train.seed)
    if not kept:
        raise RecipeError("no pair is left for training; lower data.validation_fraction or mark pairs as `train`")
    return {"train": kept, "validation": held_out, "test": [pair for pair in pairs if pair.split == "test"]}


def _marked(pairs: list[Pair], split: str) -> dict[str, list[Pair]]:
    """Pairs of a split as marked; two folders, and lists without marks, belong to it entirely."""
    if not any(pair.split for pair in pairs):
        return {split: pairs}
    return {split: [pair for pair in pairs if pair.split == split]}


def _own_test(pairs: list[Pair], recipe: Recipe) -> dict[str, list[Pair]]:
    """Of the pairs that a model was trained on, the test pairs or, if none is marked, the validation pairs."""
    if any(pair.split for pair in pairs):
        return _marked(pairs, "test")
    return {"test": _divided(pairs, recipe)["validation"]}


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


def _statistics(recipe: Recipe, train: PairSource) -> list[Normalization]:
    """Normalisation of conditions and of targets; none if each image was scaled separately."""
    data = recipe.data
    if data.scales_each_image:
        channels = (train.condition_channels, train.target_channels)
        return [Normalization((0.0,) * number, (1.0,) * number) for number in channels]
    kind = cast(Literal["quantile", "mean_std"], data.normalize)
    return fit_together(kind, frames(train, recipe.train.seed), quantiles=data.quantiles)


def _with_guesses(recipe: Recipe, condition: Normalization, target: Normalization) -> Normalization:
    """Computed channels estimate the target, so they keep its units and one of them can be subtracted from it."""
    computed = completion(recipe.problem, recipe.forward)
    if computed is None or recipe.data.scales_each_image:
        return condition
    number = computed.total - computed.measured
    offset, scale = (
        (*measured[:-number], *wanted * number)
        for measured, wanted in ((condition.offset, target.offset), (condition.scale, target.scale))
    )
    return Normalization(offset, scale)


def _domain(source: PairSource, recipe: Recipe) -> dict[str, Any] | None:
    """Describe what conditions look like, from patches spread over images; None if there are too few images."""
    images = []
    for sample in drawn(len(source), recipe.train.seed, _MOST_IMAGES):
        spatial = source.spatial(sample)
        size = [min(length, recipe.data.patch) for length in spatial]
        places = list(corners(spatial, recipe.data.patch))
        chosen = drawn(len(places), recipe.train.seed, _PATCHES_PER_IMAGE)
        images.append([source.read(sample, places[place], size)[0] for place in chosen])
    found = fit_domain(images, recipe.data.patch)
    return None if found is None else found.to_json()
