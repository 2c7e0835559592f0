"""What happens between the stages of a training: what was learned is held, and what follows from it is fitted.

Everything is fitted in closed form to patches of the training, so a resumed run or another rank finds the same.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sfumato.data.batches import PatchBatches
from sfumato.diffusion.model import CVDM
from sfumato.diffusion.reading import Learns
from sfumato.nn.linear_filter import LinearFilter
from sfumato.training.known_first import Estimate, fit_colour, fit_finish, measure_log_scale

__all__ = ["fit_between", "take_over", "weaken_mean"]

Trusted = Callable[[Estimate, Estimate], float]
_HELD = ("reader", "mean_network", "finish", "scale_network", "colour")
"""Parts that are learned or fitted in one stage and held in the next ones."""


def fit_between(
    before: Learns | None,
    after: Learns,
    average: CVDM,
    batches: PatchBatches,
    trusted: Trusted,
    *,
    is_added: bool = False,
) -> None:
    """Fit what a stage needs of the stage before.

    Args:
        before: What learned in the stage before; None before the first.
        after: What learns in the stage to come.
        average: The moving average of the weights, which is changed.
        batches: Patches to fit to.
        trusted: Gives the share of a correction that is best for validation images.
        is_added: Whether the stage to come extends a finished run, whose scale network already knows the scale.
    """
    if after == "mean" and isinstance(average.finish, LinearFilter):
        average.finish.weaken(0)  # what it was fitted to changes now, and `weaken_mean` must not see it
    if before == "mean":
        weaken_mean(average, trusted)
        if isinstance(average.finish, LinearFilter):
            fit_finish(average, batches)
            average.finish.weaken(trusted(average.unfinished, _center_of(average)))
    if average.scale_network is not None and after != "mean" and before != "scale" and not is_added:
        average.log_scale.fill_(measure_log_scale(average, batches))
    if average.colour is not None and after in ("all", "rest"):
        fit_colour(average, batches)


@torch.no_grad()
def weaken_mean(average: CVDM, trusted: Trusted) -> None:
    """Weaken the mean network's correction of the linear start as far as this lowers the validation error."""
    if average.reader is None or average.start is None:
        return
    share = trusted(average.start, _center_of(average))
    assert isinstance(average.mean_network, nn.Module)
    for parameter in average.mean_network.parameters():  # one linear layer on the reader's features
        parameter.mul_(share)


def _center_of(model: CVDM) -> Estimate:
    def center(condition: Tensor) -> Tensor:
        found = model.center(condition)
        assert found is not None
        return found

    return center


@torch.no_grad()
def take_over(model: CVDM, average: CVDM) -> None:
    """Give a model what its moving average has learned and fitted before the stage to come."""
    for name in _HELD:
        part, averaged = getattr(model, name), getattr(average, name)
        if isinstance(part, nn.Module):
            part.load_state_dict(averaged.state_dict())
    if model.scale_network is not None:
        model.log_scale.copy_(average.log_scale)
