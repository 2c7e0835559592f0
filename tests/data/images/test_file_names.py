"""Names of images taken apart, and paths that lead to one file."""

from pathlib import Path

import pytest

from sfumato.data.images.file_names import image_stem, take_apart
from sfumato.data.images.links import file_key, first_repeat


@pytest.mark.parametrize(
    ("name", "stem", "suffix"),
    [
        ("a.tif", "a", ".tif"),
        ("a.OME.tif", "a", ".OME.tif"),
        ("a.ome.zarr", "a", ".ome.zarr"),
        ("a_0.5um.PNG", "a_0.5um", ".PNG"),
        ("a.b.c.dv", "a.b.c", ".dv"),
        ("a.tif.tif", "a.tif", ".tif"),
        ("a.ome", "a.ome", ""),
        ("a_0.5um", "a_0.5um", ""),
        (".tif", ".tif", ""),
        ("a", "a", ""),
    ],
)
def test_a_suffix_is_one_that_images_have(name: str, stem: str, suffix: str) -> None:
    assert take_apart(name) == (stem, suffix)
    assert image_stem(Path("folder.d") / name) == stem


def test_links_lead_to_one_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("a")
    (tmp_path / "soft").symlink_to("a")
    (tmp_path / "hard").hardlink_to(tmp_path / "b")
    gone = tmp_path / "gone"
    assert first_repeat([tmp_path / "a", tmp_path / "b", gone]) is None
    assert first_repeat([tmp_path / "a", tmp_path / "b", tmp_path / "soft"]) == (tmp_path / "a", tmp_path / "soft")
    assert first_repeat([tmp_path / "b", gone, tmp_path / "hard"]) == (tmp_path / "b", tmp_path / "hard")
    assert file_key(gone) != file_key(tmp_path / "a")
