"""Turn a napari layer into an image with named axes, and restored images into layers at the same position."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.data.images.image import PixelSize, check_pixel_size
from sfumato.data.images.pixels import ArrayImage
from sfumato.data.images.units import TIMES
from sfumato.system.errors import ImageError

if TYPE_CHECKING:
    from napari.components import Dims
    from napari.layers import Image

__all__ = ["Region", "Source", "channel_choices"]

Region: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Frame, corner and size of a region of the restored image."""

_TITLES = {"mean": "mean", "std": "uncertainty", "low": "interval low", "high": "interval high", "samples": "samples"}
_OVER = 0.6
"""Opacity of the uncertainty, which lies over the mean."""
_MOST = {2: (512, 512), 3: (32, 128, 128)}
"""Restored pixels of a preview, per axis: a laptop takes seconds for it."""


def channel_choices(layer: "Image") -> dict[str, int | None]:
    """Axes of a layer that may hold channels, by display name; colours are always channels."""
    if layer.rgb:
        return {"colours": layer.ndim}
    shape = layer.data[0].shape if layer.multiscale else layer.data.shape
    known = [f"axis {i} ({label}, {n} long)" for i, (label, n) in enumerate(zip(layer.axis_labels, shape, strict=True))]
    return {"none": None, **{name: i for i, name in enumerate(known[:-2])}}


