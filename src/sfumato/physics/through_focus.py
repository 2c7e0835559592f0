r"""Estimate the axial derivative of a through-focus stack by a polynomial fit in every pixel.

.. math:: \frac{\partial^m I}{\partial z^m}\Big|_0 = \sum_j w_j I(z_j), \qquad w = (L^{(m)}(0))^T V^+, \quad
          V_{jn} = L_n(z_j)

[Waller 2010]. A least-squares fit is linear in the data, so the fit of any order is one set of weights for all pixels.
The polynomials L are Legendre polynomials on distances scaled to [-1, 1]: with plain powers, an order of 20, as in
[CVDM Sec. 4.2.2], would lose most digits.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.polynomial import legendre
from torch import Tensor

__all__ = ["axial_derivative", "weights"]


def weights(distances_um: Sequence[float], order: int, *, derivative: int = 1) -> np.ndarray:
    """Compute weights of the planes, whose weighted sum is the derivative of the fitted polynomial at z = 0.

    The noise of one plane is amplified by the root of the sum of their squares.

    Args:
        distances_um: Positions of the Z planes; z = 0 is in focus. They need not be evenly spaced or in order.
        order: Order of the polynomial, from ``derivative`` to Z - 1.
        derivative: 1 for dI/dz; 0 for the in-focus intensity itself, which averages over the planes.

    Returns:
        Shape (Z), in units of um to the power of minus ``derivative``.

    Example:
        >>> weights([-2.0, 2.0], order=1).round(6).tolist()
        [-0.25, 0.25]
    """
    z = np.asarray(distances_um, dtype=np.float64)
    num_planes = len(np.unique(z))
    if not 0 <= derivative <= order < num_planes:
        raise ValueError(
            f"order is {order}, for derivative {derivative} from {num_planes} different distances; the order must be "
            "at least the derivative and below the number of distances: lower it or add planes"
        )
    centre, scale = (z.max() + z.min()) / 2, max((z.max() - z.min()) / 2, np.finfo(float).tiny)
    vandermonde = legendre.legvander((z - centre) / scale, order)
    at_focus = legendre.legval(-centre / scale, legendre.legder(np.eye(order + 1), derivative)) / scale**derivative
    return np.asarray(at_focus @ np.linalg.pinv(vandermonde))


def axial_derivative(stack: Tensor, distances_um: Sequence[float], order: int, *, derivative: int = 1) -> Tensor:
    """Compute the derivative in focus of a stack of intensities.

    With two planes and order 1 this is the paper's central difference, with the sign that the transport-of-intensity
    equation requires: (I_d - I_-d) / 2d.

    Args:
        stack: Shape (..., Z, H, W).
        distances_um: Positions of the Z planes.
        order: Order of the polynomial; 20 over 41 planes in [CVDM Sec. 4.2.2].
        derivative: See :func:`weights`.

    Returns:
        Shape (..., H, W), per micrometre.

    Example:
        >>> z = torch.tensor([-1.0, 0.0, 1.0, 2.0])[:, None, None]
        >>> axial_derivative(5 * z + z**2, [-1, 0, 1, 2], order=2).item()
        5.0
    """
    if stack.ndim < 3 or stack.shape[-3] != len(distances_um):
        raise ValueError(
            f"stack has shape {tuple(stack.shape)} and there are {len(distances_um)} distances; expected "
            "(..., Z, H, W) with one distance for each of the Z planes"
        )
    kernel = torch.as_tensor(weights(distances_um, order, derivative=derivative), dtype=stack.dtype)
    return torch.einsum("...zhw,z->...hw", stack, kernel.to(stack.device))
