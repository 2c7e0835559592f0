"""Presets: the fields of a new recipe, in three sizes; a recipe names one with the key `preset`.

A field that neither a recipe nor its preset gives has the value of version 0.1, so that what is stored keeps its
meaning. experiments/per_minute.py compares presets with other models at equal processor seconds.
"""

from collections.abc import Mapping
from typing import Any, Literal

from sfumato.system.errors import RecipeError

__all__ = ["PRESETS", "Preset", "preset_for", "with_preset"]

Preset = Literal["small", "default", "large"]

_SHORT_MINUTES = 10.0
"""Below this time on a CPU, the small network gets enough steps, and the default one does not."""

_MEAN_FIRST: Mapping[str, Mapping[str, Any]] = {
    "model": {
        "activation": "silu",
        "mean_network": True,
        "mean_error": "rmse",
        "linear_start": True,
        "linear_finish": True,
        "read_once": True,
        "scale_network": True,
        "coloured_noise": True,
    },
    "train": {"mean_share": 0.77, "scale_share": 0.08},
    "sample": {"steps": 8, "solver": "gaussian", "mean": "network", "samples": 4},
}
"""Mean and scale first; only a diffusion model of U-Nets, whose centre is its mean, can be made so."""
_SIZES: Mapping[Preset, Mapping[str, Mapping[str, Any]]] = {
    "small": {
        "model": {"base": 8, "rate_base": 8, "denoiser_base": 8, "denoiser_scales": 4},
        "train": {"learning_rate": 2e-3},
    },
    "default": {
        "model": {"base": 16, "rate_base": 16, "denoiser_base": 8, "denoiser_scales": 4},
        "train": {"learning_rate": 2e-3},
    },
    "large": {
        "model": {"base": 64, "rate_base": 32, "denoiser_base": 32, "denoiser_scales": 4},
        "train": {"learning_rate": 3e-4},
    },
}

_SCALES_OF_VOLUMES = 3
"""U-Nets of volumes have fewer scales and look less far: with five, halos would cost many times the volume."""


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of two recipes; where both give one, that of the second."""
    result = dict(below)
    for key, value in above.items():
        known = result.get(key)
        result[key] = _merged(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return result


PRESETS: Mapping[Preset, Mapping[str, Any]] = {name: _merged(_MEAN_FIRST, size) for name, size in _SIZES.items()}
"""Fields of each preset: `small` for minutes on a CPU, `default` for half an hour or more, `large` for a GPU."""


def preset_for(minutes: float | None) -> Preset:
    """The preset that suits a time on a CPU.

    Example:
        >>> preset_for(4), preset_for(30), preset_for(None)
        ('small', 'default', 'default')
    """
    return "small" if minutes is not None and minutes < _SHORT_MINUTES else "default"


def with_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a recipe with its `preset` resolved: the recipe's own fields win.

    A regression, a residual target, another network or a model without a mean network takes the learning rate and the
    base of the preset alone, and is otherwise as in version 0.1. U-Nets of volumes have three scales instead of five.

    Raises:
        RecipeError: If no preset has that name.

    Example:
        >>> with_preset({"preset": "small", "model": {"base": 4}})["model"]["base"]
        4
    """
    own = dict(values)
    name = own.pop("preset", None)
    if name is None:
        return own
    if name not in PRESETS:
        raise RecipeError(f"preset is {name!r}; choose one of {', '.join(PRESETS)}, or leave it out")
    model = own.get("model")
    fields = PRESETS[name] if _has_mean_first(model) else _size_alone(name)
    if isinstance(model, Mapping) and model.get("ndim") == 3 and model.get("network", "unet") == "unet":
        scales = ["num_scales", *(["denoiser_scales"] if "denoiser_scales" in fields["model"] else [])]
        fields = _merged(fields, {"model": dict.fromkeys(scales, _SCALES_OF_VOLUMES)})
    return _merged(fields, own)


def _size_alone(name: Preset) -> Mapping[str, Any]:
    """The base and the learning rate of a preset."""
    size = _SIZES[name]
    return {"model": {key: size["model"][key] for key in ("base", "rate_base")}, "train": size["train"]}


def _has_mean_first(model: Any) -> bool:
    """Whether the mean can be learned first by a model with these own fields."""
    own = model if isinstance(model, Mapping) else {}
    usual = {"method": "cvdm", "network": "unet", "residual": False, "mean_network": True}
    return all(own.get(field, value) == value for field, value in usual.items())
