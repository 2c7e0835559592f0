"""What is computed from the pairs before networks learn: the linear filter, and the scale of what a mean leaves."""

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sfumato.data.batches import PatchBatches
from sfumato.diffusion.model import CVDM
from sfumato.nn.linear_filter import LinearFilter

__all__ = ["Estimate", "fit_colour", "fit_filter", "fit_finish", "measure_log_scale", "trusted_share"]

Estimate = Callable[[Tensor], Tensor]
_MOST_PIXELS, _MOST_BATCHES = 2**21, 64
"""What the filter is fitted to: many more pixels than it has weights, and a matter of seconds."""
_LEAST_BATCHES = 8
"""A training of a few steps should not wait for a filter of many more; eight batches are many more than its weights."""
_LEAST_SIZE = 1e-4
_FINISH_PIXELS = _SCALE_PIXELS = 2**19
_COLOUR_PIXELS = 2**20
_MOST_PATCHES = 256
"""What size, filter and spectrum are taken from: many more pixels than they have weights, and a second or two."""


def fit_filter(start: LinearFilter, batches: PatchBatches, steps: int = _MOST_BATCHES) -> LinearFilter:
    """Fit a linear filter to the first patches of a training of some steps, and return it."""
    most = min(_MOST_BATCHES, max(_LEAST_BATCHES, steps))
    return start.fit(itertools.islice(_pairs(batches), min(most, max(1, _MOST_PIXELS // _pixels(batches)))))


@torch.no_grad()
def fit_finish(model: CVDM, batches: PatchBatches) -> None:
    """Fit the filter that a model's mean passes through last to patches."""
    assert isinstance(model.finish, LinearFilter)
    device = next(model.parameters()).device
    pairs = itertools.islice(_pairs(batches), _batches_for(_FINISH_PIXELS, batches))
    means = ((model.unfinished(condition.to(device)).cpu(), target) for condition, target in pairs)
    model.finish.fit(means, evenly=model.mean_error == "rmse")


@torch.no_grad()
def measure_log_scale(model: CVDM, batches: PatchBatches) -> float:
    """Logarithm of twice the root mean square of what the centre leaves, in units of the model's scale."""
    device = model.log_scale.device
    number = _batches_for(_SCALE_PIXELS, batches)
    squares = []
    for condition, target in itertools.islice(_pairs(batches), number):
        center = model.center(condition.to(device))
        left = target.to(device) if center is None else target.to(device) - center
        squares.append(float(left.cpu().double().square().mean()))
    size = math.sqrt(math.fsum(squares) / number)
    return math.log(2 * max(size, _LEAST_SIZE) / model.scale)


@torch.no_grad()
def fit_colour(model: CVDM, batches: PatchBatches) -> None:
    """Give the noise of a model the spectrum of what its mean and scale leave of patches."""
    assert model.colour is not None

    def leftovers() -> Iterator[Tensor]:
        for condition, target in itertools.islice(_pairs(batches), _batches_for(_COLOUR_PIXELS, batches)):
            device = model.log_scale.device
            yield model.read(condition.to(device)).diffused(target.to(device))

    model.colour.fit(leftovers())


@torch.no_grad()
def trusted_share(first: Estimate, corrected: Estimate, condition: Tensor, target: Tensor) -> float:
    """Share of a correction of a first estimate that is best for some images, between 0 and 1.

    With the first estimate f, the correction m and the target y, it is the least-squares <y - f, m> / <m, m>. After a
    very short training, or with few images, a correction may do harm: the result is then never worse than the first
    estimate, on these images.

    Args:
        first: Maps conditions (1, K, *spatial) to targets.
        corrected: Maps them to better ones.
        condition: Conditions of images that nothing was learned from, shape (B, K, *spatial).
        target: Their targets, shape (B, C, *spatial).
    """
    left, used = 0.0, 0.0
    for one, wanted in zip(condition.split(1), target.split(1), strict=True):
        before = first(one)
        correction = (corrected(one) - before).cpu().double()  # not every device has float64
        left += float(((wanted - before).cpu().double() * correction).sum())
        used += float(correction.square().sum())
    return min(max(left / used, 0.0), 1.0) if used else 1.0


def _batches_for(pixels: int, batches: PatchBatches) -> int:
    """How many batches have about so many pixels, at least 1; of small patches fewer, as each takes time to read."""
    return max(1, min(pixels // _pixels(batches), _MOST_PATCHES // batches.order.batch_size))


def _pixels(batches: PatchBatches) -> int:
    pixels: int = batches.order.batch_size * batches.patch**batches.source.ndim
    return pixels


def _pairs(batches: PatchBatches) -> Iterator[tuple[Tensor, Tensor]]:
    for step in itertools.count():
        batch = batches(step, range(batches.order.batch_size))
        yield batch.condition, batch.target
