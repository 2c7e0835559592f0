"""Store metadata about the origin of an image beside it, if its format has no room for metadata.

A ``.npy`` holds only numbers, and the labels of an ``.mrc`` are too short. So ``cells.npy`` gets a file
``cells.npy.sfumato.json`` with the metadata, and the size and hash of the image they belong to. If the image was
replaced or changed since, the metadata are ignored.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sfumato.data.images.identity import identify
from sfumato.data.images.io import open_image
from sfumato.data.images.storage import storage_at
from sfumato.system.errors import ImageError
from sfumato.system.marks import json_object

__all__ = ["check_sidecar", "needs_sidecar", "origin_of", "sidecar_of", "write_sidecar"]

_WITHOUT_METADATA = (".npy", ".mrc")
_LONGEST = 2**20


def needs_sidecar(image: str | Path) -> bool:
    """Whether a file's format, by its suffix, has no room for metadata."""
    return Path(image).suffix.lower() in _WITHOUT_METADATA


def sidecar_of(image: str | Path) -> Path:
    """Path of the file with the metadata of an image.

    Example:
        >>> sidecar_of("cells.npy").name
        'cells.npy.sfumato.json'
    """
    return Path(f"{image}.sfumato.json")


def origin_of(image: str | Path) -> dict[str, Any]:
    """Read the metadata that sfumato wrote with an image; empty if there are none or the image was replaced since.

    Raises:
        ImageError: If the image cannot be opened.
    """
    if not needs_sidecar(image):
        return dict(open_image(image).metadata)
    document = _read(sidecar_of(image)) or {}
    told, now = document.get("image"), identify(image)
    if told != {"size": now.size, "digest": now.digest}:
        return {}
    return dict(document["sfumato"])


def check_sidecar(image: str | Path) -> None:
    """Raise ImageError if a file that sfumato did not write has the name of the sidecar."""
    sidecar = sidecar_of(image)
    if needs_sidecar(image) and sidecar.exists() and _read(sidecar) is None:
        raise ImageError(f"{sidecar} exists and is not of sfumato; expected a new name; choose another output")


def write_sidecar(image: str | Path, metadata: Mapping[str, Any], content: Path) -> None:
    """Write the metadata of an image that is about to be moved to its final path.

    Args:
        image: Final path of the image.
        metadata: JSON values.
        content: Current path of the image.

    Raises:
        StorageError: If the place cannot be written to.
    """
    check_sidecar(image)
    found = identify(content)
    document = {"sfumato": dict(metadata), "image": {"size": found.size, "digest": found.digest}}
    sidecar = sidecar_of(image)
    storage_at(sidecar.parent).put({sidecar.name: f"{json.dumps(document, indent=1)}\n".encode()})


def _read(sidecar: Path) -> dict[str, Any] | None:
    """Read a sidecar; None if it does not exist or is another kind of file."""
    try:
        if sidecar.stat().st_size > _LONGEST:
            return None
        document = json_object(sidecar.read_bytes())
    except OSError:
        return None
    return document if isinstance(document.get("sfumato"), dict) else None
