"""Train CVDM where the posterior is known, and show what the smoothness term is for.

    python benchmarks/training_on_exact.py --check --write

Heteroscedastic problem y | x ~ N(f(x), sigma(x)^2), pixel by pixel: the exact mean and standard deviation are known for
every x, so the whole chain, learned schedule included, is measured in one number each. The figure is the counterpart of
the paper's ablation without regularisation [CVDM App. K].
"""

import argparse
import math
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from bars import DOCS, Bars, write_table
from sfumato import CVDM, LearnedSchedule, sample

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the exact problems are test code
from exact_problems import Heteroscedastic

PROBLEM = Heteroscedastic(LearnedSchedule(torch.zeros_like))
NUM_STEPS = 2000


class PixelNetwork(nn.Module):
    """The same small network at every pixel: all that a problem without neighbours needs."""

    def __init__(self, in_channels: int, width: int, num_layers: int) -> None:
        super().__init__()
        layers = [nn.Linear(width if depth else in_channels, width) for depth in range(num_layers)]
        for layer in layers:
            nn.init.kaiming_normal_(layer.weight)
            nn.init.normal_(layer.bias, std=0.5)
        self.hidden = nn.ModuleList(layers)
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, in_channels, H, W) to (B, 1, H, W)."""
        features = images.movedim(1, -1)
        for layer in self.hidden:
            features = nn.functional.silu(layer(features))
        output: Tensor = self.head(features)
        return output.movedim(-1, 1)


def build(*, smoothness_weight: float, seed: int) -> CVDM:
    """A model for one channel; its initial weights depend on ``seed`` alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        rate, denoiser = PixelNetwork(1, 16, 2), PixelNetwork(3, 64, 3)
        return CVDM(LearnedSchedule(rate), denoiser, smoothness_weight=smoothness_weight)


def batch(generator: torch.Generator, size: int = 128, side: int = 6) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Condition, target, stratified times and noise."""
    condition = 3 * torch.rand(size, 1, side, side, generator=generator) - 1.5
    unit, eps = torch.randn(2, *condition.shape, generator=generator)
    target = PROBLEM.posterior_mean(condition) + PROBLEM.posterior_std(condition) * unit
    t = (torch.arange(size) + torch.rand((), generator=generator).clamp(min=1e-4)) / size
    return condition, target, t, eps


def train(model: CVDM, *, num_steps: int, seed: int, side: int = 6) -> CVDM:
    """Adam with a cosine decay, on images of a side; returns the exponential moving average of the weights."""
    generator = torch.Generator().manual_seed(seed)
    network, schedule = model.get_submodule("network"), model.get_submodule("schedule")
    optimizer = torch.optim.Adam(
        [{"params": network.parameters(), "lr": 5e-3}, {"params": schedule.parameters(), "lr": 3e-3}]
    )
    decay = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 50) * (1 + math.cos(math.pi * step / num_steps)) / 2
    )
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(1 - 4 / num_steps)
    )
    for _ in range(num_steps):
        optimizer.zero_grad()
        model.loss(*batch(generator, side=side)).total.backward()
        optimizer.step()
        decay.step()
        average.update_parameters(model)
    averaged = average.module
    assert isinstance(averaged, CVDM)
    return averaged


def accuracy(model: CVDM, *, rows: int = 64) -> tuple[float, float]:
    """Error of the posterior mean, in exact stds, and relative error of the std, both averaged over x.

    Every x is drawn 64 times in each of the ``rows``.
    """
    x = torch.linspace(-1.4, 1.4, 64)
    draws = sample(model, x.expand(1, 1, rows, 64), num_samples=64, seed=1)[:, 0, 0].reshape(-1, 64)
    mean, std = PROBLEM.posterior_mean(x), PROBLEM.posterior_std(x)
    return float(((draws.mean(0) - mean) / std).abs().mean()), float((draws.std(0) / std - 1).abs().mean())


def mean_gamma(model: CVDM, t: Tensor) -> Tensor:
    """Gamma averaged over all pixels, as in the paper's figure, shape of t."""
    condition = torch.linspace(-1.5, 1.5, 64).reshape(1, 1, 1, 64)
    with torch.no_grad():
        return model.schedule(condition).gamma(t).mean((1, 2, 3))


def transition_time(model: CVDM) -> float:
    """How long gamma takes from 0.9 to 0.1."""
    t = torch.linspace(0, 1, 5001)
    gamma = mean_gamma(model, t)
    return float(((gamma < 0.9) & (gamma > 0.1)).float().mean())


def draw(regularised: CVDM, free: CVDM, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    t = torch.linspace(0, 1, 501)
    axes.plot(t, mean_gamma(regularised, t), color="#0072b2", label="with the smoothness term")
    axes.plot(t, mean_gamma(free, t), color="#d55e00", linestyle="--", label="without it")
    axes.axhspan(0.1, 0.9, color="0.93", zorder=0)
    axes.text(0.99, 0.82, "transition, 0.9 to 0.1", ha="right", color="0.4", fontsize=9)
    axes.set(xlabel="time t", ylabel=r"$\gamma(t, x)$, mean over pixels", xlim=(0, 1), ylim=(-0.02, 1.02))
    axes.set_title("Without the smoothness term the learned schedule collapses", fontsize=10)
    axes.legend(frameon=False, loc="center right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit non-zero if a bar is missed")
    parser.add_argument("--write", action="store_true", help="write the table and the figure of docs/smoothness.md")
    arguments = parser.parse_args()
    bars = Bars()
    torch.set_num_threads(1)  # small tensors gain nothing from threads and lose much on a busy machine
    start = time.perf_counter()
    regularised = train(build(smoothness_weight=3e-4, seed=0), num_steps=NUM_STEPS, seed=0)
    bars.report("training, seconds", time.perf_counter() - start, high=60)
    mean_error, std_error = accuracy(regularised)
    bars.report("posterior mean, error in exact stds", mean_error, high=0.05)
    bars.report("posterior std, relative error", std_error, high=0.10)
    free = train(build(smoothness_weight=0.0, seed=0), num_steps=NUM_STEPS, seed=0)
    with_term, without_term = transition_time(regularised), transition_time(free)
    free_mean_error, free_std_error = accuracy(free)
    bars.report("transition time with the smoothness term", with_term)
    bars.report("transition time without it", without_term)
    bars.report("ratio of the two", without_term / with_term, high=1 / 3)
    if arguments.write:
        rows = {
            "time that gamma takes from 0.9 to 0.1": (f"{with_term:.2f}", f"{without_term:.2f}"),
            "error of the posterior mean, in exact standard deviations": (
                f"{mean_error:.3f}",
                f"{free_mean_error:.3f}",
            ),
            "relative error of the posterior standard deviation": (f"{std_error:.3f}", f"{free_std_error:.3f}"),
        }
        table = [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
        write_table(DOCS / "smoothness.md", ["| | with the term | without |", "|---|---|---|", *table])
        draw(regularised, free, DOCS / "figures" / "schedule_collapse.png")
    bars.finish(check=arguments.check)


if __name__ == "__main__":
    main()
