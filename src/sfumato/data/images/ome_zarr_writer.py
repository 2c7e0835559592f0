"""Create OME-Zarr stores (0.5 on Zarr 3, 0.4 on Zarr 2) with a pyramid of coarser and coarser grids.

The pixels of a coarser grid are means over the grid below. Each level halves Y and X. It also halves Z if that brings
voxels closer to cubes, that is, if a voxel would otherwise be thinner along Z than along its other sides by more than
the square root of 2; without pixel sizes, voxels count as cubes. Odd lengths are rounded up, and the last pixel is then
the mean of the pixels that exist. Axes of length 1 stay.

On a level that joins f pixels of the finest level, the centre of pixel 0 lies between the finest pixels 0 and f - 1,
which is

.. math:: (f - 1) / 2

finest pixels away from the centre of the first of them.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.store import Store

from sfumato.data.images.image import Array, PixelSize, arrange, check_axes, check_dtype
from sfumato.system.errors import ImageError

__all__ = ["Level", "Version", "create_ome_zarr", "halve_pixels", "plan_levels", "write_ome_zarr"]

Version = Literal["0.4", "0.5"]

_CHUNKS = {2: {"Y": 1024, "X": 1024}, 3: {"Z": 64, "Y": 128, "X": 128}}
"""Longest chunk along each axis, for images without and with depth: a million pixels."""


class Level(NamedTuple):
    """One grid of a pyramid: its shape, and the number of finest pixels per pixel along each axis."""

    shape: tuple[int, ...]
    factors: tuple[int, ...]


def create_ome_zarr(
    place: Path | Store,
    *,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    axes: str,
    pixel_size: Mapping[str, PixelSize] | None = None,
    chunks: Sequence[int] | None = None,
    shards: Sequence[int] | None = None,
    num_levels: int = 1,
    version: Version = "0.5",
    metadata: Mapping[str, Any] | None = None,
    name: str = "",
) -> list[zarr.Array[Any]]:
    """Create an empty OME-Zarr image to fill by region; pixels that are never written read as 0.

    Each level halves Y and X, and Z if that brings voxels closer to cubes (:func:`plan_levels`). Scales and
    translations are written so that the levels overlay.

    Args:
        place: Folder to create, or a Zarr store.
        shape: Shape of the whole image.
        dtype: Type of its pixels.
        axes: Axes in OME-Zarr's order: T, then S or C, then Z, Y, X.
        pixel_size: Pixel sizes by axis letter.
        chunks: Pixels that are compressed together, along each axis; about a million in all if None.
        shards: Pixels that share a file, along each axis, multiples of ``chunks``; one file per chunk if None.
        num_levels: Number of pyramid levels; 1 is the image alone.
        version: Version of OME-Zarr; only 0.5 has shards.
        metadata: JSON values to store with the image.
        name: Name of the image; the name of the folder if empty.

    Returns:
        The arrays of the levels, finest first.
    """
    check_axes(axes, len(shape))
    if axes != _order(axes):
        raise ImageError(f"axes are {axes}; OME-Zarr expects them in the order {_order(axes)}; transpose the array")
    if version not in ("0.4", "0.5"):
        raise ImageError(f"OME-Zarr version is {version!r}; expected '0.4' or '0.5'; choose one of them")
    if version == "0.4" and shards is not None:
        raise ImageError(f"shards are {shards} for OME-Zarr 0.4; expected none there; leave them out or write 0.5")
    if min(shape) < 1:
        raise ImageError(
            f"the shape is {shape}; expected at least one pixel along each axis; there is nothing to write"
        )
    levels = plan_levels(shape, axes, pixel_size, num_levels=num_levels)
    grids = [_grid(level.shape, axes, chunks, shards) for level in levels]
    title = name or (place.name if isinstance(place, Path) else "")
    described = _description(axes, pixel_size or {}, levels, title, version)
    attributes = {"ome": described} if version == "0.5" else described
    group = zarr.create_group(
        place, zarr_format=3 if version == "0.5" else 2, attributes={**attributes, "sfumato": dict(metadata or {})}
    )
    return [
        group.create_array(
            str(number),
            shape=level.shape,
            dtype=check_dtype(dtype),
            chunks=grid[0],
            shards=grid[1],
            fill_value=0,
            **_layout(axes, version),
        )
        for number, (level, grid) in enumerate(zip(levels, grids, strict=True))
    ]


def _layout(axes: str, version: Version) -> dict[str, Any]:
    """Options for creating arrays that differ between Zarr 2 and 3."""
    if version == "0.4":
        return {"chunk_key_encoding": {"name": "v2", "separator": "/"}}
    return {
        "chunk_key_encoding": {"name": "default", "separator": "/"},
        "dimension_names": list(axes.lower()),
        # Its checksum detects damaged chunks.
        "compressors": [{"name": "zstd", "configuration": {"level": 1, "checksum": True}}],
    }


def _grid(
    shape: tuple[int, ...], axes: str, chunks: Sequence[int] | None, shards: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Chunk and shard of an array, no longer than necessary."""
    longest = _CHUNKS[3 if "Z" in axes else 2]
    wanted = [longest.get(axis, 1) for axis in axes] if chunks is None else list(chunks)
    joined = wanted if shards is None else list(shards)
    fits = len(wanted) == len(joined) == len(shape) and min(wanted) > 0 and min(joined) > 0
    if not fits or any(length % part for length, part in zip(joined, wanted, strict=True)):
        raise ImageError(
            f"chunks are {wanted} in shards of {joined} for axes {axes}; expected positive numbers, one for each axis, "
            "and shards that are multiples of chunks; give other ones or leave them out"
        )
    chunk = tuple(min(length, part) for length, part in zip(shape, wanted, strict=True))
    if shards is None:
        return chunk, None
    counts = [-(-length // part) for length, part in zip(shape, chunk, strict=True)]
    most = [length // part for length, part in zip(joined, wanted, strict=True)]
    return chunk, tuple(part * min(sizes) for part, *sizes in zip(chunk, counts, most, strict=True))


def write_ome_zarr(
    path: Path,
    array: Array,
    axes: str,
    pixel_size: Mapping[str, PixelSize],
    metadata: Mapping[str, Any],
    *,
    version: Version,
    name: str,
) -> None:
    """Write an array as OME-Zarr, its axes in OME-Zarr's order."""
    ordered = _order(axes)
    pixels = arrange(array, axes, ordered)
    finest, *_ = create_ome_zarr(
        path,
        shape=pixels.shape,
        dtype=pixels.dtype,
        axes=ordered,
        pixel_size=pixel_size,
        version=version,
        metadata=metadata,
        name=name,
    )
    finest[...] = pixels


def _order(axes: str) -> str:
    """Return the axes in OME-Zarr's order, or raise ImageError if it cannot hold them."""
    if not {"Y", "X"} <= set(axes) or {"S", "C"} <= set(axes):
        raise ImageError(
            f"axes are {axes}; OME-Zarr expects Y and X, and S or C but not both; write a .tif, or one store for each "
            "of S"
        )
    return "".join(axis for axis in "TSCZYX" if axis in axes)


def _description(
    axes: str, pixel_size: Mapping[str, PixelSize], levels: Sequence[Level], name: str, version: Version
) -> dict[str, Any]:
    """Metadata of an image and its pyramid; tests validate them with yaozarrs."""
    types = {"T": "time", "C": "channel", "S": "sample"}
    entries = [{"name": axis.lower(), "type": types.get(axis, "space")} for axis in axes]
    for entry, axis in zip(entries, axes, strict=True):
        if axis in pixel_size:
            entry["unit"] = pixel_size[axis].unit
    finest = [pixel_size[axis].value if axis in pixel_size else 1.0 for axis in axes]
    datasets = [
        {"path": str(number), "coordinateTransformations": _transforms(finest, level.factors)}
        for number, level in enumerate(levels)
    ]
    image: dict[str, Any] = {"name": name, "axes": entries, "datasets": datasets}
    if len(levels) > 1:
        image["type"] = "mean"
    if version == "0.4":
        return {"multiscales": [{"version": "0.4", **image}]}
    return {"version": "0.5", "multiscales": [image]}


def _transforms(finest: Sequence[float], factors: Sequence[int]) -> list[dict[str, Any]]:
    """Pixel distance of a level, and the offset of its first pixel's centre from that of the finest level."""
    scale = [size * factor for size, factor in zip(finest, factors, strict=True)]
    transforms: list[dict[str, Any]] = [{"type": "scale", "scale": scale}]
    if max(factors) > 1:
        shift = [size * (factor - 1) / 2 for size, factor in zip(finest, factors, strict=True)]
        transforms.append({"type": "translation", "translation": shift})
    return transforms


def plan_levels(
    shape: Sequence[int], axes: str, pixel_size: Mapping[str, PixelSize] | None = None, *, num_levels: int
) -> list[Level]:
    """Plan the grids of a pyramid, finest first.

    Raises:
        ImageError: If the image cannot be halved that often.

    Example:
        >>> [level.shape for level in plan_levels((3, 100, 75), "CYX", num_levels=3)]
        [(3, 100, 75), (3, 50, 38), (3, 25, 19)]
    """
    levels = [Level(tuple(shape), (1,) * len(shape))]
    while len(levels) < num_levels:
        steps = _steps(levels[-1], axes, pixel_size or {})
        if set(steps) == {1}:
            break
        halved = tuple(-(-length // step) for length, step in zip(levels[-1].shape, steps, strict=True))
        levels.append(Level(halved, tuple(f * step for f, step in zip(levels[-1].factors, steps, strict=True))))
    if num_levels != len(levels):
        raise ImageError(
            f"{num_levels} levels were asked for an image of shape {tuple(shape)} ({axes}); expected 1 to "
            f"{len(levels)}; ask for fewer"
        )
    return levels


def _steps(level: Level, axes: str, pixel_size: Mapping[str, PixelSize]) -> list[int]:
    """Number of pixels joined along each axis to make the next level."""
    factors = dict(zip(axes, level.factors, strict=True))
    halved = {"Y", "X"} | ({"Z"} if "Z" in axes and _is_thin(factors, pixel_size) else set())
    return [2 if axis in halved and length > 1 else 1 for axis, length in zip(axes, level.shape, strict=True)]


def _is_thin(factors: Mapping[str, int], pixel_size: Mapping[str, PixelSize]) -> bool:
    """Whether halving Z with Y and X brings voxels closer to cubes than leaving it alone."""
    known = {"Z", "Y", "X"} <= set(pixel_size)
    sides = {a: (pixel_size[a].to("micrometer") if known else 1.0) * factors[a] for a in "ZYX"}
    return sides["Z"] < math.sqrt(2 * sides["Y"] * sides["X"])


def halve_pixels(pixels: Array, steps: Sequence[int]) -> Array:
    """Average neighbouring pixels, in the type of the pixels.

    Args:
        pixels: Pixels that start at an even position along the axes to be halved.
        steps: 1 or 2 for each axis.

    Returns:
        The means. Integers are rounded, halves to even. Means that include a NaN are NaN.
    """
    wide = np.complex128 if pixels.dtype.kind == "c" else np.float64
    means = pixels.astype(wide)
    for axis, step in enumerate(steps):
        if step == 2:
            first, second = (means.take(range(start, means.shape[axis], 2), axis) for start in (0, 1))
            # A pixel covers one or two pixels along each axis, so the mean of means is the mean of all of them.
            pairs = tuple(slice(length) for length in second.shape)
            first[pairs] = (first[pairs] + second) / 2
            means = first
    if pixels.dtype.kind in "biu":
        means = np.rint(means)
    return means.astype(pixels.dtype)
