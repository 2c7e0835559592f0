"""Making OME-Zarr stores: 0.5 on Zarr 3, 0.4 on Zarr 2, with one resolution."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import zarr
from yaozarrs import v04, v05

from sfumato.data.image import Array, PixelSize, arrange
from sfumato.errors import ImageError

__all__ = ["create_ome_zarr", "write_ome_zarr"]

Version = Literal["0.4", "0.5"]

_CHUNKS = {2: {"Y": 1024, "X": 1024}, 3: {"Z": 64, "Y": 128, "X": 128}}
"""Longest chunk along each axis, for images without and with depth: a million pixels."""


def create_ome_zarr(
    path: Path,
    *,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    axes: str,
    pixel_size: Mapping[str, PixelSize] | None = None,
    version: Version = "0.5",
    metadata: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> zarr.Array[Any]:
    """Make an empty OME-Zarr image, to be filled by region.

    Args:
        path: Folder to make.
        shape: Of the whole image.
        dtype: Of its pixels.
        axes: In OME-Zarr's order: T, then S or C, then Z, Y, X.
        pixel_size: By axis letter.
        version: Of OME-Zarr.
        metadata: Anything JSON can hold.
        name: Of the image; that of the folder if not given.

    Returns:
        The array of the only resolution.
    """
    if axes != _order(axes):
        raise ImageError(f"axes are {axes}; OME-Zarr expects them in the order {_order(axes)}; transpose the array")
    if version not in ("0.4", "0.5"):
        raise ImageError(f"OME-Zarr version is {version!r}; expected '0.4' or '0.5'; choose one of them")
    model = (v05 if version == "0.5" else v04).Image.model_validate(
        _description(axes, pixel_size or {}, name or path.name, version)
    )
    described = model.model_dump(mode="json", exclude_none=True)
    attributes = {"ome": described} if version == "0.5" else described
    extra = {"sfumato": dict(metadata)} if metadata else {}
    zarr_format: Literal[2, 3] = 3 if version == "0.5" else 2
    group = zarr.create_group(path, zarr_format=zarr_format, attributes=attributes | extra)
    longest = _CHUNKS[3 if "Z" in axes else 2]
    return group.create_array(
        "0",
        shape=shape,
        dtype=np.dtype(dtype),
        chunks=tuple(min(length, longest.get(axis, 1)) for axis, length in zip(axes, shape, strict=True)),
        chunk_key_encoding={"name": "default" if zarr_format == 3 else "v2", "separator": "/"},
        dimension_names=list(axes.lower()) if zarr_format == 3 else None,
    )


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
    store = create_ome_zarr(
        path,
        shape=pixels.shape,
        dtype=pixels.dtype,
        axes=ordered,
        pixel_size=pixel_size,
        version=version,
        metadata=metadata,
        name=name,
    )
    store[...] = pixels


def _order(axes: str) -> str:
    """The axes in OME-Zarr's order, if it can hold them."""
    if not {"Y", "X"} <= set(axes) or {"S", "C"} <= set(axes):
        raise ImageError(
            f"axes are {axes}; OME-Zarr expects Y and X, and S or C but not both; write a .tif, or one store for each "
            "of S"
        )
    return "".join(axis for axis in "TSCZYX" if axis in axes)


def _description(axes: str, pixel_size: Mapping[str, PixelSize], name: str, version: Version) -> dict[str, Any]:
    """Metadata of an image with one resolution."""
    types = {"T": "time", "C": "channel", "S": "sample"}
    entries = [{"name": axis.lower(), "type": types.get(axis, "space")} for axis in axes]
    for entry, axis in zip(entries, axes, strict=True):
        if axis in pixel_size:
            entry["unit"] = pixel_size[axis].unit
    scale = [pixel_size[axis].value if axis in pixel_size else 1.0 for axis in axes]
    transforms = [{"type": "scale", "scale": scale}]
    image: dict[str, Any] = {
        "name": name,
        "axes": entries,
        "datasets": [{"path": "0", "coordinateTransformations": transforms}],
    }
    if version == "0.4":
        return {"multiscales": [{"version": "0.4", **image}]}
    return {"version": "0.5", "multiscales": [image]}
