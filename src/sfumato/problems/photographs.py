"""Read folders of photographs as squares of equal size: ImageNet's layout, HCOCO with its lists, or any folder.

With equal squares there is no need to open every file before training, which would take long for a million of them.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sfumato.data.frames import FrameCache
from sfumato.data.images.image import arrange
from sfumato.data.images.io import open_image
from sfumato.data.pairs import Pair, split_pairs
from sfumato.data.pixel_hash import array_hash
from sfumato.data.source_files import SourceFile
from sfumato.problems.request import Request, check_folder
from sfumato.system.errors import ImageError, PairingError, RecipeError

__all__ = ["PhotographPairs", "Photographs", "central_square", "find_photographs", "open_photographs"]

_SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff")
_SPLIT_FOLDERS = {"train": "train", "val": "validation", "validation": "validation", "test": "test"}
_LISTS = {"HCOCO_train.txt": "train", "HCOCO_test.txt": "test"}
_LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in a grey image (ITU-R BT.601)."""
_LONGEST_SIDE = 2**13
"""A model file may contain its own settings, and must not be able to exhaust the memory."""


def find_photographs(folder: Path, *, validation_fraction: float = 0.1, seed: int = 0) -> dict[str, list[str]]:
    """Find the paths of images by split, each list sorted by name.

    - With ``HCOCO_test.txt`` in the folder: the images of ``real_images`` that the lists name, each once. The lists
      name composites, such as ``c100_200_1.jpg``, whose real image is ``c100.jpg``.
    - With a folder ``train``, and optionally ``val`` and ``test``: all images below each, as in ImageNet.
    - Otherwise: all images below the folder.

    If there are no validation images, a share of the training images is kept for validation, by a hash of their names.

    Raises:
        PairingError: If there are no images, or a list names a missing one.
    """
    check_folder(folder, expected="a folder of images")
    if any((folder / name).is_file() for name in _LISTS):
        found = {s: _listed(folder, name) for name, s in _LISTS.items() if (folder / name).is_file()}
    elif (folder / "train").is_dir():
        found = {split: _below(folder / name) for name, split in _SPLIT_FOLDERS.items() if (folder / name).is_dir()}
    else:
        found = {"train": _below(folder)}
    if "train" in found and "validation" not in found:
        named = [Pair(os.path.relpath(path, folder), Path(path), Path(path)) for path in found["train"]]
        kept, held_out = split_pairs(named, validation_fraction, seed=seed)
        found |= {"train": [str(p.target) for p in kept], "validation": [str(p.target) for p in held_out]}
    found = {split: paths for split, paths in found.items() if paths}
    if not found:
        raise PairingError(
            f"{folder} holds no images; expected {', '.join(_SUFFIXES)} files in it, or in folders train and val; "
            "set data.folder to where they are"
        )
    return found


def _below(folder: Path) -> list[str]:
    """Find all images below a folder, except hidden ones, as text: a million paths then take a fifth of the memory."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [f"{place}/{name}" for name in files if name.lower().endswith(_SUFFIXES) and name[0] != "."]
    return sorted(found)


def _listed(folder: Path, name: str) -> list[str]:
    """Find the real images of an HCOCO list of composites."""
    lines = (folder / name).read_text(encoding="utf-8").split()
    stems = sorted({Path(line).stem.partition("_")[0] for line in lines})
    paths = [folder / "real_images" / f"{stem}.jpg" for stem in stems]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise PairingError(
            f"{folder / name} names {len(missing)} images that are not in real_images, such as {missing[0]}; "
            "expected all of them; unpack HCOCO again"
        )
    return [str(path) for path in paths]


class Photographs:
    """Numbered square images.

    Args:
        paths: The files.
        side_px: Central squares are resized to this side, with antialiasing.
        channels: 1 for grey, 3 for colour.
        cache_bytes: Largest amount of image data kept in memory.
    """

    def __init__(
        self, paths: Sequence[str], *, side_px: int = 256, channels: int = 1, cache_bytes: int = 2**31
    ) -> None:
        if side_px > _LONGEST_SIDE:
            raise RecipeError(f"forward.side_px is {side_px}; expected at most {_LONGEST_SIDE}; give a smaller side")
        self.paths, self.side_px, self.channels = paths, side_px, channels
        self._cache = FrameCache(cache_bytes)

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        """Last two parts of the path: ImageNet's classes are folders."""
        return "/".join(Path(self.paths[index]).parts[-2:])

    def read(self, index: int) -> NDArray[np.float32]:
        """Read intensities from 0 to 1, shape (channels, side, side)."""
        image = self._cache.get(index, lambda: _square(self._load(self.paths[index]), self.side_px).numpy())
        return np.asarray(image, np.float32)

    def read_part(self, index: int, size: float, place: Sequence[float]) -> NDArray[np.float32]:
        """Read a square inside a photograph, resized to (channels, side, side).

        Args:
            index: Number of the photograph.
            size: Side of the square relative to the photograph's shorter side, from 0 to 1.
            place: Where it lies, down and across, from 0 (first pixel) to 1 (as far as it can be moved).
        """
        whole = self._load(self.paths[index])
        side = max(1, round(size * min(whole.shape[-2:])))
        top, left = (round(at * (length - side)) for at, length in zip(place, whole.shape[-2:], strict=True))
        return _square(whole[..., top : top + side, left : left + side], self.side_px).numpy()

    def files(self) -> Iterator[SourceFile]:
        """Yield each photograph; both input and target are made from it."""
        return (SourceFile(f"photograph {self.name(index)}", path) for index, path in enumerate(self.paths))

    def hash(self, index: int) -> int | None:
        """Hash of the square; None if it is blank."""
        return array_hash(self.read(index))

    def _load(self, path: str) -> Tensor:
        image = open_image(path)
        if image.axes.strip("C") != "YX" and image.axes != "YXC":
            raise ImageError(f"{path} has axes {image.axes}; expected a picture; leave it out")
        wanted = "CYX" if "C" in image.axes else "YX"
        pixels = torch.from_numpy(np.ascontiguousarray(arrange(image.read(), image.axes, wanted)).astype(np.float32))
        if image.dtype.kind in "iu":
            pixels = pixels / np.iinfo(image.dtype).max
        return _in_channels(pixels if pixels.ndim == 3 else pixels[None], self.channels)


