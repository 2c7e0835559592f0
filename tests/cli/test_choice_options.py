"""Train on one channel, then find that channel in files that have more: by the commands a user would run."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import sfumato
from pair_folders import TINY
from sfumato.cli import app
from sfumato.cli.settings import data_of_student
from sfumato.data.images.io import open_image, write_image
from sfumato.models.recipe import parse
from sfumato.system.errors import RecipeError
from sfumato.training.preparation import open_held_out

SHAPE = (24, 32)
RESTORE = ["--samples", "2", "--steps", "2"]


def field(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Two channels at two times: the second channel is what is to be restored."""
    generator = np.random.default_rng(number)
    high = 100 + 50 * generator.random((2, 2, *SHAPE), dtype=np.float32)
    low = high + generator.normal(0, 5, high.shape).astype(np.float32)
    low[:, 0] += 10_000
    return low, high


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("channels")
    for side in ("inputs", "targets"):
        (folder / side).mkdir()
    for number in range(6):
        low, high = field(number)
        named = {"channels": ["DAPI", "GFP"]}
        write_image(folder / "inputs" / f"cell{number}.ome.tif", low, axes="TCYX", metadata=named)
        # Targets of one channel are taken as they are.
        write_image(folder / "targets" / f"cell{number}.ome.tif", high[:, 1], axes="TYX")
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def model(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    chosen = ["train.steps=4", "data.input_channels=[GFP]", "data.times=[0, 1]", *TINY]
    settings = [word for setting in chosen for word in ("--set", setting)]
    found = run("train", "--inputs", folders / "inputs", "--targets", folders / "targets", "--out", out, *settings)
    assert found.exit_code == 0, found.output
    return out / "model.safetensors"


def test_a_model_keeps_the_name_of_its_channel(model: Path) -> None:
    info = sfumato.load(model).info
    assert info.channels == ("GFP",)
    assert info.condition_channels == 1
    assert info.recipe.data.input_channels == ("GFP",)
    # The other channel is a hundred times as bright.
    assert info.condition.offset[0] < 1000
    assert info.seen is not None
    assert info.seen.num_pairs == 6


def test_it_finds_its_channel(model: Path, folders: Path, tmp_path: Path) -> None:
    source = folders / "inputs" / "cell0.ome.tif"
    found = run("restore", model, source, tmp_path / "found.tif", *RESTORE)
    assert found.exit_code == 0, found.output
    assert "note: channel: GFP, as this model was trained on" in found.stderr
    restored = open_image(tmp_path / "found.tif")
    assert (restored.axes, restored.shape) == ("TYX", (2, *SHAPE))
    assert restored.channel_names == ("GFP",)
    write_image(tmp_path / "alone.tif", field(0)[0][:, 1], axes="TYX")
    assert run("restore", model, tmp_path / "alone.tif", tmp_path / "same.tif", *RESTORE).exit_code == 0
    assert np.array_equal(restored.read(), open_image(tmp_path / "same.tif").read())


def test_other_channels_and_times_can_be_chosen(model: Path, folders: Path, tmp_path: Path) -> None:
    source = folders / "inputs" / "cell0.ome.tif"
    chosen = ["--channel", "dapi", "--time", "1"]
    found = run("restore", model, source, tmp_path / "a.tif", *RESTORE, *chosen)
    assert found.exit_code == 0, found.output
    assert "note: channel" not in found.stderr
    restored = open_image(tmp_path / "a.tif")
    assert restored.channel_names == ("DAPI",)
    write_image(tmp_path / "alone.tif", field(0)[0][1, 0], axes="YX")
    assert run("restore", model, tmp_path / "alone.tif", tmp_path / "same.tif", *RESTORE).exit_code == 0
    assert np.array_equal(restored.read().reshape(SHAPE), open_image(tmp_path / "same.tif").read())
    again = run("restore", model, source, tmp_path / "a.tif", *RESTORE, "--channel", "0", "--time", "1:2")
    assert "already restored" in again.stderr
    other = run("restore", model, source, tmp_path / "a.tif", *RESTORE)
    assert other.exit_code == 2
    assert "was restored differently: chosen" in other.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--channel", "YFP"], "has the channels 0 (DAPI), 1 (GFP), and 'YFP' was asked for"),
        (["--channel", "0", "--channel", "1"], "choose some with --channel: 0 (DAPI), 1 (GFP)"),
        (["--time", "1:1"], "--time is '1:1'; expected a range such as 0:3"),
        (["--time", "0:9"], "has 2 times"),
        (["--scene", "B"], "has one scene"),
    ],
)
def test_what_is_not_there_is_said(model: Path, folders: Path, tmp_path: Path, options: list[str], said: str) -> None:
    found = run("restore", model, folders / "inputs" / "cell0.ome.tif", tmp_path / "a.tif", *RESTORE, *options)
    assert found.exit_code == 2
    assert said in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_calibrating_and_evaluating_find_the_channel(model: Path, folders: Path, tmp_path: Path) -> None:
    """Held-out pairs with two channels on both sides; the model's recipe takes one."""
    for side in ("inputs", "targets"):
        (tmp_path / "held" / side).mkdir(parents=True)
    for number in range(20, 26):
        for side, pixels in zip(("inputs", "targets"), field(number), strict=True):
            path = tmp_path / "held" / side / f"cell{number}.ome.tif"
            write_image(path, pixels, axes="TCYX", metadata={"channels": ["DAPI", "GFP"]})
    held, out = tmp_path / "held", tmp_path / "calibrated.safetensors"
    common = ["--samples", "4", "--steps", "2", "--unit", ".*"]
    found = run("calibrate", model, held, "--out", out, "--level", "0.5", *common)
    assert found.exit_code == 0, found.output
    pairs = ["--inputs", held / "inputs", "--targets", held / "targets", "--samples", "2", "--steps", "2"]
    right = run("evaluate", model, *pairs, "--out", tmp_path / "right", "--time", "0")
    wrong = run("evaluate", model, *pairs, "--out", tmp_path / "wrong", "--channel", "DAPI", "--target-channel", "GFP")
    assert (right.exit_code, wrong.exit_code) == (0, 0), right.output + wrong.output
    rows = [(tmp_path / name / "scores.csv").read_text().splitlines() for name in ("right", "wrong")]
    assert [len(lines) for lines in rows] == [1 + 6, 1 + 12]


