"""Turn a measured image into a model's condition: its channels, on the target grid, normalised as in training."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sfumato.data.frames import CompletedFrames, Completion, Frames, UpsampledFrames
from sfumato.data.images.choice import WHOLE, Choice, told_channel_names
from sfumato.data.images.image import Image, PixelSize
from sfumato.data.images.io import open_image
from sfumato.data.images.pixels import ArrayImage, as_pixels, floats
from sfumato.data.intensity import image_range, scale_to
from sfumato.data.sources import FrameReader
from sfumato.models.model_file import LoadedModel, ModelInfo, check_loaded
from sfumato.problems.registry import completion, full_scale
from sfumato.system.errors import ImageError

__all__ = [
    "Measured",
    "as_restored",
    "condition_of",
    "measured_channels",
    "told_channels",
    "upsampling_factor",
]

Pixels = NDArray[Any]


class Measured:
    """An image as conditions of a model, read region by region.

    Args:
        source: Path or address, or an open image.
        model: From :func:`sfumato.load`.
        axes: Axes of the source, if it does not state them.
        on_target_grid: Whether it was upsampled already.
        choice: Channels, scene and times to take; the channels of the model by default, if the source names them.

    Attributes:
        name: Name of the source.
        choice: What is taken of the source, in numbers.
        told_choice: What was taken without being asked for, in words.
        channel_names: Names of the measured channels, if known.
        all_names: Names of all channels of the source, if known.
        is_on_source_grid: Whether the target grid is that of the source.
        axes: Spatial axes.
        source_axes: All axes of the source.
        dtype: Type of its pixels.
        num_frames: Number of frames.
        frame_axes: Axes that enumerate the frames, in the order of the source.
        frame_shape: Their lengths.
        channels: Number of channels the model sees, including computed ones.
        spatial: Size on the target grid.
        pixel_size: On the target grid, by axis letter.
        full_scale: Pixels are divided by this before the model sees them, and its output is multiplied by it.
        read: Returns a region (channels, *size) given the frame number, corner and size, in the units of the source.

    Raises:
        ImageError: If it cannot be read, or the model does not take its channels.
    """

    def __init__(
        self,
        source: str | Image,
        model: LoadedModel,
        *,
        axes: str | None = None,
        on_target_grid: bool = False,
        choice: Choice = WHOLE,
    ) -> None:
        check_loaded(model)
        whole = source if isinstance(source, Image) else open_image(source, axes=axes, scene=choice.scene)
        self.choice = choice.resolved(whole, named=model.info.channels or ())
        self.told_choice = _told_choice(choice, self.choice, whole)
        image = self.choice.of(whole)
        self.channel_names, self.all_names = image.channel_names, whole.channel_names
        frames = FrameReader(image, model.info.recipe.model.ndim)
        computed = _completion(model.info)
        seen: Frames = frames
        if computed is not None and frames.channels == computed.measured:  # others may have all channels already
            seen = CompletedFrames(frames, computed)
        factor = (1,) * len(frames.spatial) if on_target_grid else upsampling_factor(model)
        self.is_on_source_grid = max(factor) == 1
        on_grid = seen if max(factor) == 1 else UpsampledFrames(seen, factor)
        self.name, self.axes, self.source_axes, self.dtype = image.name, frames.axes, image.axes, image.dtype
        self.num_frames, self.frame_axes, self.frame_shape = frames.num_frames, frames.frame_axes, frames.frame_shape
        self.channels, self.spatial, self.read = seen.channels, tuple(on_grid.spatial), on_grid.read
        finer = dict(zip(frames.axes, factor, strict=True))
        self.pixel_size = {
            axis: PixelSize(size.value / finer.get(axis, 1), size.unit) for axis, size in image.pixel_size.items()
        }
        self.full_scale = full_scale(model.info.recipe.problem, image.dtype)
        self._model = model
        self._ranges: dict[int, NDArray[np.float64]] = {}
        if self.channels != model.info.condition_channels:
            raise ImageError(
                f"{self.name} has {self.channels} channels (axes {self.source_axes}); this model takes "
                f"{measured_channels(model.info)}; choose some with --channel: "
                f"{told_channel_names(image)}; or state the axes"
            )

    def condition(
        self, frame: int = 0, corner: Sequence[int] | None = None, size: Sequence[int] | None = None
    ) -> Tensor:
        """A region of a frame as the networks take it, shape (1, channels, *size); by default the whole frame.

        Raises:
            ImageError: If pixels are not finite, or too far from those of the training inputs.
        """
        whole = [0] * len(self.spatial)
        pixels = self._in_range(self.read(frame, corner or whole, size or self.spatial))
        data = self._model.info.recipe.data
        if data.scales_each_image:
            if frame not in self._ranges:  # of the whole frame, so that all its regions are scaled alike
                is_whole = pixels.shape[1:] == self.spatial
                seen = pixels if is_whole else self._in_range(self.read(frame, whole, self.spatial))
                self._ranges = {frame: image_range(seen, data.quantiles)}
            pixels = scale_to(pixels, self._ranges[frame])
        condition = self._model.info.condition.of_pixels(pixels[None])
        if not bool(condition.isfinite().all()):
            raise ImageError(
                "the image has pixels so far from the model's training inputs that they overflow; expected similar "
                "pixels; check the units"
            )
        return condition.to(next(self._model.model.parameters()).device)

    def _in_range(self, pixels: Pixels) -> Pixels:
        """Finite pixels, divided by full scale if the model was trained on pictures."""
        if not bool(np.isfinite(pixels).all()):
            raise ImageError("the image has NaN or infinite pixels; expected finite numbers; replace the bad pixels")
        return pixels if self.full_scale == 1 else np.asarray(pixels, np.float32) / np.float32(self.full_scale)


def condition_of(array: ArrayLike | Tensor, model: LoadedModel, *, on_target_grid: bool = False) -> Measured:
    """Use an image in memory as a condition.

    Args:
        array: Shape (K, *spatial) or, with one channel, (*spatial).
        model: From :func:`sfumato.load`.
        on_target_grid: Whether it was upsampled already.

    Raises:
        ImageError: If it is not made of real numbers, or the model does not accept its shape.
    """
    check_loaded(model)
    pixels = as_pixels(array)
    ndim, takes = model.info.recipe.model.ndim, measured_channels(model.info)
    frame = pixels if pixels.ndim == ndim + 1 else pixels[None]
    if frame.ndim != ndim + 1 or len(frame) not in (takes, model.info.condition_channels):
        expected = f"({takes}, *spatial)" + (" or (*spatial)" if takes == 1 else "")
        raise ImageError(
            f"the image has shape {pixels.shape}; this model takes {expected} with {ndim} spatial axes; "
            "choose its channels and frames first"
        )
    image = ArrayImage.of(frame, axes="CZYX" if ndim == 3 else "CYX", name="the image")
    return Measured(replace(image, memory_budget=image.nbytes), model, on_target_grid=on_target_grid)


def _told_choice(asked: Choice, found: Choice, image: Image) -> tuple[str, ...]:
    told = []
    if len(image.scenes) > 1 and asked.scene is None:
        others = f"the first of {len(image.scenes)} scenes; choose another with --scene"
        told.append(f"scene: {image.scenes[image.scene]}, {others}")
    if found.channels and not asked.channels:
        names = ", ".join(image.channel_names[int(number)] for number in found.channels)
        told.append(f"channel: {names}, as this model was trained on; choose another with --channel")
    return tuple(told)


def upsampling_factor(model: LoadedModel) -> tuple[int, ...]:
    """How many times finer a model's output is than its input, per spatial axis.

    Raises:
        ImageError: If the model upsamples and its file does not state the factor.
    """
    if model.info.factor is not None:
        return model.info.factor
    if model.info.recipe.data.upsample:
        raise ImageError(
            "this model was trained on upsampled inputs (data.upsample), and its file does not say by how much; "
            "expected a factor per axis: retrain it with this version, or upsample the image yourself (bicubic) and "
            "state that it is on the target grid (on_target_grid=True, --on-target-grid)"
        )
    return (1,) * model.info.recipe.model.ndim


def as_restored(truth: NDArray[np.generic], model: LoadedModel) -> NDArray[np.floating[Any]]:
    """A truth (C, *spatial) in the units of the model's output: scaled by its own range if training did that."""
    data = model.info.recipe.data
    return scale_to(truth, image_range(truth, data.quantiles)) if data.scales_each_image else floats(truth)


def measured_channels(info: ModelInfo) -> int:
    """How many channels an image must have: the channels of the condition that are not computed."""
    computed = _completion(info)
    return info.condition_channels if computed is None else computed.measured


def told_channels(info: ModelInfo) -> str:
    """Channels for display: ``2 in, 1 out``, and how many are computed in between."""
    measured = measured_channels(info)
    computed = info.condition_channels - measured
    told = f" ({computed} more computed from them)" if computed else ""
    return f"{measured} in{told}, {info.target_channels} out"


def _completion(info: ModelInfo) -> Completion | None:
    """The channels computed from the measured ones; None if all are measured."""
    return completion(info.recipe.problem, info.recipe.forward)
