"""In a thread, for the Train panel: train on pairs as `sfumato train` does, or go on with a run."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.napari_plugin.background import Background
from sfumato.napari_plugin.layer_pairs import write_pairs
from sfumato.napari_plugin.layers import Source
from sfumato.napari_plugin.pairs_picker import Pairs
from sfumato.system.errors import RunError

if TYPE_CHECKING:
    from sfumato.models.recipe import Recipe

__all__ = ["Training", "train_pairs"]


@dataclass(frozen=True)
class Training:
    """What was asked for.

    Attributes:
        pairs: Inputs and targets; None to resume the run in the folder.
        out: Run folder.
        preset: Size of the model.
        minutes: Time to train, or to extend a finished run.
        settings: Fields of the recipe by section, beside those of the preset.
    """

    pairs: Pairs | None
    out: Path
    preset: str
    minutes: float
    settings: dict[str, dict[str, object]]


def train_pairs(work: Background, asked: Training, tell: Callable[[str], None]) -> Path | None:
    """Train, and return the model file; None if there is none yet.

    Args:
        work: Says when to stop; the state of the run is then saved.
        asked: What to do.
        tell: Called with every line that `sfumato train` prints.
    """
    from sfumato.training.run_folder import RunFolder
    from sfumato.training.train import train

    folder = RunFolder(asked.out)
    held = folder.recipe()
    if asked.pairs is None and held is None:
        raise RunError(f"{asked.out} holds no run; expected the folder of one that was begun; train first")
    if asked.pairs is not None and held is not None:
        raise RunError(f"{asked.out} holds a run already; press Resume to go on with it, or choose another run folder")
    recipe = held if asked.pairs is None else _recipe(asked)
    assert recipe is not None
    try:  # no processes that make batches: they would be copies of the viewer
        train(
            recipe,
            asked.out,
            workers=0,
            minutes=asked.minutes,
            tell=tell,
            is_stopped=lambda: work.is_stopped,
        )
    except KeyboardInterrupt:
        return None
    return folder.model_file if folder.model_file.exists() else None


def _recipe(asked: Training) -> "Recipe":
    """The recipe of a new run; layers are written into its folder first."""
    from sfumato.models.recipe import parse

    assert asked.pairs is not None
    inputs, targets = asked.pairs
    if isinstance(inputs, Source) and isinstance(targets, Source):
        data = {"manifest": str(write_pairs(asked.out / "pairs", inputs, targets, holds_out=True))}
    else:
        data = {"inputs": str(inputs), "targets": str(targets)}
    given = {name: dict(fields) for name, fields in asked.settings.items()}
    given["data"] = {**data, "upsample": True, **given.get("data", {})}  # targets on the same grid stay as they are
    return parse(json.dumps({"preset": asked.preset, **given}), source="the Train panel")
