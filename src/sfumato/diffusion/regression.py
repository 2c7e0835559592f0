r"""Regression: one network, trained by mean square error, that returns one image and no uncertainty.

.. math:: \hat y(x) = network(x) \;(+\, x\ \text{if residual}), \qquad L = E \|y - \hat y(x)\|^2

Its optimum is the posterior mean, which the mean of many samples of a diffusion model also approaches.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from sfumato.diffusion import losses
from sfumato.diffusion.losses import Losses
from sfumato.diffusion.model import CVDM, Form
from sfumato.diffusion.reading import Residual
from sfumato.diffusion.schedule import CosineSchedule

__all__ = ["Regression"]


class Regression(CVDM):
    """A :class:`~sfumato.diffusion.model.CVDM` that consists of its mean network: nothing is left to diffuse.

    It can be trained, stored and sampled like a CVDM; all samples are the same image.

    Args:
        network: Maps a condition (B, K, *spatial) to (B, C, *spatial).
        target_channels: C.
        start: A first estimate of the target, which the network sees after the condition and corrects.
        residual: Add the condition, which must have C channels, to the output; if ``"last"``, its last C.

    Example:
        >>> from sfumato.nn import UNet
        >>> model = Regression(UNet(1, 1, base=4), residual=True)
        >>> model.center(torch.ones(2, 1, 16, 16)).mean().item()
        1.0
    """

    draws_samples = False

    def __init__(
        self,
        network: Callable[[Tensor], Tensor],
        *,
        target_channels: int = 1,
        start: Callable[[Tensor], Tensor] | None = None,
        residual: Residual = False,
    ) -> None:
        super().__init__(CosineSchedule(), network, target_channels=target_channels, start=start, residual=residual)

    def _center_and_features(self, condition: Tensor) -> tuple[Tensor, None]:
        """The restored image, shape (B, C, *spatial)."""
        first, _ = super()._center_and_features(condition)
        seen = condition if self.start is None or first is None else torch.cat([condition, first], dim=1)
        output = self.network(seen).to(condition.dtype)
        return (output if first is None else first + output), None

    def predict(self, noisy: Tensor, log_gamma: Tensor, seen: Tensor, form: Form = "clean") -> Tensor:
        """Nothing is left once the centre is known: the clean image is 0, and all of ``noisy`` is noise."""
        if form == "clean":
            return torch.zeros_like(noisy)
        noise = noisy / (-torch.expm1(log_gamma)).sqrt()
        return noise if form == "noise" else (log_gamma / 2).exp() * noise

    def validated(self, terms: Losses) -> Tensor:
        """The mean square error, the only term."""
        return terms.mean

    def loss(self, condition: Tensor, target: Tensor, t: Tensor, eps: Tensor) -> Losses:
        """The mean square error, under the name ``mean``; ``t`` and ``eps`` are ignored.

        Args:
            condition: The measured image, shape (B, K, *spatial).
            target: The image to predict, shape (B, C, *spatial).
            t: Ignored, shape (B).
            eps: Ignored, shape of ``target``.
        """
        self._check_batch(condition, target, t, eps)
        center, _ = self._center_and_features(condition)
        return Losses.of_mean(losses.mean(target, center))
