"""Draw the figures of docs/how_it_works.md: the schedule step by step, on a problem whose answer is known.

    python docs/make_method_figures.py

No trained model is needed. The networks are drawn from themselves. The rate map is made by hand, after what the paper
reports of microscopy. The denoiser is exact: it knows that every pixel of the target is normal given the measurement,
with its own mean and deviation.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from sfumato import LearnedSchedule, sample
from sfumato.diffusion.gaussian import amplitudes, diffuse
from sfumato.diffusion.known import Known
from sfumato.diffusion.noise import NoiseField
from sfumato.diffusion.posterior import Posterior
from sfumato.diffusion.schedule import Schedule
from sfumato.figures.network_diagram import draw_network
from sfumato.figures.plotting import new_figure
from sfumato.nn import UNet

FIGURES = Path(__file__).parent / "figures"
SIDE = 96
TIMES = (0.0, 0.25, 0.5, 0.75, 1.0)
BLUE, ORANGE = "#0072b2", "#d55e00"


def blur(image: Tensor, width: float) -> Tensor:
    """A periodic Gaussian blur of (B, C, H, W), by the Fourier transform."""
    frequency = torch.fft.fftfreq(SIDE)
    gain = torch.exp(-2 * (torch.pi * width) ** 2 * (frequency[:, None] ** 2 + frequency**2))
    return torch.fft.ifft2(torch.fft.fft2(image) * gain).real


def specimen() -> tuple[Tensor, Tensor]:
    """What is there, from -1 to about 1, and what a microscope sees of it; both (1, 1, SIDE, SIDE)."""
    generator = torch.Generator().manual_seed(4)
    row, column = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    vesicles = torch.zeros(SIDE, SIDE)
    for y, x, radius in (torch.rand(9, 3, generator=generator) * torch.tensor([96.0, 96.0, 11.0])).tolist():
        distance = torch.hypot(row - y, column - x) - (4 + radius)
        vesicles = torch.maximum(vesicles, torch.exp(-((distance / 1.4) ** 2)))
    target = (2 * vesicles - 1)[None, None]
    return target, blur(target, 2.5) + 0.05 * torch.randn(target.shape, generator=generator)


@dataclass
class Exact:
    """A problem with a known answer: y given x is normal in every pixel. It takes the place of a trained model."""

    rule: LearnedSchedule
    mean: Tensor
    std: Tensor
    target_channels: int = 1

    def schedule(self, condition: Tensor) -> Schedule:
        """Bind the schedule."""
        return self.rule(condition)

    def read(self, condition: Tensor) -> Known:
        """Nothing is added back."""
        return Known(condition, None, 1.0)

    def predict(self, noisy: Tensor, log_gamma: Tensor, seen: Tensor) -> Tensor:
        """The mean of the clean image given the noisy one, in closed form."""
        a, s = amplitudes(log_gamma)
        gain = a * self.std.square() / ((a * self.std).square() + s.square())
        return self.mean + gain * (noisy - a * self.mean)


def problem() -> tuple[Exact, Tensor, Tensor]:
    """The exact model, the target and the condition."""
    target, condition = specimen()
    edges = blur((target - blur(target, 3)).abs(), 1.0)
    edges = edges / edges.max()
    std = 0.03 + 0.3 * edges
    mean = target + std * torch.randn(target.shape, generator=torch.Generator().manual_seed(5))
    rates = 9 + 20 * blur((condition > -0.75).float(), 1.5)

    def by_hand(_: Tensor) -> Tensor:
        fraction = (rates - rule.rate_min) / (rule.rate_max - rule.rate_min)
        return torch.logit(fraction) - rule.raw_init

    rule = LearnedSchedule(by_hand)
    return Exact(rule, mean, std), target, condition


def show(plot: Any, image: Tensor, title: str, cmap: str, low: float, high: float) -> Any:
    """One image without axes."""
    picture = plot.imshow(image.squeeze(), cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
    plot.set_title(title, fontsize=10)
    plot.set(xticks=[], yticks=[])
    return picture


def places(rate: Tensor) -> dict[str, tuple[int, int, str]]:
    """A pixel on structure and one in the background."""
    fast, slow = (divmod(int(index), SIDE) for index in (rate.argmax(), rate.argmin()))
    return {"structure": (*fast, BLUE), "background": (*slow, ORANGE)}  # as in sfumato.figures.schedule_and_samples


@torch.no_grad()
def draw_schedule(model: Exact, target: Tensor, condition: Tensor) -> Any:
    """Measurement, target, rate map, and gamma(t) at two pixels and between."""
    schedule = model.schedule(condition)
    rate = schedule.rate.squeeze()
    figure = new_figure(11, 2.9)
    plots = figure.subplots(1, 4, gridspec_kw={"width_ratios": [1, 1, 1.18, 1.35]})
    show(plots[0], condition, "x, what was measured", "gray", -1, 1)
    show(plots[1], target, "y, what is sought", "gray", -1, 1)
    picture = show(plots[2], rate, r"$\lambda(x)$, the rate of each pixel", "viridis", 8, float(rate.max()))
    figure.colorbar(picture, ax=plots[2], label=r"rate $\lambda$ (no unit)")
    time = torch.linspace(0, 1, 201)
    rho = schedule.warp(time).rho
    band = [torch.exp(-bound * rho) for bound in (rate.min(), rate.max())]
    plots[3].fill_between(time, *band, color="0.85", label="all pixels")
    for name, (row, column, colour) in places(rate).items():
        plots[2].plot(column, row, "o", color=colour, markersize=9, markeredgecolor="white", markeredgewidth=1.5)
        plots[3].plot(time, torch.exp(-rate[row, column] * rho), color=colour, label=name, linewidth=2)
    plots[3].set(xlabel="t", title=r"$\gamma(t, x) = e^{-\lambda(x)\,\rho(t)}$", xlim=(0, 1), ylim=(0, 1.02))
    plots[3].set_ylabel("share of signal")
    plots[3].title.set_fontsize(10)
    plots[3].legend(fontsize=8, frameon=False)
    return figure


@torch.no_grad()
def draw_forward(model: Exact, target: Tensor, condition: Tensor) -> Any:
    """Above the share of signal in every pixel, below the noisy image, at five times."""
    schedule = model.schedule(condition)
    eps = torch.randn(target.shape, generator=torch.Generator().manual_seed(1))
    figure = new_figure(11, 4.7)
    plots = figure.subplots(2, len(TIMES))
    for column, t in enumerate(TIMES):
        log_gamma = schedule.log_gamma(torch.tensor(t))
        signal = show(plots[0, column], log_gamma.exp(), f"t = {t:g}", "viridis", 0, 1)
        noisy = show(plots[1, column], diffuse(target, eps, log_gamma), "", "gray", -2, 2)
    plots[0, 0].set_ylabel(r"$\gamma(t, x)$")
    plots[1, 0].set_ylabel(r"$z_t$")
    figure.colorbar(signal, ax=plots[0], label="share of signal", pad=0.01)
    figure.colorbar(noisy, ax=plots[1], label="intensity, normalised", pad=0.01)
    return figure


@torch.no_grad()
def draw_reverse(model: Exact, target: Tensor, condition: Tensor) -> Any:
    """Above the state on its way from noise to a draw, below what the denoiser says of it; then many draws."""
    num_steps = 16
    watched: list[tuple[float, Tensor, Tensor]] = []

    class Watched(Exact):
        def predict(self, noisy: Tensor, log_gamma: Tensor, seen: Tensor) -> Tensor:
            clean = super().predict(noisy, log_gamma, seen)
            watched.append((float(log_gamma.exp().mean()), noisy, clean))
            return clean

    spy = Watched(model.rule, model.mean, model.std)
    noise = NoiseField(seed=0)
    sample(spy, condition, num_samples=1, num_steps=num_steps, seed=noise)
    posterior = Posterior(128).add(sample(model, condition, num_samples=128, num_steps=num_steps, seed=1))

    figure = new_figure(11, 4.7)
    plots = figure.subplots(2, 5)
    for column, step in enumerate((0, 5, 8, num_steps - 1)):
        gamma, noisy, clean = watched[step]
        show(plots[0, column], noisy, f"call {step + 1} of {num_steps}", "gray", -1.5, 1.5)
        grey = show(plots[1, column], clean, f"mean $\\gamma$ = {gamma:.2g}", "gray", -1.5, 1.5)
    plots[0, 0].set_ylabel(r"state $z$")
    plots[1, 0].set_ylabel(r"prediction $\hat y(z, \gamma, x)$")
    figure.colorbar(grey, ax=plots[:, :4], label="intensity, normalised", pad=0.01, shrink=0.8, extend="both")
    high = float(model.std.max())
    show(plots[0, 4], posterior.std, "spread of 128 draws", "magma", 0, high)
    spread = show(plots[1, 4], model.std, "exact standard deviation", "magma", 0, high)
    figure.colorbar(spread, ax=plots[:, 4], label="intensity, normalised", pad=0.02, shrink=0.8)
    ratio = (posterior.std.square().mean() / model.std.square().mean()).sqrt()
    print(f"spread of the draws over the exact standard deviation, root mean square: {float(ratio):.3f}")
    return figure


def draw_networks() -> None:
    """The two networks at the paper's sizes, from the networks themselves."""
    for name, base, channels in (("rate", 32, 1), ("noise", 64, 3)):
        network = UNet(channels, 1, base=base, norm="channel")
        path = FIGURES / f"method_{name}_network.svg"
        draw_network(network, channels, title=f"{name} network").savefig(path, metadata={"Date": None})


def main() -> None:
    """Draw all."""
    draw_networks()
    model, target, condition = problem()
    for name, draw in (("schedule", draw_schedule), ("forward", draw_forward), ("reverse", draw_reverse)):
        path = FIGURES / f"method_{name}.png"
        draw(model, target, condition).savefig(path)
        Image.open(path).convert("RGB").save(path, optimize=True)  # a palette would put steps into the colour bars


if __name__ == "__main__":
    main()
