"""Turn a recipe into samples: find and split pairs, and compute training statistics once and keep them with the run."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from sfumato.data.batches import check_patch_fits
from sfumato.data.domain import corners, fingerprint, fit_domain
from sfumato.data.intensity import RescaledPairs, ScaledPairs
from sfumato.data.normalize import Normalization, fit_together
from sfumato.data.pair_brightness import brightness_note
from sfumato.data.pair_checks import check_sizes, doubts_of_orientation
from sfumato.data.pair_middles import middles
from sfumato.data.pair_noise import doubts_of_sides
from sfumato.data.pair_shifts import check_shifts
from sfumato.data.pairs import SPLITS, Pair
from sfumato.data.seen import SeenImages, look_at
from sfumato.data.sources import FilePairs, PairSource
from sfumato.models.model_file import ModelInfo
from sfumato.models.recipe import Recipe
from sfumato.problems.registry import completion
from sfumato.system.atomic_files import replace_text
from sfumato.system.errors import PairingError, RecipeError
from sfumato.training.drawn_frames import drawn, frames, patches
from sfumato.training.recipe_sources import Divide, divided, marked, open_splits, own_test
from sfumato.training.run_folder import RunFolder

__all__ = ["Prepared", "open_held_out", "open_sources", "open_test_set", "open_tuning", "prepare"]

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
        channels: Names of the measured channels; None if the files have none, or in a run of an earlier version.
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
    channels: tuple[str, ...] | None = None

    @property
    def sources(self) -> dict[str, PairSource]:
        """Samples by split."""
        return {"train": self.train} | ({} if self.validation is None else {"validation": self.validation})

    def write(self, folder: RunFolder) -> None:
        """Save the statistics with the run, so that a resumed run uses exactly the same."""
        values: dict[str, Any] = {
            "condition": self.condition.to_json(),
            "target": self.target.to_json(),
            "audit": self.audit,
        }
        if self.seen is not None:
            values["seen"] = self.seen.to_json()
        if self.channels is not None:
            values["channels"] = list(self.channels)
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
    doubts, found = _look_at_pairs(sources) if recipe.problem == "pairs" else ([], [])
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
    files = _files(train)
    if files is not None and recipe.data.scene is None and (several := files.num_scenes) > 1:
        notes.append(
            f"some files have up to {several} scenes, and the first of each is used; set data.scene for others"
        )
    channels = files.channel_names or None if files is not None else None
    return Prepared(train, validation, condition, target, audit, seen, (*found, *notes), doubts, channels)


def _look_at_pairs(sources: Mapping[str, PairSource]) -> tuple[list[str], list[str]]:
    """Warnings and notes on measured pairs: do they show the same place, the same way round, at the same brightness?"""
    for source in sources.values():
        check_sizes(source)
    checked = {split: middles(source) for split, source in sources.items()}
    doubts = [doubt for pairs in checked.values() for doubt in doubts_of_orientation(pairs)]
    train = sources["train"]
    shifts = check_shifts(checked["train"], train.factor)
    doubts += shifts.doubts + doubts_of_sides(checked["train"], train.factor)
    is_as_measured = not isinstance(train, RescaledPairs) and train.condition_channels == train.target_channels
    told = brightness_note(checked["train"]) if is_as_measured else None
    return doubts, shifts.notes + ([told] if told else [])


def _files(source: PairSource) -> FilePairs | None:
    """The pairs of files behind a source, which may name channels and scenes; None if it has none."""
    while isinstance(source, RescaledPairs):
        source = source.source
    return source if isinstance(source, FilePairs) else None


def _resumed(run: RunFolder, train: PairSource, validation: PairSource | None) -> Prepared:
    """Samples with the statistics saved in the run."""
    held = json.loads(run.statistics_file.read_text(encoding="utf-8"))
    condition, target = (Normalization.from_json(held[side]) for side in ("condition", "target"))
    seen = SeenImages.from_json(held["seen"]) if "seen" in held else None
    missing = (
        "this run was started by an earlier version, which did not note its images: its model cannot tell later "
        "whether it is calibrated on images that it was trained on",
    )
    notes = () if seen is not None else missing
    channels = tuple(held["channels"]) if "channels" in held else None
    return Prepared(train, validation, condition, target, held["audit"], seen, notes, channels=channels)


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
    told = (teacher.audit, known, tuple(notes), doubts, teacher.channels)
    return Prepared(train, validation, teacher.condition, teacher.target, *told)


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
    return open_splits(recipe, splits, cache_bytes, divided)


def open_test_set(
    recipe: Recipe, *, shares: bool = False, is_own: bool = False, named: Sequence[str] = ()
) -> PairSource:
    """The samples of a recipe marked `test`; if no pair of files is marked, all pairs are taken.

    Args:
        recipe: As for :func:`open_sources`.
        shares: For a model that takes pictures divided by their largest possible value: divide pairs of files by it.
        is_own: Whether the recipe belongs to the model under test. Then, if no pair is marked, only the pairs that
            its training used for validation are taken, since it has learned from all others.
        named: Channels to take of files that have these and others, if the recipe chooses none.

    Raises:
        RecipeError: If nothing says where the images are.
        PairingError: If there are no test samples.
    """
    if not is_own:
        return open_held_out(recipe, "test", shares=shares, named=named)
    sources = open_splits(recipe, ["test"], 0, own_test, shares, named)
    if "test" not in sources:
        raise PairingError(
            "the model's recipe has no samples of the split `test`, and no validation samples to use instead; "
            "give pairs that it was not trained on"
        )
    return sources["test"]


def open_held_out(recipe: Recipe, split: str, *, shares: bool = False, named: Sequence[str] = ()) -> PairSource:
    """The samples of any split, such as `validation`; images are as in the recipe's training, but not scaled.

    ``named`` as in :func:`open_test_set`.

    Raises:
        RecipeError: If nothing says where the images are.
        PairingError: If the split is empty.
    """
    sources = open_splits(recipe, [split], 0, lambda pairs, _: marked(pairs, split), shares, named)
    if split not in sources:
        raise PairingError(
            f"the data has no samples of the split `{split}`; mark some, or give a data set that has some"
        )
    return sources[split]


def open_tuning(
    recipe: Recipe, *, shares: bool = False, is_own: bool = False, named: Sequence[str] = ()
) -> PairSource | None:
    """The validation samples beside the test set, to tune a method on; None if there are none.

    Arguments as of :func:`open_test_set`: of a model's own recipe, they are those of its training.
    """
    divide: Divide = divided if is_own else _marked_as_validation
    return open_splits(recipe, ["validation"], 0, divide, shares, named).get("validation")


def _marked_as_validation(pairs: list[Pair], _: Recipe) -> dict[str, list[Pair]]:
    """Of pairs that were given for a test: unmarked ones are all for the test."""
    return {"validation": [pair for pair in pairs if pair.split == "validation"]}


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
