"""What a model knows of an image before any noise is drawn: centre and scale of what is diffused, and the schedule."""

from dataclasses import replace
from typing import Any, NamedTuple

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

    def within(self, place: tuple[Any, ...], grid: int = 1) -> "Known":
        """What is known in a part of the image.

        Args:
            place: Index of tensors (B, channels, *spatial): an ellipsis and a slice per spatial axis.
            grid: Stride of the networks, on which the part starts; what they see may be padded to it.
        """
        padded: tuple[Any, ...] = (..., *(slice(span.start, -(-span.stop // grid) * grid) for span in place[1:]))

        def part(values: Tensor) -> Tensor:
            # One number may hold for all pixels along an axis.
            spans = zip(place[1:], values.shape[2:], strict=True)
            there: tuple[Any, ...] = (..., *(slice(None) if length == 1 else span for span, length in spans))
            return values[there]

        return Known(
            self.seen[padded],
            None if self.center is None else part(self.center),
            part(self.scale) if isinstance(self.scale, Tensor) else self.scale,
            replace(self.schedule, rate=part(self.schedule.rate)),
        )
