"""Training end to end where the posterior is known; the full measurement is benchmarks/training_on_exact.py."""

import pytest
import torch

from networks import seeded
from sfumato import CVDM, LearnedSchedule
from sfumato.nn import UNet
from training_on_exact import NUM_STEPS, accuracy, build, train, transition_time


@pytest.mark.parametrize(
    ("num_steps", "side", "rows", "most_mean_error", "most_std_error", "least_collapse"),
    [(400, 3, 16, 0.10, 0.20, 1.6), pytest.param(NUM_STEPS, 6, 64, 0.05, 0.10, 3.0, marks=pytest.mark.slow)],
)
def test_learns_the_exact_posterior_and_collapses_without_smoothness(
    num_steps: int, side: int, rows: int, most_mean_error: float, most_std_error: float, least_collapse: float
) -> None:
    regularised = train(build(smoothness_weight=3e-4, seed=0), num_steps=num_steps, seed=0, side=side)
    mean_error, std_error = accuracy(regularised, rows=rows)
    assert mean_error < most_mean_error
    assert std_error < most_std_error
    free = train(build(smoothness_weight=0.0, seed=0), num_steps=num_steps, seed=0, side=side)
    assert transition_time(free) < transition_time(regularised) / least_collapse


def test_same_seed_same_weights_to_the_bit() -> None:
    first, again = (train(build(smoothness_weight=3e-4, seed=1), num_steps=5, seed=2) for _ in range(2))
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_one_batch_overfits() -> None:
    rate = seeded(lambda: UNet(1, 1, base=4, num_scales=2, norm="channel"))
    network = seeded(lambda: UNet(3, 1, base=8, num_scales=2, norm="channel"))
    model = CVDM(LearnedSchedule(rate), network)
    generator = torch.Generator().manual_seed(0)
    condition, target, eps = torch.randn(3, 4, 1, 16, 16, generator=generator)
    t = torch.tensor([0.2, 0.4, 0.6, 0.8])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = model.loss(condition, target, t, eps).diffusion
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4
