"""Write two layers as pairs of files, which training and calibration read like any others.

A run on files can be resumed when the viewer is closed, and is checked and recorded like a run of the command line.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sfumato.data.images.io import write_image
from sfumato.data.sources import FrameReader
from sfumato.napari_plugin.layers import Source
from sfumato.system.errors import PairingError

__all__ = ["write_pairs"]

_VALIDATION = 0.1
"""Share of the frames kept for validation."""
_TRAINED = 0.75
"""Share of a single image that is trained on; the rest is for validation."""
_LEAST = 32
"""Least side of a part of a single image, in target pixels."""


class _Part(NamedTuple):
    """Some frames, cropped along one axis, that belong to a split."""

    split: str
    frames: range
    axis: int = 0
    share: tuple[float, float] = (0.0, 1.0)


def write_pairs(folder: Path, inputs: Source, targets: Source, *, holds_out: bool) -> Path:
    """Write two layers into a folder, and a list of the pairs; returns the list.

    Args:
        folder: Where to write; an earlier list there is replaced.
        inputs: The measured layer.
        targets: Its truth, on the same grid or a finer one.
        holds_out: Whether to mark a part for validation: the last tenth of the frames, or the last quarter of a single
            image.

    Raises:
        PairingError: If the layers have different numbers of frames.
    """
    readers = [FrameReader(source.image, source.ndim) for source in (inputs, targets)]
    if readers[0].num_frames != readers[1].num_frames:
        raise PairingError(
            f"{inputs.name} has {readers[0].num_frames} frames and {targets.name} has {readers[1].num_frames}; "
            "expected as many in both; pick other layers, or the axis that holds their channels"
        )
    parts = _parts(readers) if holds_out else [_Part("", range(readers[0].num_frames))]
    rows = []
    for part in parts:
        names = [f"{side}/{part.split or 'pairs'}.ome.tif" for side in ("inputs", "targets")]
        for name, source, reader in zip(names, (inputs, targets), readers, strict=True):
            _write(folder / name, source, reader, part)
        rows.append((*names, part.split))
    listed = folder / "pairs.csv"
    with listed.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("input", "target", "split"), *rows])
    return listed


def _parts(readers: Sequence[FrameReader]) -> list[_Part]:
    """Some for training and, if there is enough, some for validation."""
    number, (coarse, fine) = readers[0].num_frames, (reader.spatial for reader in readers)
    if number > 1:
        first = number - max(1, round(_VALIDATION * number))
        return [_Part("train", range(first)), _Part("validation", range(first, number))]
    axis = int(np.argmax(coarse))
    if fine[axis] % coarse[axis] or (1 - _TRAINED) * fine[axis] < _LEAST:
        return [_Part("train", range(1))]
    cut = round(_TRAINED * coarse[axis]) / coarse[axis]  # at a pixel of the inputs, hence at one of the targets
    cuts = {"train": (0.0, cut), "validation": (cut, 1.0)}
    return [_Part(split, range(1), axis, share) for split, share in cuts.items()]


def _write(path: Path, source: Source, reader: FrameReader, part: _Part) -> None:
    corner, size = [0] * source.ndim, list(reader.spatial)
    first, last = (round(share * reader.spatial[part.axis]) for share in part.share)
    corner[part.axis], size[part.axis] = first, last - first
    pixels = np.stack([reader.read(frame, corner, size) for frame in part.frames])
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = {axis: value for axis, value in source.image.pixel_size.items() if axis in reader.axes}
    write_image(path, pixels, axes=f"TC{reader.axes}", pixel_size=sizes, overwrite=True)