@dataclass(frozen=True)
class Source:
    """A snapshot of a layer, which a thread can use while the viewer changes the layer.

    Attributes:
        image: Its pixels, at full resolution.
        ndim: Spatial axes of the model.
        name: Name of the layer.
        scale: Scale of each axis of the image.
        translate: Translation of each axis.
        units: Unit of each axis.
        labels: Label of each axis.
        affine: Transforms after scale and translation: rotation, shear and the layer's own affine.
    """

    image: ArrayImage
    ndim: int
    name: str
    scale: NDArray[np.float64]
    translate: NDArray[np.float64]
    units: tuple[str, ...]
    labels: tuple[str, ...]
    affine: NDArray[np.float64]

    @classmethod
    def of(cls, layer: "Image", channel_axis: int | None, ndim: int) -> "Source":
        """Read a layer's properties, but none of its pixels.

        Args:
            layer: An image layer, which may have several scales or lazily computed arrays.
            channel_axis: Axis of its data that holds the channels, if any.
            ndim: Spatial axes of the model, the last ones of the layer; all remaining axes are frames.

        Raises:
            ImageError: If the layer has too few or too many axes.
        """
        data = layer.data[0] if layer.multiscale else layer.data
        scale, translate = np.asarray(layer.scale, float), np.asarray(layer.translate, float)
        units, labels = [str(unit) for unit in layer.units], list(layer.axis_labels)
        affine = _after_scale(layer, scale, translate)
        if layer.rgb:
            scale, translate = np.append(scale, 1.0), np.append(translate, 0.0)
            affine = _embedded(affine, [*range(layer.ndim), None])  # colours do not move
            units, labels = [*units, "pixel"], [*labels, "channel"]
        times = [axis for axis, unit in enumerate(units) if unit in TIMES or labels[axis].lower() in ("t", "time")]
        axes = _letters(data.ndim, channel_axis, ndim, layer.name, times)
        known = {letter: PixelSize.known(width, unit) for letter, width, unit in zip(axes, scale, units, strict=True)}
        sizes = {letter: size for letter, size in known.items() if size is not None and _has_size(letter, size)}
        image = replace(ArrayImage.of(data, axes=axes, name=layer.name), pixel_size=sizes)
        return cls(image, ndim, layer.name, scale, translate, tuple(units), tuple(labels), affine)

    @property
    def spatial(self) -> list[int]:
        """The spatial axes of the image, in order."""
        return [self.image.axes.index(letter) for letter in "ZYX"[-self.ndim :]]

    def place_of(self, layer: "Image", position: Sequence[float]) -> list[int]:
        """The pixel of the image at a world position, one number per axis; it may lie outside."""
        data = [float(value) for value in layer.world_to_data(position)]
        return [round(value) for value in data] + [0] * (len(self.image.axes) - len(data))

    def visible(self, layer: "Image", dims: "Dims", factor: Sequence[int]) -> Region:
        """Frame, corner and size, on the target grid, of the region in view, or of its middle if that is large.

        Raises:
            ImageError: If no part of the layer is in view.
        """
        level = np.asarray(layer.downsample_factors[layer.data_level]) if layer.multiscale else np.ones(layer.ndim)
        shown = np.asarray(layer.corner_pixels, float) * level
        here = self.place_of(layer, dims.point)
        displayed = {axis - (dims.ndim - layer.ndim) for axis in dims.displayed}
        corner, size = [], []
        for axis, finer, most in zip(self.spatial, factor, _MOST[len(factor)], strict=True):
            length = self.image.shape[axis]
            low, high = (shown[0, axis], shown[1, axis] + 1) if axis in displayed else (0, length)
            low, high = max(0, int(low)), min(length, int(high))
            if low >= high or (shown[0, axis] == shown[1, axis] and axis in displayed and length > 1):
                # napari moves corners into the layer, so both lie on its edge if it is out of view
                raise ImageError(
                    f"the canvas shows nothing of {self.name}; expected a part of it; move it into view first"
                )
            middle = (low + high) // 2 if axis in displayed else min(max(here[axis], 0), length - 1)
            kept = min(high - low, max(1, most // finer))
            first = min(max(low, middle - kept // 2), high - kept)
            corner.append(first * finer)
            size.append(kept * finer)
        return self.frame_of(here), tuple(corner), tuple(size)

    def frame_of(self, place: Sequence[int]) -> int:
        """Number of the frame at a position of the image; the nearest one if it lies outside."""
        axes = self._frame_axes
        if not axes:
            return 0
        shape = [self.image.shape[axis] for axis in axes]
        inside = [min(max(place[axis], 0), n - 1) for axis, n in zip(axes, shape, strict=True)]
        return int(np.ravel_multi_index(inside, shape))

    def layers(
        self,
        images: dict[str, NDArray[np.float32]],
        *,
        frames: Sequence[int],
        corner: Sequence[int],
        factor: Sequence[int],
        prefix: str = "",
        metadata: dict[str, Any] | None = None,
    ) -> list[tuple[NDArray[np.float32], dict[str, Any]]]:
        """Restored images as data and keyword arguments of image layers, in the order in which to add them.

        Args:
            images: From :meth:`~sfumato.restoration.interactive.Parts.restore`.
            frames: Their frames: all of the image, or one.
            corner: First pixel, on the target grid.
            factor: Restored pixels per pixel of the layer, along each spatial axis.
            prefix: Prefix of the names.
            metadata: Metadata of the layers.
        """
        # Position of the first restored pixel in pixels of the image, and its width in such pixels.
        first, wide = np.zeros(len(self.image.axes)), np.ones(len(self.image.axes))
        for axis, start, finer in zip(self.spatial, corner, factor, strict=True):
            first[axis], wide[axis] = (start + 0.5) / finer - 0.5, 1 / finer
        if len(frames) == 1 and self._frame_axes:
            first[self._frame_axes] = np.unravel_index(frames[0], [self.image.shape[a] for a in self._frame_axes])
        scale, translate = self.scale * wide, self.translate + self.scale * first
        layers = []
        for content in sorted(images, key=["samples", "high", "low", "mean", "std"].index):
            pixels, order = self._arranged(content, images[content], frames)
            new = ["sample" if content == "samples" and place == 0 else "channel" for place in range(len(order))]
            settings = {
                "name": f"{prefix}{self.name} {_TITLES[content]}",
                "scale": [1.0 if axis is None else scale[axis] for axis in order],
                "translate": [0.0 if axis is None else translate[axis] for axis in order],
                "units": ["pixel" if axis is None else self.units[axis] for axis in order],
                "axis_labels": [new[i] if axis is None else self.labels[axis] for i, axis in enumerate(order)],
                "affine": _embedded(self.affine, order),
                "colormap": "magma" if content == "std" else "gray",
                "contrast_limits": _limits(images["std"] if content == "std" else images["mean"]),
                "visible": content in ("mean", "std"),
                "blending": "additive" if content == "std" else "translucent_no_depth",
                "opacity": _OVER if content == "std" else 1.0,
                "metadata": metadata or {},
            }
            layers.append((pixels, settings))
        return layers

    def positions(
        self, mean: NDArray[np.float32], frames: Sequence[int], frame: int, pixels: Sequence[Sequence[float]]
    ) -> NDArray[np.float64]:
        """Where pixels of a restored frame, such as (row, column), are in the data of the mean's layer.

        Args:
            mean: From :meth:`~sfumato.restoration.interactive.Parts.restore`, with the frames ``frames``.
            frames: All frames of the image.
            frame: The one that the pixels are of.
            pixels: Their places, along the spatial axes.
        """
        _, order = self._arranged("mean", mean, frames)
        places = np.unravel_index(frame, [self.image.shape[axis] for axis in self._frame_axes])
        known: dict[int | None, float] = dict(zip(self._frame_axes, map(float, places), strict=True))
        found = [known | dict(zip(self.spatial, pixel, strict=True)) for pixel in pixels]
        return np.array([[at.get(axis, 0.0) for axis in order] for at in found], float).reshape(-1, len(order))

    def _arranged(
        self, content: str, pixels: NDArray[np.float32], frames: Sequence[int]
    ) -> tuple[NDArray[np.float32], list[int | None]]:
        """An image with its axes in the order of the layer, and the layer's axis for each; None for a new one.

        A single channel stays an axis only between others: napari counts axes from the last, so the axes before it
        would move.
        """
        lead = pixels.shape[:1] if content == "samples" else ()
        kept = [self.image.shape[axis] if len(frames) > 1 else 1 for axis in self._frame_axes]
        channels, *spatial = pixels.shape[len(lead) + 1 :]
        pixels = pixels.reshape([*lead, *kept, channels, *spatial])
        where = len(lead) + len(kept)
        rest: list[int | None] = [*[None] * len(lead), *self._frame_axes, *self.spatial]
        place = self.image.axes.find("C")
        if 0 < place < len(self.image.axes) - 1:
            at = len(lead) + sum(axis is not None and axis < place for axis in rest)
            return np.moveaxis(pixels, where, at), [*rest[:at], place, *rest[at:]]
        if channels == 1:
            return pixels.squeeze(where), rest
        new = [0 if place == 0 else None]
        return np.moveaxis(pixels, where, len(lead)), [*rest[: len(lead)], *new, *rest[len(lead) :]]

    @property
    def _frame_axes(self) -> list[int]:
        return [i for i, letter in enumerate(self.image.axes) if i not in self.spatial and letter != "C"]


def _letters(number: int, channel_axis: int | None, ndim: int, name: str, times: Sequence[int] = ()) -> str:
    """Axes of a layer's data: C, the spatial ones last, and the frame axes before those, of which one may be a time."""
    others = [axis for axis in range(number) if axis != channel_axis]
    free = ["Z", "T", "S"] if ndim == 2 else ["T", "S"]
    if not ndim <= len(others) <= ndim + len(free):
        channels = "no axis of channels" if channel_axis is None else f"axis {channel_axis} of channels"
        raise ImageError(
            f"{name} has {number} axes, with {channels}; this model takes {ndim} spatial axes and at most {len(free)} "
            "of frames before them; choose another layer or axis of channels"
        )
    letters = dict(zip(others[-ndim:], "ZYX"[-ndim:], strict=True))
    letters |= {axis: "T" for axis in others[:-ndim] if axis in times[:1]}
    left = [axis for axis in others[:-ndim] if axis not in letters]
    letters |= dict(zip(reversed(left), [letter for letter in free if letter not in letters.values()], strict=False))
    return "".join(letters.get(axis, "C") for axis in range(number))


def _has_size(letter: str, size: PixelSize) -> bool:
    """Whether an axis may have a pixel size: a length for X, Y and Z, a time for T."""
    try:
        check_pixel_size({letter: size}, letter)
    except ImageError:
        return False
    return True


def _after_scale(layer: "Image", scale: NDArray[np.float64], translate: NDArray[np.float64]) -> NDArray[np.float64]:
    """A layer's transform after its scale and translation, as a matrix (ndim + 1, ndim + 1)."""
    number = layer.ndim
    world = np.eye(number + 1)
    world[:-1, -1] = layer.data_to_world([0.0] * number)
    for axis in range(number):
        world[:-1, axis] = np.asarray(layer.data_to_world(np.eye(number)[axis].tolist())) - world[:-1, -1]
    plain = np.diag([*scale, 1.0])
    plain[:-1, -1] = translate
    return np.asarray(world @ np.linalg.inv(plain))


def _embedded(affine: NDArray[np.float64], order: Sequence[int | None]) -> NDArray[np.float64]:
    """The same transform for some axes in another order; new axes (None) are left unchanged."""
    result = np.eye(len(order) + 1)
    known = [place for place, axis in enumerate(order) if axis is not None]
    axes = [axis for axis in order if axis is not None]
    result[np.ix_(known, known)] = affine[np.ix_(axes, axes)]
    result[known, -1] = affine[axes, -1]
    return result


def _limits(image: NDArray[np.float32]) -> tuple[float, float]:
    """Values shown as black and white: quantiles of a subset of the pixels, which is quick."""
    some = image.ravel()[:: max(1, image.size // 100_000)]
    low, high = (float(value) for value in np.quantile(some, [0.002, 0.998]))
    return (low, high) if high > low else (low, low + 1)
