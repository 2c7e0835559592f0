"""What a model knows of an image before any noise is drawn: centre and scale of what is diffused, and the schedule."""

from typing import NamedTuple

from torch import Tensor

from sfumato.diffusion.schedule import Schedule

__all__ = ["Known"]


class Known(NamedTuple):
    """What a model knows of an image before any noise is drawn; read once, however often the network is called."""

    seen: Tensor
    """What the denoising network sees beside level and noisy image: the condition first, shape (B, K', *spatial)."""
    center: Tensor | None
    """The known part of the target, shape (B, C, *spatial); None for 0."""
    scale: Tensor | float
    """Divides what is diffused: one number, or one per pixel, shape (B, C, *spatial)."""
    schedule: Schedule
    """The noise schedule of every pixel."""

    def diffused(self, target: Tensor) -> Tensor:
        """The part of a target that is left to diffuse, of about half of unit size."""
        return (target if self.center is None else target - self.center) / self.scale

    def target(self, clean: Tensor) -> Tensor:
        """The target of a clean image that was diffused, the inverse of :meth:`diffused`; N samples may come first."""
        scaled = self.scale * clean
        return scaled if self.center is None else self.center + scaled

    def detach(self) -> "Known":
        """The same without gradients, except those of the schedule."""
        scale = self.scale.detach() if isinstance(self.scale, Tensor) else self.scale
        return self._replace(
            seen=self.seen.detach(), center=None if self.center is None else self.center.detach(), scale=scale
        )
