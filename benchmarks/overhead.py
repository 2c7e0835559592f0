"""What diffusion costs on top of its networks.

    python benchmarks/overhead.py --check

Each figure is a ratio of two times measured in turns within one run, so that a busy machine slows both alike: the
median over rounds of ours against the bare network calls that ours makes. Noise network base 16, rate network base 8,
128 x 128 pixels, batch 4.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from bars import Bars
from sfumato import CVDM, LearnedSchedule, sample
from sfumato.nn import UNet
from sfumato.nn.blocks import NormKind

BATCH, SIDE, NUM_STEPS = 4, 128, 8


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(ours: Callable[[], object], bare: Callable[[], object], rounds: int) -> float:
    """Median over rounds of ours / bare, the two in turns and each round in the other order."""
    ours(), bare()
    ratios = []
    for turn in range(rounds):
        first, second = (ours, bare) if turn % 2 else (bare, ours)
        a, b = seconds(first), seconds(second)
        ratios.append(a / b if turn % 2 else b / a)
    return statistics.median(ratios)


def networks(norm: NormKind = "channel") -> tuple[UNet, UNet]:
    return UNet(1, 1, base=8, norm=norm), UNet(3, 1, base=16, norm=norm)


def backward(network: UNet, images: Tensor) -> None:
    network.zero_grad()
    network(images).square().mean().backward()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    parser.add_argument("--rounds", type=int, default=15, help="pairs of measurements per figure")
    arguments = parser.parse_args()
    bars, rounds = Bars(), arguments.rounds
    generator = torch.Generator().manual_seed(0)
    condition, target, eps = torch.randn(3, BATCH, 1, SIDE, SIDE, generator=generator)
    inputs = torch.randn(BATCH, 3, SIDE, SIDE, generator=generator)
    t = torch.rand(BATCH, generator=generator)
    rate, network = networks()
    model = CVDM(LearnedSchedule(rate), network)

    @torch.no_grad()
    def bare_calls() -> None:
        rate(condition)
        for _ in range(NUM_STEPS):
            network(inputs)

    def sampled(eta: float) -> Callable[[], Tensor]:
        return lambda: sample(model, condition, num_samples=1, num_steps=NUM_STEPS, eta=eta, seed=0)

    bars.report("sample() / bare calls, 2m, eta 0", ratio(sampled(0.0), bare_calls, rounds), high=1.05)
    bars.report("sample() / bare calls, 2m, eta 1", ratio(sampled(1.0), bare_calls, rounds), high=1.10)

    def training_step() -> None:
        model.zero_grad()
        model.loss(condition, target, t, eps).total.backward()

    def bare_steps() -> None:
        backward(rate, condition)
        backward(network, inputs)

    bars.report("training step / bare network steps", ratio(training_step, bare_steps, rounds), high=1.10)
    (_, instance), (_, channel) = networks("instance"), networks("channel")
    normalised = ratio(lambda: backward(channel, inputs), lambda: backward(instance, inputs), rounds)
    bars.report("channel / instance normalisation, per step", normalised, high=1.10)
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
