"""Which files may be written: marks that are found again, and places that touch an input."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from networks import seeded
from sfumato.data.images.io import write_image
from sfumato.data.normalize import Normalization
from sfumato.figures.panels import save_picture
from sfumato.figures.plotting import new_figure, save_figure
from sfumato.models.build import build_model
from sfumato.models.model_file import ModelInfo, is_model, save_model
from sfumato.models.model_updates import has_weights_of, set_calibration
from sfumato.models.ownership import Written, check_outputs, image_with
from sfumato.models.recipe import parse
from sfumato.system.errors import OverwriteError
from sfumato.system.marks import ANYTHING, GENERATOR, JOURNAL, NETWORK, PACKAGE, PAGE, PICTURE, json_with
from sfumato.training.run_folder import RunFolder


def check(place: str | Path, *inputs: str | Path) -> None:
    check_outputs([Written(place, ANYTHING)], inputs)


def test_pictures_of_both_libraries_are_known_again_and_others_are_not(tmp_path: Path) -> None:
    save_picture(Image.new("L", (4, 4)), tmp_path / "new" / "pillow.png")
    save_figure(new_figure(1, 1), tmp_path / "new" / "figure.png")
    new_figure(1, 1).savefig(tmp_path / "other.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "new" / "pillow.png").read_bytes()[:20])
    (tmp_path / "text.png").write_bytes(b"\x89PNG Software\0sfumato 1")
    for name in ("pillow", "figure"):
        assert PICTURE.is_ours(tmp_path / "new" / f"{name}.png")
    for name in ("other", "cut", "text", "missing"):
        assert not PICTURE.is_ours(tmp_path / f"{name}.png")
    assert not PICTURE.is_ours(tmp_path / "new")


def test_a_restored_png_is_an_image_and_no_picture(tmp_path: Path) -> None:
    write_image(
        tmp_path / "a.png", np.zeros((4, 4), np.uint8), axes="YX", metadata={"sfumato": "0.1", "content": "mean"}
    )
    assert not PICTURE.is_ours(tmp_path / "a.png")
    assert image_with("mean", lambda notes: notes.get("content") == "mean").is_ours(tmp_path / "a.png")


def test_pages_are_known_by_their_head_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><html><head>{GENERATOR}</head><body></body></html>")
    assert PAGE.is_ours(page)
    page.write_text(f"<!doctype html><html><head></head><body>{GENERATOR}</body></html>")
    assert not PAGE.is_ours(page)


def test_packages_and_descriptions_are_known_by_what_they_hold(tmp_path: Path) -> None:
    for name, text in {"ours": "config:\n  sfumato:\n    sha256: x\n", "other": "name: sfumato\n"}.items():
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr("rdf.yaml", text)
    (tmp_path / "no.zip").write_bytes(b"PK\3\4 and no more")
    assert [PACKAGE.is_ours(tmp_path / f"{name}.zip") for name in ("ours", "other", "no")] == [True, False, False]
    (tmp_path / "a.json").write_text(json.dumps({"asked": 1, "values": [], "more": 2}))
    assert json_with("scores", ("asked", "values")).is_ours(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("[" * 100_000)
    assert not json_with("scores", ("asked", "values")).is_ours(tmp_path / "a.json")
    assert not NETWORK.is_ours(tmp_path / "a.json")


def test_a_journal_is_known_by_its_job_or_by_what_a_kill_leaves(tmp_path: Path) -> None:
    folder = tmp_path / "a.journal"
    folder.mkdir()
    assert JOURNAL.is_ours(folder)
    (folder / "parts").mkdir()
    (folder / f".job.json.{'0' * 32}.unfinished").touch()
    assert JOURNAL.is_ours(folder)
    (folder / "thesis.tex").touch()
    assert not JOURNAL.is_ours(folder)
    (folder / "job.json").write_text(json.dumps({"model_sha256": "", "source": "", "outputs": [], "plan": {}}))
    assert JOURNAL.is_ours(folder)
    (folder / "job.json").write_text("{}")
    assert not JOURNAL.is_ours(folder)


def test_a_model_has_the_weights_of_another_whatever_it_was_calibrated_by(tmp_path: Path) -> None:
    recipe = parse("model: {base: 4, rate_base: 2, num_scales: 2}")
    scaling = Normalization(offset=(0.0,), scale=(1.0,))
    for seed, name in enumerate(("one", "other")):
        weights = seeded(lambda: build_model(recipe.model, 1, 1), seed).state_dict()
        save_model(tmp_path / name, weights, ModelInfo(recipe, 1, 1, scaling, scaling, {}, {"name": name}))
    set_calibration(tmp_path / "one", None, tmp_path / "copy")
    (tmp_path / "text").write_text("text")
    assert has_weights_of(tmp_path / "copy", tmp_path / "one")
    assert not has_weights_of(tmp_path / "other", tmp_path / "one")
    assert not has_weights_of(tmp_path / "text", tmp_path / "one")
    assert is_model(tmp_path / "copy")
    assert not is_model(tmp_path / "text")


def test_an_output_is_no_input_holds_none_and_stands_in_none(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "a.tif").touch()
    write_image(tmp_path / "a.zarr", np.zeros((4, 4), np.uint8), axes="YX")
    with pytest.raises(OverwriteError, match="is an input of this command"):
        check(folder / ".." / "images" / "a.tif", folder / "a.tif")
    with pytest.raises(OverwriteError, match="holds"):
        check(folder, folder / "a.tif")
    with pytest.raises(OverwriteError, match="among the images"):
        check(folder / "deep" / "b.PNG", folder)
    with pytest.raises(OverwriteError, match="is inside"):
        check(tmp_path / "a.zarr" / "notes.txt", tmp_path / "a.zarr")
    with pytest.raises(OverwriteError, match="which is a file"):
        check(folder / "a.tif" / "b.csv", folder)
    check(folder / "report.html", folder)
    check(folder / "b.png", folder / "a.tif")
    check(tmp_path / "gone" / "b.png", tmp_path / "gone")


def test_addresses_are_compared_as_they_are_written() -> None:
    with pytest.raises(OverwriteError, match="is an input of this command"):
        check("s3://bucket/a.zarr/", "s3://bucket/a.zarr")
    with pytest.raises(OverwriteError, match="is inside"):
        check("s3://bucket/a.zarr/b.zarr", "s3://bucket/a.zarr")
    check("s3://bucket/b.zarr", "s3://bucket/a.zarr", "hf://owner/name")


def test_a_picture_of_ours_that_a_folder_or_a_list_leads_to_is_an_input(tmp_path: Path) -> None:
    picture, folder = tmp_path / "look.png", tmp_path / "images"
    save_picture(Image.new("L", (4, 4)), picture)
    written = [Written(picture, PICTURE)]
    folder.mkdir()
    check_outputs(written, [folder])
    (folder / "a.png").symlink_to(picture)
    with pytest.raises(OverwriteError, match=r"is an input of this command .*images"):
        check_outputs(written, [folder])
    manifest = tmp_path / "pairs.csv"
    save_picture(Image.new("L", (4, 4)), tmp_path / "sought.png")
    manifest.write_text("input,target\nlook.png,sought.png\n")
    with pytest.raises(OverwriteError, match=r"is an input of this command .*pairs\.csv"):
        check_outputs(written, [manifest])


def test_names_of_pictures_say_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(OverwriteError, match=r"expected a name that ends in \.png"):
        check_outputs([Written(tmp_path / "a.jpg", PICTURE)], [])
    check_outputs([Written(tmp_path / "a.PNG", PICTURE)], [])
    (tmp_path / "dangling.png").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OverwriteError, match="not recognised as sfumato's own picture"):
        check_outputs([Written(tmp_path / "dangling.png", PICTURE)], [])


def test_a_run_that_was_killed_at_its_start_is_begun(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.start(parse(""))
    check_outputs(folder.files(), [])
    folder.metrics_file.write_text("")
    with pytest.raises(OverwriteError, match=r"metrics\.jsonl"):
        check_outputs(folder.files(), [])
