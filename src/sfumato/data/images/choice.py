"""Choose channels, a scene and times of an image file; the rest of the file is left out.

Channels and scenes are given by name or by number, counted from 0. A model knows the names of the channels that it was
trained on, so that it finds them in files that have more.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sfumato.data.images.image import Array, Box, Image
from sfumato.data.images.io import open_image
from sfumato.system.errors import ImageError

__all__ = ["WHOLE", "Choice", "told_channel_names"]

_MOST_TOLD = 20


@dataclass(frozen=True)
class Choice:
    """What to take of an image; by default the first scene with all its channels and times.

    Attributes:
        channels: Names or numbers of channels, in the order in which they are wanted; all if empty.
        scene: Name or number of a scene.
        times: First and last (exclusive) time; the end may be None.

    Example:
        >>> from sfumato.data.images.pixels import ArrayImage
        >>> image = ArrayImage.of(np.arange(12).reshape(3, 2, 2), axes="CYX", name="three")
        >>> Choice(channels=(2, "0")).of(image).read()[:, 0, 0].tolist()
        [8, 0]
    """

    channels: tuple[str | int, ...] = ()
    scene: str | int | None = None
    times: tuple[int, int | None] | None = None

    def open(self, path: str | os.PathLike[str], *, axes: str | None = None, named: Sequence[str] = ()) -> Image:
        """Open what is chosen of a file; ``named`` as in :meth:`resolved`.

        Raises:
            ImageError: If the file cannot be opened or lacks what is chosen.
        """
        return self.of(open_image(path, axes=axes, scene=self.scene), named=named)

    def of(self, image: Image, *, named: Sequence[str] = ()) -> Image:
        """What is chosen of an open image, whose scene is as it was opened.

        Raises:
            ImageError: If the image lacks what is chosen.
        """
        found = self.resolved(image, named=named)
        if not found.channels and found.times is None:
            return image
        channels = tuple(int(number) for number in found.channels) or tuple(range(image.num_channels))
        first, last = found.times or (0, None)
        lengths = dict(zip(image.axes, image.shape, strict=True))
        lengths |= {axis: length for axis, length in (("C", len(channels)),) if axis in lengths}
        lengths |= {axis: last - first for axis in "T" if axis in lengths and last is not None}
        return _Chosen(
            path=image.path,
            format=image.format,
            axes=image.axes,
            shape=tuple(lengths[axis] for axis in image.axes),
            dtype=image.dtype,
            pixel_size=image.pixel_size,
            metadata=image.metadata,
            memory_budget=image.memory_budget,
            channel_names=tuple(image.channel_names[number] for number in channels) if image.channel_names else (),
            scenes=image.scenes,
            scene=image.scene,
            whole=image,
            channels=channels,
            first_time=first,
        )

    def resolved(self, image: Image, *, named: Sequence[str] = ()) -> "Choice":
        """The same choice in numbers, without what is the default.

        Args:
            image: An open image.
            named: Channels to take if none are chosen and the image has these and others.

        Raises:
            ImageError: If the image lacks what is chosen.
        """
        wanted = self.channels
        if not wanted and image.num_channels > len(named) and set(named) <= set(image.channel_names):
            wanted = tuple(named)
        numbers = tuple(_channel_number(image, channel) for channel in wanted)
        if len(set(numbers)) < len(numbers):
            raise ImageError(
                f"{image.path}: the channels {', '.join(map(str, wanted))} were asked for; expected each once; leave "
                "out what is repeated"
            )
        is_all = numbers == tuple(range(image.num_channels))
        return Choice(() if is_all else numbers, image.scene or None, _times(image, self.times))


WHOLE = Choice()
"""All channels and times of the first scene."""


def told_channel_names(image: Image) -> str:
    """Numbers and names of the channels of an image.

    Example:
        >>> from dataclasses import replace
        >>> from sfumato.data.images.pixels import ArrayImage
        >>> image = ArrayImage.of(np.zeros((2, 4, 4)), axes="CYX", name="two")
        >>> told_channel_names(replace(image, channel_names=("DAPI", "GFP"))), told_channel_names(image)
        ('0 (DAPI), 1 (GFP)', '0, 1')
    """
    names = image.channel_names or ("",) * image.num_channels
    shown = [f"{number} ({name})" if name else str(number) for number, name in enumerate(names[:_MOST_TOLD])]
    return ", ".join(shown) + (f" and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else "")


def _channel_number(image: Image, wanted: str | int) -> int:
    """Number of a channel given by name, whatever the case of its letters, or by number."""
    names, text = [name.casefold() for name in image.channel_names], str(wanted)
    if isinstance(wanted, str) and names.count(text.casefold()) == 1:
        return names.index(text.casefold())
    if text.isdigit() and int(text) < image.num_channels:
        return int(text)
    raise ImageError(
        f"{image.path} has the channels {told_channel_names(image)}, and {wanted!r} was asked for; expected one of "
        "these names or numbers; choose another"
    )


def _times(image: Image, times: tuple[int, int | None] | None) -> tuple[int, int] | None:
    if times is None:
        return None
    length = dict(zip(image.axes, image.shape, strict=True)).get("T", 1)
    first, last = times[0], length if times[1] is None else times[1]
    if not 0 <= first < last <= length:
        raise ImageError(
            f"{image.path} has {length} times (axes {image.axes}), and {first} to {last} (exclusive) were asked for; "
            f"expected a range inside 0 to {length}; choose another, or state the axes"
        )
    return None if (first, last) == (0, length) else (first, last)


@dataclass(frozen=True, kw_only=True)
class _Chosen(Image):
    whole: Image
    channels: tuple[int, ...]
    first_time: int

    def _working_bytes(self, box: Box) -> int:
        regions = self._regions(box)
        behind = self.whole._working_bytes(regions[0])
        # Channels that do not follow each other are read one by one and then joined.
        return behind if len(regions) == 1 else behind + _size(box) * self.dtype.itemsize

    def _fetch(self, box: Box) -> Array:
        parts = [self.whole.read(dict(zip(self.whole.axes, region, strict=True))) for region in self._regions(box)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, self.whole.axes.index("C"))

    def _regions(self, box: Box) -> list[Box]:
        """Regions of the whole image that, joined along C, are a region of this one."""
        spans = dict(zip(self.whole.axes, box, strict=True))
        if "T" in spans:
            spans["T"] = slice(spans["T"].start + self.first_time, spans["T"].stop + self.first_time)
        if "C" not in spans:
            return [tuple(spans.values())]
        chosen = self.channels[spans["C"]]
        if all(b == a + 1 for a, b in pairwise(chosen)):
            return [tuple((spans | {"C": slice(chosen[0], chosen[-1] + 1)}).values())]
        return [tuple((spans | {"C": slice(number, number + 1)}).values()) for number in chosen]


def _size(box: Box) -> int:
    return int(np.prod([part.stop - part.start for part in box], dtype=np.int64))
