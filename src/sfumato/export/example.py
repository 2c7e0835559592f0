"""Provide an image to test an exported model with: the user's, or one made up within the model's range."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from sfumato.data.images.io import open_image
from sfumato.data.images.shares import as_shares
from sfumato.diffusion.noise import NoiseField
from sfumato.models.model_file import LoadedModel
from sfumato.problems.registry import takes_shares
from sfumato.restoration.conditions import Measured, measured_channels
from sfumato.system.errors import ImageError

__all__ = ["example_image"]


def example_image(model: LoadedModel, source: Path | None, side: int) -> NDArray[np.float32]:
    """An image (K, *spatial) of at most ``side`` pixels along each axis, in the units of the model's inputs.

    Args:
        model: From :func:`sfumato.load`.
        source: Image whose middle is used; by default blurred noise is made up.
        side: In pixels.

    Raises:
        ImageError: If the image does not fit the model.
    """
    info, ndim = model.info, model.info.recipe.model.ndim
    if source is None:
        shape = torch.Size([1, 1, info.condition_channels, *[-(-side // 8) + 2] * ndim])
        coarse = NoiseField(0)(0, shape)[0]
        mode = "bicubic" if ndim == 2 else "trilinear"
        fine = F.interpolate(coarse, scale_factor=8, mode=mode)
        for axis in range(2, 2 + ndim):
            fine = fine.narrow(axis, 8, side)
        return info.condition.invert(0.4 * fine)[0].numpy()
    opened = open_image(source, axes=info.recipe.data.input_axes)
    shown = as_shares(opened) if takes_shares(info.recipe.problem) else opened
    frames = Measured(shown, model, on_target_grid=True)
    size = [min(side, full) for full in frames.spatial]
    corner = [(full - part) // 2 for full, part in zip(frames.spatial, size, strict=True)]
    image = frames.read(0, corner, size)
    if len(image) != info.condition_channels:
        raise ImageError(
            f"{source} has {len(image)} channels, and this model takes {measured_channels(info)}; give another example"
        )
    return np.ascontiguousarray(image, dtype=np.float32)
