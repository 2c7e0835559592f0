"""Evaluation: scores, tables and a page of methods whose errors are known."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

from data_sets import make_photographs
from pair_folders import TINY, make_pairs
from sfumato.cli import app
from sfumato.data.images.io import write_image
from sfumato.data.pack import pack
from sfumato.data.pairs import find_pairs
from sfumato.data.sources import FilePairs
from sfumato.evaluation.compared_methods import Deconvolution, Method, classical_method, model_method, open_model
from sfumato.evaluation.evaluate import Evaluation, average_units, evaluate, summarise, too_few
from sfumato.evaluation.report_page import markdown, web_page, write_csv
from sfumato.models.model_file import load
from sfumato.models.recipe import DataRecipe, Recipe, parse
from sfumato.statistics import metrics
from sfumato.system.errors import ImageError, PairingError, RecipeError
from sfumato.training.preparation import open_sources, open_test_set
from sfumato.training.train import train
from small_runs import recipe

Image = NDArray[np.generic]
FINE = Deconvolution(pixel_um=0.06, numerical_aperture=1.25, wavelength_um=0.5)


def noisy(name: str, size: float, truths: NDArray[np.float32], seed: int) -> Method:
    """A method whose error is known: the truth and noise of a given size."""

    def run(_: Image, image: int) -> NDArray[np.float32]:
        noise = np.random.default_rng([seed, image]).standard_normal(truths[image].shape)
        return np.asarray(truths[image] + size * noise, np.float32)

    return Method(name, run)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> FilePairs:
    folder = tmp_path_factory.mktemp("pairs")
    return FilePairs(find_pairs(*make_pairs(folder, number=12, shape=(32, 40))))


@pytest.fixture(scope="module")
def found(source: FilePairs) -> Evaluation:
    truths = np.stack([source.read(index, [0, 0], (32, 40))[1] for index in range(len(source))]).astype(np.float32)
    sizes = {"good": 0.05, "fair | <b>": 0.07, "poor": 0.3}
    methods = [noisy(name, size, truths, seed) for seed, (name, size) in enumerate(sizes.items())]
    return evaluate([*methods, classical_method("bicubic")], source)


def test_scores_are_the_metrics_of_each_image(found: Evaluation, source: FilePairs) -> None:
    condition, truth = (torch.from_numpy(side.astype(np.float64))[None] for side in source.read(5, [0, 0], (32, 40)))
    names = [metric.name for metric in found.metrics]
    assert names == ["MAE", "NRMSE", "PSNR (dB)", "SSIM"]
    assert "MS-SSIM is left out" in found.notes[0]
    expected = [
        float(measure(condition, truth)) for measure in (metrics.mae, metrics.nrmse, metrics.psnr, metrics.ssim)
    ]
    np.testing.assert_allclose(found.values[:, 3, 5], expected, rtol=1e-6)
    assert found.values.shape == (4, 4, 12)


def test_places_and_intervals(found: Evaluation) -> None:
    for row in summarise(found):
        assert (row.ranking.best, row.ranking.second) == (0, 1)
        for mean, (low, high) in zip(row.means, row.intervals, strict=True):
            assert low < mean < high
    assert too_few(found) is None


def test_the_table_is_marked_as_the_paper_does(found: Evaluation) -> None:
    table = markdown(found, summarise(found)).splitlines()
    assert table[0] == "| metric | good | fair &#124; &lt;b&gt; | poor | bicubic |"
    assert re.match(r"\| MAE ↓ \| \*\*0\.0\d+\*\* \(0\.\d+ to 0\.\d+\) \| <u>0\.0\d+</u> ", table[2])
    assert table[2].count("**") == 2


def test_the_page_is_whole(found: Evaluation) -> None:
    """Nothing is fetched, names are escaped, and every method is shown for every example."""
    page = web_page(found, summarise(found))
    assert "http" not in page
    assert not re.search(r"src='(?!data:)|<script|<link|url\(", page)
    assert "fair | &lt;b&gt;" in page
    assert "fair | <b>" not in page
    assert page.count("<figure>") == 3 * (2 + 4 + 4)
    assert page.count("colour scale") == 3


def test_the_csv_reads_back(found: Evaluation, tmp_path: Path) -> None:
    write_csv(found, tmp_path / "scores.csv")
    with (tmp_path / "scores.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12 * 4
    assert float(rows[4 * 5 + 3]["SSIM"]) == found.values[3, 3, 5]


def test_affine_fit_forgives_scale_and_offset(source: FilePairs) -> None:
    other = Method("other units", lambda measured, _: np.asarray(5 - 3 * measured.astype(np.float32), np.float32))
    plain, fitted = (evaluate([classical_method("bicubic"), other], source, affine=affine) for affine in (False, True))
    assert plain.values[0, 1, 0] > 10 * plain.values[0, 0, 0]
    np.testing.assert_allclose(fitted.values[:, 0], fitted.values[:, 1], rtol=1e-4)
    assert "scale and offset" in markdown(fitted, summarise(fitted))


def test_what_is_known_up_to_its_scale_is_not_compared_as_it_is(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path, number=4)
    made = train(recipe(folders, train_steps=2, data_normalize="image"), tmp_path / "run", quiet=True)
    methods = [classical_method("bicubic"), model_method("ours", load(made.model_file), num_samples=2, num_steps=2)]
    pairs = FilePairs(find_pairs(*folders))
    with pytest.raises(ImageError, match=r"ours: trained with data.normalize: image.*--affine"):
        evaluate(methods, pairs)
    assert evaluate(methods, pairs, affine=True, allow_seen=True).values.shape[1] == 2


def test_large_images_get_the_multi_scale_similarity_and_a_resolution(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path, number=2, shape=(176, 180))
    methods = [classical_method(name, FINE) for name in ("bicubic", "wiener", "richardson_lucy")]
    result = evaluate(methods, FilePairs(find_pairs(*folders)), pixel_um=0.06)
    assert [metric.name for metric in result.metrics][-2:] == ["MS-SSIM", "Resolution (nm)"]
    assert bool((result.values[4] > 0).all())
    assert too_few(result) is not None
    assert "no difference can be significant" in markdown(result, summarise(result))


def test_images_without_a_number_are_left_out_and_counted(tmp_path: Path) -> None:
    make_pairs(tmp_path, number=4, shape=(24, 24))
    write_image(tmp_path / "high" / "image1.tif", np.ones((24, 24), np.float32), axes="YX", overwrite=True)
    result = evaluate([classical_method("bicubic")], FilePairs(find_pairs(tmp_path / "low", tmp_path / "high")))
    rows = {row.metric.name: row for row in summarise(result)}
    assert (rows["MAE"].num_images, rows["NRMSE"].num_images) == (4, 3)
    told = markdown(result, list(rows.values()))
    assert "NRMSE: 1 of 4 images have no number for every method and are left out (bicubic: 1 without)." in told


def test_images_of_one_field_are_one_unit(found: Evaluation) -> None:
    """Sorted by name: image0, image1, image10, image11, image2, ...; three begin with the digit 1."""
    pooled = average_units(found, r"image(\d)")
    assert len(pooled.images) == 10
    place = pooled.images.index("1")
    np.testing.assert_allclose(pooled.values[..., place], found.values[..., [1, 2, 3]].mean(-1))
    assert "12 images were averaged to 10 independent units" in markdown(pooled, summarise(pooled))
    with pytest.raises(RecipeError, match="not a regular expression"):
        average_units(found, "(")


def test_fewer_images_are_spread_over_the_set(source: FilePairs) -> None:
    assert evaluate([classical_method("bicubic")], source, most=3).images == ["image0", "image3", "image9"]


def test_what_cannot_be_compared_is_refused(source: FilePairs, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="names that differ"):
        evaluate([classical_method("bicubic")] * 2, source)
    with pytest.raises(RecipeError, match="choose one of bicubic"):
        classical_method("magic")
    with pytest.raises(RecipeError, match="numerical aperture"):
        classical_method("wiener")
    with pytest.raises(ImageError, match="cannot run: pixel_um is 1"):
        evaluate([classical_method("wiener", Deconvolution(1.0, 1.4, 0.5))], source)
    with pytest.raises(ImageError, match="the truth has"):
        evaluate([Method("small", lambda measured, _: np.zeros((1, 4, 4), np.float32))], source)
    with pytest.raises(RecipeError, match="does not say where"):
        open_test_set(Recipe())
    for name in ("a", "b"):
        (tmp_path / f"{name}.tif").touch()
    (tmp_path / "list.csv").write_text("input,target,split\na.tif,b.tif,train\n")
    with pytest.raises(PairingError, match="no samples of the split `test`"):
        open_test_set(Recipe(data=DataRecipe(manifest=str(tmp_path / "list.csv"))))


def test_the_command_compares_models_and_baselines(tmp_path: Path) -> None:
    folders = make_pairs(tmp_path)
    diffusion = train(recipe(folders, train_steps=3), tmp_path / "cvdm", quiet=True).model_file
    regression = train(recipe(folders, train_steps=3, model_method="regression"), tmp_path / "unet", quiet=True)
    assert open_model(str(diffusion))[0] == "cvdm"
    places = ["--inputs", folders[0], "--targets", folders[1], "--out", str(tmp_path / "out")]
    command = ["evaluate", f"ours={diffusion}", str(regression.model_file), "--baseline", "bicubic", "--samples", "2"]
    done = CliRunner().invoke(app, [*command, *places, "--allow-seen"])
    assert done.exit_code == 0, done.output
    assert "| metric | bicubic | ours | unet |" in done.output
    assert "regression, one pass" in done.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"scores.csv", "table.md", "report.html"}
    failed = CliRunner().invoke(app, ["evaluate", "--baseline", "wiener", *places])
    assert failed.exit_code == 2
    assert "needs the microscope's blur" in failed.output
    nowhere = CliRunner().invoke(app, ["evaluate", "--baseline", "bicubic"])
    assert nowhere.exit_code == 2
    assert "nothing says where the test images are" in nowhere.output
    asked = ["evaluate", str(diffusion), "--from-recipe", "--samples", "2", "--out", str(tmp_path / "own")]
    own = CliRunner().invoke(app, asked)
    assert own.exit_code == 0, own.output
    assert "its validation pairs" in own.output
    trained_by = open_model(str(diffusion))[1].info.recipe
    held_out = open_sources(trained_by)["validation"]
    with (tmp_path / "own" / "scores.csv").open(encoding="utf-8") as scores:
        names = [row["image"] for row in csv.DictReader(scores)]
    assert names == [held_out.name(sample) for sample in range(len(held_out))]
    assert 0 < len(names) < 6
    file = tmp_path / "same.yaml"
    file.write_text(json.dumps(trained_by.model_dump(mode="json")), encoding="utf-8")
    same = CliRunner().invoke(app, [*command, "--recipe", str(file), "--out", str(tmp_path / "same")])
    assert same.exit_code == 0, same.output
    assert "its validation pairs" in same.output
    none = trained_by.model_copy(update={"data": trained_by.data.model_copy(update={"validation_fraction": 0.0})})
    with pytest.raises(PairingError, match="not trained on"):
        open_test_set(none, is_own=True)


def test_marked_pairs_are_opened_by_one_function(tmp_path: Path) -> None:
    """Training, validation and test are parts of one list, and the store packed of it has all three."""
    make_pairs(tmp_path)
    marks = ["train"] * 3 + ["validation"] + ["test"] * 2
    lines = [f"low/image{n}.tif,high/image{n}.tif,{mark}" for n, mark in enumerate(marks)]
    (tmp_path / "list.csv").write_text("\n".join(["input,target,split", *lines]))
    listed = Recipe(data=DataRecipe(manifest=str(tmp_path / "list.csv")))
    sources = open_sources(listed)
    assert {split: len(source) for split, source in sources.items()} == {"train": 3, "validation": 1, "test": 2}
    pack(sources, tmp_path / "pairs.zarr")
    packed = open_test_set(Recipe(data=DataRecipe(store=str(tmp_path / "pairs.zarr"))))
    for test in (open_test_set(listed), packed):
        assert [test.name(sample) for sample in range(2)] == ["low/image4.tif", "low/image5.tif"]


def test_the_command_takes_the_test_split_of_a_problem(tmp_path: Path) -> None:
    """By a recipe, and by the recipe that the model holds, wherever its folder has gone."""
    names = [f"{split}/{number}.png" for split in ("train", "test") for number in range(3)]
    photographs = make_photographs(tmp_path / "photographs", names)
    text = Path(__file__).parents[2].joinpath("recipes", "small", "qpi.yaml").read_text(encoding="utf-8")
    file = tmp_path / "qpi.yaml"
    file.write_text(text.replace("folder: photographs", f"folder: {photographs}") + "\n")
    settings = [option for setting in [*TINY, "forward.side_px=32", "train.steps=2"] for option in ("--set", setting)]
    trained = CliRunner().invoke(app, ["train", str(file), "--out", str(tmp_path / "run"), *settings])
    assert trained.exit_code == 0, trained.output
    model = tmp_path / "run" / "model.safetensors"
    file.write_text(file.read_text().replace("forward:", "forward:\n  side_px: 32"))
    expected = [open_test_set(parse(file.read_text())).name(sample) for sample in range(3)]
    assert expected == ["test/0.png", "test/1.png", "test/2.png"]
    photographs.rename(tmp_path / "moved")
    ways = {
        "recipe": ["--recipe", str(file), "--folder", str(tmp_path / "moved")],
        "model": ["--folder", str(tmp_path / "moved")],
    }
    for name, options in ways.items():
        out = tmp_path / f"out_{name}"
        done = CliRunner().invoke(app, ["evaluate", str(model), *options, "--samples", "2", "--out", str(out)])
        assert done.exit_code == 0, done.output
        with (out / "scores.csv").open(encoding="utf-8") as scores:
            assert [row["image"] for row in csv.DictReader(scores)] == expected
    gone = CliRunner().invoke(app, ["evaluate", str(model), "--from-recipe"])
    assert gone.exit_code == 2
    assert "does not exist" in gone.output
