"""Split the names of image files into stem and suffix, where only suffixes of image formats count.

`cell_0.5um.tif` is the image `cell_0.5um`; cutting at the first dot would confuse it with `cell_0.7um.tif`.
"""

from pathlib import Path

__all__ = ["IMAGE_SUFFIXES", "MICROSCOPE_SUFFIXES", "MRC_SUFFIXES", "image_stem", "take_apart"]

MICROSCOPE_SUFFIXES = (".czi", ".nd2", ".lif", ".oib")
"""Suffixes of makers' own formats, for which there is the extra `microscopes`."""
IMAGE_SUFFIXES = (".tif", ".tiff", ".png", ".jpg", ".jpeg", ".npy", ".mrc", ".zarr", *MICROSCOPE_SUFFIXES)
"""Suffixes of the files that count as images when a folder is searched for pairs."""
MRC_SUFFIXES = (".mrc", ".mrcs", ".dv", ".st", ".rec", ".map")
_OF_TIFF = (".btf", ".tf2", ".tf8", ".lsm", ".stk", ".svs")
_KNOWN = {*IMAGE_SUFFIXES, *MRC_SUFFIXES, *_OF_TIFF, ".npz"}


def take_apart(name: str) -> tuple[str, str]:
    """Split a file name into stem and image suffix; the suffix is empty if it is not one of an image format.

    Example:
        >>> take_apart("cell_0.5um.tif"), take_apart("cells.OME.TIFF"), take_apart("cell_0.5um")
        (('cell_0.5um', '.tif'), ('cells', '.OME.TIFF'), ('cell_0.5um', ''))
    """
    suffix = Path(name).suffix
    if suffix.lower() not in _KNOWN:
        return name, ""
    stem = name.removesuffix(suffix)
    inner = Path(stem).suffix
    if inner.lower() == ".ome":
        stem, suffix = stem.removesuffix(inner), inner + suffix
    return stem, suffix


def image_stem(path: Path) -> str:
    """Name of an image: the last part of its path without the suffix.

    Example:
        >>> image_stem(Path("measured/cell_0.5um.ome.tif"))
        'cell_0.5um'
    """
    return take_apart(path.name)[0]
