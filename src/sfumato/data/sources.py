"""Read pairs of files as numbered samples: each frame of each pair, by region, as (channels, *spatial) arrays.

For a 2-D model the axes S, T and Z of a file are frames; for a 3-D model, S and T are. C is the channel axis. Decoded
frames are cached up to a budget, so that small sets are read from disk once; frames that are too large for the cache
are read by region.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.data.frames import FrameCache, region, upsampled_region
from sfumato.data.images.choice import WHOLE, Choice
from sfumato.data.images.image import Image
from sfumato.data.images.io import open_image
from sfumato.data.images.view import View, as_shares
from sfumato.data.pairs import Pair
from sfumato.data.pixel_hash import PairHashes, pixel_hash
from sfumato.data.source_files import SourceFile
from sfumato.system.bounds import whole
from sfumato.system.errors import PairingError

__all__ = ["FilePairs", "FrameReader", "PairSource", "advice_if_transposed", "evenly_spread"]

Array = NDArray[np.generic]


def evenly_spread(number: int, most: int | None) -> list[int]:
    """Choose at most ``most`` of ``number`` samples: first, last and evenly in between; all if ``most`` is None.

    Example:
        >>> evenly_spread(10, 4), evenly_spread(3, None)
        ([0, 3, 6, 9], [0, 1, 2])
    """
    taken = number if most is None else min(whole("the number of images to take", most), number)
    return [int(index) for index in np.linspace(0, number - 1, taken)]


class PairSource(Protocol):
    """Numbered samples with equal numbers of channels, read by region."""

    ndim: int
    condition_channels: int
    target_channels: int
    dtypes: tuple[np.dtype[Any], np.dtype[Any]]
    """Types of conditions and of targets."""

    @property
    def factor(self) -> tuple[int, ...] | None:
        """Number of target pixels per measured pixel, per axis; None if unknown.

        Conditions are returned on the target's grid; this is the factor by which they were upsampled.
        """

    def __len__(self) -> int:
        """Number of samples."""

    @property
    def num_images(self) -> int:
        """Number of different images; a sample beyond them is another draw of image `sample % num_images`."""
        ...

    def name(self, sample: int) -> str:
        """What to call a sample in messages."""

    def spatial(self, sample: int) -> tuple[int, ...]:
        """Size of a sample's target in pixels."""

    def smallest(self) -> int:
        """A sample with the shortest side."""

    def read(self, sample: int, corner: Sequence[int], size: Sequence[int]) -> tuple[Array, Array]:
        """Read condition (K, *size) and target (C, *size) of a region, as stored."""

    def files(self) -> Iterator[SourceFile]:
        """Yield the files that samples are read from, in order; a file with several roles is yielded once per role."""

    def hashes(self, sample: int) -> PairHashes:
        """Hashes that identify the images elsewhere: taken before rescaling, and without simulated noise."""


class FrameReader:
    """One image file as frames of (channels, *spatial).

    Args:
        image: The open file.
        ndim: Number of spatial axes, 2 or 3.
    """

    def __init__(self, image: Image, ndim: int) -> None:
        self.image = image
        self.axes = "ZYX"[-ndim:]
        missing = [axis for axis in self.axes if axis not in image.axes]
        if missing:
            raise PairingError(
                f"{image.name} has axes {image.axes}, but a {ndim}-D model needs {self.axes}; "
                "state the axes in the recipe or choose another model.ndim"
            )
        lengths = dict(zip(image.axes, image.shape, strict=True))
        self.spatial = tuple(lengths[axis] for axis in self.axes)
        self.channels = lengths.get("C", 1)
        self.frame_axes = [axis for axis in image.axes if axis not in self.axes and axis != "C"]
        self.frame_shape = tuple(lengths[axis] for axis in self.frame_axes)
        self.num_frames = int(np.prod(self.frame_shape, dtype=np.int64))

    def read(self, frame: int, corner: Sequence[int], size: Sequence[int]) -> Array:
        """Read a region of one frame, shape (channels, *size)."""
        places = np.unravel_index(frame, self.frame_shape) if self.frame_axes else ()
        region: dict[str, slice | int] = {a: int(p) for a, p in zip(self.frame_axes, places, strict=True)}
        for axis, start, length in zip(self.axes, corner, size, strict=True):
            region[axis] = slice(int(start), int(start) + int(length))
        kept = [axis for axis in self.image.axes if axis in self.axes or axis == "C"]
        values = self.image.read(region)
        if "C" not in kept:
            values, kept = values[None], ["C", *kept]
        return values.transpose([kept.index(axis) for axis in ("C", *self.axes)])


