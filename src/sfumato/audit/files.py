"""Read the images of an audit from files: one frame of a measurement, and a restored image with its samples."""

import glob
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.data.images.choice import WHOLE, Choice
from sfumato.data.images.file_names import take_apart
from sfumato.data.images.image import Image
from sfumato.data.images.io import open_image
from sfumato.data.images.sidecar import origin_of
from sfumato.data.images.whole_numbers import as_values
from sfumato.data.sources import FrameReader
from sfumato.models.model_file import LoadedModel
from sfumato.problems.registry import full_scale
from sfumato.restoration.passed_through import restored_of
from sfumato.system.errors import ImageError

__all__ = ["read_measured", "read_restored"]

Array = NDArray[np.generic]


def read_measured(
    model: LoadedModel, path: str | Path, *, axes: str | None = None, frame: int = 0, choice: Choice = WHOLE
) -> tuple[Array, float | None]:
    """One frame (K, H, W) as the model takes it, and its pixel size in micrometres if the file states it.

    Frames are counted in what is chosen of the file.
    """
    image = choice.open(path, axes=axes or model.info.recipe.data.input_axes, named=model.info.channels or ())
    size = image.pixel_size.get("X")
    full = full_scale(model.info.recipe.problem, image.dtype)
    return _frame(image, frame, full), None if size is None else size.to("micrometer")


def read_restored(
    model: LoadedModel, path: Path, measured: str | Path, *, frame: int = 0
) -> tuple[Array, Array | None]:
    """One frame (C, H, W) and, if `restore --keep-samples` wrote them, its samples (N, C, H, W).

    A restored picture has the units of the measured one, whatever its file type; here it is converted to the model's.
    """
    axes = model.info.recipe.data.target_axes
    full = full_scale(model.info.recipe.problem, open_image(measured).dtype)
    stem, suffix = map(glob.escape, take_apart(path.name))
    beside = sorted(path.parent.glob(f"{stem}_sample[0-9][0-9][0-9]{suffix}"))
    restored, *samples = (_frame(_values(place, axes), frame, full) for place in [path, *beside])
    return restored, np.stack(samples) if len(samples) > 1 else None


def _values(path: Path, axes: str | None) -> Image:
    """The restored channels of a file, in the units of the measurement."""
    notes = origin_of(path)
    return restored_of(as_values(open_image(path, axes=axes), notes), notes)


def _frame(image: Image, frame: int, full: float) -> Array:
    """One frame, divided by full scale if the model was trained on pictures."""
    reader = FrameReader(image, 2)
    if not 0 <= frame < reader.num_frames:
        raise ImageError(f"{image.name} has {reader.num_frames} frames and number {frame} was asked for; count from 0")
    pixels = reader.read(frame, [0, 0], reader.spatial)
    return pixels if full == 1 else np.asarray(pixels, np.float32) / np.float32(full)
