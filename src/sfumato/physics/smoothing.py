r"""Blur with a Gaussian: the simplest denoiser there is, and the first that any other has to beat.

.. math:: \hat y = g_\sigma * y, \qquad g_\sigma(r) \propto \exp(-|r|^2 / 2\sigma^2)

Borders are continued by copies of the nearest pixel.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["WIDTHS", "best_width", "gaussian_blur"]

_REACH = 4.0
"""The kernel ends at this many widths, where it has fallen to 0.03% of its middle."""
WIDTHS: Sequence[float] = (0.0, *(round(0.3 * 1.2**power, 2) for power in range(20)))
"""Widths to choose from, in pixels: none, then 0.3 to 9.6 in steps of a fifth."""


def gaussian_blur(images: Tensor, width: float) -> Tensor:
    """Blur images or volumes along all of their spatial axes.

    Args:
        images: Shape (B, C, *spatial).
        width: Standard deviation in pixels; 0 changes nothing.

    Example:
        >>> point = torch.zeros(1, 1, 31, 31)
        >>> point[..., 15, 15] = 1
        >>> blurred = gaussian_blur(point, 2.0)
        >>> round(float(blurred.sum()), 4), round(float(1 / blurred.max()), 1)
        (1.0, 25.1)
    """
    if width < 0:
        raise ValueError(f"width is {width}; give a number of pixels of at least 0")
    reach = int(_REACH * width + 0.5)
    if not reach:
        return images
    places = torch.arange(-reach, reach + 1, dtype=images.dtype, device=images.device)
    kernel = torch.exp(-(places**2) / (2 * width**2))
    kernel = kernel / kernel.sum()
    for axis in range(2, images.ndim):
        rows = images.movedim(axis, -1)
        flat = F.pad(rows.reshape(-1, 1, rows.shape[-1]), (reach, reach), mode="replicate")
        images = F.conv1d(flat, kernel[None, None]).reshape(rows.shape).movedim(-1, axis)
    return images


def best_width(pairs: Iterable[tuple[Tensor, Tensor]], fit: Callable[[Tensor, Tensor], Tensor] | None = None) -> float:
    """The one of :data:`WIDTHS` whose blur brings measured images closest to their targets, by mean PSNR.

    Args:
        pairs: Images and targets of equal shapes (B, C, *spatial); perfect ones decide nothing.
        fit: Applied to each blurred image and its target first, if scale and offset are not to count.
    """
    totals = torch.zeros(len(WIDTHS), dtype=torch.float64)
    for images, targets in pairs:
        blurs = (gaussian_blur(images, width) for width in WIDTHS)
        fitted = (blur if fit is None else fit(blur, targets) for blur in blurs)
        errors = torch.stack([(blur - targets).double().square().flatten(1).mean(1) for blur in fitted])
        totals += errors[:, (errors > 0).all(0)].log().sum(1).cpu()
    return WIDTHS[int(totals.argmin())]
