"""In a thread, for the Calibrate panel: calibrate a model on held-out pairs, as `sfumato calibrate` does."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.napari_plugin.background import Background
from sfumato.napari_plugin.layer_pairs import write_pairs
from sfumato.napari_plugin.layers import Source
from sfumato.napari_plugin.pairs_picker import Pairs
from sfumato.napari_plugin.pickers import load_model

if TYPE_CHECKING:
    from sfumato.models.intervals import Method

__all__ = ["Calibrating", "calibrate_model"]

_EACH = ".*"
"""Pattern by which every image is a unit of its own."""


@dataclass(frozen=True)
class Calibrating:
    """What was asked for.

    Attributes:
        path: The model file.
        pairs: Held-out inputs and targets.
        out: Where to write the calibrated model; None for the model file itself.
        level: Fraction of pixels that intervals should cover.
        method: How.
        are_independent: Whether every frame and file is a field of its own.
    """

    path: Path
    pairs: Pairs
    out: Path | None
    level: float
    method: "Method"
    are_independent: bool


def calibrate_model(work: Background, asked: Calibrating) -> tuple[Path, list[str]]:
    """Calibrate, and return the model file and what to say."""
    inputs, targets = asked.pairs
    if not (isinstance(inputs, Source) and isinstance(targets, Source)):
        assert isinstance(inputs, Path)
        assert isinstance(targets, Path)
        return _calibrate(work, asked, (inputs, targets))
    with tempfile.TemporaryDirectory() as folder:
        return _calibrate(work, asked, write_pairs(Path(folder), inputs, targets, holds_out=False))


def _calibrate(work: Background, asked: Calibrating, place: Path | tuple[Path, Path]) -> tuple[Path, list[str]]:
    from sfumato.data.pairs import find_units
    from sfumato.evaluation.calibrate import calibrate, cross_validate, restore_held_out
    from sfumato.evaluation.held_out_pairs import held_out_recipe
    from sfumato.models.model_updates import has_weights_of, set_calibration
    from sfumato.models.ownership import Written, check_outputs
    from sfumato.problems.registry import takes_shares
    from sfumato.restoration.restorer import Restorer
    from sfumato.system.device import named_device
    from sfumato.system.marks import Kind
    from sfumato.training.preparation import open_held_out

    if asked.out is not None:
        ours = Kind("copy of this model", lambda path: has_weights_of(path, asked.path), ".safetensors")
        check_outputs([Written(asked.out, ours)], [])
    work.doing = "loading the model"
    model = load_model(asked.path, named_device("auto"), "calibrate")
    sampled = Restorer.of(model).sampled
    recipe = held_out_recipe(model.info, place)
    shares, named = takes_shares(model.info.recipe.problem), model.info.channels or ()
    source = open_held_out(recipe, "test", shares=shares, named=named)
    names = [source.name(index) for index in range(len(source))]
    unit = _EACH if asked.are_independent else None
    lines = [f"held out: {find_units(names, unit).line}"]
    work.total, work.doing = len(source), ""
    images = restore_held_out(
        model, source, sampled=sampled, level=asked.level, progress=lambda done, _: work.count(done - work.done)
    )
    work.doing = "calibrating"
    found = calibrate(images, sampled=sampled, method=asked.method, level=asked.level, unit=unit)
    changed = set_calibration(asked.path, found, asked.out, sha256=model.sha256)
    lines += cross_validate(images, found, unit=unit).lines(asked.level, is_fast=False)
    return Path(changed), [*lines, found.formula, f"calibrated: {changed}: {found.label}"]
