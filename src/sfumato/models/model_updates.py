"""Change what a model file stores beside its weights: its calibration, its sampling settings, its reach."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sfumato.models.intervals import NO_SAMPLES, Correction, sampled_as
from sfumato.models.model_file import ModelInfo, read_stored, save_model
from sfumato.models.reach import Reach
from sfumato.models.safetensors_file import layout
from sfumato.system.errors import ModelFileError

if TYPE_CHECKING:
    from sfumato.models.recipe import SampleRecipe

__all__ = ["has_weights_of", "set_calibration", "set_reach", "set_sampling"]


def set_calibration(
    path: str | Path,
    calibration: Correction | None,
    out: str | Path | None = None,
    *,
    sha256: str | None = None,
) -> Path:
    """Write a calibration to a model file or to a copy of it; its weights and its calibration of the other kind stay.

    Args:
        path: Path of the model file.
        calibration: Result of `sfumato calibrate`, of samples or with `--fast`; None removes both kinds.
        out: Path of the copy; if None, the file is replaced, whole or not at all.
        sha256: Hash of the file that was calibrated; an ongoing training may have written another since.

    Raises:
        ModelFileError: If it is not a model file, or not the one that was calibrated.
        RunError: If it cannot be written.
    """
    written = Path(path if out is None else out)
    info, tensors = _read(path, sha256)
    of_samples, fast = info.calibration, info.fast_calibration
    if calibration is None or calibration.sampled != NO_SAMPLES:
        of_samples = calibration
    if calibration is None or calibration.sampled == NO_SAMPLES:
        fast = calibration
    save_model(written, tensors, dataclasses.replace(info, calibration=of_samples, fast_calibration=fast))
    return written


def set_sampling(path: str | Path, sample: "SampleRecipe", *, sha256: str | None = None) -> ModelInfo:
    """Write sampling settings to a model file; its weights do not change.

    A calibration of samples drawn with other settings would no longer hold, and is removed.

    Args:
        path: Path of the model file, replaced whole or not at all.
        sample: The `sample` section of its recipe.
        sha256: Hash of the file that the settings were found with.

    Returns:
        The new contents of the file except the weights.

    Raises:
        ModelFileError: If it is not a model file, or not the expected one.
        RunError: If it cannot be written.
    """
    info, tensors = _read(path, sha256)
    recipe, known = info.recipe.model_copy(update={"sample": sample}), info.calibration
    if known is not None and known.sampled != sampled_as(sample, known.sampled.num_samples):
        known = None
    info = dataclasses.replace(info, recipe=recipe, calibration=known)
    save_model(path, tensors, info)
    return info


def set_reach(path: str | Path, reach: Reach | None, *, sha256: str | None = None) -> None:
    """Write how far a model looks to its file; its weights do not change.

    Args:
        path: Path of the model file, replaced whole or not at all.
        reach: What was measured; None removes it.
        sha256: Hash of the file that was measured.

    Raises:
        ModelFileError: If it is not a model file, or not the expected one.
        RunError: If it cannot be written.
    """
    info, tensors = _read(path, sha256)
    save_model(path, tensors, dataclasses.replace(info, reach=reach))


def has_weights_of(path: str | Path, other: str | Path) -> bool:
    """Whether a file is a model with exactly the weights of another, whatever its other contents."""
    try:
        (_, weights, _), (_, wanted, _) = read_stored(path), read_stored(other)
    except ModelFileError:
        return False
    return layout(weights) == layout(wanted) and all(torch.equal(weights[name], wanted[name]) for name in wanted)


def _read(path: str | Path, sha256: str | None) -> tuple[ModelInfo, dict[str, Tensor]]:
    """Read a model file, unless it has changed since its hash was taken."""
    info, tensors, found = read_stored(path)
    if sha256 is not None and found != sha256:
        raise ModelFileError(
            f"{path} has the SHA-256 {found:.12} and had {sha256:.12} when it was measured: it was rewritten "
            "meanwhile, and nothing was changed; wait until its training has ended, and rerun the command"
        )
    return info, tensors
