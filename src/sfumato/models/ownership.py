"""Keep commands from overwriting their inputs, or existing files that sfumato did not write.

Every command passes all its outputs to :func:`check_outputs` before it starts.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from sfumato.data.images.file_names import IMAGE_SUFFIXES
from sfumato.data.images.io import open_image
from sfumato.data.images.ome_zarr import is_zarr
from sfumato.data.images.view import View
from sfumato.data.pairs import read_manifest
from sfumato.models.hub import is_address
from sfumato.system.errors import ImageError, OverwriteError, PairingError
from sfumato.system.marks import Kind

if TYPE_CHECKING:
    from sfumato.models.recipe import DataRecipe

__all__ = ["Written", "check_outputs", "data_places", "image_with"]


class Written(NamedTuple):
    """An output that a command is about to write: a file, or a folder such as a Zarr store."""

    place: str | Path
    kind: Kind


def check_outputs(outputs: Iterable[Written], inputs: Iterable[str | Path | None]) -> None:
    """Refuse outputs that would overwrite or disturb an input or someone else's file.

    Paths are compared through symbolic and hard links. No output may lie inside a Zarr store that is read, no image in
    a folder of images that is read, and no output may contain an input.

    Args:
        outputs: Everything that the command writes.
        inputs: Everything that it reads: files, folders, stores, manifests and addresses; None is ignored.

    Raises:
        OverwriteError: If an output is an input, or exists and is not an earlier output of its kind, or if two outputs
            have the same name.
    """
    given = [place for place in inputs if place is not None and not is_address(place)]
    earlier: list[str | Path] = []
    for place, kind in outputs:
        if not str(place).lower().endswith(kind.suffix):
            raise OverwriteError(f"{place} is to be a {kind.name}; expected a name that ends in {kind.suffix}; add it")
        if any(_is_same(place, other) for other in earlier):
            raise OverwriteError(f"{place} was named for two outputs of this command; give each a name of its own")
        earlier.append(place)
        for source in given:
            _check_apart(place, source)
        if _is_at_address(place):
            continue
        _check_folder(Path(place))
        if not os.path.lexists(place):
            continue
        if not kind.is_ours(Path(place)):
            raise OverwriteError(
                f"{place} exists and is not recognised as sfumato's own {kind.name}, so it was not replaced; "
                "remove it, or choose another name"
            )
        for source in given:
            if any(_is_same(place, file) for file in _files_of(source)):
                raise _is_input(place, source)


def image_with(name: str, is_ours: Callable[[Mapping[str, Any]], bool]) -> Kind:
    """Make a kind of image that is recognised by the metadata that sfumato stores with its pixels."""

    def recognise(path: Path) -> bool:
        try:
            return is_ours(open_image(path).metadata)
        except ImageError:
            return False

    return Kind(name, recognise)


def data_places(data: "DataRecipe") -> list[str | None]:
    """List the paths of a recipe's images, as inputs for :func:`check_outputs`."""
    return [data.inputs, data.targets, data.manifest, data.store, data.folder]


def _check_apart(place: str | Path, source: str | Path) -> None:
    """Refuse an output that is an input, lies in one or contains one."""
    if _is_same(place, source):
        raise _is_input(place, source)
    written, read = _resolved(place), _resolved(source)
    if read.is_relative_to(written):
        raise OverwriteError(f"{place} holds {source}, an input of this command; choose another name for the output")
    if not written.is_relative_to(read):
        return
    if isinstance(read, Path) and not is_zarr(read):
        if not read.is_dir() or written.suffix.lower() not in IMAGE_SUFFIXES:
            return
        raise OverwriteError(
            f"{place} would be among the images of {source}, which this command reads; choose a folder outside it"
        )
    raise OverwriteError(f"{place} is inside {source}, an input of this command; choose a place outside it")


def _check_folder(path: Path) -> None:
    """Refuse a path below a file, where no folder can be created."""
    nearest = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not nearest.is_dir():
        raise OverwriteError(f"{path} would be in {nearest}, which is a file; choose a folder that you may write to")


def _is_input(place: str | Path, source: str | Path) -> OverwriteError:
    origin = "" if str(place) == str(source) else f" ({source})"
    return OverwriteError(
        f"{place} is an input of this command{origin}, so it was not replaced; choose another name for the output"
    )


def _is_same(one: str | Path, other: str | Path) -> bool:
    if _resolved(one) == _resolved(other):
        return True
    with contextlib.suppress(OSError, ValueError):
        return not (_is_at_address(one) or _is_at_address(other)) and Path(one).samefile(other)
    return False


def _resolved(place: str | Path) -> PurePath:
    return PurePosixPath(str(place).rstrip("/")) if _is_at_address(place) else Path(place).resolve()


def _is_at_address(place: str | Path) -> bool:
    return "://" in str(place)


def _files_of(source: str | Path) -> Iterator[Path]:
    """Yield the images of a folder or manifest, which may be links; needed only if an output will be replaced."""
    path = Path(source)
    if _is_at_address(source):
        return
    if path.suffix.lower() == ".csv":
        with contextlib.suppress(PairingError):  # reported when the manifest is read
            for pair in read_manifest(path):
                yield from (side.path if isinstance(side, View) else side for side in (pair.condition, pair.target))
    elif path.is_dir() and not is_zarr(path):
        for folder, _, names in os.walk(path):
            yield from (Path(folder, name) for name in names if name.lower().endswith(IMAGE_SUFFIXES))
