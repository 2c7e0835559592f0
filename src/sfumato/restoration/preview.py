"""Preview a restoration in seconds: the middle of the middle frame, as a picture."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.images.io import open_image
from sfumato.data.images.sidecar import origin_of
from sfumato.data.images.whole_numbers import as_values
from sfumato.diffusion.noise import NoiseField
from sfumato.figures.panels import draw_panel
from sfumato.restoration.in_memory import restore_region
from sfumato.restoration.layout import middle
from sfumato.restoration.passed_through import restored_of
from sfumato.restoration.planning import Restoration

__all__ = ["draw_preview", "draw_result"]

_SIDE = 256
_DEPTH = 32


def draw_preview(restoration: Restoration, path: Path) -> Path:
    """Restore the middle of the middle frame and draw the input, the mean and the uncertainty."""
    source, job = restoration.measured, restoration.job
    corner, size = _middle(source.spatial)
    frame = source.num_frames // 2
    restored = restore_region(
        replace(restoration.restorer, tile=None),
        source,
        frame,
        corner,
        size,
        noise=NoiseField(job.seed),
        uncertainty="schedule" if any(output.content == "schedule" for output in job.outputs) else "samples",
    )
    spread = restored.std if restored.hint is None else restored.hint
    shown = _flat(source.read(frame, corner, size))
    draw_panel(path, shown, _flat(restored.mean), None if spread is None else _flat(spread))
    return path


def draw_result(restoration: Restoration, path: Path) -> Path:
    """Draw the middle of the middle frame of a finished restoration."""
    frames = restoration.measured
    corner, size = _middle(frames.spatial)
    frame = frames.num_frames // 2
    shown = [frames.read(frame, corner, size)]
    places = dict(zip(frames.frame_axes, np.unravel_index(frame, frames.frame_shape), strict=True))
    for file in restoration.files[:2]:
        notes = origin_of(file)
        image = restored_of(as_values(open_image(file), notes), notes)
        region: dict[str, slice | int] = {axis: int(at) for axis, at in places.items() if axis in image.axes}
        region |= {axis: slice(c, c + s) for axis, c, s in zip(frames.axes, corner, size, strict=True)}
        pixels = image.read(region)
        shown.append(pixels if pixels.ndim > len(frames.axes) else pixels[None])
    draw_panel(path, _flat(shown[0]), _flat(shown[1]), _flat(shown[2]) if len(shown) > 2 else None)
    return path


def _middle(spatial: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Corner and size of a region that a laptop can restore in seconds."""
    return middle(spatial, [_DEPTH, _SIDE // 2, _SIDE // 2] if len(spatial) == 3 else [_SIDE, _SIDE])


def _flat(image: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """First channel and middle plane, shape (1, H, W)."""
    first = image[0]
    return np.asarray(first[len(first) // 2] if first.ndim == 3 else first, np.float32)[None]
