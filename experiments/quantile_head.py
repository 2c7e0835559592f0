"""A rival of samples: a network that gives the 5% and 95% quantiles of every pixel in one pass, by the pinball loss."""

import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sfumato.data.batches import PatchBatches
from sfumato.data.order import Order
from sfumato.data.prefetch import prefetch
from sfumato.models.recipe import Recipe
from sfumato.nn import UNet
from sfumato.system.device import without_subnormals
from sfumato.training.preparation import prepare

__all__ = ["QuantileHead", "pinball", "quantile_head"]

LEVELS = (0.05, 0.95)
_BASE, _SCALES, _BATCH, _RATE = 8, 4, 8, 2e-3


class QuantileHead(nn.Module):
    """Maps a condition (B, K, *spatial) to the lower and the upper quantile, (2, B, C, *spatial), which never cross."""

    def __init__(self, condition_channels: int, target_channels: int) -> None:
        super().__init__()
        self.network = UNet(condition_channels, 2 * target_channels, base=_BASE, num_scales=_SCALES, norm="channel")

    def forward(self, condition: Tensor) -> Tensor:
        """Both quantiles, the lower one first."""
        middle, raw = self.network(condition).chunk(2, dim=1)
        half = F.softplus(raw)
        return torch.stack([middle - half, middle + half])


def pinball(quantiles: Tensor, target: Tensor) -> Tensor:
    """The mean loss whose optimum are the quantiles at ``LEVELS``; quantiles have shape (2, *target's)."""
    error = target - quantiles
    levels = error.new_tensor(LEVELS).view(-1, *[1] * target.ndim)
    return torch.maximum(levels * error, (levels - 1) * error).mean()


def quantile_head(recipe: Recipe, file: Path, *, steps: int) -> QuantileHead:
    """Train one on the training pairs of a recipe, normalised as they are there, or read the one that is kept."""
    data = prepare(recipe)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = QuantileHead(data.train.condition_channels, data.train.target_channels)
    if file.exists():
        head.load_state_dict(load_file(file))
        return head.eval()
    batches = PatchBatches(
        data.train,
        Order(recipe.train.seed, len(data.train), _BATCH),
        patch=recipe.data.patch,
        augment=recipe.data.augment,
        condition=data.condition,
        target=data.target,
    )
    optimizer = torch.optim.AdamW(head.parameters(), lr=_RATE, weight_decay=0.0)
    with without_subnormals(), prefetch(lambda step: batches(step, range(_BATCH)), range(steps)) as drawn:
        for step, batch in enumerate(drawn):
            for group in optimizer.param_groups:
                group["lr"] = _RATE * min(1.0, (step + 1) / 100) * (1 + math.cos(math.pi * step / steps)) / 2
            loss = pinball(head(batch.condition), batch.target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimizer.step()
            if step % 200 == 0:
                print(
                    f"quantile head: step {step}, pinball loss {float(loss.detach()):.4f}", file=sys.stderr, flush=True
                )
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(head.state_dict(), file)
    return head.eval()
