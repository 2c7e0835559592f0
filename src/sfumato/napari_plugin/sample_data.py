"""Sample data, simulated when it is opened: nothing is downloaded."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["held_out_pairs", "microtubules", "time_series", "training_pairs"]

LayerData = tuple[NDArray[Any], dict[str, Any], str]

_SEED, _SIDE, _PHOTONS = 8, 128, 15
_TRAINING, _HELD_OUT = range(100, 112), range(200, 212)
"""Cells of the pairs; each is a field of its own."""


def microtubules() -> list[LayerData]:
    """A noisy widefield image of microtubules and, hidden, the specimen as structured illumination would show it."""
    widefield, truth = _imaged(0)
    return [
        (truth, _settings("truth", 0.5, visible=False), "image"),
        (widefield, _settings("widefield", 1.0), "image"),
    ]


def time_series() -> list[LayerData]:
    """Three fields as frames of one layer."""
    frames = np.stack([_imaged(cell)[0] for cell in range(3)])
    settings = _settings("widefield frames", 1.0)
    one = {"scale": (1.0, *settings["scale"]), "units": ("pixel", *settings["units"]), "axis_labels": ("t", "y", "x")}
    return [(frames, {**settings, **one, "translate": (0.0, *settings["translate"])}, "image")]


def training_pairs() -> list[LayerData]:
    """Twelve fields and their truth, to train on."""
    return _pairs("training", _TRAINING)


def held_out_pairs() -> list[LayerData]:
    """Twelve other fields and their truth, to calibrate with."""
    return _pairs("held out", _HELD_OUT)


def _pairs(name: str, cells: range) -> list[LayerData]:
    widefield, truth = (np.stack(images) for images in zip(*map(_imaged, cells), strict=True))
    return [
        (truth, _framed(_settings(f"{name} truth", 0.5, visible=False)), "image"),
        (widefield, _framed(_settings(f"{name} widefield", 1.0)), "image"),
    ]


def _framed(settings: dict[str, Any]) -> dict[str, Any]:
    """The same settings with a first axis that counts fields."""
    one = {"scale": (1.0, *settings["scale"]), "translate": (0.0, *settings["translate"])}
    return {**settings, **one, "units": ("pixel", *settings["units"]), "axis_labels": ("field", "y", "x")}


def _imaged(cell: int) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    from sfumato.problems.microscopy_simulation import image_field

    field = image_field("microtubules", side=_SIDE, seed=_SEED, cell=cell, levels=[_PHOTONS])
    return field.raw[0].mean(0, dtype=np.float64).astype(np.float32), field.target


def _settings(name: str, pixels: float, *, visible: bool = True) -> dict[str, Any]:
    """Keyword arguments of a layer whose pixels are this many camera pixels wide."""
    from sfumato.problems.microscopy_simulation import Microscope

    side = Microscope().pixel_um
    return {
        "name": name,
        "scale": (side * pixels,) * 2,
        "translate": (side * (pixels - 1) / 2,) * 2,  # napari positions the centres of pixels
        "units": ("micrometer", "micrometer"),
        "axis_labels": ("y", "x"),
        "visible": visible,
        "metadata": {"photons per pixel": _PHOTONS, "simulated": "sfumato.problems.microscopy_simulation"},
    }
