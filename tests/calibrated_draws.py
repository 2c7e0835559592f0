"""Truths and draws of Gaussian inverse problems whose posterior is known, exact or wrong by a known amount."""

import torch
from torch import Tensor

from exact_problems import LinearGaussian, blur_matrix
from sfumato.diffusion.schedule import CosineSchedule

__all__ = ["GaussianDraws"]


class GaussianDraws:
    """The problem x = H y + n on (side, side) images, with truths from the prior and draws from the posterior.

    Args:
        side: Of the images.
        blur: Width, in pixels, of the blur that makes the prior smooth and of the one that measures; with 0 the prior
            is white, nothing is blurred and pixels are independent.
        noise: Standard deviation of the measurement's noise.
    """

    def __init__(self, side: int, *, blur: float, noise: float = 0.5) -> None:
        self.side = side
        identity = torch.eye(side**2, dtype=torch.float64)
        smooth = blur_matrix(side, blur) if blur else identity
        prior_root = smooth / smooth[0].square().sum().sqrt()
        self.operator, self.noise, self.prior_root = smooth, noise, prior_root
        self.problem = LinearGaussian(CosineSchedule(), smooth, prior_root @ prior_root.T, noise**2 * identity)
        values, vectors = torch.linalg.eigh(self.problem.covariance)
        self.root = vectors * values.clamp(min=0).sqrt()

    def draw(
        self, num_samples: int, num_images: int, seed: int, *, scale: float = 1.0, bias: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Samples (N, M, 1, side, side) and truths (M, 1, side, side), float32.

        Args:
            num_samples: N.
            num_images: M.
            seed: Of truths, noise and draws.
            scale: Factor of the draws' standard deviation; 1 is exact.
            bias: Added to all draws, in standard deviations of the posterior; 0 is exact.
        """
        generator = torch.Generator().manual_seed(seed)
        pixels = self.side**2

        def unit(*shape: int) -> Tensor:
            return torch.randn(*shape, pixels, generator=generator)

        truths = unit(num_images) @ self.prior_root.T.float()
        measured = truths @ self.operator.T.float() + self.noise * unit(num_images)
        mean = self.problem.posterior_mean(measured.double()).float()
        std = self.problem.covariance.diagonal().sqrt().float()
        samples = mean + bias * std + scale * unit(num_samples, num_images) @ self.root.T.float()
        shape = (num_images, 1, self.side, self.side)
        return samples.view(num_samples, *shape), truths.view(shape)