class FilePairs:
    """The pairs of a list of files, a :class:`PairSource`.

    Args:
        pairs: The files.
        ndim: Number of spatial axes of the model.
        axes: Axes of conditions and of targets, for files that do not specify them.
        upsample: Upsample smaller conditions to the target's grid (bicubic).
        shares: Divide integer images by the largest value of their type.
        cache_bytes: Largest amount of decoded data kept in memory.
        choices: What to take of inputs and of targets; of targets with a single channel, that one.
        named: Channels to take if none are chosen and an image has these and others.

    Attributes:
        pairs: The files.
        readers: Readers of input and target, per pair.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        *,
        ndim: int = 2,
        axes: tuple[str | None, str | None] = (None, None),
        upsample: bool = False,
        shares: bool = False,
        cache_bytes: int = 2**31,
        choices: tuple[Choice, Choice] = (WHOLE, WHOLE),
        named: Sequence[str] = (),
    ) -> None:
        if not pairs:
            raise PairingError("there are no image pairs to train on; check the folders and the splits")
        self.ndim = ndim
        self.pairs = list(pairs)

        def opened(place: Path | View, side: int) -> FrameReader:
            choice = choices[side]
            image = place.open() if isinstance(place, View) else open_image(place, axes=axes[side], scene=choice.scene)
            taken = choice if side == 0 or image.num_channels > 1 else replace(choice, channels=())
            image = taken.of(image, named=named)
            return FrameReader(as_shares(image) if shares else image, ndim)

        self.readers = [(opened(pair.condition, 0), opened(pair.target, 1)) for pair in pairs]
        self.factor = self._equal_factor(upsample)
        self.condition_channels = self._equal_channels(0, "inputs")
        self.target_channels = self._equal_channels(1, "targets")
        self.dtypes = (self._common_dtype(0), self._common_dtype(1))
        self._ends = np.cumsum([target.num_frames for _, target in self.readers])
        self._cache = FrameCache(cache_bytes)

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def channel_names(self) -> tuple[str, ...]:
        """Names of the channels of the inputs, if all inputs have the same; otherwise empty."""
        names = {condition.image.channel_names for condition, _ in self.readers}
        return names.pop() if len(names) == 1 else ()

    @property
    def num_scenes(self) -> int:
        """Largest number of scenes in a file; 1 if no file has several."""
        return max(max(len(reader.image.scenes), 1) for readers in self.readers for reader in readers)

    @property
    def num_images(self) -> int:
        """All samples are different images."""
        return len(self)

    def name(self, sample: int) -> str:
        """The pair's name, with the number of the frame if it has several."""
        index, frame = self._locate(sample)
        several = self.readers[index][1].num_frames > 1
        return f"{self.pairs[index].name}[{frame}]" if several else self.pairs[index].name

    def spatial(self, sample: int) -> tuple[int, ...]:
        """Size of the target."""
        return self.readers[self._locate(sample)[0]][1].spatial

    def smallest(self) -> int:
        """The first frame of the image with the shortest side."""
        index = min(range(len(self.readers)), key=lambda index: min(self.readers[index][1].spatial))
        return int(self._ends[index - 1]) if index else 0

    def read(self, sample: int, corner: Sequence[int], size: Sequence[int]) -> tuple[Array, Array]:
        """Read condition (K, *size) on the target's grid, and target (C, *size)."""
        index, frame = self._locate(sample)
        condition, target = (self._side(index, frame, side, corner, size) for side in (0, 1))
        return condition, target

    def hashes(self, sample: int) -> PairHashes:
        """Hash both images on the target's grid; only the pixels that are hashed are read."""
        index, frame = self._locate(sample)
        channels, spatial = (self.condition_channels, self.target_channels), self.readers[index][1].spatial
        reads = [partial(self._side, index, frame, side, keep=False) for side in (0, 1)]
        return PairHashes(*(pixel_hash(read, number, spatial) for read, number in zip(reads, channels, strict=True)))

    def _side(
        self, index: int, frame: int, side: int, corner: Sequence[int], size: Sequence[int], *, keep: bool = True
    ) -> Array:
        """Read a region of the condition (side 0) or the target (side 1), on the target's grid."""
        reader = self.readers[index][side]
        read = partial(self._region, reader, (index, side, frame), keep=keep)
        return read(corner, size) if side else upsampled_region(read, reader.spatial, self.factor, corner, size)

    def files(self) -> Iterator[SourceFile]:
        """Yield the input and target of each pair."""
        for pair in self.pairs:
            for role, side in (("input", pair.condition), ("target", pair.target)):
                yield SourceFile(f"{role} {pair.name}", side.path if isinstance(side, View) else side)

    def _region(
        self, reader: FrameReader, key: tuple[int, int, int], corner: Sequence[int], size: Sequence[int], *, keep: bool
    ) -> Array:
        """Read a region of a file, from the cache if possible; frames that fit the cache are read whole and kept."""
        frame, whole = key[2], self._cache.held(key)
        whole_bytes = int(np.prod(reader.spatial)) * reader.channels * reader.image.dtype.itemsize
        if whole is None and not (keep and self._cache.fits(whole_bytes)):
            return reader.read(frame, corner, size)
        if whole is None:
            whole = self._cache.get(key, lambda: reader.read(frame, [0] * self.ndim, reader.spatial))
        return region(whole, corner, size)

    def _locate(self, sample: int) -> tuple[int, int]:
        index = int(np.searchsorted(self._ends, sample, side="right"))
        return index, sample - (int(self._ends[index - 1]) if index else 0)

    def _common_dtype(self, side: int) -> np.dtype[Any]:
        """Return a dtype that holds the pixels of all images; interpolated pixels are float32."""
        kinds = {readers[side].image.dtype for readers in self.readers}
        if side == 0 and any(f != 1 for f in self.factor):
            kinds.add(np.dtype(np.float32))
        return np.result_type(*kinds)

    def _equal_factor(self, upsample: bool) -> tuple[int, ...]:
        """Return the upsampling factor that all pairs share: a model learns one factor and restores with it."""
        factors = [_factor(pair, *readers, upsample) for pair, readers in zip(self.pairs, self.readers, strict=True)]
        for pair, factor in zip(self.pairs, factors, strict=True):
            if factor != factors[0]:
                raise PairingError(
                    f"targets have {factors[0]} times as many pixels as inputs in {self.pairs[0].name} and {factor} "
                    f"times in {pair.name}; expected the same in all: leave some out, or resample them"
                )
        return factors[0]

    def _equal_channels(self, side: int, role: str) -> int:
        first = self.readers[0][side]
        for readers in self.readers:
            if readers[side].channels != first.channels:
                raise PairingError(
                    f"{role} have different channels: {first.image.name} has {first.channels} and "
                    f"{readers[side].image.name} {readers[side].channels}; give images with equal channels"
                )
        return first.channels


