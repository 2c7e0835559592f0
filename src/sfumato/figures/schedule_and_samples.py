r"""The paper's figures, each a function from arrays to a matplotlib figure.  [CVDM Figs. of Sec. 5, App. J, K, M]

Structure is where the target is above Otsu's threshold, and background is the rest; the paper names the two regions
without defining them. Nothing here touches matplotlib's global state: functions return figures, and
``figure.savefig(path)`` draws them.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from sfumato.diffusion.schedule import Schedule
from sfumato.figures.plotting import matplotlib, new_figure
from sfumato.statistics.significance import rank_correlation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_comparison", "draw_gamma", "draw_mean_and_std", "draw_sample_grid", "draw_schedule", "otsu", "zones"]

Image = NDArray[np.floating[Any]]

_STRUCTURE, _BACKGROUND, _SHADES = "#0072B2", "#D55E00", ("#009E73", "#CC79A7", "#F0E442")
_NUM_TIMES = 201
_BINS = 256


def otsu(image: Image) -> float:
    r"""The threshold that splits an image into two classes with the greatest variance between them.  [Otsu 1979]

    .. math:: \max_k\; w_0(k)\, w_1(k)\, (\mu_0(k) - \mu_1(k))^2

    over 256 bins of the image's range; the result is the edge between bins.

    Example:
        >>> otsu(np.array([0.0, 0.1, 0.0, 1.0, 0.9]))
        0.1015625
    """
    counts, edges = np.histogram(image, bins=_BINS)
    centres = (edges[:-1] + edges[1:]) / 2
    below, above = np.cumsum(counts)[:-1], len(image.ravel()) - np.cumsum(counts)[:-1]
    light = np.cumsum(counts * centres)
    gap = light[:-1] / below - (light[-1] - light[:-1]) / np.maximum(above, 1)
    return float(edges[1 + int(np.argmax(below * above * gap**2))])


def zones(variance: Image, *, number: int = 2, side: int | None = None) -> list[tuple[int, int, int]]:
    """Non-overlapping squares with the highest mean variance, as (top, left, side), the highest first.

    Args:
        variance: Shape (H, W).
        number: Number of squares.
        side: Side in pixels; by default an eighth of the shorter side, at least 12.
    """
    side = side or min(max(12, min(variance.shape) // 8), *variance.shape)
    mean = F.avg_pool2d(torch.from_numpy(np.asarray(variance, np.float64))[None, None], side, 1)[0, 0].numpy().copy()
    found = []
    for _ in range(number):
        top, left = (int(place) for place in np.unravel_index(int(mean.argmax()), mean.shape))
        if not np.isfinite(mean[top, left]):
            break
        found.append((top, left, side))
        mean[max(0, top - side + 1) : top + side, max(0, left - side + 1) : left + side] = -np.inf
    return found


def draw_schedule(schedule: Schedule, target: Image, *, what: str = "target") -> "Figure":
    """Plot beta and gamma against time, averaged over structure and over background, beside the mask.

    Args:
        schedule: Bound to one image; its first channel is drawn.
        target: Shape (H, W), split by Otsu's threshold.
        what: Description of ``target``, if it is not the truth.
    """
    figure = new_figure(13, 3.7)
    mask = target > otsu(target)
    image, parted, *plots = figure.subplots(1, 4, width_ratios=[1, 1, 1.25, 1.25])
    _show(image, target, what)
    _show(parted, mask.astype(np.float64), f"structure, {mask.mean():.0%} of pixels:\nabove Otsu's threshold", (-1, 1))
    parted.images[0].set_cmap(matplotlib().colors.ListedColormap([_BACKGROUND, _BACKGROUND, _STRUCTURE]))
    regions = {"structure": (mask, _STRUCTURE, "-"), "background": (~mask, _BACKGROUND, "--")}
    t = torch.linspace(0, 1, _NUM_TIMES)
    for plot, function, label in zip(plots, ("beta", "gamma"), (r"$\beta(t, x)$", r"$\gamma(t, x)$"), strict=True):
        maps = [np.broadcast_to(_at(schedule, function, time), mask.shape) for time in t]
        for name, (region, colour, line) in regions.items():
            plot.plot(t, [float(image[region].mean()) for image in maps], line, color=colour, label=name)
        plot.set(xlabel="t", ylabel=f"{label}, mean over region", xlim=(0, 1))
        plot.set_ylim(bottom=0)
        plot.legend(frameon=False)
    return figure


def draw_gamma(schedule: Schedule) -> "Figure":
    """Plot gamma against time, averaged over all pixels, with the band that contains 90% of them."""
    figure = new_figure(5, 3.4)
    plot = figure.subplots()
    t = torch.linspace(0, 1, _NUM_TIMES)
    values = np.stack([_at(schedule, "gamma", time).ravel() for time in t])
    low, high = np.quantile(values, [0.05, 0.95], axis=1)
    plot.fill_between(t, low, high, color=_STRUCTURE, alpha=0.25, linewidth=0, label="90% of pixels")
    plot.plot(t, values.mean(1), color=_STRUCTURE, label="mean over all pixels")
    plot.set(xlabel="t", ylabel=r"$\gamma(t, x)$", xlim=(0, 1), ylim=(0, 1.02))
    plot.legend(frameon=False)
    return figure


def draw_mean_and_std(condition: Image, draws: Image, target: Image | None = None) -> "Figure":
    """Draw input, mean and std of samples and, if known, the truth and the mean's error on the same scale.

    Args:
        condition: Shape (H, W).
        draws: Shape (N, H, W).
        target: Shape (H, W).
    """
    mean, std = draws.mean(0), draws.std(0, ddof=1)
    number = 3 if target is None else 5
    figure = new_figure(2.9 * number, 3.8)
    places = figure.subplots(1, number)
    grey = _limits(mean if target is None else target)
    error = std if target is None else np.abs(mean - target)
    scale = (0, float(np.quantile(error, 0.999)))
    _show(places[0], condition, "input")
    _show(places[1], mean, f"mean of {len(draws)} samples", grey)
    _show(places[2], std, "standard deviation", scale, bar=True)
    if target is not None:
        _show(places[3], error, "error of the mean, same scale", scale, bar=True)
        _show(places[4], target, "truth", grey)
    return figure


def draw_comparison(condition: Image, estimates: Mapping[str, Image], target: Image, *, unit: str = "") -> "Figure":
    """Draw input above truth, then a column per method: its estimate above its error, all errors on one scale.

    Args:
        condition: Shape (H, W).
        estimates: Each of shape (H, W), by name of the method.
        target: Shape (H, W).
        unit: Unit of the target, for the mean absolute errors in the titles.
    """
    figure = new_figure(2.3 * (1 + len(estimates)), 5.4)
    columns = figure.subplots(2, 1 + len(estimates)).T
    grey = _limits(target)
    errors = {name: np.abs(estimate - target) for name, estimate in estimates.items()}
    top = float(np.quantile(np.stack([*errors.values()]), 0.995))
    _show(columns[0][0], condition, "input")
    _show(columns[0][1], target, "truth", grey)
    for column, (name, error) in zip(columns[1:], errors.items(), strict=True):
        _show(column[0], estimates[name], name, grey)
        _show(column[1], error, f"error, mean {error.mean():.3g} {unit}".strip(), (0, top), bar=True)
    return figure


def draw_sample_grid(condition: Image, draws: Image, beta: Image, target: Image | None = None) -> "Figure":
    """Draw samples with their errors, sample variance beside the integral of beta, and insets of the highest variance.

    Args:
        condition: Shape (H, W).
        draws: Shape (N, H, W); the first five are shown, all are used for the variance.
        beta: Integral of beta over time, shape (H, W).
        target: Shape (H, W); without it, samples are compared with their mean.
    """
    shown, variance, mean = draws[:5], draws.var(0, ddof=1), draws.mean(0)
    against, word = (mean, "mean") if target is None else (target, "truth")
    boxes = zones(variance)
    figure = new_figure(2.1 * (2 + len(shown)), 2.3 * (2 + len(boxes)))
    rows = figure.subplots(2 + len(boxes), 2 + len(shown))
    grey, own = _limits(against), _limits(condition)
    errors = np.abs(shown - against)
    top = float(np.quantile(errors, 0.999))
    correlation = rank_correlation(variance, beta)
    tied = "flat" if np.isnan(correlation) else f"rank correlation {correlation:.2f}"
    _show(rows[0, 0], condition, "input", own)
    _show(rows[0, 1], against, word if target is not None else f"mean of {len(draws)}", grey)
    _show(rows[1, 0], variance, f"variance of {len(draws)} samples", (0, float(np.quantile(variance, 0.999))), bar=True)
    _show(rows[1, 1], beta, rf"$\int\beta\,dt$, {tied}", bar=True, colours="viridis")
    for number, sample in enumerate(shown):
        _show(rows[0, 2 + number], sample, f"sample {number + 1}", grey)
        _show(rows[1, 2 + number], errors[number], f"error against {word}", (0, top), bar=True)
    for row, (box, colour) in enumerate(zip(boxes, _SHADES, strict=False), start=2):
        top_left = np.s_[box[0] : box[0] + box[2], box[1] : box[1] + box[2]]
        for column, (image, limits) in enumerate([(condition, own), (against, grey), *((s, grey) for s in shown)]):
            _outline(rows[0, column], box, colour)
            _show(rows[row, column], image[top_left], f"zone {row - 1}" if column == 0 else "", limits)
            rows[row, column].spines[:].set(visible=True, color=colour, linewidth=2)
        _outline(rows[1, 0], box, colour)
    return figure


def _at(schedule: Schedule, function: str, t: torch.Tensor) -> Image:
    """First image and channel of beta or gamma at a time, shape (H, W), or (1, 1) if the same everywhere."""
    return np.asarray(getattr(schedule, function)(t.to(schedule.rate))[0, 0].detach().cpu().numpy())


def _limits(image: Image) -> tuple[float, float]:
    low, high = np.quantile(image, [0.001, 0.999])
    return float(low), float(high)


def _show(
    place: Any,
    image: Image,
    title: str,
    limits: tuple[float, float] | None = None,
    *,
    bar: bool = False,
    colours: str | None = None,
) -> None:
    """Draw an image in grey or, with a colour bar, as a map of numbers."""
    low, high = limits or _limits(image)
    drawn = place.imshow(image, cmap=colours or ("inferno" if bar else "gray"), vmin=low, vmax=high)
    place.set_title(title, fontsize=9)
    place.set(xticks=[], yticks=[])
    place.spines[:].set_visible(False)
    if bar:
        # Below the image, so that images with and without a bar have the same size.
        scale = place.figure.colorbar(drawn, cax=place.inset_axes((0, -0.07, 1, 0.04)), orientation="horizontal")
        digits = max(0, 1 - math.floor(math.log10(max(high - low, 1e-12))))
        scale.set_ticks([low, high], labels=[f"{low:.{digits}f}", f"{high:.{digits}f}"], fontsize=7)
        for label, side in zip(scale.ax.get_xticklabels(), ("left", "right"), strict=True):
            label.set_horizontalalignment(side)


def _outline(place: Any, box: tuple[int, int, int], colour: str) -> None:
    top, left, side = box
    square = matplotlib().patches.Rectangle((left - 0.5, top - 0.5), side, side, fill=False, edgecolor=colour)
    place.add_patch(square)
