"""The whole way by clicks in a real viewer: train on layers, stop, resume, calibrate, restore, save and reopen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato

napari = pytest.importorskip("napari", reason="napari is not installed", exc_type=ImportError)
pytest.importorskip("qtpy", reason="no Qt binding is installed", exc_type=ImportError)

from qtpy.QtCore import Qt  # noqa: E402
from qtpy.QtTest import QTest  # noqa: E402

from pair_folders import make_pairs  # noqa: E402
from real_viewer import needs_display, process, wait  # noqa: E402
from sfumato.data.images.image import PixelSize  # noqa: E402
from sfumato.data.images.io import open_image  # noqa: E402
from sfumato.data.images.sidecar import origin_of  # noqa: E402
from sfumato.napari_plugin.layer_pairs import write_pairs  # noqa: E402
from sfumato.napari_plugin.layers import Source  # noqa: E402
from sfumato.training.run_folder import RunFolder  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours

TINY: dict[str, dict[str, object]] = {
    "data": {"patch": 32},
    "model": {"base": 4, "rate_base": 3, "num_scales": 2, "denoiser_base": 3, "denoiser_scales": 2},
    "train": {"batch_size": 4, "warmup": 2, "log_every": 1, "validate_every": 5},
    "sample": {"steps": 2, "samples": 2},
}


def click(widget: Any) -> None:
    """Click in the middle of a button that a person could click."""
    assert widget.isVisible()
    assert widget.isEnabled()
    QTest.mouseClick(widget, Qt.MouseButton.LeftButton)
    process()


def show(tabs: Any, name: str) -> Any:
    """Click on a tab, and return its panel."""
    bar = tabs.tabs.tabBar()
    place = [bar.tabText(number) for number in range(bar.count())].index(name)
    QTest.mouseClick(bar, Qt.MouseButton.LeftButton, pos=bar.tabRect(place).center())
    process()
    return tabs.tabs.currentWidget()


def fields(number: int, seed: int) -> tuple[Any, Any]:
    """Blobs, and noisy pictures of them with pixels twice as wide."""
    target = np.random.default_rng(seed).random((number, 64, 96))
    for _ in range(6):
        target = (target + np.roll(target, 1, 1) + np.roll(target, 1, 2)) / 3
    target = 1000 * (target - target.min()) / np.ptp(target)
    coarse = target.reshape(number, 32, 2, 48, 2).mean((2, 4))
    noisy = coarse + np.random.default_rng(seed + 1).normal(0, 40, coarse.shape)
    return noisy.astype(np.float32), target.astype(np.float32)


def add_pair(viewer: Any, number: int, seed: int, name: str) -> tuple[Any, Any]:
    noisy, target = fields(number, seed)
    micrometres = {"units": ("pixel", "micrometer", "micrometer")}
    return (
        viewer.add_image(noisy, name=f"{name} noisy", scale=(1, 0.2, 0.2), **micrometres),
        viewer.add_image(target, name=f"{name} truth", scale=(1, 0.1, 0.1), visible=False, **micrometres),
    )


def choose(panel: Any, inputs: Any, targets: Any) -> None:
    panel.pairs.inputs.choose(inputs)
    panel.pairs.targets.choose(targets)


def go_the_whole_way(viewer: Any, tmp_path: Path, *, minutes: float, settings: dict[str, dict[str, object]]) -> None:
    trained_on, held_out = add_pair(viewer, 6, 0, "first"), add_pair(viewer, 12, 10, "second")
    _, tabs = viewer.window.add_plugin_dock_widget("sfumato", "sfumato")
    run = tmp_path / "run"

    train = show(tabs, "Train")
    choose(train, *trained_on)
    train.settings = settings
    train.minutes.setValue(minutes)
    train.out.set_path(run)
    click(train.train_button)
    wait(lambda: train.view.steps[0] > 0, 60 * minutes + 300)
    assert train.is_running
    click(train.cancel_button)
    wait(lambda: not train.is_running)
    stopped = train.view.steps[0]
    assert f"stopped at step {stopped}; Resume goes on from there" in train.status.text()
    click(train.resume_button)
    wait(lambda: not train.is_running, 60 * minutes + 300)
    assert not train.status.is_error, train.status.text()
    assert f"trained: {run / 'model.safetensors'}" in train.status.text()
    assert "validation PSNR" in train.status.text()
    assert train.view.steps[0] == train.view.steps[1] > stopped
    assert len(train.view.plot.curves[0].values) > 0
    assert train.view.picture.pixmap().width() > 100
    steps = [line["step"] for line in RunFolder(run).metrics() if "loss" in line]
    assert steps == sorted(set(steps))  # it went on where it stopped

    calibrate = show(tabs, "Calibrate")
    wait(lambda: calibrate.model.path == run / "model.safetensors")
    choose(calibrate, *trained_on)
    click(calibrate.calibrate_button)
    wait(lambda: not calibrate.is_running)
    assert calibrate.status.is_error
    assert "trained" in calibrate.status.text()  # on these images
    choose(calibrate, *held_out)
    click(calibrate.calibrate_button)
    wait(lambda: not calibrate.is_running, 300)
    assert "1 independent units are held out" in calibrate.status.text()
    calibrate.are_independent.setChecked(True)
    click(calibrate.calibrate_button)
    wait(lambda: not calibrate.is_running, 300)
    assert "held out: 12 independent units of 12 images" in calibrate.status.text()
    assert "90% of pixels inside" in calibrate.status.text()

    restore = show(tabs, "Restore")
    wait(lambda: restore.model.info is not None and restore.model.info.calibration is not None)
    viewer.layers.selection.active = held_out[0]
    assert restore.layer.layer == held_out[0]
    click(restore.restore_button)
    wait(lambda: not restore.is_running, 300)
    assert not restore.status.is_error, restore.status.text()
    assert viewer.layers["second noisy interval low"].data.shape == (12, 64, 96)
    files = restore.save(tmp_path / "second.ome.tif")
    assert [file.name for file in files] == [f"second{end}.ome.tif" for end in ("", "_std", "_low", "_high")]

    mean = tmp_path / "second.ome.tif"
    image, size = open_image(mean), PixelSize(0.1, "micrometer")
    assert image.pixel_size == {"Y": size, "X": size}
    np.testing.assert_array_equal(image.read(), viewer.layers["second noisy mean"].data)
    told = origin_of(mean)
    assert told["model_sha256"] == sfumato.load(run / "model.safetensors").sha256
    assert "90% of pixels inside" in told["intervals"]
    (opened,) = viewer.open(str(mean), plugin="napari")
    np.testing.assert_array_equal(np.asarray(opened.data), viewer.layers["second noisy mean"].data)


@needs_display
def test_a_person_works_with_a_tiny_model(viewer: Any, tmp_path: Path) -> None:
    go_the_whole_way(viewer, tmp_path, minutes=0.1, settings=TINY)


@pytest.mark.slow
@needs_display
def test_a_person_trains_for_two_minutes(viewer: Any, tmp_path: Path) -> None:
    go_the_whole_way(viewer, tmp_path, minutes=2, settings={})


@needs_display
def test_the_tabs_fit_a_narrow_window_and_say_what_is_missing(viewer: Any, tmp_path: Path) -> None:
    _, tabs = viewer.window.add_plugin_dock_widget("sfumato", "sfumato")
    assert tabs.minimumSizeHint().width() <= 400
    train, calibrate = show(tabs, "Train"), tabs.calibrate
    click(train.train_button)
    assert "two different layers" in train.status.text()
    train.pairs.kind.setCurrentIndex(1)
    click(train.train_button)
    assert "a folder is missing" in train.status.text()
    train.out.set_path(tmp_path / "none")
    click(train.resume_button)
    wait(lambda: not train.is_running)
    assert "holds no run" in train.status.text()
    show(tabs, "Calibrate")
    click(calibrate.calibrate_button)
    assert "pick a model file first" in calibrate.status.text()


@needs_display
def test_folders_are_trained_on_as_well(viewer: Any, tmp_path: Path) -> None:
    inputs, targets = make_pairs(tmp_path, shape=(32, 48))
    _, tabs = viewer.window.add_plugin_dock_widget("sfumato", "sfumato")
    train = show(tabs, "Train")
    train.pairs.kind.setCurrentIndex(1)
    train.pairs.input_folder.set_path(inputs)
    train.pairs.target_folder.set_path(targets)
    train.settings = TINY
    train.minutes.setValue(0.02)
    train.out.set_path(tmp_path / "run")
    click(train.train_button)
    wait(lambda: not train.is_running)
    assert (tmp_path / "run" / "model.safetensors").exists(), train.status.text()
    wait(lambda: tabs.restore.model.path == tmp_path / "run" / "model.safetensors")
    click(train.train_button)
    wait(lambda: not train.is_running)
    assert "holds a run already; press Resume" in train.status.text()


def test_a_single_image_is_cut_in_two(tmp_path: Path) -> None:
    noisy, target = (images[0] for images in fields(1, 0))
    noisy, target = np.tile(noisy, (1, 3)), np.tile(target, (1, 3))
    sources = [Source.of(napari.layers.Image(image), None, 2) for image in (noisy, target)]
    listed = write_pairs(tmp_path, *sources, holds_out=True)
    assert listed.read_text().splitlines()[1:] == [
        "inputs/train.ome.tif,targets/train.ome.tif,train",
        "inputs/validation.ome.tif,targets/validation.ome.tif,validation",
    ]
    for name, image, cut in (("inputs", noisy, 108), ("targets", target, 216)):
        np.testing.assert_array_equal(open_image(tmp_path / name / "train.ome.tif").read(), image[:, :cut])
        np.testing.assert_array_equal(open_image(tmp_path / name / "validation.ome.tif").read(), image[:, cut:])