def test_pairs_of_other_files_give_the_channels_of_the_model(folders: Path) -> None:
    places = {"inputs": str(folders / "inputs"), "targets": str(folders / "targets")}
    recipe = parse(json.dumps({"data": places}))
    assert open_held_out(recipe, "test").condition_channels == 2
    source = open_held_out(recipe, "test", named=("GFP",))
    condition, target = source.read(0, [0, 0], SHAPE)
    low, high = field(0)
    assert np.array_equal(condition, low[0, 1:])
    assert np.array_equal(target, high[0, 1:])
    # A model that knows other names takes all channels, as before there were names.
    assert open_held_out(recipe, "test", named=("YFP",)).condition_channels == 2


def test_auditing_finds_the_channel(model: Path, folders: Path, tmp_path: Path) -> None:
    source = folders / "inputs" / "cell0.ome.tif"
    options = ["--samples", "2", "--steps", "2", "--time", "1:", "--out"]
    found = run("audit", model, source, *options, tmp_path / "audit")
    assert found.exit_code == 0, found.output
    other = run("audit", model, source, "--channel", "YFP", *options, tmp_path / "other")
    assert other.exit_code == 2
    assert "'YFP' was asked for" in other.stderr


def test_choosing_in_a_packed_store_is_refused(folders: Path, tmp_path: Path) -> None:
    pairs = ["--inputs", folders / "inputs", "--targets", folders / "targets"]
    packed = run("pack", *pairs, "--out", tmp_path / "a.zarr", "--set", "data.input_channels=[1]")
    assert packed.exit_code == 0, packed.output
    settings = [word for setting in (*TINY, "data.input_channels=[1]") for word in ("--set", setting)]
    found = run("train", "--set", f"data.store={tmp_path / 'a.zarr'}", "--out", tmp_path / "run", *settings)
    assert found.exit_code == 2
    assert "choose before packing" in found.stderr


@pytest.mark.parametrize("times", [[3, 1], [-1, 2], [2, 2]])
def test_an_empty_range_of_times_is_refused_in_a_recipe(times: list[int]) -> None:
    with pytest.raises(RecipeError, match="give the first and the last"):
        parse(json.dumps({"data": {"times": times}}))


def test_a_recipe_without_choices_takes_all() -> None:
    data = parse("").data
    assert not data.chooses
    assert (data.input_channels, data.target_channels, data.scene, data.times) == (None, None, None, None)
    assert parse('data: {scene: "2", times: [1, null], input_channels: [GFP, 0]}').data.input_channels == ("GFP", 0)


def test_a_student_takes_what_a_packed_store_holds(model: Path) -> None:
    given = {"inputs": None, "targets": None, "manifest": None, "folder": None}
    taught = sfumato.load(model).info.recipe
    stored = data_of_student(taught, {**given, "store": "pairs.zarr"}, is_trusted=False)
    assert (stored.store, stored.chooses) == ("pairs.zarr", False)
    files = data_of_student(taught, {**given, "inputs": "a", "targets": "b", "store": None}, is_trusted=False)
    assert (files.input_channels, files.times) == (("GFP",), (0, 1))
