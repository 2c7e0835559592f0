"""What is read of a condition before any noise is drawn: centre and scale of what is diffused, and its schedule.

Everything here is a function of the condition alone, so it is computed once per image, for any number of samples.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from sfumato.diffusion.channels import called
from sfumato.diffusion.colour import Colour
from sfumato.diffusion.known import Known
from sfumato.diffusion.schedule import Schedule

__all__ = ["Learns", "ReadsOnce", "Residual"]

Learns = Literal["all", "mean", "scale", "rest"]
"""What a training step changes: all networks, the mean network alone, the scale network alone, or the rest."""

Residual = bool | Literal["last"]

_LOG_SCALES = (-5.0, 3.0)
"""Bounds of a pixel's scale relative to all pixels', as logarithms: below the first, rounding of images matters."""


class ReadsOnce(nn.Module):
    """The parts of :class:`~sfumato.CVDM` that see the condition alone; its arguments describe them."""

    log_scale: Tensor

    schedule: Callable[[Tensor], Schedule]
    target_channels: int
    mean_network: Callable[[Tensor], Tensor] | None
    start: Callable[[Tensor], Tensor] | None
    finish: Callable[[Tensor], Tensor] | None
    reader: Callable[[Tensor], Tensor] | None
    scale_network: Callable[[Tensor], Tensor] | None
    scale_finish: Callable[[Tensor], Tensor] | None
    colour: Colour | None
    learns: Learns
    residual: Residual
    scale: float

    def center(self, condition: Tensor) -> Tensor | None:
        """The known part of the target before any noise is drawn, shape (B, C, *spatial), or None for 0."""
        return self._center_and_features(condition)[0]

    def unfinished(self, condition: Tensor) -> Tensor:
        """The mean that :attr:`finish` is fitted to, shape (B, C, *spatial)."""
        mean = self._mean_and_features(condition)[0]
        assert mean is not None
        return mean

    def _center_and_features(self, condition: Tensor) -> tuple[Tensor | None, Tensor | None]:
        center, features = self._mean_and_features(condition)
        # While the mean learns, so does what the filter is fitted to.
        if self.finish is not None and center is not None and self.learns != "mean":
            center = self.finish(center)
        return center, features

    def _mean_and_features(self, condition: Tensor) -> tuple[Tensor | None, Tensor | None]:
        first = None if self.start is None else self.start(condition)
        if self.mean_network is None:
            return (self._residual_center(condition) if first is None else first), None
        seen = condition if first is None else torch.cat([condition, first], dim=1)
        features = None if self.reader is None else self.reader(seen).to(condition.dtype)
        shown, made_of = (seen, "the condition and any first estimate") if features is None else (features, "features")
        mean = called(self.mean_network, "mean network", shown, made_of, self.target_channels).to(condition.dtype)
        return (mean if first is None else first + mean), features

    def _residual_center(self, condition: Tensor) -> Tensor | None:
        if not self.residual:
            return None
        if condition.shape[1] != self.target_channels and self.residual != "last":
            raise ValueError(
                f"condition has {condition.shape[1]} channels and the target {self.target_channels}; "
                "a residual target needs as many in both, so bring the condition to the target's channels first"
            )
        return condition[:, -self.target_channels :]

    def read(self, condition: Tensor) -> Known:
        """Read a condition (B, K, *spatial) once, for any number of calls of :meth:`predict`."""
        center, features, seen = self._see(condition)
        schedule = self.schedule(condition if features is None else seen)
        if self.scale_network is None:
            return Known(seen, center, self.scale, schedule)
        relative, scale = self._scales(seen)
        return Known(torch.cat([seen, relative], dim=1), center, scale, schedule)

    @property
    def knows_std(self) -> bool:
        """Whether :meth:`mean_and_std` gives the standard deviation of every pixel."""
        return self.mean_network is not None and self.scale_network is not None

    def mean_and_std(self, condition: Tensor) -> tuple[Tensor, Tensor | None]:
        r"""Mean :math:`c(x)` and standard deviation :math:`scale(x) / 2` of the target, by one read and without noise.

        Args:
            condition: Shape (B, K, *spatial).

        Returns:
            Two tensors (B, C, *spatial); None for the standard deviation unless :attr:`knows_std`.
        """
        center, _, seen = self._see(condition)
        if center is None:
            raise ValueError("the model has no centre, so it knows no mean without samples; give it a mean network")
        return center, self._scales(seen)[1] / 2 if self.knows_std else None

    def _see(self, condition: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Centre, features, and the two beside the condition, as the other networks see them."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.learns in ("all", "mean")):
            center, features = self._center_and_features(condition)
        seen = condition if center is None or self.residual else torch.cat([condition, center.detach()], dim=1)
        return center, features, seen if features is None else torch.cat([seen, features.detach()], dim=1)

    def _scales(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithm of each pixel's scale relative to all pixels', and the scale, each (B, C, *spatial)."""
        assert self.scale_network is not None
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self._holds_scale):
            relative = self.scale_network(seen).to(seen.dtype).clamp(*_LOG_SCALES)
            if self.scale_finish is not None and self.learns != "scale":
                relative = self.scale_finish(relative)
        return relative, self.scale * (self.log_scale + relative).exp()

    @property
    def _holds_scale(self) -> bool:
        """Whether the scale was learned before: the noise then has the spectrum of what it leaves."""
        return self.learns == "rest" and self.colour is not None
