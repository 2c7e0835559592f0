"""A real viewer of napari for tests, and how they wait for it."""

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

__all__ = ["can_show", "needs_display", "opened", "process", "wait"]

HAS_DISPLAY = not sys.platform.startswith("linux") or bool(os.environ.get("DISPLAY"))
needs_display = pytest.mark.skipif(not HAS_DISPLAY, reason="a viewer needs a display with OpenGL, such as Xvfb")


@functools.cache
def can_show() -> bool:
    """Tried in a process of its own: without OpenGL a viewer may take the tests down with it."""
    program = "import napari; viewer = napari.Viewer(show=True); viewer.screenshot(); viewer.close()"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=300).returncode == 0


def process() -> None:
    """Let the event loop turn a few times."""
    from qtpy.QtWidgets import QApplication

    for _ in range(5):
        QApplication.processEvents()


def wait(until: Callable[[], bool], seconds: float = 120) -> None:
    """Let the event loop turn until something is so."""
    from qtpy.QtWidgets import QApplication

    end = time.monotonic() + seconds
    while not until():
        QApplication.processEvents()
        time.sleep(0.001)
        assert time.monotonic() < end, "it took too long"
    process()


def opened(viewer: Any, name: str, model: Path) -> Any:
    """A dock widget with a model."""
    _, widget = viewer.window.add_plugin_dock_widget("sfumato", name)
    widget.model.open(model)
    wait(lambda: widget.model.info is not None)
    return widget
