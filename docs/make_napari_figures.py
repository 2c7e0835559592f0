"""Draw docs/figures/napari_{restore,train,calibrate}.png: each tab in a viewer, after its work on sample data.

    python docs/make_napari_figures.py docs/figures [MINUTES]

It needs a display, such as Xvfb, and trains for two minutes unless told otherwise.
"""

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import napari
from PIL import Image
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication

from sfumato.models.bundled import demo_model

WINDOW, DOCK = (1400, 1000), 400


def wait(until: Callable[[], bool], seconds: float = 1800) -> None:
    """Let the viewer go on until something is so."""
    end = time.monotonic() + seconds
    while not until():
        QApplication.processEvents()
        time.sleep(0.01)
        assert time.monotonic() < end, "it took too long"
    for _ in range(50):
        QApplication.processEvents()
        time.sleep(0.01)


def shoot(viewer: Any, path: Path) -> None:
    """Take a picture of the window."""
    viewer.reset_view()
    wait(lambda: True)
    picture = Image.fromarray(viewer.screenshot(canvas_only=False, flash=False)).convert("RGB")
    picture.quantize(256).save(path, optimize=True)


def layers_of(viewer: Any, sample: str) -> dict[str, Any]:
    """Open a sample, and return its two layers by what they are: widefield and truth."""
    return {layer.name.split()[-1]: layer for layer in viewer.open_sample("sfumato", sample)}


def restore(viewer: Any, tabs: Any) -> None:
    """Restore the sample with the model that comes with sfumato."""
    layers_of(viewer, "microtubules")
    tabs.restore.model.open(demo_model())
    wait(lambda: tabs.restore.model.info is not None)
    tabs.restore.restore_button.click()
    wait(lambda: not tabs.restore.is_running)


def train(viewer: Any, tabs: Any, run: Path, minutes: float) -> None:
    """Train on twelve fields."""
    pairs = layers_of(viewer, "training_pairs")
    tabs.tabs.setCurrentWidget(tabs.train)
    tabs.train.pairs.inputs.choose(pairs["widefield"])
    tabs.train.pairs.targets.choose(pairs["truth"])
    tabs.train.minutes.setValue(minutes)
    tabs.train.out.set_path(run)
    tabs.train.train_button.click()
    wait(lambda: not tabs.train.is_running)


def calibrate(viewer: Any, tabs: Any, model: Path) -> None:
    """Calibrate on twelve others."""
    pairs = layers_of(viewer, "held_out_pairs")
    tabs.tabs.setCurrentWidget(tabs.calibrate)
    wait(lambda: tabs.calibrate.model.path == model)
    tabs.calibrate.pairs.inputs.choose(pairs["widefield"])
    tabs.calibrate.pairs.targets.choose(pairs["truth"])
    tabs.calibrate.are_independent.setChecked(True)
    tabs.calibrate.calibrate_button.click()
    wait(lambda: not tabs.calibrate.is_running)


def main() -> None:
    """Do the work of each tab, and take its picture."""
    folder, minutes = Path(sys.argv[1]).resolve(), float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    viewer = napari.Viewer(show=True)
    viewer.window.resize(*WINDOW)
    dock, tabs = viewer.window.add_plugin_dock_widget("sfumato", "sfumato")
    viewer.window._qt_window.resizeDocks([dock], [DOCK], Qt.Orientation.Horizontal)
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        run = Path("run")
        restore(viewer, tabs)
        shoot(viewer, folder / "napari_restore.png")
        viewer.layers.clear()
        train(viewer, tabs, run, minutes)
        shoot(viewer, folder / "napari_train.png")
        viewer.layers.clear()
        calibrate(viewer, tabs, run / "model.safetensors")
        shoot(viewer, folder / "napari_calibrate.png")
    viewer.close()


if __name__ == "__main__":
    main()
