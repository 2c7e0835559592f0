"""Read and write model files: single safetensors files that hold everything needed to restore images.

The metadata hold the recipe, the normalisation of condition and target and the data for a later audit, so :func:`load`
needs nothing else. The file contains no code, and nothing is allocated before names, shapes, dtypes and version have
been checked.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from sfumato.data.frames import is_factor
from sfumato.data.normalize import Normalization
from sfumato.data.seen import SeenImages
from sfumato.diffusion.model import CVDM
from sfumato.models.build import build_model, least_weights
from sfumato.models.hub import check_hash, local_file
from sfumato.models.intervals import Correction, Sampled
from sfumato.models.safetensors_file import Spec, TensorFile, differences, layout, open_tensors, write_tensors
from sfumato.system.device import usable_device
from sfumato.system.errors import ModelFileError, RecipeError, RunError

if TYPE_CHECKING:
    from sfumato.models.recipe import Recipe, SampleRecipe

__all__ = [
    "JSON",
    "LoadedModel",
    "ModelInfo",
    "check_loaded",
    "has_weights_of",
    "inspect_model",
    "is_model",
    "load",
    "sampled_as",
    "save_model",
    "set_calibration",
    "set_sampling",
]

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

_MOST_RECIPE = 2**16
_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class ModelInfo:
    """Everything in a model file except the weights.

    Attributes:
        recipe: The recipe of the run.
        condition_channels: K.
        target_channels: C.
        condition: Normalisation of conditions, K channels.
        target: Normalisation of targets, C channels.
        audit: Data for a later audit: condition quantiles, noise estimate, radial spectrum with its spread, problem
            name and forward-model parameters.
        provenance: Where the weights come from, such as step and validation value. No date, so that the same run gives
            the same bytes.
        factor: Number of target pixels per measured pixel, per spatial axis; None in files of earlier versions, which
            do not record it.
        calibration: How wide intervals must be, from `sfumato calibrate`; None before that.
        seen: Hashes that identify the images of training and validation; None in files that do not record them.
    """

    recipe: "Recipe"
    condition_channels: int
    target_channels: int
    condition: Normalization
    target: Normalization
    audit: dict[str, JSON]
    provenance: dict[str, JSON]
    factor: tuple[int, ...] | None = None
    calibration: Correction | None = None
    seen: SeenImages | None = None

    @property
    def enlarges(self) -> bool:
        """Whether targets have a finer grid than the measured images."""
        return self.recipe.data.upsample or max(self.factor or (1,)) > 1

    def __post_init__(self) -> None:
        ndim = self.recipe.model.ndim
        if self.factor is not None and not is_factor(self.factor, ndim):
            raise ValueError(
                f"factor is {self.factor!r:.100}; give {ndim} whole numbers from 1 to 64 whose product is at most "
                "4096, or None"
            )
        for name in ("condition", "target"):
            channels, numbers = getattr(self, f"{name}_channels"), len(getattr(self, name).offset)
            if channels != numbers:
                raise ValueError(
                    f"the {name} has {channels} channels, but its normalisation {numbers}; give one number per channel"
                )


@dataclass
class LoadedModel:
    """A model that is ready to restore images.

    Attributes:
        model: The model in evaluation mode, on the requested device.
        info: The other contents of the file.
        sha256: SHA-256 of the file, which identifies the model.
    """

    model: CVDM
    info: ModelInfo
    sha256: str


def save_model(path: str | Path, model_state: Mapping[str, Tensor], info: ModelInfo) -> None:
    """Write a model file, whole or not at all.

    Args:
        path: Path of the file; an existing file is replaced.
        model_state: Weights by name, in float32, or in float16 or bfloat16 to halve the file.
        info: All other contents.

    Raises:
        RunError: If the file cannot be written or the weights are not finite; ``path`` is then unchanged.
        ModelFileError: If the weights are not those of the recipe's networks.
    """
    path = Path(path)
    faults = differences(_as_loaded(layout(model_state)), layout(_outline(info).state_dict()))
    if faults:
        raise ModelFileError(f"cannot write {path}: the weights are not those of the recipe's networks: {faults}")
    bad = [name for name, tensor in model_state.items() if not bool(tensor.isfinite().all())]
    if bad:
        raise RunError(
            f"cannot write {path}: {len(bad)} of its tensors, {bad[0]!r} first, have weights that are not finite; "
            "start a new run with a lower train.learning_rate"
        )
    untouched = f"The {path.name} that was there is intact" if path.exists() else "Nothing else was changed"
    write_tensors(path, model_state, _to_metadata(info), kind="model", untouched=untouched)


def load(path: str | Path, *, device: str | torch.device = "cpu", sha256: str | None = None) -> LoadedModel:
    """Read a model from its file, which is checked first and then read in one pass; half precision becomes float32.

    Args:
        path: Path of a `model.safetensors`, or an address on the Hugging Face Hub, `hf://owner/name`, optionally with
            `@revision` and `#sha256=...` (extra `hub`).
        device: Device of the model.
        sha256: Required SHA-256 of the file, if known.

    Raises:
        ModelFileError: If the file is not a model, is damaged, was written by a newer version or has another hash, or
            its weights are not finite.
    """
    at = usable_device(device)
    place, demanded = local_file(path)
    with open_tensors(place, "model") as file:
        info, model = _check(file)
        tensors, found = file.read()
    check_hash(path, found, sha256, demanded)
    _check_finite(path, tensors)
    tensors = {name: tensors.pop(name).to(torch.float32) for name in list(tensors)}
    model.load_state_dict(tensors, assign=True)
    return LoadedModel(model.to(at).eval(), info, found)


def check_loaded(model: object) -> None:
    """Check that an argument is a loaded model.

    Raises:
        ModelFileError: If it is a path, a bare network, or anything else.
    """
    if isinstance(model, LoadedModel):
        return
    if isinstance(model, str | Path):
        raise ModelFileError(
            f"the model is a path, {str(model)[:80]!r}; expected a loaded one; give sfumato.load(path)"
        )
    if isinstance(model, CVDM):
        raise ModelFileError(
            f"the model is a bare {type(model).__name__}, which knows no normalisation and no recipe; expected what "
            "sfumato.load gives; load its file, or draw from normalised images with sfumato.sample"
        )
    raise ModelFileError(f"the model is a {type(model).__name__}; expected what sfumato.load gives; load a model file")


def set_calibration(
    path: str | Path,
    calibration: Correction | None,
    out: str | Path | None = None,
    *,
    sha256: str | None = None,
) -> Path:
    """Write a calibration to a model file or to a copy of it; its weights do not change.

    Args:
        path: Path of the model file.
        calibration: Result of `sfumato calibrate`; None removes the calibration.
        out: Path of the copy; if None, the file is replaced, whole or not at all.
        sha256: Hash of the file that was calibrated; an ongoing training may have written another since.

    Raises:
        ModelFileError: If it is not a model file, or not the one that was calibrated.
        RunError: If it cannot be written.
    """
    written = Path(path if out is None else out)
    info, tensors = _read(path, sha256)
    save_model(written, tensors, dataclasses.replace(info, calibration=calibration))
    return written


def set_sampling(path: str | Path, sample: "SampleRecipe", *, sha256: str | None = None) -> ModelInfo:
    """Write sampling settings to a model file; its weights do not change.

    A calibration made with other sampling settings would no longer hold, and is removed.

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