class PhotographPairs:
    """Base class of a :class:`~sfumato.data.sources.PairSource` whose samples are made of photographs as they are read.

    Args:
        photographs: The photographs.
        draws: Number of samples per photograph.
        border: Pixels at each border of a photograph that samples do not have.
    """

    ndim = 2
    dtypes: tuple[np.dtype[Any], np.dtype[Any]] = (np.dtype(np.float32), np.dtype(np.float32))

    def __init__(self, photographs: Photographs, *, draws: int = 1, border: int = 0) -> None:
        self.photographs, self.draws, self.side_px = photographs, draws, photographs.side_px - 2 * border

    def __len__(self) -> int:
        return len(self.photographs) * self.draws

    @property
    def num_images(self) -> int:
        """Number of photographs."""
        return len(self.photographs)

    def name(self, sample: int) -> str:
        """Name of the photograph, with the number of the draw if it has several."""
        draw, photograph = divmod(sample, len(self.photographs))
        name = self.photographs.name(photograph)
        return f"{name}[{draw}]" if self.draws > 1 else name

    def spatial(self, sample: int) -> tuple[int, ...]:
        """Size of every sample."""
        return self.side_px, self.side_px

    def smallest(self) -> int:
        """All samples have the same size."""
        return 0

    def files(self) -> Iterator[SourceFile]:
        """Files of the photographs."""
        return self.photographs.files()


def open_photographs(request: Request, **options: Any) -> dict[str, Photographs]:
    """Open the photographs of a folder by split; ``options`` are those of :class:`Photographs`."""
    found = find_photographs(request.folder, validation_fraction=request.validation_fraction, seed=request.seed)
    return {split: Photographs(paths, **options) for split, paths in found.items()}


def _in_channels(pixels: Tensor, channels: int) -> Tensor:
    """Convert to grey or colour, dropping transparency."""
    colour = pixels[:3] if len(pixels) >= 3 else pixels[:1]
    if len(colour) == channels:
        return colour
    if channels == 3:
        return colour.expand(3, -1, -1)
    return (colour * torch.tensor(_LUMA)[:, None, None]).sum(0, keepdim=True)


def _square(pixels: Tensor, side: int) -> Tensor:
    """Resize the central square of (C, H, W) to (C, side, side)."""
    short = min(pixels.shape[-2:])
    middle = central_square(pixels, short)
    if short == side:
        return middle
    return F.interpolate(middle[None], size=(side, side), mode="bicubic", antialias=True)[0].clamp(0, 1)


def central_square(pixels: Tensor, side: int) -> Tensor:
    """Cut the square of this side out of the middle of images (..., H, W).

    Example:
        >>> central_square(torch.arange(5).expand(3, 5), 1).tolist()
        [[2]]
    """
    top, left = ((length - side) // 2 for length in pixels.shape[-2:])
    return pixels[..., top : top + side, left : left + side]
