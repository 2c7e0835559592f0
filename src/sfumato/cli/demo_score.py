"""How close a restored specimen is to its truth, and how much of it the calibrated interval covers."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.data.enlarged import enlarge
from sfumato.models.model_file import LoadedModel
from sfumato.problems.demo_specimens import Specimen
from sfumato.restoration.conditions import as_restored, enlargement
from sfumato.restoration.in_memory import Restored
from sfumato.statistics.metrics import affine_fit, psnr

__all__ = ["Score", "relative", "score"]


class Score(NamedTuple):
    """Scores of one specimen."""

    name: str
    psnr_measured: float
    """PSNR of the upsampled measured image, in dB."""
    psnr_restored: float
    """PSNR of the restored mean, in dB."""
    coverage: float
    """Share of the pixels whose truth lies inside the calibrated interval."""


def score(specimen: Specimen, restored: Restored, model: LoadedModel) -> Score:
    """Score a specimen on the scale of its truth, from its darkest to its brightest pixel.

    Fluorescence has no absolute scale, so brightness and offset of both images are first fitted to the truth. Intervals
    are used as they are.
    """
    truth = as_restored(specimen.truth[None], model)
    enlarged = enlarge(specimen.measured[None], enlargement(model))
    measured, mean, wanted = (_batch(image) for image in (enlarged[0], restored.mean, truth[0]))
    assert restored.low is not None
    assert restored.high is not None
    inside = (truth[0] >= restored.low) & (truth[0] <= restored.high)
    return Score(
        specimen.name,
        float(psnr(affine_fit(measured, wanted), wanted)),
        float(psnr(affine_fit(mean, wanted), wanted)),
        float(inside.mean()),
    )


def relative(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Convert from the model's scale, -1 to 1, to relative brightness, 0 to 1."""
    return np.asarray((image + 1) / 2, np.float32)


def _batch(image: NDArray[np.generic]) -> torch.Tensor:
    return torch.from_numpy(np.asarray(image, np.float64))[None, None]
