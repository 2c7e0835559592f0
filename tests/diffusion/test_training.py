"""Training end to end where the posterior is known; the full measurement is benchmarks/training_on_exact.py."""

import torch

from networks import seeded
from sfumato import CVDM, LearnedSchedule
from sfumato.nn import UNet
from training_on_exact import NUM_STEPS, accuracy, build, train, transition_time


def test_learns_the_exact_posterior_and_collapses_without_smoothness() -> None:
    regularised = train(build(smoothness_weight=3e-4, seed=0), num_steps=NUM_STEPS, seed=0)
    mean_error, std_error = accuracy(regularised)
    assert mean_error < 0.05
    assert std_error < 0.10
    free = train(build(smoothness_weight=0.0, seed=0), num_steps=NUM_STEPS, seed=0)
    assert transition_time(free) < transition_time(regularised) / 3


def test_same_seed_same_weights_to_the_bit() -> None:
    first, again = (train(build(smoothness_weight=3e-4, seed=1), num_steps=5, seed=2) for _ in range(2))
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_one_batch_overfits() -> None:
    rate = seeded(lambda: UNet(1, 1, base=4, num_scales=2))
    network = seeded(lambda: UNet(3, 1, base=8, num_scales=2))
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
