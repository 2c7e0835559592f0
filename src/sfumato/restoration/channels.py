"""Which channels of a model's conditions are measured, and which are computed from them."""

from sfumato.data.completed import CompletedFrames, Completion
from sfumato.data.enlarged import Frames
from sfumato.models.model_file import ModelInfo
from sfumato.problems.registry import completion

__all__ = ["completed", "completion_of", "measured_channels", "told_channels"]


def completion_of(info: ModelInfo) -> Completion | None:
    """What is computed; None if all is measured."""
    return completion(info.recipe.problem, info.recipe.forward)


def completed(frames: Frames, info: ModelInfo) -> Frames:
    """Measured frames with all channels that the model takes; others, which may have them already, as they are."""
    computed = completion_of(info)
    return frames if computed is None or frames.channels != computed.measured else CompletedFrames(frames, computed)


def measured_channels(info: ModelInfo) -> int:
    """How many channels an image must have."""
    computed = completion_of(info)
    return info.condition_channels if computed is None else computed.measured


def told_channels(info: ModelInfo) -> str:
    """For people: ``2 in, 1 out``, and what is computed on the way."""
    measured = measured_channels(info)
    computed = info.condition_channels - measured
    told = f" ({computed} more computed from them)" if computed else ""
    return f"{measured} in{told}, {info.target_channels} out"
