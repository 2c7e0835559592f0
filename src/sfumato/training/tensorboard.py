"""Write metrics and panels for TensorBoard, if it is installed; the run folder has the same data in its own files."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

__all__ = ["Dashboard"]


class Dashboard:
    """Writes a run's log to a folder for ``tensorboard --logdir``.

    Args:
        folder: Where to write.
        step: The step from which the run resumes; anything a killed run wrote after it is hidden.
        active: Whether to write at all; nothing is written without TensorBoard either.
    """

    def __init__(self, folder: Path, *, step: int, active: bool = True) -> None:
        self._writer: Any = None
        if active and importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter  # importing takes a second

            self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers by name."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def picture(self, step: int, name: str, file: Path) -> None:
        """Write a picture file."""
        if self._writer is not None:
            with Image.open(file) as image:
                self._writer.add_image(name, np.asarray(image.convert("RGB")), step, dataformats="HWC")

    def close(self) -> None:
        """Write everything still buffered."""
        if self._writer is not None:
            self._writer.close()
