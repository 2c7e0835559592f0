"""What was measured, as a model's networks take it: on the grid of its targets, in the units of its training inputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sfumato.data.enlarged import EnlargedFrames
from sfumato.data.images.image import Image, PixelSize
from sfumato.data.images.io import open_image
from sfumato.data.scaling import image_range
from sfumato.data.sources import FrameReader
from sfumato.models.model_file import LoadedModel, check_loaded
from sfumato.problems.registry import full_scale
from sfumato.restoration.channels import completed
from sfumato.restoration.in_memory import enlargement, normalised

__all__ = ["Measured"]


class Measured:
    """The frames of an image, read by region.

    Args:
        source: Path or address, or an open image.
        model: From :func:`sfumato.load`.
        axes: Of the source, where it does not say.
        on_target_grid: Whether it was enlarged already.

    Attributes:
        name: Of the source.
        dtype: Of its pixels.
        axes: Spatial axes.
        spatial: Size on the grid of the targets.
        frame_axes: Axes along which frames lie, in the order of the source.
        frame_shape: Their lengths.
        pixel_size: On the grid of the targets, by axis letter.
        full_scale: What pixels are divided by before the model sees them; what it gives is multiplied by it.
    """

    def __init__(
        self, source: str | Image, model: LoadedModel, *, axes: str | None = None, on_target_grid: bool = False
    ) -> None:
        check_loaded(model)
        ndim = model.info.recipe.model.ndim
        image = source if isinstance(source, Image) else open_image(source, axes=axes)
        frames = FrameReader(image, ndim)
        seen = completed(frames, model.info)
        self._enlarged = EnlargedFrames(seen, (1,) * ndim if on_target_grid else enlargement(model))
        self._model = model
        self._ranges: dict[int, NDArray[np.float64]] = {}
        self.name, self.dtype = frames.image.name, frames.image.dtype
        self.axes, self.spatial = frames.axes, self._enlarged.spatial
        self.channels, self.source_axes = seen.channels, frames.image.axes
        self.frame_axes, self.frame_shape = frames.frame_axes, frames.frame_shape
        self.num_frames = frames.num_frames
        finer = dict(zip(frames.axes, self._enlarged.factor, strict=True))
        self.pixel_size = {
            axis: PixelSize(size.value / finer.get(axis, 1), size.unit)
            for axis, size in frames.image.pixel_size.items()
        }
        self.full_scale = full_scale(model.info.recipe.problem, self.dtype)

    def read(self, frame: int, corner: Sequence[int], size: Sequence[int]) -> NDArray[Any]:
        """A region of a frame, shape (channels, *size), in the units of the source."""
        return self._enlarged.read(frame, corner, size)

    def condition(self, frame: int, corner: Sequence[int], size: Sequence[int]) -> Tensor:
        """The same as the networks take it, shape (1, channels, *size).

        Raises:
            ImageError: If it has pixels that are not finite numbers.
        """
        return normalised(
            self._shares(self.read(frame, corner, size)), self._model, on_target_grid=True, low_high=self._range(frame)
        )[0]

    def in_units(self, restored: Tensor) -> NDArray[np.float32]:
        """What a model gave, in the units of the targets: one of pictures knows shares of full scale only."""
        return np.asarray((restored if self.full_scale == 1 else restored * self.full_scale).numpy())

    def _shares(self, pixels: NDArray[Any]) -> NDArray[Any]:
        return pixels if self.full_scale == 1 else np.asarray(pixels, np.float32) / np.float32(self.full_scale)

    def _range(self, frame: int) -> NDArray[np.float64] | None:
        """Of a whole frame, where the model was trained on images that were scaled each by itself."""
        data = self._model.info.recipe.data
        if data.normalize != "image":
            return None
        if frame not in self._ranges:
            whole = self._shares(self.read(frame, [0] * len(self.axes), self.spatial))
            self._ranges = {frame: image_range(whole, data.quantiles)}
        return self._ranges[frame]
