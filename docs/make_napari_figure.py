"""Draw docs/figures/napari.png: the plugin in a real viewer, after a restoration of the sample data.

    python docs/make_napari_figure.py model.safetensors docs/figures/napari.png

It needs a display, such as Xvfb, and a calibrated model of widefield images.
"""

import sys
import time
from collections.abc import Callable

import napari
from PIL import Image
from qtpy.QtWidgets import QApplication


def wait(until: Callable[[], bool]) -> None:
    """Let the viewer go on until something is so."""
    while not until():
        QApplication.processEvents()
        time.sleep(0.01)
    for _ in range(20):
        QApplication.processEvents()


def main() -> None:
    """Restore, put the cursor on a filament, and take the picture."""
    model, path = sys.argv[1:3]
    viewer = napari.Viewer(show=True)
    viewer.window.resize(1500, 1060)
    layer = next(layer for layer in viewer.open_sample("sfumato", "microtubules") if layer.name == "widefield")
    _, restore = viewer.window.add_plugin_dock_widget("sfumato", "Restore")
    _, schedule = viewer.window.add_plugin_dock_widget("sfumato", "Schedule")
    for widget in (restore, schedule):
        widget.model.open(model)
        wait(lambda widget=widget: widget.model.info is not None)  # type: ignore[misc]
    viewer.cursor.position = layer.data_to_world((64, 60))
    wait(lambda: "rate" in schedule.text.text())
    restore.start(whole=True)
    wait(lambda: not restore.is_running)
    viewer.layers["truth"].visible = True
    viewer.layers["widefield uncertainty"].visible = True
    grid = getattr(viewer, "canvas", viewer).grid  # napari 0.9 moved it
    grid.enabled, grid.shape = True, (2, 2)
    viewer.reset_view()
    wait(lambda: True)
    picture = Image.fromarray(viewer.screenshot(canvas_only=False, flash=False)).convert("RGB")
    picture.quantize(256).save(path, optimize=True)
    viewer.close()


if __name__ == "__main__":
    main()
