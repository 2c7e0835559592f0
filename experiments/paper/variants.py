"""Attempts at a better learned schedule that the library has no settings for: its CVDM with one thing changed.

They live here because none of them is known to help. Each cell is trained and measured in a process of its own, where
:func:`changed` puts the variant in the place of the model that a recipe describes.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import sfumato.models.build
import sfumato.training.loop
from sfumato.diffusion import losses
from sfumato.diffusion.gaussian import diffuse, eps_from_velocity, velocity
from sfumato.diffusion.known import Known
from sfumato.diffusion.losses import LEAST_WEIGHT, Losses, with_gradient_times
from sfumato.diffusion.model import CVDM
from sfumato.models.build import build_model
from sfumato.models.recipe import ModelRecipe
from sfumato.nn import UNet

__all__ = ["VARIANTS", "changed"]


class _RatesShown(CVDM):
    """The network sees how fast each pixel drowns, beside the condition."""

    def read(self, condition: Tensor) -> Known:
        with torch.no_grad():
            bound = self.schedule(condition)
            rates = (bound.rate / bound.reference_rate).expand(len(condition), 1, *condition.shape[2:])
        known = super().read(condition)
        return known._replace(seen=torch.cat([condition, rates.to(condition.dtype)], dim=1))


class _ScheduleFromBound(CVDM):
    """The schedule learns from the exact bound, the network from its own loss, as MuLAN (arXiv 2312.13236) reports."""

    def loss(self, condition: Tensor, target: Tensor, t: Tensor, eps: Tensor) -> Losses:
        schedule, diffused = self.schedule(condition), target / self.scale
        moved = self.t_min + (1 - self.t_min) * t
        log_gamma = schedule.log_gamma(moved)
        noisy = diffuse(diffused, eps, log_gamma)
        weight = self._weight(schedule, moved, log_gamma)
        assert weight is not None, "these attempts have the default objective"
        exact = -(1 - self.t_min) * schedule.log_snr(moved, order=1)
        # As in CVDM.loss: what flows back to the network's inputs is brought from the velocity's error to the bound's.
        share = exact.detach() * log_gamma.detach().exp() / weight.clamp(min=LEAST_WEIGHT)
        share = share.mean(dim=tuple(range(1, share.ndim)), keepdim=True)
        shown, level = (with_gradient_times(share, values) for values in (noisy, log_gamma))
        output = self.predict(shown, level, self.read(condition).seen, form="velocity")
        diffusion = losses.diffusion(velocity(diffused, eps, log_gamma).detach() - output, weight)
        bound = losses.diffusion(eps - eps_from_velocity(noisy, output.detach(), log_gamma), exact)
        return Losses(
            diffusion=diffusion + (bound - bound.detach()),
            prior=losses.prior(schedule, diffused),
            consistency=losses.consistency(schedule, t),
            smoothness=self.smoothness_weight * losses.smoothness(schedule, t),
            mean=target.new_zeros(()),
            scale=target.new_zeros(()),
            reconstruction=losses.reconstruction(schedule, self.t_min),
        )


class _TimesLogitNormal(CVDM):
    """Times of training gather in the middle, logit(t) being unit normal, as for flows (arXiv 2403.03206)."""

    def loss(self, condition: Tensor, target: Tensor, t: Tensor, eps: Tensor) -> Losses:
        return super().loss(condition, target, torch.special.ndtri(t.double()).sigmoid().to(t.dtype), eps)


def _rates_shown(model: CVDM) -> None:
    """One more input after the condition, which counts for nothing at first: other weights start as they would."""
    network = model.network
    assert isinstance(network, UNet)
    first: Any = network.down[0]
    old = first.conv1
    new = nn.Conv2d(old.in_channels + 1, old.out_channels, old.kernel_size, padding=old.padding)
    with torch.no_grad():
        shown = old.in_channels - 2  # gamma and the noisy target stand last
        new.weight.copy_(
            torch.cat([old.weight[:, :shown], torch.zeros_like(old.weight[:, :1]), old.weight[:, shown:]], dim=1)
        )
        bias = new.bias
        assert bias is not None
        bias.copy_(old.bias)
    first.conv1, network.in_channels = new, new.in_channels
    model.__class__ = _RatesShown


def _schedule_from_bound(model: CVDM) -> None:
    model.__class__ = _ScheduleFromBound


def _times_logit_normal(model: CVDM) -> None:
    model.__class__ = _TimesLogitNormal


VARIANTS: Mapping[str, Callable[[CVDM], None]] = {
    "rates_shown": _rates_shown,
    "schedule_from_bound": _schedule_from_bound,
    "times_logit_normal": _times_logit_normal,
}
"""What turns the model of a recipe into each of them, in place. For one target channel, and no centre."""


@contextlib.contextmanager
def changed(variant: str) -> Iterator[None]:
    """Train and load models of this variant, in this process; the library's own for an empty name."""

    def build(model: ModelRecipe, condition_channels: int, target_channels: int, **options: Any) -> CVDM:
        made = build_model(model, condition_channels, target_channels, **options)
        VARIANTS[variant](made)
        return made

    if not variant:
        yield
        return
    users: tuple[Any, ...] = (sfumato.training.loop, sfumato.models.build)
    try:
        for module in users:
            module.build_model = build
        yield
    finally:
        for module in users:
            module.build_model = build_model
