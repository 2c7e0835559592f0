"""Audit a restored frame, and mark what it found in the viewer."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.system.errors import SfumatoError

if TYPE_CHECKING:
    from sfumato.audit.run import Audit
    from sfumato.models.model_file import LoadedModel
    from sfumato.napari_plugin.layers import Source

__all__ = ["Marks", "audited", "marks_layer"]

_MOST_PIXELS = 2**20
"""Restored pixels of a frame that is audited: it takes ten seconds or so, much less than drawing its samples."""
_COLOURS = {"not supported": "#D55E00", "missing": "#56B4E9", "uncertain": "#F0E442"}
_LEGEND = "Marks: orange, not supported by the measurement; blue, missing; yellow, lacking in some samples."
_WIDE = 16
"""Diameter of a mark, in restored pixels."""


class Marks(NamedTuple):
    """What an audit of one frame found."""

    frame: int
    places: list[tuple[float, float]]
    """Row and column on the restored grid."""
    kinds: list[str]
    lines: list[str]
    """What it says."""


def audited(source: "Source", model: "LoadedModel", frame: int, images: dict[str, NDArray[np.float32]]) -> Marks:
    """Audit one frame of a whole restoration, as `sfumato audit` does.

    Args:
        source: The layer that was restored.
        model: The model that restored it.
        frame: Number of the frame.
        images: From :meth:`~sfumato.restoration.interactive.Parts.restore`.
    """
    from sfumato.audit.run import audit
    from sfumato.data.sources import FrameReader
    from sfumato.problems.registry import full_scale

    mean = images["mean"][frame]
    if source.ndim != 2 or mean[0].size > _MOST_PIXELS:
        why = "it is for images, not volumes" if source.ndim != 2 else f"a frame has more than {_MOST_PIXELS:,} pixels"
        return Marks(frame, [], [], [f"No audit: {why}; `sfumato audit` takes planes and larger images."])
    reader, full = FrameReader(source.image, 2), full_scale(model.info.recipe.problem, source.image.dtype)
    measured = np.asarray(reader.read(frame, [0, 0], reader.spatial), np.float64) / full
    draws = images["samples"][:, frame] / full if "samples" in images else None
    size = source.image.pixel_size.get("X")
    try:
        found = audit(measured, model, restored=mean / full, draws=draws)
    except (SfumatoError, ImportError) as error:  # what was restored is worth showing all the same
        return Marks(frame, [], [], [f"No audit: {error}"])
    found = replace(found, domain=None, pixel_um=None if size is None else size.to("micrometer"))
    return _marked(found, frame, several=reader.num_frames > 1)


def _marked(found: "Audit", frame: int, *, several: bool) -> Marks:
    middle, factor = (found.factor - 1) / 2, found.factor
    places: list[tuple[float, float]] = []
    kinds: list[str] = []
    if found.consistency is not None:
        listed = {"not supported": found.consistency.unsupported, "missing": found.consistency.missing}
        for kind, structures in listed.items():
            places += [(factor * s.row + middle, factor * s.column + middle) for s in structures]
            kinds += [kind] * len(structures)
    if found.disagreement is not None:
        places += [(float(s.row), float(s.column)) for s in found.disagreement.uncertain]
        kinds += ["uncertain"] * len(found.disagreement.uncertain)
    lines = [*(f"Warning: {text}" for text in found.warnings), *found.verdicts]
    lines += found.unchecked if found.consistency is None and not found.contradiction else []
    lines += [_LEGEND] if places else []
    return Marks(frame, places, kinds, [f"Audit of frame {frame}:", *lines] if several else lines)


def marks_layer(
    source: "Source", marks: Marks, mean: NDArray[np.float32], settings: dict[str, Any]
) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Marks as data and keyword arguments of a layer of points.

    Args:
        source: The layer that was restored.
        marks: From :func:`audited`.
        mean: All restored frames.
        settings: Of the layer of the mean, whose place in the world the marks share.
    """
    same = {name: settings[name] for name in ("scale", "translate", "units", "axis_labels", "affine", "metadata")}
    data = source.positions(mean, range(len(mean)), marks.frame, marks.places)
    return data, same | {
        "name": f"{source.name} audit marks",
        "features": {"finding": marks.kinds},
        "face_color": "transparent",
        "border_color": [_COLOURS[kind] for kind in marks.kinds],
        "border_width": 0.12,
        "size": _WIDE,
    }
