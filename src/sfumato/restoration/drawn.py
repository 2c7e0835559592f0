"""What was drawn of an image, before it is brought to the units of the targets."""

from typing import NamedTuple

from torch import Tensor

from sfumato.diffusion.posterior import Posterior

__all__ = ["Drawn"]


class Drawn(NamedTuple):
    """What is known of one image or region, still normalised."""

    posterior: Posterior
    """Summary of samples (C, *spatial); without samples, of the mean alone."""
    kept: list[Tensor]
    """The samples themselves, each (C, *spatial), if they were kept."""
    mean: Tensor
    """The mean that is written, the samples' or the mean network's, (C, *spatial)."""
    known_std: Tensor | None = None
    """Standard deviation that needs no samples, (C, *spatial)."""

    @property
    def std(self) -> Tensor:
        """The standard deviation that is written, before any correction, (C, *spatial)."""
        return self.posterior.std if self.known_std is None else self.known_std
