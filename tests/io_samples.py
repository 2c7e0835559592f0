"""Small valid images of every format and layout that the readers know, each with the pixels it must give."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import mrcfile
import numpy as np
import numpy.typing as npt
import tifffile
import zarr
from PIL import Image as PillowImage

from sfumato.data.images.image import PixelSize
from sfumato.data.images.io import write_image

__all__ = ["Sample", "deltavision", "mrc_header", "pattern", "write_samples"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """An image file and what is in it."""

    path: Path
    pixels: Array
    axes: str
    pixel_size: dict[str, PixelSize]


def pattern(*shape: int, dtype: npt.DTypeLike = np.uint16) -> Array:
    """Pixels that differ from their neighbours along every axis, with long runs and with noise."""
    noise = np.random.default_rng(len(shape)).integers(0, 200, shape)
    noise[..., : shape[-1] // 2] = np.indices(shape)[:-1].sum(0)[..., : shape[-1] // 2]
    return noise.astype(dtype)


def mrc_header(shape: tuple[int, int, int], mode: int, *, cell: tuple[float, float, float], order: str = "<") -> bytes:
    """Header of an MRC file of (sections, rows, columns) pixels, written out by hand."""
    header = bytearray(1024)
    struct.pack_into(order + "4i", header, 0, *reversed(shape), mode)
    struct.pack_into(order + "3i3f", header, 28, *reversed(shape), *cell)
    struct.pack_into(order + "3i", header, 64, 1, 2, 3)
    header[208:216] = b"MAP " + (b"\x44\x44\0\0" if order == "<" else b"\x11\x11\0\0")
    return bytes(header)


def deltavision(
    shape: tuple[int, int, int], mode: int, *, times: int = 1, waves: int = 1, sequence: int = 0, order: str = "<"
) -> bytes:
    """Header of a DeltaVision file: no id, no stamp, and the pixel size where MRC has the cell."""
    header = bytearray(mrc_header(shape, mode, cell=(0.065, 0.065, 0.2), order=order))
    header[208:216] = bytes(8)
    struct.pack_into(order + "3i", header, 28, 4, 4, 4)  # intervals, which mean nothing here
    struct.pack_into(order + "h", header, 96, -16224)
    struct.pack_into(order + "hh", header, 180, times, sequence)
    struct.pack_into(order + "h", header, 196, waves)
    return bytes(header)


def _micrometer(**sizes: float) -> dict[str, PixelSize]:
    return {axis: PixelSize(size, "micrometer") for axis, size in sizes.items()}


def _tiffs(folder: Path) -> list[Sample]:
    stack, plane = pattern(3, 20, 30), pattern(40, 50)
    options: dict[str, tuple[Array, str, dict[str, Any]]] = {
        "block": (stack, "ZYX", {}),
        "strips": (stack, "ZYX", {"compression": "zlib", "rowsperstrip": 7, "predictor": 2}),
        "tiles": (plane, "YX", {"compression": "zlib", "tile": (16, 32)}),
        "big_endian": (stack, "ZYX", {"byteorder": ">", "rowsperstrip": 7, "compression": "zlib"}),
        "bigtiff": (stack, "ZYX", {"bigtiff": True, "compression": "zlib"}),
        "tiles_plain": (plane, "YX", {"tile": (16, 32)}),
        "rgb": (
            pattern(20, 30, 3, dtype=np.uint8),
            "YXC",
            {"photometric": "rgb", "rowsperstrip": 6, "compression": "zlib"},
        ),
        "planar": (
            pattern(3, 20, 30, dtype=np.float32),
            "CYX",
            {"photometric": "rgb", "planarconfig": "separate", "compression": "zlib"},
        ),
    }
    samples = []
    for name, (pixels, axes, how) in options.items():
        path = folder / f"{name}.tif"
        tifffile.imwrite(path, pixels, **{"photometric": "minisblack", "metadata": None, **how})
        samples.append(Sample(path, pixels, axes, {}))
    for name in ("zstd", "jpeg", "jpeg2000", "jpegxr", "jpegxl"):
        path = folder / f"{name}.tif"
        tifffile.imwrite(path, pattern(40, 50, dtype=np.uint8), compression=name, tile=(16, 32), metadata=None)
        samples.append(Sample(path, tifffile.imread(path), "YX", {}))
    for name in ("lzw", "packbits"):
        path = folder / f"{name}.tif"
        PillowImage.fromarray(plane).save(path, compression=name if name == "packbits" else "tiff_lzw")
        samples.append(Sample(path, plane, "YX", {}))
    return samples


def _described_tiffs(folder: Path) -> list[Sample]:
    imagej, shaped, ome = pattern(2, 3, 4, 10, 12), pattern(2, 3, 10, 12, dtype=np.int64), pattern(2, 3, 10, 12)
    tifffile.imwrite(folder / "ome_plain.tif", ome, ome=True, rowsperstrip=4, metadata={"axes": "CZYX"})
    tifffile.imwrite(folder / "ome_rgb.tif", ome[0, 0].repeat(3).reshape(10, 12, 3), ome=True, photometric="rgb")
    path = folder / "imagej.tif"
    tifffile.imwrite(
        path,
        imagej,
        imagej=True,
        resolution=(1 / 0.1, 1 / 0.2),
        metadata={"axes": "TZCYX", "unit": "um", "spacing": 0.5, "finterval": 2.0},
    )
    seconds = {"T": PixelSize(2.0, "second")}
    samples = [Sample(path, imagej, "TZCYX", _micrometer(X=0.1, Y=0.2, Z=0.5) | seconds)]
    sizes = _micrometer(X=0.1, Y=0.2)
    write_image(folder / "shaped.tif", shaped, axes="SZYX", pixel_size=sizes)
    write_image(folder / "ome.tif", ome, axes="CZYX", pixel_size=sizes, metadata={"seed": 1})
    samples.append(Sample(folder / "shaped.tif", shaped, "SZYX", sizes))
    samples.append(Sample(folder / "ome_plain.tif", ome, "CZYX", {}))
    samples.append(Sample(folder / "ome_rgb.tif", ome[0, 0].repeat(3).reshape(10, 12, 3), "YXC", {}))
    return [*samples, Sample(folder / "ome.tif", ome, "CZYX", sizes)]


def _mrcs(folder: Path) -> list[Sample]:
    stack, frames = pattern(3, 20, 30, dtype=np.float32), pattern(6, 20, 30)
    with mrcfile.new(folder / "plain.mrc") as file:
        file.set_data(stack)
        file.voxel_size = 2.5
    angstrom = {axis: PixelSize(2.5, "angstrom") for axis in "XYZ"}
    (folder / "deltavision.dv").write_bytes(deltavision((6, 20, 30), 6, waves=2, sequence=1) + frames.tobytes())
    sizes = _micrometer(X=0.065, Y=0.065, Z=0.2)
    return [
        Sample(folder / "plain.mrc", stack, "ZYX", angstrom),
        Sample(folder / "deltavision.dv", frames.reshape(3, 2, 20, 30), "ZCYX", sizes),
    ]


def _pictures(folder: Path) -> list[Sample]:
    samples = []
    for name, pixels in {
        "grey": pattern(20, 30, dtype=np.uint8),
        "deep": pattern(20, 30) * 300,
        "colour": pattern(20, 30, 3, dtype=np.uint8),
        "deep_colour": pattern(20, 30, 4) * 300,
    }.items():
        path, axes = folder / f"{name}.png", "YXC"[: pixels.ndim]
        write_image(path, pixels, axes=axes, pixel_size=_micrometer(X=0.25, Y=0.5), metadata={"seed": 1})
        samples.append(Sample(path, pixels, axes, _micrometer(X=0.25, Y=0.5)))
    picture = PillowImage.fromarray(pattern(20, 30, 3, dtype=np.uint8)).quantize(16)
    picture.save(folder / "palette.png")
    samples.append(Sample(folder / "palette.png", np.asarray(picture.convert("RGB")), "YXC", {}))
    for name, mode, options in (("colour", "RGB", {"progressive": True}), ("grey", "L", {"comment": b"note"})):
        path = folder / f"{name}.jpg"
        PillowImage.fromarray(pattern(20, 30, 3, dtype=np.uint8)).convert(mode).save(path, dpi=(300, 300), **options)
        with PillowImage.open(path) as decoded:
            pixels = np.asarray(decoded)
        samples.append(Sample(path, pixels, "YXC"[: pixels.ndim], {}))
    return samples


def _arrays(folder: Path) -> list[Sample]:
    volume = pattern(3, 20, 30, dtype=np.float32)
    np.save(folder / "plain.npy", volume)
    np.save(folder / "fortran.npy", np.asfortranarray(volume.astype(">f4")))
    np.savez_compressed(folder / "archive.npz", volume=volume)
    names = ("plain.npy", "fortran.npy", "archive.npz")
    return [Sample(folder / name, volume, "ZYX", {}) for name in names]


def _zarrs(folder: Path) -> list[Sample]:
    sizes = _micrometer(X=0.1, Y=0.2, Z=0.5) | {"T": PixelSize(3.0, "second")}
    movie = pattern(2, 3, 20, 30)
    samples = []
    versions: tuple[Literal["0.4"], Literal["0.5"]] = ("0.4", "0.5")
    for version in versions:
        path = folder / f"movie_{version}.ome.zarr"
        write_image(path, movie, axes="TZYX", pixel_size=sizes, ome_zarr_version=version)
        samples.append(Sample(path, movie, "TZYX", sizes))
    sharded = zarr.create_array(
        folder / "sharded.zarr", data=pattern(20, 30), chunks=(4, 5), shards=(8, 10), dimension_names=["y", "x"]
    )
    return [*samples, Sample(folder / "sharded.zarr", np.asarray(sharded[:]), "YX", {})]


def write_samples(folder: Path) -> dict[str, Sample]:
    """Write one image of each kind into a folder, by file name."""
    makers: list[Callable[[Path], list[Sample]]] = [_tiffs, _described_tiffs, _mrcs, _pictures, _arrays, _zarrs]
    return {sample.path.name: sample for make in makers for sample in make(folder)}