def has_weights_of(path: str | Path, other: str | Path) -> bool:
    """Whether a file is a model with exactly the weights of another, whatever its other contents."""
    try:
        (_, weights), (_, wanted) = _read(path, None), _read(other, None)
    except ModelFileError:
        return False
    return layout(weights) == layout(wanted) and all(torch.equal(weights[name], wanted[name]) for name in wanted)


def sampled_as(sample: "SampleRecipe", num_samples: int) -> Sampled:
    """Return the sampling settings of a recipe in the form that a calibration stores."""
    return Sampled(num_samples, sample.steps, sample.solver, sample.eta, sample.last_noise, sample.grid)


def is_model(path: Path) -> bool:
    """Whether a file is a sfumato model file; its weights are not read."""
    try:
        with open_tensors(path, "model"):
            return True
    except ModelFileError:
        return False


def inspect_model(path: str | Path) -> ModelInfo:
    """Read everything but the weights of a model file, with all checks of :func:`load` that need no weights.

    Raises:
        ModelFileError: As for :func:`load`.
    """
    with open_tensors(local_file(path)[0], "model") as file:
        return _check(file)[0]


def _read(path: str | Path, sha256: str | None) -> tuple[ModelInfo, dict[str, Tensor]]:
    """Read a model file, with its weights as stored."""
    with open_tensors(local_file(path)[0], "model") as file:
        info, _ = _check(file)
        tensors, found = file.read()
    if sha256 is not None and found != sha256:
        raise ModelFileError(
            f"{path} has the SHA-256 {found:.12} and had {sha256:.12} when it was measured: somebody wrote it "
            "meanwhile, and nothing was changed; wait until its training has ended, and rerun the command"
        )
    return info, tensors


