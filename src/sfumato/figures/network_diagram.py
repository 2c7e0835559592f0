"""Draw a diagram of a network from a run: the network runs once, and the input and output of each part are recorded.

Skips are found too: some of a part's input channels are exactly equal to the output of an earlier part.
"""

from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from sfumato.figures.plotting import matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["NetworkPart", "draw_network", "full_side", "trace"]

_COLOURS = (
    *("#56B4E9", "#E69F00", "#00B386", "#CC79A7", "#F0E442", "#E8743B", "#AAAAAA", "#5A9BD4"),
    *("#C5B0D5", "#C49C94", "#9EDAE5", "#DBDB8D"),
)


class NetworkPart(NamedTuple):
    """One part of a network as it ran."""

    name: str
    made_of: str
    """Its layers with weights, counted."""
    takes: int
    """Channels in."""
    gives: int
    """Channels out."""
    side: int
    """Side of its output, in pixels."""
    skip: int | None
    """Number of the earlier part whose output it also takes."""


@torch.no_grad()
def trace(network: nn.Module, in_channels: int, *, ndim: int = 2) -> list[NetworkPart]:
    """Run a network on a small image of noise and list its parts in the order in which they ran."""
    seen: list[tuple[str, nn.Module, Tensor, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda m, given, made, name=name: seen.append((name, m, given[0], made)))
        for name, module in _parts(network)
    ]
    try:
        like, shape = next(network.parameters()), [1, in_channels, *[full_side(network)] * ndim]
        network(torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(like))
    finally:
        for hook in hooks:
            hook.remove()
    parts: list[NetworkPart] = []
    for number, (name, module, given, made) in enumerate(seen):
        before = [earlier for *_, earlier in seen[: max(number - 1, 0)]]
        skip = next((i for i in range(len(before) - 1, -1, -1) if _holds(given, before[i])), None)
        parts.append(NetworkPart(name, _made_of(module), given.shape[1], made.shape[1], made.shape[-1], skip))
    return parts


def full_side(network: nn.Module) -> int:
    """Side of a small image that the network accepts without padding."""
    return max(16, int(getattr(network, "stride", 1)))


def _holds(given: Tensor, earlier: Tensor) -> bool:
    """Whether the first or the last channels of an input are an earlier output."""
    channels = earlier.shape[1]
    if given.shape[2:] != earlier.shape[2:] or channels >= given.shape[1]:
        return False
    return bool(torch.equal(given[:, :channels], earlier) or torch.equal(given[:, -channels:], earlier))


def draw_network(network: nn.Module, in_channels: int, *, title: str = "", ndim: int = 2) -> "Figure":
    """Draw the parts from left to right, lower where the image is coarser, with their channels and skips.

    Args:
        network: Any network that has parts, such as those of :mod:`sfumato.nn`.
        in_channels: Channels of its input.
        title: Purpose of the network.
        ndim: 2 for images, 3 for volumes.
    """
    library = matplotlib()
    parts, full = trace(network, in_channels, ndim=ndim), full_side(network)
    kinds = list(dict.fromkeys(part.made_of for part in parts))
    colours = {kind: _COLOURS[number % len(_COLOURS)] for number, kind in enumerate(kinds)}
    sides = sorted({full, *(part.side for part in parts)}, reverse=True)
    level = {side: -place for place, side in enumerate(sides)}
    height, legend = 1.1 * len(sides) + 0.8, 0.3 + 0.2 * len(kinds)
    figure: Figure = library.figure.Figure(figsize=(max(8.0, 0.68 * len(parts) + 1.5), height + legend), dpi=150)
    plot = figure.add_axes((0.07, legend / (height + legend), 0.92, (height - 0.4) / (height + legend)))
    for number, part in enumerate(parts):
        _draw_part(plot, library.patches, parts, number, level, colours[part.made_of])
    count = sum(parameter.numel() for parameter in network.parameters())
    words = f"channels: {in_channels} in, {parts[-1].gives} out, {count:,} weights; dashed: skips"
    plot.set_title(f"{title or type(network).__name__}: {words}", fontsize=10)
    plot.set(xlim=(-0.8, len(parts) - 0.2), ylim=(-len(sides) + 0.5, 1.0), xticks=[])
    plot.set_yticks([level[side] for side in sides], [_size(side, full) for side in sides], fontsize=8)
    plot.tick_params(length=0)
    plot.spines[:].set_visible(False)
    handles = [
        library.patches.Patch(facecolor=colour, edgecolor="#333", label=kind) for kind, colour in colours.items()
    ]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.05, 0.0), fontsize=7, frameon=False)
    return figure


def _draw_part(
    plot: Any, patches: ModuleType, parts: list[NetworkPart], number: int, level: dict[int, int], colour: str
) -> None:
    part = parts[number]
    y = level[part.side]
    plot.add_patch(
        patches.Rectangle((number - 0.4, y - 0.27), 0.8, 0.54, facecolor=colour, edgecolor="#333", linewidth=0.6)
    )
    plot.text(number, y + 0.09, part.name, ha="center", va="center", fontsize=6.5)
    plot.text(number, y - 0.12, f"{part.takes}→{part.gives}", ha="center", va="center", fontsize=6)
    plain: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 7, "shrinkA": 0, "shrinkB": 0, "linewidth": 0.8}
    if number:
        before = (number - 0.6, level[parts[number - 1].side])
        plot.add_patch(patches.FancyArrowPatch(before, (number - 0.4, y), color="#333", **plain))
    if part.skip is not None:
        start = (part.skip, level[parts[part.skip].side] + 0.27)
        bend = f"arc3,rad={-min(0.25, 1.2 / (number - part.skip + 3)):.3f}"
        dashed = {**plain, "color": "#888", "linestyle": "--", "connectionstyle": bend}
        plot.add_patch(patches.FancyArrowPatch(start, (number, y + 0.27), **dashed))


def _size(side: int, full: int) -> str:
    if side == full:
        return "full size"
    return f"1/{full // side}" if side < full else f"x {side // full}"


def _parts(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The network's own parts; lists are expanded."""
    for name, child in network.named_children():
        if isinstance(child, nn.ModuleList):
            yield from ((f"{name} {number}", part) for number, part in enumerate(child))
        elif any(True for _ in child.parameters()):
            yield name, child


def _made_of(module: nn.Module) -> str:
    """A description such as `2 Conv2d 3x3, 2 ChannelNorm`."""
    counts: Counter[str] = Counter()
    for layer in module.modules():
        if not list(layer.children()) and list(layer.parameters()):
            size = getattr(layer, "kernel_size", ())
            halves = isinstance(layer, nn.Conv2d | nn.Conv3d) and layer.stride[0] == 2
            words = [type(layer).__name__, "x".join(map(str, size)), "halving" if halves else ""]
            counts[" ".join(filter(None, words))] += 1
    return ", ".join(f"{number} {kind}" if number > 1 else kind for kind, number in counts.items())
