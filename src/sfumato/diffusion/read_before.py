"""Sample a region of an image whose condition was read before: only the denoising network still runs."""

from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from sfumato.diffusion.model import CVDM, Known

__all__ = ["ReadBefore", "within"]


@dataclass
class ReadBefore:
    """A :class:`~sfumato.diffusion.sampling.Denoiser` that knows its image already.

    Attributes:
        model: Its denoising network predicts.
        known: What was read of the condition.
        target_channels: C.
    """

    model: CVDM
    known: Known
    target_channels: int = field(init=False)

    def __post_init__(self) -> None:
        self.target_channels = self.model.target_channels

    def read(self, condition: Tensor) -> Known:
        """What was read; the condition only gives the size."""
        return self.known

    def predict(self, noisy: Tensor, log_gamma: Tensor, seen: Tensor) -> Tensor:
        """The clean image in ``noisy``."""
        return self.model.predict(noisy, log_gamma, seen)


def within(known: Known, place: tuple[Any, ...]) -> Known:
    """What is known in a part of the image; ``place`` indexes tensors (B, channels, *spatial)."""
    spatial = known.seen.shape[2:]

    def part(values: Tensor) -> Tensor:
        return values[place] if values.shape[2:] == spatial else values  # one number may hold for all pixels

    return Known(
        part(known.seen),
        None if known.center is None else part(known.center),
        part(known.scale) if isinstance(known.scale, Tensor) else known.scale,
        replace(known.schedule, rate=part(known.schedule.rate)),
    )
