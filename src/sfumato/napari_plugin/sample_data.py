"""Sample data, simulated when it is opened: nothing is downloaded."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["microtubules", "time_series"]

LayerData = tuple[NDArray[Any], dict[str, Any], str]

_SEED, _SIDE, _PHOTONS = 8, 128, 15


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
