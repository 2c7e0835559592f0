"""What is fitted between stages takes a bounded number of pixels, however large the patches are."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from memory_pairs import Memory
from sfumato.data.batches import Batch, PatchBatches
from sfumato.data.normalize import Normalization
from sfumato.data.order import Order
from sfumato.models.build import build_model
from sfumato.models.recipe import parse
from sfumato.training.known_first import fit_colour, measure_log_scale


@dataclass(frozen=True)
class Counted(PatchBatches):
    """Batches that remember how many pixels were taken."""

    taken: list[int] = field(default_factory=list)

    def __call__(self, step: int, positions: range) -> Batch:
        batch = super().__call__(step, positions)
        self.taken.append(batch.target.numel())
        return batch


def drawn(patch: int) -> Counted:
    images = list(np.random.default_rng(0).normal(size=(2, 1, 128, 128)).astype(np.float32))
    unchanged = Normalization((0.0,), (1.0,))
    order = Order(0, len(images), 8)
    return Counted(Memory(images, images), order, patch=patch, augment=False, condition=unchanged, target=unchanged)


@pytest.mark.parametrize("patch", [32, 64, 128])
def test_size_and_spectrum_are_measured_on_a_bounded_number_of_pixels(patch: int) -> None:
    """A patch of 128 pixels has four times those of one of 64, so a quarter of the patches is read; small ones: 256."""
    model = build_model(parse("preset: small\nmodel: {base: 2, rate_base: 2, denoiser_base: 2}").model, 1, 1)
    most = 256 * patch**2
    for fit, pixels in ((measure_log_scale, 2**19), (fit_colour, 2**20)):
        batches = drawn(patch)
        with torch.no_grad():
            fit(model, batches)
        assert sum(batches.taken) == min(pixels, most)
