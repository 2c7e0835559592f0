"""Names that are taken apart: outputs under names that say whose they are, and no two results under one name."""

from pathlib import Path

import pytest

from attack.attacking import FEW, image, pixels, refuses, run
from sfumato.audit.files import read_restored
from sfumato.data.images.io import open_image
from sfumato.models.model_file import load
from sfumato.problems.clinical import read_stack


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_uncertainty_of_a_name_with_a_dot(model: Path, tmp_path: Path) -> None:
    source = image(tmp_path / "in/cell_0.5um.tif")
    (tmp_path / "out").mkdir()
    assert run("restore", model, source, tmp_path / "out/cell_0.5um.tif", *FEW).code == 0
    assert names(tmp_path / "out") == ["cell_0.5um.tif", "cell_0.5um_std.tif"]


@pytest.mark.parametrize(("suffix", "format"), [(".tif", ()), (".zarr", ("--format", ".zarr"))])
def test_a_folder_of_names_with_dots(model: Path, tmp_path: Path, suffix: str, format: tuple[str, ...]) -> None:
    for seed, size in enumerate(("0.5um", "0.7um")):
        image(tmp_path / f"in/cell_{size}.tif", seed)
    assert run("restore", model, tmp_path / "in", tmp_path / "out", *FEW, *format).code == 0
    wanted = {f"cell_{size}{ending}{suffix}" for size in ("0.5um", "0.7um") for ending in ("", "_std")}
    assert wanted <= {*names(tmp_path / "out")}


@pytest.mark.guard
def test_an_ome_tiff_stays_one(model: Path, tmp_path: Path) -> None:
    image(tmp_path / "in/a.ome.tif")
    assert run("restore", model, tmp_path / "in", tmp_path / "out", *FEW).code == 0
    assert names(tmp_path / "out") == ["a.ome.tif", "a_std.ome.tif"]
    assert open_image(tmp_path / "out/a_std.ome.tif").format == open_image(tmp_path / "in/a.ome.tif").format


def test_an_image_named_like_the_uncertainty_of_another(model: Path, tmp_path: Path) -> None:
    for seed, name in enumerate(("a", "a_std")):
        image(tmp_path / f"in/{name}.tif", seed)
    ran = run("restore", model, tmp_path / "in", tmp_path / "out", *FEW)
    refuses(ran, "a.tif and a_std.tif", "both be written to a_std.tif")
    assert not (tmp_path / "out").exists()


def test_a_far_quantile_keeps_its_level(model: Path, tmp_path: Path) -> None:
    ran = run("restore", model, image(tmp_path / "a.tif"), tmp_path / "b.tif", *FEW, "--quantile", "0.9999")
    assert ran.code == 0
    assert (tmp_path / "b_q99.99.tif").is_file()


def test_quantiles_that_are_near_each_other(model: Path, tmp_path: Path) -> None:
    levels = ("--quantile", "0.4", "--quantile", "0.4004")
    assert run("restore", model, image(tmp_path / "a.tif"), tmp_path / "b.tif", *FEW, *levels).code == 0
    low, high = (pixels(tmp_path / f"b_q{level}.tif") for level in ("40", "40.04"))
    assert (low < high).any()


def test_a_quantile_that_is_asked_for_twice(model: Path, tmp_path: Path) -> None:
    levels = ("--quantile", "0.05", "--quantile", "0.05")
    refuses(run("restore", model, image(tmp_path / "a.tif"), tmp_path / "b.tif", *FEW, *levels), "each level once")


@pytest.mark.guard
@pytest.mark.parametrize(("level", "name"), [("0.05", "q05"), ("0.95", "q95"), ("0.975", "q97.5"), ("0.5", "q50")])
def test_usual_quantiles_keep_their_names(model: Path, tmp_path: Path, level: str, name: str) -> None:
    assert run("restore", model, image(tmp_path / "a.tif"), tmp_path / "b.tif", *FEW, "--quantile", level).code == 0
    assert (tmp_path / f"b_{name}.tif").is_file()


@pytest.mark.guard
@pytest.mark.parametrize("level", ["0", "1", "nan", "-0.1"])
def test_levels_that_are_none(model: Path, tmp_path: Path, level: str) -> None:
    ran = run("restore", model, image(tmp_path / "a.tif"), tmp_path / "b.tif", *FEW, f"--quantile={level}")
    refuses(ran, "between 0 and 1")


def test_samples_beside_a_name_with_brackets(model: Path, tmp_path: Path) -> None:
    source, restored = image(tmp_path / "cell[1].tif"), tmp_path / "cell[1]_restored.tif"
    assert run("restore", model, source, restored, *FEW, "--keep-samples").code == 0
    samples = read_restored(load(model), restored, source)[1]
    assert samples is not None
    assert len(samples) == 2


SIDE = 176
"""The least that can be scored."""
FAST = ("--solver", "tie_fft", "--step-um", "2")


def test_two_stacks_of_one_name(tmp_path: Path) -> None:
    files = [image(tmp_path / folder / "cell.tif", seed, (3, SIDE, SIDE)) for seed, folder in enumerate("ab")]
    ran = run("clinical", *files, *FAST, "--out", tmp_path / "out")
    refuses(ran, str(files[0]), str(files[1]), "'cell'")


def test_folders_of_planes_with_dots_in_their_names(tmp_path: Path) -> None:
    folders = [tmp_path / "cell_0.5um", tmp_path / "cell_0.7um"]
    for seed, folder in enumerate(folders):
        for place, name in enumerate(("z-2um", "z0um", "z2um")):
            image(folder / f"{name}.tif", 3 * seed + place, (SIDE, SIDE))
    ran = run("clinical", *folders, *FAST, "--out", tmp_path / "out")
    assert "cell_0.5um: tie_fft" in ran.text
    assert "cell_0.7um: tie_fft" in ran.text


def test_planes_are_told_by_their_names_whatever_the_suffix(tmp_path: Path) -> None:
    for place, name in enumerate(("z-2.5um.ome.tif", "z0um.tif", "z2.5um.ome.tif")):
        image(tmp_path / name, place)
    assert read_stack(tmp_path).distances_um == [-2.5, 0, 2.5]


def test_two_planes_of_one_distance(tmp_path: Path) -> None:
    for place, name in enumerate(("z-2um.tif", "z0um.tif", "z2um.tif", "z2.0um.tif")):
        image(tmp_path / "stack" / name, place, (SIDE, SIDE))
    ran = run("clinical", tmp_path / "stack", *FAST, "--out", tmp_path / "out")
    refuses(ran, "z2.0um.tif", "z2um.tif", "one plane")