def advice_if_transposed(condition: FrameReader, target: FrameReader) -> str:
    """Advice if the numbers of pixels fit only with the target's Y and X exchanged; empty otherwise."""
    (rows, columns), (height, width) = condition.spatial[-2:], target.spatial[-2:]
    if height * columns == width * rows or width * columns != height * rows:
        return ""
    axes = target.image.axes.translate(str.maketrans("XY", "YX"))
    return f"the target looks transposed: set data.target_axes to {axes}, or transpose the file"


def _factor(pair: Pair, condition: FrameReader, target: FrameReader, upsample: bool) -> tuple[int, ...]:
    """Number of target pixels per condition pixel, per axis."""
    if condition.num_frames != target.num_frames:
        raise PairingError(
            f"{pair.name}: the input has {condition.num_frames} frames and the target {target.num_frames} (axes "
            f"{condition.image.axes} and {target.image.axes}); give as many in both, or state the axes in the recipe"
        )
    if condition.spatial == target.spatial:
        return (1,) * len(target.spatial)
    fits = all(t % c == 0 for c, t in zip(condition.spatial, target.spatial, strict=True))
    if not (upsample and fits):
        hint = "resample one of them" if upsample or not fits else "set data.upsample to true"
        hint = advice_if_transposed(condition, target) or hint
        raise PairingError(
            f"{pair.name}: the input has {condition.spatial} pixels and the target {target.spatial}; expected equal "
            f"sizes, or whole multiples with upsampling: {hint}"
        )
    return tuple(t // c for c, t in zip(condition.spatial, target.spatial, strict=True))
