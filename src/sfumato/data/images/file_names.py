"""Names of image files taken apart: a suffix that formats have is cut off, and nothing else that follows a dot.

`cell_0.5um.tif` is the image `cell_0.5um`; to cut at the first dot would make one of it and `cell_0.7um.tif`.
"""

from pathlib import Path

__all__ = ["IMAGE_SUFFIXES", "MRC_SUFFIXES", "image_stem", "take_apart"]

IMAGE_SUFFIXES = (".tif", ".tiff", ".png", ".jpg", ".jpeg", ".npy", ".mrc", ".zarr")
"""Of the files that are taken for images wherever a folder is searched for pairs."""
MRC_SUFFIXES = (".mrc", ".mrcs", ".dv", ".st", ".rec", ".map")
_OF_TIFF = (".btf", ".tf2", ".tf8", ".lsm", ".stk", ".svs")
_KNOWN = {*IMAGE_SUFFIXES, *MRC_SUFFIXES, *_OF_TIFF, ".npz"}


def take_apart(name: str) -> tuple[str, str]:
    """The name of an image file without its suffix, and the suffix, empty if it is none that images have.

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
    """What an image is called: the last part of its path without the suffix.

    Example:
        >>> image_stem(Path("measured/cell_0.5um.ome.tif"))
        'cell_0.5um'
    """
    return take_apart(path.name)[0]
