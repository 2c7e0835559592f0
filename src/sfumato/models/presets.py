"""Presets: the fields of a new recipe, in three sizes; a recipe names one with the key `preset`.

A field that neither a recipe nor its preset gives has the value of version 0.1, so that what is stored keeps its
meaning. The choices were made on validation images, at equal processor seconds: see experiments/per_minute.py.
"""

from collections.abc import Mapping
from typing import Any, Literal

from sfumato.system.errors import RecipeError

__all__ = ["PRESETS", "Preset", "preset_for", "with_preset"]

Preset = Literal["small", "default", "large"]

_SHORT_MINUTES = 10.0
"""Below this time on a CPU, the small network is further on than the default one."""

_COMMON: Mapping[str, Mapping[str, Any]] = {
    "model": {
        "activation": "silu",
        "mean_network": True,
        "linear_start": True,
        "read_once": True,
        "scale_network": True,
    },
    "train": {"mean_share": 0.5, "learning_rate": 1e-3},
    "sample": {"steps": 8, "solver": "gaussian", "mean": "network", "samples": 4},
}
_SIZES: Mapping[Preset, Mapping[str, Mapping[str, Any]]] = {
    "small": {"model": {"base": 8, "rate_base": 8, "denoiser_base": 8, "denoiser_scales": 4}},
    "default": {"model": {"base": 16, "rate_base": 16, "denoiser_base": 8, "denoiser_scales": 4}},
    "large": {
        "model": {"base": 64, "rate_base": 32, "denoiser_base": 32, "denoiser_scales": 4},
        "train": {"learning_rate": 3e-4},
    },
}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of two recipes; where both give one, that of the second."""
    result = dict(below)
    for key, value in above.items():
        known = result.get(key)
        result[key] = _merged(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return result


PRESETS: Mapping[Preset, Mapping[str, Any]] = {name: _merged(_COMMON, size) for name, size in _SIZES.items()}
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
    return _merged(PRESETS[name], own)
