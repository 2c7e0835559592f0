"""Describe a model file in a few lines, for the user who picks it."""

from sfumato.models.model_file import ModelInfo
from sfumato.restoration.conditions import told_channels
from sfumato.restoration.intervals import sampled_by

__all__ = ["card"]


def card(info: ModelInfo) -> dict[str, str]:
    """Titles and their texts."""
    recipe, sampled = info.recipe, sampled_by(info)
    lines = {
        "Problem": recipe.problem if recipe.name in ("", recipe.problem) else f"{recipe.problem} ({recipe.name})",
        "Channels": f"{told_channels(info)}, {'volumes' if recipe.model.ndim == 3 else 'images'}",
        "Pixels": _pixels(info),
        "Normalisation": _normalisation(info),
    }
    if recipe.model.method == "regression":
        return lines | {"Calibration": "none: a regression gives one image and no uncertainty"}
    lines["Draws"] = f"{sampled.num_samples} samples of {sampled.num_steps} steps"
    lines["Calibration"] = "none" if info.calibration is None else info.calibration.label
    return lines


def _pixels(info: ModelInfo) -> str:
    if info.factor is None:
        size = "the file does not say how many are restored per measured one"
    elif set(info.factor) == {1}:
        size = "as measured"
    else:
        size = f"{' x '.join(map(str, info.factor))} restored per measured one"
    trained = info.audit.get("forward")
    pixel = trained.get("pixel_um") if isinstance(trained, dict) else None
    return size if pixel is None else f"{size}; trained at {pixel} um"


def _normalisation(info: ModelInfo) -> str:
    data = info.recipe.data
    if data.scales_each_image:
        low, high = data.quantiles
        return f"each image by its quantiles {low:g} and {high:g}"
    ends = ", ".join(
        f"{offset - scale:.4g} to {offset + scale:.4g}"
        for offset, scale in zip(info.condition.offset, info.condition.scale, strict=True)
    )
    name = "quantiles" if data.normalize == "quantile" else "mean and deviation"
    return f"{name} of the training set; inputs of {ends} become -1 to 1"