def _check(file: TensorFile) -> tuple[ModelInfo, CVDM]:
    """Return the info and the model without memory, after checking that the file has exactly the recipe's tensors."""
    info = _from_metadata(file)
    try:
        asked = least_weights(info.recipe.model, info.condition_channels, info.target_channels)
        held = sum(spec.num_bytes // spec.dtype.itemsize for spec in file.specs.values())
        if asked > held:
            raise RecipeError(f"its networks have at least {min(asked, 10**18)} weights, and the file {held}")
        model = _outline(info)
    except RecipeError as error:
        raise file.error(f"has a recipe that does not fit it: {str(error)[:300]}", "copy the file again") from error
    faults = differences(_as_loaded(file.specs), layout(model.state_dict()))
    if faults:
        raise file.error(f"does not hold the weights of its recipe's networks: {faults}", "copy the file again")
    return info, model


def _check_finite(path: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not finite, which would make every restored pixel NaN."""
    for name, tensor in tensors.items():
        # The minimum and maximum are NaN if any weight is, and need no memory.
        if tensor.is_floating_point() and tensor.numel() and not bool(torch.stack(tensor.aminmax()).isfinite().all()):
            raise ModelFileError(
                f"{path} has weights that are NaN or infinite, first in {name!r}; expected finite numbers; ask for the "
                "model again where it came from, or train it again"
            )


def _outline(info: ModelInfo) -> CVDM:
    """Build the model without memory for its weights."""
    with torch.device("meta"):
        return build_model(info.recipe.model, info.condition_channels, info.target_channels)


def _as_loaded(specs: Mapping[str, Spec]) -> dict[str, Spec]:
    """Return the specs of the tensors once loaded: half precision becomes float32."""
    return {name: spec._replace(dtype=torch.float32) if spec.dtype in _HALF else spec for name, spec in specs.items()}


def _to_metadata(info: ModelInfo) -> dict[str, JSON]:
    values = {field.name: getattr(info, field.name) for field in dataclasses.fields(info)}
    sides = {name: values[name].to_json() for name in ("condition", "target")}
    factor: JSON = None if info.factor is None else list(info.factor)
    calibration: JSON = None if info.calibration is None else info.calibration.to_json()
    recipe = info.recipe.model_dump(mode="json")
    del values["seen"]
    seen = {} if info.seen is None else {"seen": info.seen.to_json()}  # files without it keep their bytes
    return {**values, **sides, "factor": factor, "calibration": calibration, "recipe": recipe, **seen}


def _from_metadata(file: TensorFile) -> ModelInfo:
    """Parse the info of an untrusted file."""
    from pydantic import (
        TypeAdapter,
        ValidationError,
    )  # here, since it takes long to import and `sfumato.load` is a public name

    from sfumato.models.recipe import Recipe

    def fail(reason: str) -> ModelFileError:
        return file.error(
            f"has metadata that this version does not understand: {reason}",
            f"it was written by sfumato {file.version}: use that version, or copy the file again",
        )

    values: dict[str, Any] = {}
    for field in dataclasses.fields(ModelInfo):
        if field.name not in file.metadata and field.default is dataclasses.MISSING:
            raise fail(f"it has no {field.name!r}")
        values[field.name] = file.metadata.get(field.name)
    for name in ("condition_channels", "target_channels"):
        if type(values[name]) is not int:
            raise fail(f"{name} is {values[name]!r:.100}, expected a number")
    for name in ("audit", "provenance"):
        if not isinstance(values[name], dict):
            raise fail(f"{name} is {values[name]!r:.100}, expected names and values")
    if values["factor"] is not None:
        if not isinstance(values["factor"], list):
            raise fail(f"factor is {values['factor']!r:.100}, expected a number per axis")
        values["factor"] = tuple(values["factor"])
    if len(json.dumps(values["recipe"])) > _MOST_RECIPE:
        raise fail(f"its recipe has more than {_MOST_RECIPE} characters")
    try:
        recipe = Recipe.model_validate(values["recipe"])
        sides = {name: Normalization.from_json(values[name]) for name in ("condition", "target")}
        calibration = TypeAdapter(Correction | None).validate_python(
            values["calibration"], strict=False, extra="forbid"
        )
        seen = None if values["seen"] is None else SeenImages.from_json(values["seen"])
        return ModelInfo(**{**values, **sides, "recipe": recipe, "calibration": calibration, "seen": seen})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        what = "recipe" if error.title == "Recipe" else "calibration"
        raise fail(f"{what}.{place!s:.100}: {first['msg']:.200}") from error
    except ValueError as error:
        raise fail(str(error)[:300]) from error
