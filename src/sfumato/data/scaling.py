r"""Scale each image by its own quantiles, for sets in which the intensities of different images are not comparable.

.. math:: scaled = 2\,(value - q_{low}) / (q_{high} - q_{low}) - 1

for every channel of every image. Without this, where light levels differ forty-fold, almost nothing would be left of
the faint images. The restored intensities are then known only up to a scale.
"""

import numpy as np
from numpy.typing import NDArray

from sfumato.data.rescaled import RescaledPairs
from sfumato.data.sources import PairSource

__all__ = ["ScaledPairs", "image_range", "scale_to"]

Array = NDArray[np.generic]


def image_range(image: Array, quantiles: tuple[float, float]) -> NDArray[np.float64]:
    """Quantiles of each channel of an image (C, *spatial), shape (2, C)."""
    return np.quantile(image.reshape(len(image), -1).astype(np.float64), quantiles, axis=1)


def scale_to(image: Array, low_high: NDArray[np.float64]) -> NDArray[np.float32]:
    """Scale an image (C, *spatial) so that its range (2, C) becomes -1 to 1; a constant channel becomes 0.

    Example:
        >>> image = np.array([[0.0, 5.0, 10.0]])
        >>> scale_to(image, image_range(image, (0.0, 1.0))).tolist()
        [[-1.0, 0.0, 1.0]]
    """
    low, high = (values.reshape(-1, *[1] * (image.ndim - 1)) for values in low_high)
    half = np.where(high > low, (high - low) / 2, 1)
    return np.asarray((image - (low + high) / 2) / half, np.float32)


class ScaledPairs(RescaledPairs):
    """A source whose images are each scaled by their own quantiles.

    Args:
        source: The unscaled images.
        quantiles: Levels of the quantiles that become -1 and 1.
    """

    def __init__(self, source: PairSource, quantiles: tuple[float, float]) -> None:
        super().__init__(source)
        self.quantiles = quantiles
        self.dtypes = (np.dtype(np.float32), np.dtype(np.float32))

    def _measure(self, sample: int, condition: Array, target: Array) -> NDArray[np.float64]:
        """Ranges of all channels of conditions, then of targets, shape (2, K + C)."""
        return np.concatenate([image_range(side, self.quantiles) for side in (condition, target)], axis=1)

    def _change(self, condition: Array, target: Array, measured: NDArray[np.float64]) -> tuple[Array, Array]:
        number = self.condition_channels
        return scale_to(condition, measured[:, :number]), scale_to(target, measured[:, number:])
