"""What the files of a restoration are called, also of one that version 0.1 began."""

import json
from pathlib import Path

import pytest

from sfumato.restoration.outputs import Output, as_begun, beside


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("r/a_0.5um.tif", "r/a_0.5um_std.tif"),
        ("r.1/a.ome.tif", "r.1/a_std.ome.tif"),
        ("s3://b.c/a.1.zarr/", "s3://b.c/a.1_std.zarr"),
        ("a.b.png", "a.b_std.tif"),
    ],
)
def test_files_beside_the_mean_keep_its_name(place: str, expected: str) -> None:
    assert beside(place, "std") == expected
    assert beside(place, "") == place


def begun(journal: Path, *outputs: Output) -> None:
    journal.mkdir()
    (journal / "job.json").write_text(json.dumps({"outputs": outputs}))


NOW = (Output("mean", "/r/a.5.zarr"), Output("std", "/r/a.5_std.zarr"))
BEFORE = (NOW[0], Output("std", "/r/a_std.5.zarr"))


def test_a_job_that_was_begun_keeps_its_places(tmp_path: Path) -> None:
    assert as_begun(NOW, tmp_path / "none") == NOW
    begun(tmp_path / "journal", *BEFORE)
    assert as_begun(NOW, tmp_path / "journal") == BEFORE


@pytest.mark.parametrize(
    "others",
    [
        (Output("mean", "/r/b.zarr"), BEFORE[1]),
        (NOW[0], Output("std", "/elsewhere/a_std.5.zarr")),
        (NOW[0], Output("quantile", "/r/a_std.5.zarr", level=0.5)),
        BEFORE[:1],
        (),
    ],
)
def test_a_job_of_other_outputs_is_another_one(tmp_path: Path, others: tuple[Output, ...]) -> None:
    begun(tmp_path / "journal", *others)
    assert as_begun(NOW, tmp_path / "journal") == NOW


def test_a_damaged_job_is_left_to_whoever_resumes_it(tmp_path: Path) -> None:
    for number, text in enumerate(
        ("", "[]", '{"outputs": 1}', '{"outputs": [[1, 2, 3, 4, 5]]}', '{"outputs": [[1, 2]]}')
    ):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "job.json").write_text(text)
        assert as_begun(NOW, tmp_path / str(number)) == NOW
