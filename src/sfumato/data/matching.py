"""Match the intensities of each target to its input, for pairs whose intensities differ from image to image.

Exposures, gains and contrast stretches often differ between the two images of a pair, and differently for every pair. A
network cannot know the factor, and its guesses show up as noise in the restored image. Here each target is brought to
the scale of its own input: a + b target is the least-squares fit to the input over the whole frame. Since the noise is
in the input, it does not bias the fit.
"""

import numpy as np
from numpy.typing import NDArray

from sfumato.data.rescaled import RescaledPairs
from sfumato.data.sources import PairSource
from sfumato.system.errors import PairingError

__all__ = ["MatchedPairs", "affine_fit"]

Array = NDArray[np.generic]


def affine_fit(source: Array, goal: Array) -> tuple[float, float]:
    """Return the offset a and slope b for which a + b source is closest to the goal in least squares.

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
    """A source whose targets are matched to the intensities of their inputs.

    Args:
        source: Pairs with the same number of input and target channels, which show the same thing.
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
        """Fit the offset and slope of every channel, shape (C, 2)."""
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
