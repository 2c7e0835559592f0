r"""Solve the transport-of-intensity equation (TIE), which gives phase from the axial change of intensity.

.. math:: -k \frac{\partial I}{\partial z} = \nabla \cdot (I \nabla \varphi), \qquad k = 2\pi/\lambda
          \qquad [CVDM Sec. 4.2]

Derivatives across the image are spectral, which is exact for band-limited images. At the Nyquist frequency of an even
side the first derivative has no sign, so this row and column of the spectrum are left out of the operator and of all
solutions. ``boundary="even"`` continues all images by reflection, for images whose borders do not match;
``"periodic"`` uses them as they are, as the published US-TIE does. Phase is known only up to a constant: solutions
have mean 0 over the continued image.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sfumato.physics import grid
from sfumato.physics.grid import Boundary

__all__ = ["Solution", "solve_conjugate_gradients", "solve_tikhonov", "solve_us_tie", "transport"]


class Solution(NamedTuple):
    """The result of an iterative solver.

    Attributes:
        phase: In radians, shape (..., H, W).
        num_iterations: Number of Poisson solves for each image, shape (...).
        residual: Largest part of dI/dz left unexplained, relative to the largest dI/dz, shape (...).
    """

    phase: Tensor
    num_iterations: Tensor
    residual: Tensor


def transport(
    phase: Tensor, intensity: Tensor, *, wavelength_um: float, pixel_um: float, boundary: Boundary = "even"
) -> Tensor:
    r"""Axial derivative caused by a phase, :math:`\partial I/\partial z = -\frac1k \nabla\cdot(I\nabla\varphi)`.

    It is linear and self-adjoint in the phase.

    Args:
        phase: In radians, shape (..., H, W).
        intensity: In focus, broadcasts to ``phase``.
        wavelength_um: In the medium.
        pixel_um: Side of a pixel.
        boundary: How the images continue beyond their borders.

    Returns:
        Intensity per micrometre, shape (..., H, W).

    Example:
        >>> x = torch.arange(8) * torch.pi / 4
        >>> light = torch.ones(8, 8)
        >>> slope = transport(x.cos().expand(8, 8), light, wavelength_um=0.5, pixel_um=1, boundary="periodic")
        >>> torch.allclose(slope[0], 0.5 / (2 * torch.pi) * (torch.pi / 4) ** 2 * x.cos(), atol=1e-6)
        True
    """
    height, width = phase.shape[-2:]
    phase, intensity = grid.continued(phase, boundary), grid.continued(intensity.expand_as(phase), boundary)
    slope = wavelength_um / (2 * torch.pi) * _minus_divergence(phase, intensity, pixel_um)
    return slope[..., :height, :width]


def solve_tikhonov(
    axial_derivative: Tensor,
    intensity: Tensor,
    *,
    wavelength_um: float,
    pixel_um: float,
    reg: float = 1e-9,
    boundary: Boundary = "even",
) -> Tensor:
    r"""Solve one regularised Poisson equation, which is exact if the intensity is uniform.

    .. math:: \varphi = F^{-1}\Big[F\big[-k\,\tfrac{1}{I}\tfrac{\partial I}{\partial z}\big]
              \frac{-K^2}{K^4 + reg/p^4}\Big], \qquad K^2 = 4\pi^2|f|^2

    Args:
        axial_derivative: dI/dz in focus, per micrometre, shape (..., H, W).
        intensity: In focus, above 0, broadcasts to ``axial_derivative``.
        wavelength_um: In the medium.
        pixel_um: Side p of a pixel.
        reg: Dimensionless damping of slow structures. 1e-9 suits clean data; 1e-3 already costs tenths of a radian.
        boundary: How the images continue beyond their borders.

    Returns:
        Phase in radians, shape (..., H, W).
    """
    height, width = axial_derivative.shape[-2:]
    lowest = float(intensity.detach().min())
    if lowest <= 0:
        raise ValueError(f"the lowest intensity is {lowest:g}, expected above 0; crop dark borders or add a floor")
    rate = grid.continued((2 * torch.pi / wavelength_um) * axial_derivative / intensity, boundary)
    return _poisson(rate, pixel_um, reg)[..., :height, :width]


def solve_us_tie(
    axial_derivative: Tensor,
    intensity: Tensor,
    *,
    wavelength_um: float,
    pixel_um: float,
    reg: float = 1e-9,
    boundary: Boundary = "even",
    tolerance: float = 1e-3,
    max_iterations: int = 1000,
) -> Solution:
    r"""Apply the universal solution of Zhang, Chen, Sun, Tian & Zuo (2020): repeated Poisson solves for the residual.

    .. math:: \varphi \leftarrow \varphi + d, \qquad \nabla^2 d = -\frac{k R}{\max I}, \qquad
              R \leftarrow R + \tfrac1k \nabla\cdot(I\nabla d)

    from :math:`R = \partial I/\partial z`, until max |R| is below ``tolerance`` of its start, grows by more than 5%, or
    ``max_iterations`` are done. Each iteration multiplies the error by 1 - min I / max I.

    Args:
        axial_derivative: See :func:`solve_tikhonov`.
        intensity: In focus, 0 or more.
        wavelength_um: In the medium.
        pixel_um: Side of a pixel.
        reg: Damping of each Poisson solve. It delays slow structures; with enough iterations they are recovered.
        boundary: How the images continue beyond their borders.
        tolerance: Relative size of the residual to stop at; 1e-3 as published.
        max_iterations: Stop in any case.

    Note:
        The published code is periodic, and takes max R instead of max |R|; neither the mean of dI/dz nor its Nyquist
        frequency, which no phase explains, is counted in R here.
    """
    k, shape = 2 * torch.pi / wavelength_um, axial_derivative.shape
    intensity = grid.continued(intensity.expand(shape), boundary)
    residual = _explainable(grid.continued(axial_derivative, boundary))
    brightest = intensity.amax((-2, -1), keepdim=True)
    phase, start = torch.zeros_like(residual), _largest(residual)
    progress = _Progress(start, tolerance)
    for _ in range(max_iterations):
        if not progress.active.any():
            break
        step = torch.where(progress.active, _poisson(k * residual / brightest, pixel_um, reg), 0)
        phase = phase + step
        residual = residual - _minus_divergence(step, intensity, pixel_um) / k
        progress.update(_largest(residual), growth=1.05)
    return progress.solution(phase[..., : shape[-2], : shape[-1]])


def solve_conjugate_gradients(
    axial_derivative: Tensor,
    intensity: Tensor,
    *,
    wavelength_um: float,
    pixel_um: float,
    reg: float = 1e-9,
    boundary: Boundary = "even",
    tolerance: float = 1e-3,
    max_iterations: int = 1000,
) -> Solution:
    r"""Conjugate gradients on :math:`-\nabla\cdot(I\nabla\varphi) = k\,\partial I/\partial z`, preconditioned.

    The preconditioner is the Poisson solve of :func:`solve_us_tie`, so an iteration costs the same, but it multiplies
    the error by :math:`(\sqrt c - 1)/(\sqrt c + 1)`, with c = max I / min I.  [Hestenes & Stiefel 1952]

    Args:
        axial_derivative: See :func:`solve_tikhonov`.
        intensity: In focus, 0 or more.
        wavelength_um: In the medium.
        pixel_um: Side of a pixel.
        reg: Damping within the preconditioner.
        boundary: How the images continue beyond their borders.
        tolerance: Relative size of the residual to stop at, measured as for US-TIE.
        max_iterations: Stop in any case.
    """
    k, shape = 2 * torch.pi / wavelength_um, axial_derivative.shape
    intensity = grid.continued(intensity.expand(shape), boundary)
    residual = k * _explainable(grid.continued(axial_derivative, boundary))
    phase, direction = torch.zeros_like(residual), torch.zeros_like(residual)
    product, tiny = torch.ones_like(residual[..., :1, :1]), torch.finfo(residual.dtype).tiny
    progress = _Progress(_largest(residual), tolerance)
    for _ in range(max_iterations):
        if not progress.active.any():
            break
        preconditioned = _poisson(residual, pixel_um, reg)
        product, previous = _inner(residual, preconditioned), product
        direction = preconditioned + product / previous.clamp_min(tiny) * direction
        image = _minus_divergence(direction, intensity, pixel_um)
        # Finished images take steps of 0, so that the rest of the batch does not change them.
        length = torch.where(progress.active, product / _inner(direction, image).clamp_min(tiny), 0)
        phase, residual = phase + length * direction, residual - length * image
        progress.update(_largest(residual))
    return progress.solution(phase[..., : shape[-2], : shape[-1]])


class _Progress:
    """Tracks which images of a batch still iterate, and their residuals; all tensors (..., 1, 1)."""

    def __init__(self, start: Tensor, tolerance: float) -> None:
        self.start, self.tolerance = start.detach(), tolerance
        self.largest = self.start
        self.active = self.start > 0
        self.num_iterations = torch.zeros_like(self.start, dtype=torch.int64)

    def update(self, largest: Tensor, growth: float = torch.inf) -> None:
        """Count one iteration and stop the images that are done or whose residual grew."""
        largest = largest.detach()
        self.num_iterations = self.num_iterations + self.active
        done = (largest < self.tolerance * self.start) | (largest > growth * self.largest)
        self.active, self.largest = self.active & ~done, largest

    def solution(self, phase: Tensor) -> Solution:
        relative = self.largest / self.start.clamp_min(torch.finfo(self.start.dtype).tiny)
        return Solution(phase, self.num_iterations[..., 0, 0], relative[..., 0, 0])


def _wavevector(image: Tensor, pixel_um: float) -> tuple[Tensor, Tensor]:
    r""":math:`2\pi f` along rows and columns, shape (H, W // 2 + 1); 0 where either is at the Nyquist frequency."""
    rows, columns = grid.frequencies(image, pixel_um, half=True)
    known = torch.maximum(rows.abs(), columns) * pixel_um < 0.5 - 1e-6
    return 2 * torch.pi * rows * known, 2 * torch.pi * columns * known


def _minus_divergence(phase: Tensor, intensity: Tensor, pixel_um: float) -> Tensor:
    r""":math:`-\nabla\cdot(I\nabla\varphi)`, self-adjoint and positive semi-definite."""
    size, spectrum = phase.shape[-2:], torch.fft.rfft2(phase)
    divergence = torch.zeros_like(spectrum)
    for k in _wavevector(phase, pixel_um):
        slope = torch.fft.irfft2(1j * k * spectrum, s=size)
        divergence = divergence + 1j * k * torch.fft.rfft2(intensity * slope)
    result: Tensor = torch.fft.irfft2(-divergence, s=size)
    return result


def _poisson(source: Tensor, pixel_um: float, reg: float) -> Tensor:
    r"""The solution with mean 0 of :math:`-\nabla^2\varphi = source`, damped by ``reg``."""
    k_rows, k_columns = _wavevector(source, pixel_um)
    K2 = k_rows.square() + k_columns.square()
    damped = (K2.square() + reg / pixel_um**4).clamp_min(torch.finfo(K2.dtype).tiny)
    return grid.filtered(source, K2 / damped)


def _explainable(axial_derivative: Tensor) -> Tensor:
    """Remove the mean and the Nyquist frequency of an axial derivative, which no phase can explain."""
    k_rows, k_columns = _wavevector(axial_derivative, 1.0)
    return grid.filtered(axial_derivative, (k_rows != 0) | (k_columns != 0))


def _largest(image: Tensor) -> Tensor:
    return image.abs().amax((-2, -1), keepdim=True)


def _inner(first: Tensor, second: Tensor) -> Tensor:
    return (first * second).sum((-2, -1), keepdim=True)
