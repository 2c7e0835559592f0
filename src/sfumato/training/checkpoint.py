"""Training states: everything a run needs to resume bit for bit.

Every random draw is a function of seed and step, so a state consists of the step, the weights, their moving average and
the optimizer moments. Each state is a file `step-00001234.safetensors`, written atomically; the last two are kept.
"""

import logging
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from sfumato.models.safetensors_file import Spec, TensorFile, differences, layout, open_tensors, write_tensors
from sfumato.system.errors import ModelFileError

__all__ = ["TrainingState", "load_state", "optimizer_tensors", "restore_optimizer", "save_state"]

_PARTS = ("model", "ema", "optimizer")
_MOMENTS = ("exp_avg", "exp_avg_sq")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingState:
    """A run between two steps.

    Attributes:
        step: Number of optimizer steps done.
        best: Lowest validation value so far.
        model: Weights by name.
        ema: Moving average of the weights by name.
        optimizer: Result of :func:`optimizer_tensors`.
    """

    step: int
    best: float | None
    model: dict[str, Tensor]
    ema: dict[str, Tensor]
    optimizer: dict[str, Tensor]


def save_state(folder: str | Path, state: TrainingState, *, recipe_text: str, keep: int = 2) -> Path:
    """Write a training state to its folder and, once it is durable, remove all earlier states but the last ``keep``.

    States of later steps, which another run may have left, are not touched.

    Returns:
        The path of the new state.

    Raises:
        RunError: If it cannot be written, for example because the disk is full; all earlier states are then still
            there.
    """
    if state.step < 0 or keep < 1 or not math.isfinite(state.best or 0.0):
        raise ValueError(
            f"step is {state.step}, best {state.best} and keep {keep}; give a step of at least 0, "
            "a finite best or None, and keep at least 1"
        )
    folder = Path(folder)
    path = folder / f"step-{state.step:08d}.safetensors"
    previous = _states(folder)
    untouched = f"The previous checkpoint, {previous[-1].name}, is intact" if previous else "Nothing was saved before"
    tensors = {f"{part}/{name}": tensor for part in _PARTS for name, tensor in getattr(state, part).items()}
    metadata = {"step": state.step, "best": state.best, "recipe": recipe_text}
    write_tensors(path, tensors, metadata, kind="training state", untouched=untouched)
    states = _states(folder)
    for old in states[: max(states.index(path) + 1 - keep, 0)]:
        try:
            old.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("cannot remove the old checkpoint %s: %s; remove it by hand", old, error.strerror or error)
    return path


def load_state(folder: str | Path, model: nn.Module, optimizer: Optimizer) -> TrainingState | None:
    """Load the newest intact training state of a folder, or return None if the folder has no states.

    A truncated or damaged state is skipped in favour of the one before it, with a warning in the log.

    Args:
        folder: Folder of the states.
        model: Defines which weights to expect; it is not changed.
        optimizer: Optimizer of the model; defines which moments to expect.

    Raises:
        ModelFileError: If there are states but none is intact and fits the model; it says what is wrong with the
            newest.
    """
    weights = layout(model.state_dict())
    expected = {f"{part}/{name}": spec for part in ("model", "ema") for name, spec in weights.items()}
    moments = layout(optimizer_tensors(optimizer, model))
    expected |= {f"optimizer/{name}": spec for name, spec in moments.items()}
    faults: list[ModelFileError] = []
    for path in reversed(_states(Path(folder))):
        try:
            state = _read(path, expected)
        except ModelFileError as error:
            faults.append(error)
            continue
        for fault in faults:
            _LOG.warning("%s. Resuming from %s instead, step %d", fault, path.name, state.step)
        return state
    if faults:
        raise ModelFileError(f"{faults[0]} (and no other checkpoint in {folder} can be used)") from faults[0]
    return None


def optimizer_tensors(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The state of Adam or AdamW as tensors by name.

    The names are `exp_avg/<parameter>`, `exp_avg_sq/<parameter>` and `step/<parameter>`. The tensors are the
    optimizer's own, not copies; a parameter without a step so far gets zeros, which is its initial state. Learning rate
    and decay are not included: they are functions of the recipe and the step.
    """
    tensors = {}
    for name, parameter in _named(optimizer, model):
        held = optimizer.state.get(parameter, {})
        for moment in _MOMENTS:
            tensors[f"{moment}/{name}"] = held[moment] if held else torch.zeros_like(parameter)
        tensors[f"step/{name}"] = held["step"] if held else torch.zeros((), dtype=torch.float32, device="cpu")
    return tensors


def restore_optimizer(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Restore an optimizer from the result of :func:`optimizer_tensors`; the tensors are copied.

    Raises:
        ModelFileError: If they do not belong to this optimizer and model.
    """
    faults = differences(layout(tensors), layout(optimizer_tensors(optimizer, model)))
    if faults:
        raise ModelFileError(f"the optimizer's state does not belong to this model: {faults}; use the run's own recipe")
    state = {
        number: {key: tensors[f"{key}/{name}"].clone() for key in (*_MOMENTS, "step")}
        for number, (name, _) in enumerate(_named(optimizer, model))
    }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _states(folder: Path) -> list[Path]:
    """Training states of a folder, from the oldest to the newest."""
    named = (re.fullmatch(r"step-(\d{8,18})\.safetensors", path.name) for path in folder.glob("step-*.safetensors"))
    return [folder / name[0] for name in sorted(filter(None, named), key=lambda name: int(name[1]))]


def _read(path: Path, expected: Mapping[str, Spec]) -> TrainingState:
    with open_tensors(path, "training state") as file:
        step, best = _step_and_best(file)
        faults = differences(file.specs, expected)
        if faults:
            raise file.error(
                f"is not of this recipe's networks: {faults}", "use the recipe that the run began with, or a new folder"
            )
        tensors, _ = file.read()
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in _PARTS}
    for full_name, tensor in tensors.items():
        part, _, name = full_name.partition("/")
        parts[part][name] = tensor
    return TrainingState(step, best, **parts)


def _step_and_best(file: TensorFile) -> tuple[int, float | None]:
    step, best, text = (file.metadata.get(key) for key in ("step", "best", "recipe"))
    if type(step) is not int or step < 0 or type(best) not in (int, float, type(None)) or not isinstance(text, str):
        raise file.error(
            f"says step {step!r:.40} and best {best!r:.40}; expected a step of at least 0, a number or nothing, "
            "and the text of a recipe",
            "use an earlier checkpoint",
        )
    return step, None if best is None else float(best)


def _named(optimizer: Optimizer, model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The optimizer's parameters in its own order, with their names in the model."""
    if not isinstance(optimizer, Adam | AdamW) or any(group["amsgrad"] for group in optimizer.param_groups):
        raise ValueError(f"the optimizer is {type(optimizer).__name__}; states are kept for Adam and AdamW, no amsgrad")
    names = {parameter: name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter not in names:
                raise ValueError("the optimizer has a parameter that the model has not; make it for this model")
            yield names[parameter], parameter
