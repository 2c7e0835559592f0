"""Pairs whose intensities differ from image to image, brought to one scale.

Exposures, gains and stretches often differ between the two images of a pair, and differently for every pair. No network
can know by which factor, and what it guesses is noise in the restored image. Here each target is brought to the scale
of its own input: a + b target is closest to the input, in least squares over the whole frame. Since the noise is in the
input, the fit has no bias from it.
"""

import numpy as np
from numpy.typing import NDArray

from sfumato.data.rescaled import RescaledPairs
from sfumato.data.sources import PairSource
from sfumato.system.errors import PairingError

__all__ = ["MatchedPairs", "affine_fit"]

Array = NDArray[np.generic]


def affine_fit(source: Array, goal: Array) -> tuple[float, float]:
    """Offset a and slope b for which a + b source is closest to the goal.

    Example:
        >>> affine_fit(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]))
        (1.0, 2.0)
    """
    x, y = (np.asarray(values, np.float64).ravel() for values in (source, goal))
    centred = x - x.mean()
    variance = float(centred @ centred)
    slope = float(centred @ y) / variance if variance > 0 else 0.0
    return float(y.mean() - slope * x.mean()), slope


class MatchedPairs(RescaledPairs):
    """A source whose targets have the intensities of their inputs.

    Args:
        source: Pairs with as many input channels as target channels, which show the same thing.
    """

    def __init__(self, source: PairSource) -> None:
        if source.condition_channels != source.target_channels:
            raise PairingError(
                f"data.match_intensity compares channels, but inputs have {source.condition_channels} and targets "
                f"{source.target_channels}; give as many in both, or set it to false"
            )
        super().__init__(source)
        self.dtypes = (source.dtypes[0], np.dtype(np.float32))

    def _measure(self, sample: int, condition: Array, target: Array) -> NDArray[np.float64]:
        """Offset and slope of every channel, shape (C, 2)."""
        fits = np.array([affine_fit(*channel) for channel in zip(target, condition, strict=True)])
        if (fits[:, 1] <= 0).any():
            raise PairingError(
                f"{self.name(sample)}: the input falls where the target rises, so they cannot be brought to one scale; "
                "check that they show the same place, or set data.match_intensity to false"
            )
        return fits

    def _change(self, condition: Array, target: Array, measured: NDArray[np.float64]) -> tuple[Array, Array]:
        channels = zip(target, measured.tolist(), strict=True)
        return condition, np.stack([(a + b * channel).astype(np.float32) for channel, (a, b) in channels])
