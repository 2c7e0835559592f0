r"""Flow matching as ResMatching does it (arXiv 2510.26601), with our U-Net: linear path, Euler steps.

.. math:: x_s = (1 - s)\,\epsilon + s\,y, \qquad L = E\,|u(x_s, s, x) - (y - \epsilon)|^2, \qquad
          x_{s + 1/20} = x_s + u / 20

Written here, in a page, because the package of that paper reads its own file formats only.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfumato.diffusion.noise import NoiseField
from sfumato.models.recipe import Recipe
from sfumato.nn import UNet
from sfumato.nn.blocks import freeze_batch_statistics
from sfumato.training.loop import batches_of
from sfumato.training.preparation import Prepared
from sfumato.training.stages import stage_at
from yardstick.costs import timed_steps
from yardstick.problems import Held
from yardstick.scores import Restored
from yardstick.training import NUM_SAMPLES, with_steps

__all__ = ["flow_of"]

CALLS = 20
_SAVED_EVERY = 200


def flow_of(recipe: Recipe, data: Prepared, seconds: float, folder: Path) -> Callable[[Held, int], Restored]:
    """Train for some seconds of one core, resuming from the folder, and return what restores an image."""
    training = _Training(recipe, data)
    cost = timed_steps(folder / "cost.txt", lambda: _Training(recipe, data).advance)
    training.run(with_steps(recipe, seconds, cost), folder / "flow.pt")
    network = training.average.eval()

    @torch.no_grad()
    def restore(image: Held, number: int) -> Restored:
        condition = data.condition.of_pixels(image.condition[None])
        started = time.process_time()
        drawn = []
        for sample in range(NUM_SAMPLES):
            state = NoiseField(0, image=number, sample=sample)(0, torch.Size([1, 1, 1, *condition.shape[2:]]))[0]
            for call in range(CALLS):
                state = state + network(_seen(condition, torch.full((1,), call / CALLS), state)) / CALLS
            drawn.append(state)
        samples = data.target.invert(torch.cat(drawn).double(), axis=1)
        return Restored(samples.mean(0), samples, time.process_time() - started)

    return restore


def _seen(condition: Tensor, time_: Tensor, state: Tensor) -> Tensor:
    return torch.cat([condition, time_[:, None, None, None].expand_as(state), state], dim=1)


class _Training:
    """The network with its average, as they are after some steps."""

    def __init__(self, recipe: Recipe, data: Prepared) -> None:
        self.recipe, self.batches, self.step = recipe, batches_of(recipe, data), 0
        with torch.random.fork_rng():
            torch.manual_seed(recipe.train.seed)
            channels = data.train.condition_channels + 2
            kind: dict[str, Any] = {"base": recipe.model.base, "num_scales": recipe.model.num_scales}
            self.network, self.average = (UNet(channels, 1, norm="population", **kind) for _ in range(2))
        self.optimizer = torch.optim.AdamW(self.network.parameters(), weight_decay=recipe.train.weight_decay)

    def run(self, recipe: Recipe, file: Path) -> None:
        self.recipe = recipe
        if file.exists():
            held = torch.load(file, weights_only=True)
            for name in ("network", "average", "optimizer"):
                getattr(self, name).load_state_dict(held[name])
            self.step = held["step"]
        while self.step < recipe.train.steps:
            self.advance(self.step)
            if self.step % _SAVED_EVERY == 0 or self.step == recipe.train.steps:
                names = ("network", "average", "optimizer")
                part = file.with_suffix(".part")
                torch.save({"step": self.step, **{name: getattr(self, name).state_dict() for name in names}}, part)
                part.replace(file)

    def advance(self, step: int) -> None:
        settings = self.recipe.train
        batch = self.batches(step, range(settings.batch_size))
        eps = NoiseField(settings.seed, sample=step)(0, torch.Size([1, *batch.target.shape]))[0]
        share = batch.t[:, None, None, None]
        freeze_batch_statistics(self.network, frozen=2 * step >= settings.steps)
        self.optimizer.zero_grad(set_to_none=True)
        found = self.network(_seen(batch.condition, batch.t, (1 - share) * eps + share * batch.target))
        (found - (batch.target - eps)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = stage_at(settings, step).learning_rate(settings, step)
        self.optimizer.step()
        self.step = step + 1
        with torch.no_grad():
            decay = min(settings.ema, self.step / (self.step + 10))
            torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), 1 - decay)
            for followed, statistics in zip(self.average.buffers(), self.network.buffers(), strict=True):
                followed.copy_(statistics)
