"""Metadata beside images that have no room for them: they belong to one content, and are never taken for another's."""

from pathlib import Path

import numpy as np
import pytest

from sfumato.data.images.convert import copy_image
from sfumato.data.images.io import open_image, write_image
from sfumato.data.images.sidecar import origin_of, sidecar_of
from sfumato.system.errors import ImageError

NOTES = {"seed": 3, "halo": [8, 8], "tile": None, "eta": 0.1}


def copied(folder: Path, suffix: str) -> Path:
    dtype = np.uint8 if suffix == ".png" else np.float32
    write_image(folder / "in.zarr", np.ones((8, 9), dtype), axes="YX", metadata=NOTES)
    copy_image(open_image(folder / "in.zarr"), folder / f"copy{suffix}")
    return folder / f"copy{suffix}"


@pytest.mark.parametrize("suffix", [".tif", ".png", ".npy", ".mrc"])
def test_every_format_tells_its_origin(suffix: str, tmp_path: Path) -> None:
    copy = copied(tmp_path, suffix)
    assert origin_of(copy) == NOTES
    assert sidecar_of(copy).exists() == (suffix in (".npy", ".mrc"))


def test_an_image_that_was_replaced_or_has_no_sidecar_tells_nothing(tmp_path: Path) -> None:
    copy = copied(tmp_path, ".npy")
    content = copy.read_bytes()
    np.save(copy, np.zeros((8, 9), np.float32))
    assert origin_of(copy) == {}
    copy.write_bytes(content)
    assert origin_of(copy) == NOTES
    for damaged in (b"", b"{", b"[]", b'{"sfumato": 1}', b'{"sfumato": {}}'):
        sidecar_of(copy).write_bytes(damaged)
        assert origin_of(copy) == {}
    sidecar_of(copy).unlink()
    assert origin_of(copy) == {}


def test_a_file_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "copy.npy.sfumato.json").write_text("mine")
    with pytest.raises(ImageError, match="not of sfumato"):
        copied(tmp_path, ".npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.npy.sfumato.json", "in.zarr"]
