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
from sfumato.models.build import least_weights, outline
from sfumato.models.hub import check_hash, local_file
from sfumato.models.intervals import NO_SAMPLES, Correction
from sfumato.models.own_networks import MakesNetworks, OwnNetworks, build_own
from sfumato.models.reach import Reach
from sfumato.models.safetensors_file import (
    TensorFile,
    as_float32,
    differences,
    layout,
    not_finite,
    open_tensors,
    write_tensors,
)
from sfumato.system.device import usable_device
from sfumato.system.errors import ModelFileError, RecipeError, RunError

if TYPE_CHECKING:
    from sfumato.models.recipe import Recipe

__all__ = [
    "JSON",
    "LoadedModel",
    "ModelInfo",
    "check_loaded",
    "inspect_model",
    "is_model",
    "load",
    "read_stored",
    "save_model",
]

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

_MOST_RECIPE = 2**16
_MOST_NAME = 200
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "condition_channels": ((int,), "a number"),
    "target_channels": ((int,), "a number"),
    "audit": ((dict,), "names and values"),
    "provenance": ((dict,), "names and values"),
    "factor": ((list, type(None)), "a number per axis"),
    "channels": ((list, type(None)), "names of channels"),
}
"""Types of values in the metadata of a file, and what an error calls them."""


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
        calibration: How wide intervals of samples must be, from `sfumato calibrate`; None before that.
        seen: Hashes that identify the images of training and validation; None in files that do not record them.
        fast_calibration: How wide intervals without samples must be, from `sfumato calibrate --fast`; None before that.
        reach: How far the model looks; None if it was not measured, or looks too far.
        channels: Names of the measured channels in the files of training; None if they have none.
        own: Networks of a user's own, which the recipe does not describe; None if it does.
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
    fast_calibration: Correction | None = None
    reach: Reach | None = None
    channels: tuple[str, ...] | None = None
    own: OwnNetworks | None = None

    @property
    def num_channels(self) -> tuple[int, int]:
        """K and C."""
        return self.condition_channels, self.target_channels

    @property
    def upsamples(self) -> bool:
        """Whether targets have a finer grid than the measured images."""
        return self.recipe.data.upsample or max(self.factor or (1,)) > 1

    def __post_init__(self) -> None:
        ndim = self.recipe.model.ndim
        if self.factor is not None and not is_factor(self.factor, ndim):
            raise ValueError(
                f"factor is {self.factor!r:.100}; give {ndim} whole numbers from 1 to 64 whose product is at most "
                "4096, or None"
            )
        if self.channels is not None and not _are_names(self.channels, self.condition_channels):
            raise ValueError(f"channels are {self.channels!r:.100}; give a name for each measured channel, or None")
        for name in ("condition", "target"):
            channels, numbers = getattr(self, f"{name}_channels"), len(getattr(self, name).offset)
            if channels != numbers:
                raise ValueError(
                    f"the {name} has {channels} channels, but its normalisation {numbers}; give one number per channel"
                )
        for name, is_fast in (("calibration", False), ("fast_calibration", True)):
            found = getattr(self, name)
            if found is not None and (found.sampled == NO_SAMPLES) != is_fast:
                raise ValueError(
                    f"the {name} is of draws by {found.sampled}; expected {'no samples' if is_fast else 'samples'}; "
                    "each kind of interval has its own calibration"
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
    wanted = layout(model_state if info.own else outline(info.recipe, *info.num_channels).state_dict())
    if faults := differences(as_float32(layout(model_state)), as_float32(wanted)):
        raise ModelFileError(f"cannot write {path}: the weights are not those of the recipe's networks: {faults}")
    if bad := not_finite(model_state):
        raise RunError(
            f"cannot write {path}: {len(bad)} of its tensors, {bad[0]!r} first, have weights that are not finite; "
            "start a new run with a lower train.learning_rate"
        )
    untouched = f"The {path.name} that was there is intact" if path.exists() else "Nothing else was changed"
    write_tensors(path, model_state, _to_metadata(info), kind="model", untouched=untouched)


def load(
    path: str | Path,
    *,
    device: str | torch.device = "auto",
    sha256: str | None = None,
    network: MakesNetworks | None = None,
) -> LoadedModel:
    """Read a model from its file, which is checked first and then read in one pass; half precision becomes float32.

    Args:
        path: Path of a `model.safetensors`, or an address on the Hugging Face Hub, `hf://owner/name`, optionally with
            `@revision` and `#sha256=...` (extra `hub`).
        device: Device of the model; ``auto`` for a GPU if torch can use one by CUDA, otherwise the processor.
        sha256: Required SHA-256 of the file, if known.
        network: For a file of your own networks: their class, called with channels in and out; or, for several
            classes or a schedule of its own, the :class:`~sfumato.CVDM` built as it was.

    Raises:
        ModelFileError: If the file is not a model, is damaged, newer, has another hash or weights that are not finite,
            or if ``network`` is needed and missing or another.
    """
    at = usable_device(device)
    place, demanded = local_file(path)
    with open_tensors(place, "model") as file:
        info, model = _check(file)
        if info.own is not None:
            model = build_own(file, info.own, network, *info.num_channels)
        elif network is not None:
            raise file.error("holds a recipe that describes its networks, and network was given", "leave it out")
        tensors, found = file.read()
    check_hash(path, found, sha256, demanded)
    if bad := not_finite(tensors):
        raise ModelFileError(
            f"{path} has weights that are NaN or infinite, first in {bad[0]!r}; expected finite numbers; ask for the "
            "model again where it came from, or train it again"
        )
    assert model is not None
    tensors = {name: tensors.pop(name).to(spec.dtype) for name, spec in layout(model.state_dict()).items()}
    model.load_state_dict(tensors, assign=True)
    model.has_units = True
    return LoadedModel(model.to(at).eval(), info, found)


def check_loaded(model: object) -> None:
    """Check that an argument is a loaded model.

    Raises:
        ModelFileError: If it is a path, a bare network, or anything else.
    """
    if isinstance(model, LoadedModel):
        return
    got, advice = f"a {type(model).__name__}", "load a model file"
    if isinstance(model, str | Path):
        got, advice = f"a path, {str(model)[:80]!r}", "give sfumato.load(path)"
    elif isinstance(model, CVDM):
        got = f"a bare {type(model).__name__}, which knows no normalisation"
        advice = "load its file, or add what it lacks with sfumato.models.own_model.own_model"
    raise ModelFileError(f"the model is {got}; expected a loaded one, as sfumato.load gives; {advice}")


def is_model(path: Path) -> bool:
    """Whether a file is a sfumato model file; its weights are not read."""
    try:
        with open_tensors(path, "model"):
            return True
    except ModelFileError:
        return False


def read_stored(path: str | Path) -> tuple[ModelInfo, dict[str, Tensor], str]:
    """Read a model file with its weights as stored; the last result is the SHA-256 of the file.

    Raises:
        ModelFileError: As for :func:`load`.
    """
    with open_tensors(local_file(path)[0], "model") as file:
        return _check(file)[0], *file.read()


def inspect_model(path: str | Path) -> ModelInfo:
    """Read everything but the weights of a model file, with all checks of :func:`load` that need no weights.

    Raises:
        ModelFileError: As for :func:`load`.
    """
    with open_tensors(local_file(path)[0], "model") as file:
        return _check(file)[0]


def _check(file: TensorFile) -> tuple[ModelInfo, CVDM | None]:
    """Return the info and, if the recipe describes it, the model without memory: the file has exactly its tensors."""
    info = _from_metadata(file)
    if info.own is not None:
        return info, None
    try:
        asked = least_weights(info.recipe.model, *info.num_channels)
        held = sum(spec.num_bytes // spec.dtype.itemsize for spec in file.specs.values())
        if asked > held:
            raise RecipeError(f"its networks have at least {min(asked, 10**18)} weights, and the file {held}")
        model = outline(info.recipe, *info.num_channels)
    except RecipeError as error:
        raise file.error(f"has a recipe that does not fit it: {str(error)[:300]}", "copy the file again") from error
    faults = differences(as_float32(file.specs), layout(model.state_dict()))
    if faults:
        raise file.error(f"does not hold the weights of its recipe's networks: {faults}", "copy the file again")
    return info, model


def _are_names(names: tuple[str, ...], most: int) -> bool:
    """Whether these may be names of channels: text, each once, no more than there are channels."""
    are_text = all(isinstance(name, str) and 0 < len(name) <= _MOST_NAME for name in names)
    return are_text and 0 < len(set(names)) == len(names) <= most


def _to_metadata(info: ModelInfo) -> dict[str, Any]:
    values = {field.name: getattr(info, field.name) for field in dataclasses.fields(info)}
    for later in ("seen", "fast_calibration", "reach", "channels", "own"):
        if values[later] is None:
            del values[later]  # files without it keep their bytes
    values |= {} if info.reach is None else {"reach": dataclasses.asdict(info.reach)}
    own = {name: value.to_json() for name, value in values.items() if hasattr(value, "to_json")}
    return {**values, **own, "recipe": info.recipe.model_dump(mode="json")}


def _from_metadata(file: TensorFile) -> ModelInfo:
    """Parse the info of an untrusted file."""
    # Imported here, since it takes long and `sfumato.load` is a public name.
    from pydantic import TypeAdapter, ValidationError

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
    for name, (kinds, expected) in _KINDS.items():
        if type(values[name]) not in kinds:
            raise fail(f"{name} is {values[name]!r:.100}, expected {expected}")
    if len(json.dumps(values["recipe"])) > _MOST_RECIPE:
        raise fail(f"its recipe has more than {_MOST_RECIPE} characters")
    try:
        recipe = Recipe.model_validate(values["recipe"])
        sides = {name: Normalization.from_json(values[name]) for name in ("condition", "target")}
        correction = TypeAdapter(Correction | None)
        for name in ("calibration", "fast_calibration"):
            values[name] = correction.validate_python(values[name], extra="forbid")
        values["reach"] = TypeAdapter(Reach | None).validate_python(values["reach"], extra="forbid")
        values["own"] = TypeAdapter(OwnNetworks | None).validate_python(values["own"], extra="forbid")
        seen = None if values["seen"] is None else SeenImages.from_json(values["seen"])
        listed = {name: None if values[name] is None else tuple(values[name]) for name in ("factor", "channels")}
        read = {"recipe": recipe, "seen": seen, **listed}
        return ModelInfo(**{**values, **sides, **read})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        titles = {"recipe": "Recipe", "reach": "Reach", "own": "OwnNetworks"}
        what = next((name for name, title in titles.items() if title in error.title), "calibration")
        raise fail(f"{what}.{place!s:.100}: {first['msg']:.200}") from error
    except ValueError as error:
        raise fail(str(error)[:300]) from error
