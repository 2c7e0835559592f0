"""The schedule's own map of where a restored image is uncertain, in one pass; a relative hint, in no unit."""

import torch
from torch import Tensor, nn

from sfumato.diffusion.regression import Regression
from sfumato.diffusion.uncertainty import integral_of_beta
from sfumato.models.model_file import LoadedModel
from sfumato.restoration.tiles import tiled
from sfumato.system.errors import ImageError

__all__ = ["check_schedule", "schedule_map"]


def check_schedule(model: LoadedModel) -> None:
    """Refuse models whose schedule knows nothing of the pixels.

    Raises:
        ImageError: If the model is a regression, or its schedule is the same for all pixels.
    """
    network = getattr(model.model.schedule, "network", None)
    knows_pixels = isinstance(network, nn.Module) and any(True for _ in network.children())  # a global rate has none
    if isinstance(model.model, Regression) or not knows_pixels:
        raise ImageError(
            f"the schedule of this model ({model.info.recipe.model.method}, {model.info.recipe.model.schedule}) is the "
            "same for all pixels, so it says nothing of their uncertainty; expected a learned one: ask for samples"
        )


@torch.no_grad()
def schedule_map(condition: Tensor, model: LoadedModel, *, tile: int | None = None) -> Tensor:
    """The integral of beta of one image or region, shape (C, *spatial).

    Args:
        condition: As the networks take it, shape (1, K, *spatial).
        model: From :func:`sfumato.load`, with a schedule that :func:`check_schedule` accepts.
        tile: Side of the tiles that the network sees, or None for all at once.
    """
    network = model.model if tile is None else tiled(model.model, tile)
    rate = integral_of_beta(network.schedule(condition))[0].cpu()
    return rate.expand(model.info.target_channels, *condition.shape[2:])
